"""What a GPU showed while it worked, and why it was behind the others of its node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shakedown.benchmarks.gpu.output_look import reasons
from shakedown.benchmarks.gpu_rate.output import Window
from shakedown.statistics.robust import median

# Bits of nvmlClocksEventReasons (nvml.h).
_POWER_CAP = 0x04
_HEAT = {0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown"}
_HARDWARE = {0x08: "hardware slowdown", 0x80: "hardware power brake"}
_BY_PERSON = {
    0x02: "clocks set by a person (applications clocks)",
    0x10: "sync boost",
    0x100: "display clocks",
}
# A reason that holds for less than this share of the samples explains no lower median.
_MOST = 0.2
# What a power limit is lower by, in W, before it is called another one.
_SAME_LIMIT_W = 5.0


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
    windows: Sequence[Window],
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
        return Shown(None, None, None, limit_w, None, {}, others)
    bits = {bit: sum(bool(mask & bit) for mask in masks) / len(masks) for bit in _bits(masks)}
    return Shown(median(clocks), min(clocks), median(watts), limit_w, max(heat), bits, others)


def _numbers(rows: Iterable[Mapping[str, object]], *names: str) -> list[float]:
    found = (next((row[name] for name in names if name in row), None) for row in rows)
    return [float(value) for value in found if isinstance(value, int | float)]


def _bits(masks: Sequence[int]) -> list[int]:
    every = 0
    for mask in masks:
        every |= mask
    return [1 << n for n in range(16) if every & 1 << n]


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
    for kind, names in (("temperature", _HEAT), ("power", _HARDWARE), ("clock", _BY_PERSON)):
        if said := [
            f"{name} in {mine.reasons[bit]:.0%} of the samples"
            for bit, name in names.items()
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
        why = (
            "at its power cap"
            if mine.reasons.get(_POWER_CAP, 0) >= _MOST
            else "without a reason of the driver"
        )
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
