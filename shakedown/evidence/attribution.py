"""Which node answers for which output, along the chain of jobs."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from shakedown.evidence.job_folder import expanded, unlike_given
from shakedown.evidence.orders import digest, plan_findings
from shakedown.evidence.signatures import (
    Digest,
    Moment,
    Order,
    Placed,
    SealFinding,
    SignedLink,
    chain_findings,
    placed,
    signature_findings,
)
from shakedown.evidence.window import CLOCKS_S, clocks_ahead, job_window, moment
from shakedown.plan.jobs import Jobs, JobSpec, job_and_attempt
from shakedown.records.base import Name, Record
from shakedown.records.reading import (
    LARGEST_OUTPUT,
    BadInput,
    complete_lines,
    read_evidence,
    read_output,
    read_record,
)
from shakedown.records.results import JobRecord
from shakedown.run.chain import ACCOUNT, CHAIN, FIRST, JOB
from shakedown.run.folder import ORDER, RAW, Run
from shakedown.run.ownership import (
    BEFORE_IT_RUNS,
    CONTENTS,
    LINK,
    MANIFEST,
    STDERR,
    is_of_nodes,
    journals_of,
    writers,
)
from shakedown.slurm.client import fields, parse_show_job

PLACE = f"{RAW}/{CHAIN}"


class ChainLine(Record):
    """A job that has ended (chain.py)."""

    schema_: Literal[1] = Field(alias="schema")
    number: int = Field(ge=1)
    before: Digest
    order: Digest
    folder: Annotated[str, Field(max_length=255)]
    job: Digest
    account: Digest
    stderr: Digest | None = None  # missing: written before it was kept here
    time: Moment


class _Entry(Record):
    line: Annotated[str, Field(max_length=4096)]
    link: Annotated[str, Field(max_length=4096)] | None = None
    signature: Annotated[str, Field(max_length=16384)] | None = None
    unsigned: str | None = None


def jobs_findings(
    folder: Path, records: Mapping[str, JobRecord], order: Order, ordered: str, sums: Mapping[str, str]
) -> Iterator[SealFinding]:
    """Yield where the chain is broken, and which jobs of the bundle are not those in it.

    `records` are the jobs by folder, `ordered` the order's digest, `sums` the SHA-256 of the bundle's files.
    """
    if PLACE not in sums:
        yield SealFinding(PLACE, "is missing: nothing says which jobs there were")
        return
    before, last = FIRST, order.not_before
    latest: dict[str, ChainLine] = {}
    links: list[Placed] = []
    for number, raw in complete_lines(read_evidence(folder / PLACE)):
        try:
            entry = _Entry.model_validate_json(raw)
            line = ChainLine.model_validate_json(entry.line)
        except ValidationError:
            yield SealFinding(PLACE, f"line {number} does not belong to the chain")
            return
        if line.number != number or line.before != before:
            yield SealFinding(PLACE, f"chain broken: line {number} does not follow the one before")
        if line.order != ordered:
            yield SealFinding(PLACE, f"line {number} is of another order")
        if line.time < last:
            yield SealFinding(PLACE, f"chain broken: line {number} is of before, {line.time}")
        if not order.not_before <= line.time <= order.not_after:
            yield SealFinding(PLACE, f"out of time: line {number} is of {line.time}")
        if order.submit is not None:
            yield from _signed(entry, number, links)
        before, last = hashlib.sha256(raw).hexdigest(), line.time
        if former := latest.get(line.folder):
            lines = f"lines {former.number} and {number} of the chain"
            yield SealFinding(f"{RAW}/{line.folder}", f"ran more than once: {lines}; what was first is gone")
        latest[line.folder] = line
    yield from _of_jobs(folder, latest, records, sums)
    for name, record in records.items():
        if record.job is not None:
            yield from _account(folder, name, record, order)
    if order.submit is not None and links:
        yield from chain_findings("submit host", order.submit, links, order)
        yield from signature_findings(
            [("submit host", order.submit, max(links, key=lambda p: p.link.number))]
        )


def _signed(entry: _Entry, number: int, links: list[Placed]) -> Iterator[SealFinding]:
    link = None
    if entry.link is not None and entry.signature is not None:
        link = placed(PLACE, SignedLink(link=entry.link, signature=entry.signature))
    if link is None or link.link.digest != hashlib.sha256(entry.line.encode()).hexdigest():
        why = f" ({entry.unsigned[:120]})" if entry.unsigned else ""
        yield SealFinding(PLACE, f"unsigned: line {number} is not signed by the submit host{why}")
    else:
        links.append(link)


def _of_jobs(
    folder: Path, latest: Mapping[str, ChainLine], records: Mapping[str, JobRecord], sums: Mapping[str, str]
) -> Iterator[SealFinding]:
    for name, line in latest.items():
        files: dict[str, str | None] = {JOB: line.job, ACCOUNT: line.account}
        if "stderr" in line.model_fields_set and not _is_too_large(folder / RAW / name / STDERR):
            files[STDERR] = line.stderr
        for file, due in files.items():
            found = sums.get(f"{RAW}/{name}/{file}")
            if found == due:
                continue
            if found is None:
                yield SealFinding(
                    f"{RAW}/{name}/{file}", "chain broken: the job was run and this is not in the bundle"
                )
            else:
                yield SealFinding(f"{RAW}/{name}/{file}", "was changed after the job had ended")
    for name, record in records.items():
        # The chain holds job.json, and job.json the list of what else there was.
        if record.files is not None and sums.get(f"{RAW}/{name}/{CONTENTS}") != record.files:
            yield SealFinding(f"{RAW}/{name}/{CONTENTS}", "is not the list of when the job had ended")
        if record.job is not None and name not in latest:
            yield SealFinding(f"{RAW}/{name}", "is no job of the chain: nothing says that it was run here")


def _is_too_large(path: Path) -> bool:
    """Return whether a file is one that nobody reads: it has no digest in the chain."""
    return path.exists() and path.stat().st_size > LARGEST_OUTPUT


def _account(folder: Path, name: str, record: JobRecord, order: Order) -> Iterator[SealFinding]:
    """Yield where job.json says something else than Slurm's own record of the job."""
    place = f"{RAW}/{name}/{JOB}"
    began = moment(record.started) if record.started else None
    from_, to = moment(order.not_before), moment(order.not_after)
    # Differences: a time of the year 9999 is the last there is, and nothing can be added to it.
    if (
        began
        and from_
        and to
        and max((from_ - began).total_seconds(), (began - to).total_seconds()) > CLOCKS_S
    ):
        yield SealFinding(place, f"out of time: the job began {record.started}")
    try:
        text = read_output(folder / RAW / name / ACCOUNT).decode("utf-8", "replace")
    except BadInput:
        return  # named as missing
    if not text.strip():
        return  # Slurm had forgotten the job: the nodes' signatures stand alone
    try:
        state = parse_show_job(next(iter(text.splitlines())))
    except BadInput as refused:
        yield SealFinding(f"{RAW}/{name}/{ACCOUNT}", refused.what)
        return
    if record.problem is not None:
        return
    if state.restarts:
        yield SealFinding(place, f"Slurm's own record has {state.restarts} restarts: what was first is gone")
    said = {"job": state.job, "state": state.state, "exit_code": state.exit_code, "started": state.started}
    for field, value in (*said.items(), ("test", fields(text).get("JobName"))):
        if value is not None and (written := getattr(record, field)) != value:
            yield SealFinding(place, f"says {field} {written}, Slurm's own record {value}")
    there = set(expanded(fields(text).get("NodeList", "")))
    if there and there != set(record.nodes):
        yield SealFinding(place, f"says {', '.join(record.nodes)[:200]}, Slurm's own record other nodes")


