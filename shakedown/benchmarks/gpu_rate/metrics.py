"""The rate of every GPU, its slowest seconds, and whether it is behind the others of its node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shakedown.benchmarks.base.metrics import Output, Read, Value
from shakedown.benchmarks.gpu.at_end import at_end, disturbed
from shakedown.benchmarks.gpu.metrics import samples_of
from shakedown.benchmarks.gpu_rate.explain import Shown, explain, shown
from shakedown.benchmarks.gpu_rate.options import GpuRateOrder, Work
from shakedown.benchmarks.gpu_rate.output import GpuRun, parse_gpu_rate
from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput
from shakedown.records.results import Problem
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
        busy = disturbed(output.folder, {node: [gpu]})
        yield Read("rate", medians[gpu], unit, Better.HIGHER, {"gpu": gpu}, told, tuple(mine), disturbed=busy)
        yield Read("rate_p1", lowest(mine), unit, Better.HIGHER, {"gpu": gpu}, told, disturbed=busy)
    if order.gpus[node] >= SMALLEST_CLASS and not unable:
        yield from _stragglers(output, medians, seen, work)


def lowest(values: Sequence[float], share: float = 0.01) -> float:
    """Return the first percentile: the value that so few of all are below; of fewer than 100 the smallest."""
    return sorted(values)[int(share * len(values))]


def _stragglers(
    output: Output[GpuRateOrder], medians: Mapping[int, float], seen: Mapping[int, Shown], work: Work
) -> Iterator[Value]:
    order, unit = sorted(medians), UNITS[work][0]
    odd = worse_outliers([medians[gpu] for gpu in order], higher=True, min_effect=output.order.behind)
    for gpu, is_odd in zip(order, odd, strict=True):
        rest = [medians[other] for other in order if other != gpu]
        behind = 1 - medians[gpu] / median(rest)
        told = f"{medians[gpu]:.4g} {unit}, the other {len(rest)} GPUs' median is {median(rest):.4g}"
        if is_odd:
            why = explain(seen[gpu], [seen[other] for other in order if other != gpu], work, behind)
            told = f"GPU {gpu} is {behind:.1%} behind: {told}; {why}"
        busy = "" if is_odd else disturbed(output.folder, {output.node: [gpu]})  # else `why` tells
        params: Params = {"check": "straggler", "gpu": gpu}
        yield Read("wrong", float(is_odd), "1", Better.LOWER, params, told[:900], disturbed=busy)


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
    look = at_end(folder, node)
    end = next((gpu for gpu in look.gpus if gpu.index == run.gpu), None) if look else None
    users = (look.users if look else None) or {}
    return shown(
        samples_of(folder, node),
        run.gpu,
        run.of(work),
        limit_w=end.limit_w if end else None,
        others=users.get(end.uuid, ()) if end else (),
    )
