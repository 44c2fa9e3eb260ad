"""nccl-tests: its numbers, and NCCL's logs of the same runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.base.metrics import Output, Read, Value
from shakedown.benchmarks.base.pinning import judge_pinning
from shakedown.benchmarks.base.rates import longer_than_recorded
from shakedown.benchmarks.gpu.at_end import disturbed
from shakedown.benchmarks.gpu.metrics import power
from shakedown.benchmarks.nccl.log import parse_nccl_log
from shakedown.benchmarks.nccl.log_model import NcclChoice
from shakedown.benchmarks.nccl.order import NcclOrder
from shakedown.benchmarks.nccl.output import parse_nccl
from shakedown.benchmarks.nccl.output_check import precise_busbw_gb_per_s
from shakedown.benchmarks.nccl.output_model import NcclResult, NcclRow, NcclTiming, checked
from shakedown.benchmarks.nccl.server_power import server_power
from shakedown.benchmarks.nccl.transport import judge_log
from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput
from shakedown.statistics.robust import median


def nccl(output: Output[NcclOrder]) -> Iterator[Value]:
    """Yield time or busbw, and wrong elements, of every size; the median of all repeats.

    Out of place, as the published figures are; wrong elements of both.
    """
    order = output.order
    chosen = _choices(output)
    runs = repeats(output)
    somewhere = wrong_somewhere(runs)
    busy = disturbed(output.folder, {node: range(count) for node, count in order.gpus.items()})
    unplaced = f"nccl-tests' footer says {somewhere} out of bounds, FAILED, and no row of its run has any"
    said = "; ".join(x for x in (unplaced if somewhere else "", _last_error(runs)) if x)
    for size, rows in planned_rows(runs, output.record.test, order):
        short = size < order.time_below_bytes
        timed = [(run, row, deciding(row)) for run, row in zip(runs, rows, strict=True)]
        samples = tuple(t.time_us if short else precise_busbw_gb_per_s(run, row, t) for run, row, t in timed)
        metric, unit, better = ("time", "us", Better.LOWER) if short else ("busbw", "GB/s", Better.HIGHER)
        if any(row.size_bytes == 0 for row in rows):
            for name, its_unit, side in ((metric, unit, better), ("wrong", "1", Better.LOWER)):
                yield Read(
                    name, None, its_unit, side, {"size_bytes": size}, "rounded down to 0 bytes: no data moved"
                )
            continue
        many = samples if len(samples) > 1 else ()
        params: Params = {"size_bytes": size}
        told = chosen.get(size, "")
        yield Read(metric, median(samples), unit, better, params, told, many, disturbed=busy)
        wrong = float(wrong_elements(rows) or somewhere)
        yield Read("wrong", wrong, "1", Better.LOWER, {"size_bytes": size}, said)
    if order.power:
        yield from power(output, order.gpus)
    if order.server_power:
        yield server_power(output)


def repeats(output: Output[NcclOrder]) -> list[NcclResult]:
    """Return every repeat of an output, each checked to be what was planned. Raises BadInput."""
    others = [_sibling(output, number) for number in range(2, output.order.repeats + 1)]
    runs = [(output.file, output.text), *others]
    first: dict[str, str] = {}
    for file, text in runs:
        if first.setdefault(text, file.name) != file.name:
            raise BadInput(f"is {first[text]} once more", fix="run it again: a copy is no repeat", file=file)
    found = [_checked(parse_nccl(text, file=file), output, file) for file, text in runs]
    for (file, _), one in zip(runs, found, strict=True):
        if _where(one) != _where(found[0]):
            what = f"ran elsewhere or with another NCCL than {runs[0][0].name}"
            raise BadInput(what, fix="run it again: that is no repeat", file=file)
    if too_long := longer_than_recorded(sum(map(_counted_s, found)), output.record):
        raise BadInput(too_long, fix="run it again", file=output.file)
    return found


def _counted_s(run: NcclResult) -> float:
    """Return for how long a run measured: its times are of one iteration each."""
    timings = (t for row in run.rows for t in (row.out_of_place, row.in_place) if t)
    return sum(t.time_us for t in timings) * run.iterations * run.aggregated_iterations / 1e6


def _where(run: NcclResult) -> tuple[object, ...]:
    """Return what is the same in every repeat: the library, and each rank's host and GPU."""
    return run.nccl_version, [(one.rank, one.host, one.pci, one.name) for one in run.devices]


