"""What program.py prints, the rate of every GPU, and why one is behind the others of its node."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from shakedown.benchmarks.base.contract import Output, Read, Value
from shakedown.benchmarks.base.output import damaged, less, lines_of_gpus
from shakedown.benchmarks.gpu.metrics import samples_of
from shakedown.benchmarks.gpu.state import SLOWDOWNS, at_end, disturbed, reasons
from shakedown.records.base import Better, Params, Record
from shakedown.records.results import RunProblem
from shakedown.run.nic_counters import JobFolder
from shakedown.statistics.robust import SMALLEST_CLASS, behind_fellows, behind_itself, median

Work = Literal["bf16", "fp8", "copy"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CardHistory(Record):
    """What one card reached in accepted runs, a value a run."""

    software: str  # driver, PyTorch and side of the matrices of these runs: with others the rates are others
    rates: dict[Work, tuple[Positive, ...]]  # TFLOP/s; copies GB/s


class GpuRate(Record):
    """Matrix products and memory copies on every GPU, all GPUs of a node at once."""

    # bf16 and fp8: products of square matrices; copy: from a GPU's memory into the same GPU's memory.
    work: tuple[Work, ...] = Field(default=("bf16", "copy"), min_length=1)
    seconds: int = Field(default=30, ge=10, le=3600)  # windows of one second that count, of each kind of work
    # Seconds of the same work before the first window, until clocks and temperature have settled.
    warmup_s: int = Field(default=5, ge=0, le=600)
    # Side of the square matrices, in elements.
    matrix: int = Field(default=8192, ge=1024, le=65536, multiple_of=1024)
    # Bytes that one copy reads; it writes as many. Many times the cache.
    copy_bytes: int = Field(default=4 << 30, ge=1 << 26, multiple_of=4096)
    # By how much a GPU may lie behind the others of its node, a fraction of their median; needs two GPUs.
    behind: float = Field(default=0.02, gt=0, lt=1)
    # By UUID, what each card reached in accepted runs (`shakedown references cards RUN...` prints it): where
    # given, every card is held to its own, of which it may lose 0.5 %.
    own: dict[str, CardHistory] = Field(default_factory=dict)

    @property
    def timeout_s(self) -> int:
        """Seconds until a node's run is ended: its windows, and a minute for PyTorch to start."""
        return 60 + len(self.work) * 2 * (self.seconds + self.warmup_s)


class GpuRateSettings(GpuRate):
    """The site's options, and how many GPUs each node has."""

    gpus: dict[str, int]
    # Standard deviation between cards, a fraction, and of how many; None: an order of before 2026-11-28.
    spread: dict[Work, tuple[float, int]] | None = None


_SAME = 1e-6  # rounding of a rate that is printed with all its digits, beside the same from work and time
# Of the GPU's clock and the host's: they agreed to 5e-5 in each of 22 recorded series, busy GPUs among them.
_CLOCKS = 0.02


class _Header(Record):
    type: Literal["header"]
    gpu: int = Field(ge=0, le=63)
    name: str
    uuid: str
    torch: str
    matrix: int
    copy_bytes: int


class RateWindow(Record):
    """One window. `rate`: operations or bytes a second."""

    type: Literal["window"]
    work: Work
    end: Positive  # seconds since 1970
    ms: Positive  # of the GPU's own time
    done: int = Field(gt=0)  # products or copies
    rate: Positive

    @property
    def begin(self) -> float:
        """When it began, in seconds since 1970."""
        return self.end - self.ms / 1e3


class _Cannot(Record):
    type: Literal["cannot"]
    work: Work
    why: str


class _End(Record):
    type: Literal["end"]


class GpuRun(Record):
    """All that one GPU did."""

    gpu: int
    name: str
    uuid: str
    torch: str
    matrix: int
    copy_bytes: int
    windows: tuple[RateWindow, ...]
    cannot: Mapping[Work, str]  # why it cannot do a kind of work

    def of(self, work: Work) -> tuple[RateWindow, ...]:
        """The windows of one kind of work."""
        return tuple(window for window in self.windows if window.work == work)


_Line = _Header | RateWindow | _Cannot | _End
_LINE: TypeAdapter[_Line] = TypeAdapter(Annotated[_Line, Field(discriminator="type")])


