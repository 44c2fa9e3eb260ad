"""The chain of a run's jobs (`raw/chain.jsonl`), held against the jobs' folders and Slurm's own records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from shakedown.bundle.findings import Finding
from shakedown.bundle.links import Placed, SignedLink, chain_findings, placed, signature_findings
from shakedown.collect.window import CLOCKS_S, moment
from shakedown.records.base import Record
from shakedown.records.errors import BadInput
from shakedown.records.order import Digest, Moment, Order
from shakedown.records.reading import LARGEST_OUTPUT, read_evidence, read_output
from shakedown.records.results import JobRecord
from shakedown.records.untrusted import complete_lines
from shakedown.run.chain import ACCOUNT, CHAIN, FIRST, JOB
from shakedown.run.folder import RAW
from shakedown.run.ownership import STDERR
from shakedown.slurm.client import parse_show_job

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
) -> Iterator[Finding]:
    """Yield where the chain is broken, and which jobs of the bundle are not those in it.

    `records` are the jobs by folder, `ordered` the order's digest, `sums` the SHA-256 of the bundle's files.
    """
    if PLACE not in sums:
        yield Finding(PLACE, "is missing: nothing says which jobs there were")
        return
    before, last = FIRST, order.not_before
    latest: dict[str, ChainLine] = {}
    links: list[Placed] = []
    for number, raw in complete_lines(read_evidence(folder / PLACE)):
        try:
            entry = _Entry.model_validate_json(raw)
            line = ChainLine.model_validate_json(entry.line)
        except ValidationError:
            yield Finding(PLACE, f"line {number} is none of the chain")
            return
        if line.number != number or line.before != before:
            yield Finding(PLACE, f"chain broken: line {number} does not follow the one before")
        if line.order != ordered:
            yield Finding(PLACE, f"line {number} is of another order")
        if line.time < last:
            yield Finding(PLACE, f"chain broken: line {number} is of before, {line.time}")
        if not order.not_before <= line.time <= order.not_after:
            yield Finding(PLACE, f"out of time: line {number} is of {line.time}")
        if order.submit is not None:
            yield from _signed(entry, number, links)
        before, last = hashlib.sha256(raw).hexdigest(), line.time
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


def _signed(entry: _Entry, number: int, links: list[Placed]) -> Iterator[Finding]:
    link = None
    if entry.link is not None and entry.signature is not None:
        link = placed(PLACE, SignedLink(link=entry.link, signature=entry.signature))
    if link is None or link.link.digest != hashlib.sha256(entry.line.encode()).hexdigest():
        why = f" ({entry.unsigned[:120]})" if entry.unsigned else ""
        yield Finding(PLACE, f"unsigned: line {number} is not signed by the submit host{why}")
    else:
        links.append(link)


def _of_jobs(
    folder: Path, latest: Mapping[str, ChainLine], records: Mapping[str, JobRecord], sums: Mapping[str, str]
) -> Iterator[Finding]:
    for name, line in latest.items():
        files: dict[str, str | None] = {JOB: line.job, ACCOUNT: line.account}
        if "stderr" in line.model_fields_set and not _is_too_large(folder / RAW / name / STDERR):
            files[STDERR] = line.stderr
        for file, due in files.items():
            found = sums.get(f"{RAW}/{name}/{file}")
            if found == due:
                continue
            if found is None:
                yield Finding(
                    f"{RAW}/{name}/{file}", "chain broken: the job was run and this is not in the bundle"
                )
            else:
                yield Finding(f"{RAW}/{name}/{file}", "was changed after the job had ended")
    for name, record in records.items():
        if record.job is not None and name not in latest:
            yield Finding(f"{RAW}/{name}", "is no job of the chain: nothing says that it was run here")


def _is_too_large(path: Path) -> bool:
    """Return whether a file is one that nobody reads: it has no digest in the chain."""
    return path.exists() and path.stat().st_size > LARGEST_OUTPUT


def _account(folder: Path, name: str, record: JobRecord, order: Order) -> Iterator[Finding]:
    """Yield where job.json says something else than Slurm's own record of the job."""
    place = f"{RAW}/{name}/{JOB}"
    began = moment(record.started) if record.started else None
    from_, to = moment(order.not_before), moment(order.not_after)
    slack = timedelta(seconds=CLOCKS_S)
    if began and from_ and to and not from_ - slack <= began <= to + slack:
        yield Finding(place, f"out of time: the job began {record.started}")
    try:
        text = read_output(folder / RAW / name / ACCOUNT).decode("utf-8", "replace")
    except BadInput:
        return  # named as missing
    if not text.strip():
        return  # Slurm had forgotten the job: the nodes' signatures stand alone
    try:
        state = parse_show_job(next(iter(text.splitlines())))
    except BadInput as refused:
        yield Finding(f"{RAW}/{name}/{ACCOUNT}", refused.what)
        return
    said = {"job": state.job, "state": state.state}
    for field, value in said.items():
        if (written := getattr(record, field)) != value and record.problem is None:
            yield Finding(place, f"says {field} {written}, Slurm's own record {value}")
