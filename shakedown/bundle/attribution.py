"""Whether a bundle is what an order asked for: that plan, on those machines, each output signed by its node.

What holds the bundle together (checksums, a verdict that follows from the raw files) is checked before, in
`seal.verify`; whoever has a trusted key can make all that of forged files. Here the nodes' own keys are
asked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from shakedown.bundle.findings import Finding
from shakedown.bundle.job_chain import jobs_findings
from shakedown.bundle.links import Placed, SignedLink, chain_findings, placed, signature_findings
from shakedown.bundle.ordered_plan import plan_findings
from shakedown.bundle.orders import digest
from shakedown.collect.window import clocks_ahead, job_window
from shakedown.plan.jobs import Jobs, JobSpec, job_and_attempt
from shakedown.records.base import Name, Record
from shakedown.records.errors import BadInput
from shakedown.records.order import Digest, Order
from shakedown.records.plan import Plan
from shakedown.records.reading import read_evidence, read_record
from shakedown.records.results import JobRecord
from shakedown.records.untrusted import complete_lines
from shakedown.run.contents import SPEC, unlike_given
from shakedown.run.folder import JOBS, ORDER, PLAN, RAW
from shakedown.run.ownership import BEFORE_IT_RUNS, LINK, MANIFEST, is_of_nodes, journals_of, writers

# Munge takes no credential that is older (its TTL by default): where a clock is further off no job starts.
# How far each is off stands in the snapshot, which whoever seals can write: if more were believed, outputs
# could be signed hours after their job.
_MUNGE_S = 300.0


class Manifest(Record):
    """A node's list of its files of a job (attest.py)."""

    schema_: Literal[1] = Field(alias="schema")
    node: Name
    order: str
    nonce: str
    folder: str
    job: str
    files: dict[Annotated[str, Field(max_length=255)], Digest]
    # Files that were not what the node had noted as it wrote them: changed or removed before it could sign.
    changed: tuple[Annotated[str, Field(max_length=255)], ...] = ()


def order_findings(folder: Path, order: Order, ordered: bytes, sums: Mapping[str, str]) -> Iterator[Finding]:
    """Yield everything in which a bundle is not what was ordered.

    Args:
        folder: the bundle's.
        order: the order, and
        ordered: its bytes.
        sums: the SHA-256 of every file of the bundle.

    Raises:
        BadInput: a file that must be read cannot be.
    """
    if sums.get(ORDER) != digest(ordered):
        is_there = "is not the order that was given" if ORDER in sums else "is missing: the run had no order"
        yield Finding(ORDER, is_there)
    plan, jobs = read_record(folder / PLAN, Plan), read_record(folder / JOBS, Jobs)
    yield from plan_findings(folder, plan, order)
    specs = {spec.name: spec for spec in jobs.jobs}
    ahead = {n: (s,) for n, s in clocks_ahead(folder).items() if abs(s) <= _MUNGE_S}
    links: dict[str, list[Placed]] = defaultdict(list)
    records: dict[str, JobRecord] = {}
    for job in sorted(path.parent for path in (folder / RAW).glob("*/job.json")):
        try:
            record = read_record(job / "job.json", JobRecord)
        except BadInput:
            continue  # damaged: its cells are INCONCLUSIVE
        records[job.name] = record
        if record.job is None and not _has_outputs(job.name, sums):
            continue  # was never submitted
        spec = specs.get(job_and_attempt(job.name)[0])
        if spec is None:
            yield Finding(f"{RAW}/{job.name}", "is no job of the plan")
        else:
            yield from _of_job(job, record, spec, order, digest(ordered), sums, ahead, links)
    for name in sorted({name.split("/")[1] for name in sums if name.count("/") > 1} - records.keys()):
        if job_and_attempt(name)[0] in specs:
            yield Finding(f"{RAW}/{name}", "has no job.json that can be read: nothing says that it was run")
    yield from jobs_findings(folder, records, order, digest(ordered), sums)
    for node, chain in links.items():
        yield from chain_findings(node, order.nodes[node], chain, order)
    last = [(n, order.nodes[n], max(chain, key=lambda p: p.link.number)) for n, chain in links.items()]
    yield from signature_findings(last)


def _has_outputs(job: str, sums: Mapping[str, str]) -> bool:
    """Return whether a job's folder holds what only a job that ran leaves there, whatever job.json says."""
    names = (name.removeprefix(f"{RAW}/{job}/") for name in sums if name.startswith(f"{RAW}/{job}/"))
    return any(is_of_nodes(name) and name not in BEFORE_IT_RUNS for name in names)