# What holds the bundle together (checksums, a verdict that follows from the raw files) is checked before, in
# `seal.verify`; whoever has a trusted key can make all that of forged files. Here the nodes' own keys are
# asked.

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


def order_findings(
    folder: Path, order: Order, ordered: bytes, sums: Mapping[str, str]
) -> Iterator[SealFinding]:
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
        yield SealFinding(ORDER, is_there)
    run = Run(folder, simulated=True)
    jobs = run.planned_jobs
    yield from plan_findings(folder, run.plan, order)
    specs = {spec.name: spec for spec in jobs.jobs}
    ahead = {n: (s,) for n, s in clocks_ahead(run.snapshot).items() if abs(s) <= _MUNGE_S}
    links: dict[str, list[Placed]] = defaultdict(list)
    records: dict[str, JobRecord] = {}
    for name, record in run.job_records.items():
        if not isinstance(record, JobRecord):
            continue  # damaged: its cells are INCONCLUSIVE
        job, records[name] = folder / RAW / name, record
        if record.job is None and not _has_outputs(job.name, sums):
            continue  # was never submitted
        spec = specs.get(job_and_attempt(job.name)[0])
        if spec is None:
            yield SealFinding(f"{RAW}/{job.name}", "is no job of the plan")
        else:
            yield from _settings(job, jobs, spec)
            yield from _of_job(job, record, spec, order, digest(ordered), sums, ahead, links)
    for name in sorted({name.split("/")[1] for name in sums if name.count("/") > 1} - records.keys()):
        if job_and_attempt(name)[0] in specs:
            yield SealFinding(
                f"{RAW}/{name}", "has no job.json that can be read: nothing says that it was run"
            )
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
) -> Iterator[SealFinding]:
    """Yield what is wrong with a job's outputs.

    `ahead` is how far each node's clock is ahead, in seconds; `links` gets its nodes' links.
    """
    place = f"{RAW}/{job.name}"
    files = sorted(name[len(place) + 1 :] for name in sums if name.startswith(f"{place}/"))
    if record.job is None:
        yield SealFinding(
            f"{place}/job.json", "says that the job was never submitted, and there are outputs of it"
        )
    if record.test != spec.name:
        yield SealFinding(f"{place}/job.json", f"is of another job, {record.test}")
    signed: dict[str, Mapping[str, str]] = {}
    for node in spec.nodes:
        if node not in order.nodes:
            yield SealFinding(place, f"{node} is no node of the order")
            continue
        name = MANIFEST.format(node=node)
        if name not in files:
            yield SealFinding(f"{place}/{name}", f"is missing: {node} has signed nothing of this job")
            continue  # each of its files is named below as well
        try:
            manifest = read_record(job / name, Manifest)
        except BadInput as refused:
            yield SealFinding(f"{place}/{name}", refused.what)
            continue
        for file in manifest.changed:
            yield SealFinding(
                f"{place}/{file}", f"was changed after {node} had written it, before it could sign"
            )
        flaws = [*_other(manifest, node, job, record, order, ordered)]
        yield from (SealFinding(f"{place}/{name}", flaw) for flaw in flaws)
        link = _link(job, node, files)
        if link is None:
            yield SealFinding(
                f"{place}/{name}", f"unsigned: {LINK.format(node=node)} is missing or no signature"
            )
            continue
        links[node].append(link)
        if link.link.digest != sums[f"{place}/{name}"]:
            yield SealFinding(f"{place}/{name}", f"is not what {node} signed")
        elif link.link.order != ordered:
            yield SealFinding(f"{place}/{name}", "was signed for another order")
        elif not flaws:
            signed[node] = manifest.files
        window = job_window(record)
        if late := window.misses(link.link.time, of=f"{node}'s signature", ahead_s=ahead.get(node, ())):
            yield SealFinding(link.file, f"out of time: {late}")
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
) -> Iterator[SealFinding]:
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
                yield SealFinding(f"{place}/{file}", f"{unlike[0]} signed it with another content")
            continue
        others = [n for n in signed if n not in by and signed[n].get(file) == sums[f"{place}/{file}"]]
        if digests:
            why = "was changed after its node had signed it"
        elif others:
            why = f"is an output of {others[0]}, not of {owner}"
        else:
            why = f"unsigned: no word of {owner or 'a node of its job'} that it wrote this"
        yield SealFinding(f"{place}/{file}", why)
    present = set(files)
    for node, named in signed.items():
        for file in sorted(named.keys() - present):
            yield SealFinding(f"{place}/{file}", f"was signed by {node} and is not in the bundle")


def _settings(job: Path, jobs: Jobs, spec: JobSpec) -> Iterator[SealFinding]:
    """Yield which settings that a job had are not those that were planned."""
    for name in unlike_given(job, jobs, spec):
        yield SealFinding(f"{RAW}/{job.name}/{name}", "the job had other settings than were ordered")


def _journals(job: Path, files: list[str], order: Order) -> Iterator[SealFinding]:
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
                why = "does not carry the order's nonce: it was not made for this run"
            elif not is_of_nodes(str(record.get("file"))):
                why = "names a file that no node signs as its output"
            if why:
                yield SealFinding(f"{RAW}/{job.name}/{name}", f"line {number} {why}")
                break