def planned_rows(runs: list[NcclResult], test: str, order: NcclOrder) -> Iterator[tuple[int, list[NcclRow]]]:
    """Yield every planned size with its row of every repeat."""
    for number, size in enumerate(order.sizes):
        if size >= order.smallest_bytes(test):
            yield size, [run.rows[number] for run in runs]


def deciding(row: NcclRow) -> NcclTiming:
    """Return the timing that decides: out of place, as the published figures are."""
    return row.out_of_place or row.in_place


def wrong_elements(rows: list[NcclRow]) -> int:
    """Return how many elements were wrong, in place and out of place."""
    return sum(t.wrong or 0 for row in rows for t in (row.out_of_place, row.in_place) if t)


def wrong_somewhere(runs: list[NcclResult]) -> int:
    """Return how many wrong elements were counted that no row shows: no size of these runs is known good."""
    return sum(run.wrong_somewhere for run in runs)


def _last_error(runs: list[NcclResult]) -> str:
    """Return what NCCL said last; it may be a warning that did no harm, so it is told and decides nothing."""
    said = dict.fromkeys(run.last_error for run in runs if run.last_error)
    return f"NCCL's last error: {'; '.join(said)}"[:900] if said else ""


def _sibling(output: Output[NcclOrder], number: int) -> tuple[Path, str]:
    name = output.record.file
    other = name.replace(".r1.", f".r{number}.")
    file = output.folder.path / other
    try:
        return file, output.folder.text(other)
    except (OSError, BadInput):
        raise BadInput(f"repeat {number} of {name} is missing", file=file) from None


def _checked(run: NcclResult, output: Output[NcclOrder], file: Path) -> NcclResult:
    """Refuse a run of something else than what was planned."""
    order = output.order
    ranks, sizes = order.ranks, len(order.sizes)
    operation = output.record.test.removeprefix("nccl_")
    what = ""
    if run.operation not in (None, operation):
        what = f"this is {run.operation}, {operation} was planned"
    elif run.ranks != ranks:
        what = f"it ran on {run.ranks} GPUs, {ranks} were planned"
    elif run.reduced_max_bytes is not None:
        what = f"nccl-tests went only to {run.reduced_max_bytes} bytes for lack of memory"
    elif len(run.rows) != sizes or run.min_bytes != order.sizes[0]:
        what = f"{len(run.rows)} sizes, {sizes} were planned"
    elif {row.dtype for row in run.rows} != {order.dtype}:
        what = f"data type {run.rows[0].dtype}, {order.dtype} was planned"
    elif (run.iterations, run.warmup_iterations) != (order.iterations, order.warmup):
        what = (
            f"it ran {run.iterations} iterations after {run.warmup_iterations} of warm-up, "
            f"{order.iterations} after {order.warmup} were planned"
        )
    elif run.validation == 0 or not checked(run.rows, operation):
        what = "the data were not checked"
    if what:
        raise BadInput(what, fix="run it as planned", file=file)
    return run


def _choices(output: Output[NcclOrder]) -> dict[int, str]:
    """Return algorithm and protocol by size from the tuning run's log; what it does not say is left out."""
    log = re.sub(r"\.r1\.txt\Z", ".tuning.log", output.record.file)
    try:
        choices = parse_nccl_log(output.folder.text(log), file=log, allow_unfinished=True).choices
    except (BadInput, OSError):
        return {}
    ranks = output.order.ranks
    return {_message_bytes(choice, ranks): f"{choice.algorithm}/{choice.protocol}" for choice in choices}


def _message_bytes(choice: NcclChoice, ranks: int) -> int:
    """Return the size as nccl-tests counts it: that of all ranks' parts together.

    NCCL that names the operation logs count * sizeof(type) (src/enqueue.cc), and the count of these two is
    one rank's.
    """
    return choice.size_bytes * (ranks if choice.operation in ("AllGather", "ReduceScatter") else 1)


def nccl_log(output: Output[NcclOrder]) -> Iterator[Value]:
    """Yield 0 or 1 for each check of the way that the data went."""
    log = parse_nccl_log(output.text, file=output.file)
    order = output.order
    pinning = [judge_pinning(output.folder, order.gpus)] if order.expect.pinned else []
    for found in (*judge_log(log, order.expect, order.gpus), *pinning):
        wrong = None if found.wrong is None else float(found.wrong)
        yield Read("wrong", wrong, "1", Better.LOWER, {"check": found.check}, found.detail)