def parse_gpu_rate(text: str, *, file: str | Path | None = None) -> tuple[GpuRun, ...]:
    """Read what the GPUs of one node did.

    Raises BadInput: a line that is none of ours, a GPU that did not come to its end or is there twice, a rate
    that is not what its own work and time give.
    """
    runs: dict[int, GpuRun] = {}
    windows: list[RateWindow] = []
    cannot: dict[Work, str] = {}
    about = "not a line of a GPU's rate"
    for number, header, found in lines_of_gpus(text, _LINE, _Line, about=about, file=file):
        if isinstance(found, _Header):
            windows, cannot = [], {}
        elif isinstance(found, RateWindow):
            amount = 2.0 * (header.copy_bytes if found.work == "copy" else header.matrix**3)
            implied = found.done * amount / (found.ms / 1e3)
            if abs(found.rate - implied) > _SAME * implied:
                damaged(f"rate {found.rate:.6g}, but its work and time give {implied:.6g}", file, number)
            windows.append(found)
        elif isinstance(found, _Cannot):
            cannot[found.work] = found.why
        else:
            if odd := _out_of_time(windows):
                damaged(f"GPU {header.gpu}: {odd}", file, number)
            said = header.model_dump(exclude={"type"})
            runs[header.gpu] = GpuRun(**said, windows=tuple(windows), cannot=cannot)
    return tuple(runs[gpu] for gpu in sorted(runs))


def _out_of_time(windows: list[RateWindow]) -> str:
    """Return where windows do not follow each other by the clock; empty if they do. There is no pause."""
    for work in dict.fromkeys(window.work for window in windows):
        own = [window for window in windows if window.work == work]
        if any(later.end <= earlier.end for earlier, later in pairwise(own)):
            return f"windows of {work} are out of order or doubled"
        spent_s, span_s = sum(window.ms for window in own[1:]) / 1e3, own[-1].end - own[0].end
        if abs(spent_s - span_s) > _CLOCKS * span_s:
            return f"{len(own) - 1} windows of {work} took {spent_s:.4g} s, {span_s:.4g} s by the clock"
    return ""


# Bits of nvmlClocksEventReasons (nvml.h).
_POWER_CAP = 0x04
_HEAT, _HARDWARE = (0x20, 0x40), (0x08, 0x80)
_BY_PERSON = {
    0x02: "clocks set by a person (applications clocks)",
    0x10: "sync boost",
    0x100: "display clocks",
}
_MOST = 0.2  # a reason that holds for less than this share of the samples explains no lower median
_SAME_LIMIT_W = 5.0  # what a power limit is lower by, in W, before it is called another one


@dataclass(frozen=True)
class Shown:
    """What one GPU showed during one kind of work; None: not sampled."""

    clock_mhz: float | None
    slowest_mhz: float | None
    power_w: float | None
    limit_w: float | None
    hottest_c: float | None
    reasons: Mapping[int, float]  # by bit, the share of samples that have it
    others: tuple[str, ...] = ()  # other processes that were on it when it ended
    mean_mhz: float | None = None  # finer than the median, whose steps are of 15 MHz
    index: int = 0  # the driver's number of it

    def words(self) -> str:
        """Clock, power and temperature in words."""
        if self.clock_mhz is None:
            return "not sampled"
        said = f"{self.clock_mhz:.0f} MHz (lowest {self.slowest_mhz:.0f}), {self.power_w:.0f} W"
        limit = f" of {self.limit_w:.0f}" if self.limit_w else ""
        return f"{said}{limit}, {self.hottest_c:.0f} degC"


def shown(
    samples: Iterable[Mapping[str, object]],
    gpu: int,
    windows: Sequence[RateWindow],
    *,
    limit_w: float | None = None,
    others: tuple[str, ...] = (),
) -> Shown:
    """Return what the samples say of one GPU over the time of these windows."""
    begin, end = windows[0].begin, windows[-1].end
    mine = [
        row
        for row in samples
        if row.get("index") == gpu and isinstance(at := row.get("time_s"), int | float) and begin <= at <= end
    ]
    clocks = _numbers(mine, "clocks.sm", "clocks.current.sm")
    watts, heat = _numbers(mine, "power.draw"), _numbers(mine, "temperature.gpu")
    masks = [mask for row in mine if (mask := reasons(row)) is not None]
    if not (clocks and watts and heat):
        return Shown(None, None, None, limit_w, None, {}, others, None, gpu)
    bits = {bit: sum(bool(mask & bit) for mask in masks) / len(masks) for bit in _bits(masks)}
    mean = fmean(clocks)
    return Shown(median(clocks), min(clocks), median(watts), limit_w, max(heat), bits, others, mean, gpu)