def _of_job(
    job: Path,
    record: JobRecord,
    spec: JobSpec,
    order: Order,
    ordered: str,
    sums: Mapping[str, str],
    ahead: Mapping[str, tuple[float]],
    links: dict[str, list[Placed]],
) -> Iterator[Finding]:
    """Yield what is wrong with a job's outputs.

    `ahead` is how far each node's clock is ahead, in seconds; `links` gets its nodes' links.
    """
    place = f"{RAW}/{job.name}"
    files = sorted(name[len(place) + 1 :] for name in sums if name.startswith(f"{place}/"))
    yield from _settings(job, spec)
    if record.job is None:
        yield Finding(
            f"{place}/job.json", "says that the job was never submitted, and there are outputs of it"
        )
    if record.test != spec.name:
        yield Finding(f"{place}/job.json", f"is of another job, {record.test}")
    signed: dict[str, Mapping[str, str]] = {}
    for node in spec.nodes:
        if node not in order.nodes:
            yield Finding(place, f"{node} is no node of the order")
            continue
        name = MANIFEST.format(node=node)
        if name not in files:
            yield Finding(f"{place}/{name}", f"is missing: {node} has signed nothing of this job")
            continue  # each of its files is named below as well
        try:
            manifest = read_record(job / name, Manifest)
        except BadInput as refused:
            yield Finding(f"{place}/{name}", refused.what)
            continue
        for file in manifest.changed:
            yield Finding(f"{place}/{file}", f"was changed after {node} had written it, before it could sign")
        flaws = [*_other(manifest, node, job, record, order, ordered)]
        yield from (Finding(f"{place}/{name}", flaw) for flaw in flaws)
        link = _link(job, node, files)
        if link is None:
            yield Finding(f"{place}/{name}", f"unsigned: {LINK.format(node=node)} is missing or no signature")
            continue
        links[node].append(link)
        if link.link.digest != sums[f"{place}/{name}"]:
            yield Finding(f"{place}/{name}", f"is not what {node} signed")
        elif link.link.order != ordered:
            yield Finding(f"{place}/{name}", "was signed for another order")
        elif not flaws:
            signed[node] = manifest.files
        window = job_window(record)
        if late := window.misses(link.link.time, of=f"{node}'s signature", ahead_s=ahead.get(node, ())):
            yield Finding(link.file, f"out of time: {late}")
    yield from _files(
        place, files, spec, writers(files, spec.nodes, journals_of(job, spec.nodes)), signed, sums
    )
    yield from _journals(job, files, order)


def _other(
    manifest: Manifest, node: str, job: Path, record: JobRecord, order: Order, ordered: str
) -> Iterator[str]:
    """Yield in what a node's list is of something else."""
    if manifest.node != node:
        yield f"is of another node, {manifest.node}"
    if manifest.folder != job.name:
        yield f"is of another job, {manifest.folder}"
    if manifest.job != record.job:
        yield f"is of Slurm's job {manifest.job}, job.json says {record.job}"
    if manifest.order != ordered or manifest.nonce != order.nonce:
        yield "is of another order"


def _link(job: Path, node: str, files: list[str]) -> Placed | None:
    name = LINK.format(node=node)
    if name not in files:
        return None
    try:
        return placed(f"{RAW}/{job.name}/{name}", read_record(job / name, SignedLink))
    except BadInput:
        return None


def _files(
    place: str,
    files: list[str],
    spec: JobSpec,
    owners: Mapping[str, str],
    signed: Mapping[str, Mapping[str, str]],
    sums: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield files that their node did not sign as they are, and those that it signed and that are gone."""
    for file, owner in owners.items():
        by = [owner] if owner else list(spec.nodes)
        digests = {signed[node][file] for node in by if node in signed and file in signed[node]}
        # Whichever node it was: root of another one can claim the file and sign what it made of it.
        unlike = [
            n for n in signed if signed[n].get(file, sums[f"{place}/{file}"]) != sums[f"{place}/{file}"]
        ]
        if sums[f"{place}/{file}"] in digests:
            if unlike:
                yield Finding(f"{place}/{file}", f"{unlike[0]} signed it with another content")
            continue
        others = [n for n in signed if n not in by and signed[n].get(file) == sums[f"{place}/{file}"]]
        if digests:
            why = "was changed after its node had signed it"
        elif others:
            why = f"is an output of {others[0]}, not of {owner}"
        else:
            why = f"unsigned: no word of {owner or 'a node of its job'} that it wrote this"
        yield Finding(f"{place}/{file}", why)
    present = set(files)
    for node, named in signed.items():
        for file in sorted(named.keys() - present):
            yield Finding(f"{place}/{file}", f"was signed by {node} and is not in the bundle")


def _settings(job: Path, spec: JobSpec) -> Iterator[Finding]:
    """Yield whether the settings that a job had are not those that were planned."""
    if SPEC in unlike_given(job, spec):
        yield Finding(f"{RAW}/{job.name}/{SPEC}", "the job had other settings than were ordered")


def _journals(job: Path, files: list[str], order: Order) -> Iterator[Finding]:
    """Yield the journals with a record not made under the order, or of an output that no node signs."""
    for name in files:
        if not (name.startswith("outputs") and name.endswith(".jsonl")):
            continue
        for number, line in complete_lines(read_evidence(job / name)):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue  # costs its cells
            why = ""
            if not isinstance(record, dict) or record.get("nonce") != order.nonce:
                why = "does not bear the order's nonce: it was made for another run, or none"
            elif not is_of_nodes(str(record.get("file"))):
                why = "names a file that no node signs as its output"
            if why:
                yield Finding(f"{RAW}/{job.name}/{name}", f"line {number} {why}")
                break
