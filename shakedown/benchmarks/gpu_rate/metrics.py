"""The rate of every GPU, its slowest seconds, and whether it is behind the others of its node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shakedown.benchmarks.base.metrics import Output, Read, Value
from shakedown.benchmarks.gpu.metrics import samples_of
from shakedown.benchmarks.gpu.output_nvidia_smi import parse_query
from shakedown.benchmarks.gpu_rate.explain import Shown, explain, shown
from shakedown.benchmarks.gpu_rate.options import GpuRateOrder, Work
from shakedown.benchmarks.gpu_rate.output import GpuRun, parse_gpu_rate
from shakedown.records.base import Better
from shakedown.records.errors import BadInput
from shakedown.records.results import Problem
from shakedown.run.job_folder import JobFolder
from shakedown.statistics.robust import SMALLEST_CLASS, median, worse_outliers

# A rate in the unit of its references.
UNITS: Mapping[Work, tuple[str, float]] = {
    "bf16": ("TFLOP/s", 1e12),
    "fp8": ("TFLOP/s", 1e12),
    "copy": ("GB/s", 1e9),
}


def gpu_rate(output: Output[GpuRateOrder]) -> Iterator[Value]:
    """Yield median and p1 of every GPU for one kind of work, and which of them is a straggler.

    Raises:
        BadInput: the output cannot be read, or is of less than was ordered.
    """
    order, node = output.order, output.node
    work: Work = output.record.test.removeprefix("gpu_rate_")  # type: ignore[assignment]
    runs = parse_gpu_rate(output.text, file=output.file)
    _as_ordered(output, runs, work)
    unit, scale = UNITS[work]
    unable = {run.gpu: run.cannot[work] for run in runs if work in run.cannot}
    able = [run for run in runs if run.gpu not in unable]
    seen = {run.gpu: _shown(output, run, work) for run in able}
    rates = {run.gpu: [window.rate / scale for window in run.of(work)] for run in able}
    medians = {gpu: median(mine) for gpu, mine in rates.items()}
    for gpu in range(order.gpus[node]):
        if gpu in unable:
            why = Problem(kind="not-run", message=f"{node}: GPU {gpu} cannot do {work}: {unable[gpu]}"[:500])
            for metric in ("rate", "rate_p1"):
                yield Read(metric, None, unit, Better.HIGHER, {"gpu": gpu}, problem=why)
            continue
        mine, told = rates[gpu], f"{len(rates[gpu])} windows of 1 s; {seen[gpu].words()}"
        if seen[gpu].others:
            told = f"{told}; another process was on it at the end: {', '.join(seen[gpu].others)}"[:900]
        yield Read("rate", medians[gpu], unit, Better.HIGHER, {"gpu": gpu}, told, tuple(mine))
        yield Read("rate_p1", lowest(mine), unit, Better.HIGHER, {"gpu": gpu}, told)
    if order.gpus[node] >= SMALLEST_CLASS and not unable:
        yield from _stragglers(medians, seen, work, order.behind, unit)


def lowest(values: Sequence[float], share: float = 0.01) -> float:
    """Return the first percentile: the value that so few of all are below; of fewer than 100 the smallest."""
    return sorted(values)[int(share * len(values))]


def _stragglers(
    medians: Mapping[int, float], seen: Mapping[int, Shown], work: Work, effect: float, unit: str
) -> Iterator[Value]:
    order = sorted(medians)
    odd = worse_outliers([medians[gpu] for gpu in order], higher=True, min_effect=effect)
    for gpu, is_odd in zip(order, odd, strict=True):
        rest = [medians[other] for other in order if other != gpu]
        behind = 1 - medians[gpu] / median(rest)
        told = f"{medians[gpu]:.4g} {unit}, the other {len(rest)} GPUs' median is {median(rest):.4g}"
        if is_odd:
            why = explain(seen[gpu], [seen[other] for other in order if other != gpu], work, behind)
            told = f"GPU {gpu} is {behind:.1%} behind: {told}; {why}"
        yield Read("wrong", float(is_odd), "1", Better.LOWER, {"check": "straggler", "gpu": gpu}, told[:900])


def _as_ordered(output: Output[GpuRateOrder], runs: Sequence[GpuRun], work: Work) -> None:
    order, wanted = output.order, output.order.gpus[output.node]
    if sorted(run.gpu for run in runs) != list(range(wanted)):
        _less(output, f"it is of GPUs {', '.join(str(run.gpu) for run in runs)}, {wanted} were ordered")
    for run in runs:
        if (run.matrix, run.copy_bytes) != (order.matrix, order.copy_bytes):
            _less(
                output,
                f"GPU {run.gpu} worked on matrices of {run.matrix} and copies of {run.copy_bytes} bytes",
            )
        has = run.of(work)
        if work not in run.cannot and len(has) != order.seconds:
            _less(output, f"GPU {run.gpu} has {len(has)} windows of {work}, {order.seconds} were ordered")


def _less(output: Output[GpuRateOrder], what: str) -> None:
    raise BadInput(what, fix="run it as planned", file=output.file)


def _shown(output: Output[GpuRateOrder], run: GpuRun, work: Work) -> Shown:
    node, folder = output.node, output.folder
    limit: float | None = None
    others: tuple[str, ...] = ()
    name = f"gpus.{node}.after.json"
    if folder.holds(name):
        commands = _look(folder, name)
        rows = (
            parse_query(commands["gpus"]["out"], file=name).gpus if commands["gpus"]["exit_code"] == 0 else ()
        )
        me = next((row for row in rows if row["index"] == run.gpu), None)
        if me is not None:
            watts = me.get("power.limit")
            limit = float(watts) if isinstance(watts, int | float) else None
            others = _processes(commands["processes"]["out"], str(me.get("uuid")))
    return shown(samples_of(folder, node), run.gpu, run.of(work), limit_w=limit, others=others)


def _look(folder: JobFolder, name: str) -> dict[str, Any]:
    """Return what the commands of a look at the GPUs printed. Raises BadInput."""
    try:
        found: dict[str, Any] = json.loads(folder.text(name))["commands"]
        return found
    except (ValueError, LookupError, TypeError) as error:
        what = f"is no look at the GPUs: {error}"
        raise BadInput(what[:300], fix="run it again", file=folder.path / name) from None


def _processes(text: str, uuid: str) -> tuple[str, ...]:
    """Return the processes that were on a GPU: `process 1105 (638 MiB)`."""
    cells = ([cell.strip() for cell in line.split(",")] for line in text.splitlines()[1:])
    return tuple(f"process {row[1]} ({row[2]})"[:60] for row in cells if len(row) >= 3 and row[0] == uuid)