def _numbers(rows: Iterable[Mapping[str, object]], *names: str) -> list[float]:
    found = (next((row[name] for name in names if name in row), None) for row in rows)
    return [float(value) for value in found if isinstance(value, int | float)]


def _bits(masks: Sequence[int]) -> list[int]:
    every = 0
    for mask in masks:
        every |= mask
    return [1 << n for n in range(16) if every & 1 << n]


_BY_CLOCK = "at its power cap"


def explain(  # noqa: PLR0911  (one return a reason)
    mine: Shown, others: Sequence[Shown], work: str, behind: float
) -> str:
    """Say why a GPU is behind: heat, power, its clock, another process, or its memory.

    Args:
        mine: what the GPU showed.
        others: what the other GPUs of its node showed meanwhile.
        work: bf16, fp8 or copy.
        behind: by how much it is behind their median, a fraction.
    """
    names = SLOWDOWNS | _BY_PERSON
    for kind, bits in (("temperature", _HEAT), ("power", _HARDWARE), ("clock", tuple(_BY_PERSON))):
        if said := [
            f"{names[bit]} in {mine.reasons[bit]:.0%} of the samples"
            for bit in bits
            if _more(mine, others, bit)
        ]:
            return f"{kind}: {', '.join(said)}; {mine.words()}"
    limits = [other.limit_w for other in others if other.limit_w]
    if mine.limit_w and limits and mine.limit_w < median(limits) - _SAME_LIMIT_W:
        usual = median(limits)
        return f"power: its limit is {mine.limit_w:.0f} W, the others' {usual:.0f} W; {mine.words()}"
    clocks = [other.clock_mhz for other in others if other.clock_mhz]
    if mine.clock_mhz is None or not clocks:
        return "no samples of nvidia-smi tell why"
    usual = median(clocks)
    lower = 1 - mine.clock_mhz / usual
    # A product goes with the clock; copies hardly do.
    if work != "copy" and lower >= behind / 2:
        why = _BY_CLOCK if mine.reasons.get(_POWER_CAP, 0) >= _MOST else "without a reason of the driver"
        return f"clock: {lower:.1%} below the others' {usual:.0f} MHz, {why}; {mine.words()}"
    same = f"its clock is not lower than the others' {usual:.0f} MHz"
    if mine.others:
        return f"another process: {', '.join(mine.others)} was on it at the end; {same}; {mine.words()}"
    if work == "copy":
        return f"memory: {same}, and no other process was seen; see its ECC and remapped rows; {mine.words()}"
    return f"not explained: {same}, and no other process was seen; {mine.words()}"


def _more(mine: Shown, others: Sequence[Shown], bit: int) -> bool:
    """Whether the GPU had a reason for much of the time that the others did not have."""
    usual = median([other.reasons.get(bit, 0.0) for other in others]) if others else 0.0
    return mine.reasons.get(bit, 0.0) >= max(_MOST, usual + _MOST)


# A rate in the unit of its references.
UNITS: Mapping[Work, tuple[str, float]] = {
    "bf16": ("TFLOP/s", 1e12),
    "fp8": ("TFLOP/s", 1e12),
    "copy": ("GB/s", 1e9),
}


def gpu_rate(output: Output[GpuRateSettings]) -> Iterator[Value]:
    """Yield median and p1 of every GPU for one kind of work, and which of them is a straggler.

    Raises BadInput: the output cannot be read, or is of less than was ordered.
    """
    order, node = output.order, output.node
    work: Work = output.record.test.removeprefix("gpu_rate_")  # type: ignore[assignment]
    runs = parse_gpu_rate(output.text, file=output.file)
    _as_set(output, runs, work)
    unit, scale = UNITS[work]
    unable = {run.gpu: run.cannot[work] for run in runs if work in run.cannot}
    able = [run for run in runs if run.gpu not in unable]
    seen = {run.gpu: _shown(output, run, work) for run in able}
    rates = {run.gpu: [window.rate / scale for window in run.of(work)] for run in able}
    medians = {gpu: median(mine) for gpu, mine in rates.items()}
    for gpu in range(order.gpus[node]):
        if gpu in unable:
            why = RunProblem(
                kind="not-run", message=f"{node}: GPU {gpu} cannot do {work}: {unable[gpu]}"[:500]
            )
            for metric in ("rate", "rate_p1"):
                yield Read(metric, None, unit, Better.HIGHER, {"gpu": gpu}, problem=why)
            continue
        mine, told = rates[gpu], f"{len(rates[gpu])} windows of 1 s; {seen[gpu].words()}"
        busy = disturbed(output.folder, {node: [seen[gpu].index]})
        yield Read("rate", medians[gpu], unit, Better.HIGHER, {"gpu": gpu}, told, tuple(mine), disturbed=busy)
        yield Read("rate_p1", lowest(mine), unit, Better.HIGHER, {"gpu": gpu}, told, disturbed=busy)
    if order.own:
        yield from (_of_its_own(output, run, work, rates.get(run.gpu), seen.get(run.gpu)) for run in runs)
    if order.gpus[node] >= (SMALLEST_CLASS if order.spread is None else 2) and not unable:
        yield from _stragglers(output, medians, seen, work)


def called(output: Output[GpuRateSettings]) -> Iterator[str]:
    """Yield what CUDA calls each GPU."""
    yield from (run.name for run in parse_gpu_rate(output.text, file=output.file))


def lowest(values: Sequence[float]) -> float:
    """Return the first percentile: the value that so few of all are below; of fewer than 100 the smallest."""
    return sorted(values)[len(values) // 100]


# Products per clock cycle, which take out how far a card's silicon lets it clock at its power cap: standard
# deviation and number of undisturbed recorded series (h200_rate_*, h200x2_nodes_*; four of H100: 0.25 %).
_PER_CYCLE = (0.003, 13)
# Floors below `behind`, for what hardly differs between healthy cards; copies: 0.01 % on one host.
_FLOOR_PER_CYCLE, _FLOOR_COPY = 0.015, 0.005
# A card no farther behind, that does as much in each cycle and is slower by its clock at its power cap alone,
# is as its silicon is: three times what healthy cards differ by (0.93 %).
_SILICON = 0.03


def _stragglers(
    output: Output[GpuRateSettings], medians: Mapping[int, float], seen: Mapping[int, Shown], work: Work
) -> Iterator[Value]:
    order, unit, limit = sorted(medians), UNITS[work][0], output.order.behind
    rates = [medians[gpu] for gpu in order]
    spread, cards = (output.order.spread or {}).get(work, (0.0, 0))
    floor = min(limit, _FLOOR_COPY) if work == "copy" else limit
    slow = behind_fellows(rates, spread=spread, cards=cards, min_effect=floor)
    cycles = [seen[gpu].mean_mhz or 0.0 for gpu in order]
    idle: list[bool | None] = [False] * len(order)
    if work != "copy" and all(cycles):
        per_cycle = [rate / mhz for rate, mhz in zip(rates, cycles, strict=True)]
        least = min(limit, _FLOOR_PER_CYCLE)
        idle = behind_fellows(per_cycle, spread=_PER_CYCLE[0], cards=_PER_CYCLE[1], min_effect=least)
    for gpu, is_slow, does_less in zip(order, slow, idle, strict=True):
        rest = [medians[other] for other in order if other != gpu]
        behind = 1 - medians[gpu] / median(rest)
        # A card that is ahead, and does less in each cycle: fast by nature, or its clock was read too high.
        is_idle = None if does_less and behind <= 0 else does_less
        told = f"{medians[gpu]:.4g} {unit}, the other {len(rest)} GPUs' median is {median(rest):.4g}"
        odd: bool | None = is_slow or is_idle or (None if None in (is_slow, is_idle) else False)
        problem = None
        if odd is not False:
            why = explain(seen[gpu], [seen[other] for other in order if other != gpu], work, behind)
            less = "" if is_idle is False else ", and it does less in each clock cycle than they"
            lead = f"GPU {gpu} is {behind:.1%} behind" if behind > 0 else f"GPU {gpu}"
            told = f"{lead}: {told}{less}; {why}"
            if odd is None and is_idle is False and all(cycles) and behind <= _SILICON and _BY_CLOCK in why:
                odd, told = False, f"{told}; it does as much in each clock cycle as they"
        if odd is None:
            class_of = f"{cards} cards of its model differ by {spread:.2%}" if cards else "nothing published"
            told += f"; cards that are well may differ so much ({class_of}): hold it to its own history"
            problem = RunProblem(kind="other", message=told[:900])
        busy = (
            disturbed(output.folder, {output.node: [seen[gpu].index]}) if odd is False else ""
        )  # else `why` tells
        params: Params = {"check": "straggler", "gpu": gpu}
        value = None if odd is None else float(odd)
        yield Read("wrong", value, "1", Better.LOWER, params, told[:900], problem=problem, disturbed=busy)


# What one card's rate differs by from run to run, and for how many runs that counts beside its own. The worst
# of eight H200: four runs in three minutes, the first 0.67 % below the others, 0.33 %. Eight recorded runs of
# another (h200_rate_1 to _8) 0.11 %, the others 0.03 to 0.2 %. Days apart: not known.
RUN_TO_RUN = (0.0033, 8)


def software_of(run: GpuRun, folder: JobFolder, node: str) -> str:
    """Return what a card's rate depends on beside itself: driver, PyTorch, side of the matrices."""
    look = at_end(folder, node)
    drivers = {gpu.driver for gpu in look.gpus} if look else set()
    return f"{', '.join(sorted(drivers)) or 'unknown driver'}, {run.torch}, {run.matrix}"


def _of_its_own(
    output: Output[GpuRateSettings],
    run: GpuRun,
    work: Work,
    rates: Sequence[float] | None,
    seen: Shown | None,
) -> Value:
    params: Params = {"check": "own", "gpu": run.gpu}
    unit, software = UNITS[work][0], software_of(run, output.folder, output.node)
    uuid = f"GPU-{run.uuid.removeprefix('GPU-')}"
    known = output.order.own.get(uuid)
    before = known.rates.get(work, ()) if known else ()
    why = f"GPU {run.gpu} of {output.node} ({uuid}): "
    if known and known.software != software:
        why += f"its accepted runs had {known.software}, now it is {software}"
    elif not rates or not seen or not before:
        why += f"no accepted run of {work}" if rates else f"no {work} was measured"
    else:
        now = median(rates)
        slow = behind_itself(now, before, known=RUN_TO_RUN, members=output.order.gpus[output.node])
        told = f"{now:.5g} {unit}, {now / median(before) - 1:+.2%} against its own {median(before):.5g} "
        told += f"(median of {len(before)} accepted runs)"
        problem = None
        if slow is None:
            problem = RunProblem(kind="other", message=f"{why}{told}: runs may differ so much")
        busy = disturbed(output.folder, {output.node: [seen.index]})
        value = None if slow is None else float(slow)
        doubt, told = ("", f"{told}; {busy}") if slow and busy else (busy, told)
        return Read("wrong", value, "1", Better.LOWER, params, told[:900], problem=problem, disturbed=doubt)
    fix = "accept its runs anew (shakedown references cards)"
    problem = RunProblem(kind="not-run", message=f"{why}; {fix}"[:900])
    return Read("wrong", None, "1", Better.LOWER, params, problem=problem)


def _as_set(output: Output[GpuRateSettings], runs: Sequence[GpuRun], work: Work) -> None:
    order, wanted = output.order, output.order.gpus[output.node]
    if sorted(run.gpu for run in runs) != list(range(wanted)):
        less(output, f"it is of GPUs {', '.join(str(run.gpu) for run in runs)}, {wanted} were ordered")
    for run in runs:
        if (run.matrix, run.copy_bytes) != (order.matrix, order.copy_bytes):
            less(
                output,
                f"GPU {run.gpu} worked on matrices of {run.matrix} and copies of {run.copy_bytes} bytes",
            )
        has = run.of(work)
        if work not in run.cannot and len(has) != order.seconds:
            less(output, f"GPU {run.gpu} has {len(has)} windows of {work}, {order.seconds} were ordered")


def _shown(output: Output[GpuRateSettings], run: GpuRun, work: Work) -> Shown:
    node, folder = output.node, output.folder
    look = at_end(folder, node)
    there = {gpu.uuid: gpu for gpu in look.gpus} if look else {}
    # By UUID: a job's numbers follow CUDA_VISIBLE_DEVICES and its cgroup, the driver's do not.
    same = f"GPU-{run.uuid.removeprefix('GPU-')}"
    end = there.get(same) or next((gpu for gpu in there.values() if gpu.index == run.gpu), None)
    users = (look.users if look else None) or {}
    return shown(
        samples_of(folder, node),
        end.index if end else run.gpu,
        run.of(work),
        limit_w=end.limit_w if end else None,
        others=users.get(end.uuid, ()) if end else (),
    )
