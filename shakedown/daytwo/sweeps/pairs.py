"""Sweeps of collectives over two networks or configurations, side by side: ratio per operation and size.

A pair is the same operation, size, data type, number of nodes, launcher and split on two sides; all else that
differs is named, for a ratio is the work of everything that differs together. Readings describe, they are no
verdict: three repeats against three cannot be told apart by any rank test at 5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shakedown.benchmarks.inference.peak import NOISE_FLOOR, difference
from shakedown.daytwo.sweeps.sides import (
    Combination,
    Differing,
    Draw,
    Samples,
    Side,
    Sweep,
    changes,
    differing,
    node_names,
    uncompared,
)
from shakedown.statistics.robust import median

# The number of sides that one figure can tell apart.
MOST_SIDES = 4
_MOST_LISTED = 4  # sizes of one reason


@dataclass(frozen=True)
class Value:
    """Median, least and most of the repeats."""

    median: float
    least: float
    most: float
    samples: int


@dataclass(frozen=True)
class Ratio:
    """A side over the baseline: of the medians, and between the extremes of all repeats of both.

    `least` and `most` are None where a side has one sample and so no known spread.
    """

    value: float
    least: float | None
    most: float | None
    reading: str


@dataclass(frozen=True)
class Row:
    """One size. Tuples have one entry a side, the baseline first; ratios one for each other side."""

    size_bytes: int
    planned: tuple[bool, ...]
    time_us: tuple[Value | None, ...]
    busbw_gb_per_s: tuple[Value | None, ...]
    time_ratio: tuple[Ratio | None, ...]
    busbw_ratio: tuple[Ratio | None, ...]


@dataclass(frozen=True)
class Extreme:
    """The least or the most of an operation's ratios, and at which size."""

    ratio: float
    size_bytes: int


@dataclass(frozen=True)
class Extremes:
    """Least and most ratio of one side: of time below the limit, of busbw from there on."""

    time: tuple[Extreme, Extreme] | None
    busbw: tuple[Extreme, Extreme] | None


@dataclass(frozen=True)
class Pairing:
    """One combination on all sides."""

    combination: Combination
    nodes: tuple[tuple[str, ...], ...]  # by side
    short_below_bytes: int
    draws: tuple[Draw | None, ...]  # by side
    rows: tuple[Row, ...]
    extremes: tuple[Extremes, ...]  # one for each side but the baseline


@dataclass(frozen=True)
class SweepComparison:
    """Everything, baseline first.

    `differing` and `changes` (of the inventories) are what else could be the cause of a ratio. `missing` says
    what has no pair, or no number, and why.
    """

    sides: tuple[Side, ...]
    noise_floor: float
    pairings: tuple[Pairing, ...]
    differing: tuple[Differing, ...]
    changes: tuple[str, ...]
    unknown: tuple[str, ...]  # what of the inventories could not be compared
    missing: tuple[str, ...]


def compare_sweeps(sides: Sequence[Side], noise_floor: float = NOISE_FLOOR) -> SweepComparison:
    """Pair the sweeps of several sides.

    Args:
        sides: two to four, the baseline first.
        noise_floor: ratios closer to 1 than this fraction read "no difference".
    """
    pairings: list[Pairing] = []
    paired: list[tuple[Sweep, ...]] = []
    missing: list[str] = []
    for found in _partners(sides, missing):
        combination = found[0].combination
        where = _where(found)
        missing += _missing(sides, found, where)
        rows = _rows(found, noise_floor)
        if not rows:
            continue
        paired.append(found)
        short = found[0].short_below_bytes
        extremes = tuple(_extremes(rows, number, short) for number in range(len(sides) - 1))
        nodes, draws = tuple(s.nodes for s in found), tuple(s.draw for s in found)
        pairings.append(Pairing(combination, nodes, short, draws, rows, extremes))
    return SweepComparison(
        tuple(sides),
        noise_floor,
        tuple(pairings),
        tuple(differing(sides, paired)),
        tuple(changes(sides)),
        tuple(uncompared(sides)),
        tuple(missing),
    )


def _partners(sides: Sequence[Side], missing: list[str]) -> Iterator[tuple[Sweep, ...]]:
    """Yield each combination's sweeps, one a side; name in `missing` what a side lacks."""
    by_side = [_grouped(side) for side in sides]
    for combination in sorted({c for groups in by_side for c in groups}, key=lambda c: c.order):
        groups = [found.get(combination, {}) for found in by_side]
        lacking = [side.name for side, found in zip(sides, groups, strict=True) if not found]
        if lacking:
            missing.append(f"{combination}: {' and '.join(lacking)} did not measure it")
            continue
        shared = set.intersection(*(set(found) for found in groups))
        if not shared and all(len(found) == 1 for found in groups):
            # As many nodes, other ones: a pair, whose nodes are among what differs.
            yield tuple(next(iter(found.values())) for found in groups)
            continue
        for nodes in sorted(set().union(*groups) - shared):
            lacking = [side.name for side, found in zip(sides, groups, strict=True) if nodes not in found]
            missing.append(f"{combination}, {node_names(nodes)}: {' and '.join(lacking)} did not measure it")
        for nodes in sorted(shared):
            yield tuple(found[nodes] for found in groups)


def _grouped(side: Side) -> dict[Combination, dict[tuple[str, ...], Sweep]]:
    found: dict[Combination, dict[tuple[str, ...], Sweep]] = {}
    for sweep in side.sweeps:
        found.setdefault(sweep.combination, {})[sweep.nodes] = sweep
    return found


def _where(found: Sequence[Sweep]) -> str:
    same = len({sweep.nodes for sweep in found}) == 1
    return f"{found[0].combination}" + (f", {node_names(found[0].nodes)}" if same else "")


def _missing(sides: Sequence[Side], found: Sequence[Sweep], where: str) -> Iterator[str]:
    """Say which sizes have no number, on which sides and why."""
    reasons: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    sizes = sorted({size for sweep in found for size in sweep.points})
    for side, sweep in zip(sides, found, strict=True):
        without: dict[str, list[int]] = {}
        for size in sizes:
            point = sweep.points.get(size, "not planned")
            if isinstance(point, str):
                without.setdefault(point, []).append(size)
        for reason, mine in without.items():
            reasons.setdefault((reason, tuple(mine)), []).append(side.name)
    for (reason, absent), names in reasons.items():
        which = ", ".join(f"{size} B" for size in absent)
        if len(absent) > _MOST_LISTED:
            which = f"{len(absent)} sizes, {absent[0]} B to {absent[-1]} B"
        yield f"{where}: no number of {' and '.join(names)} at {which}: {reason}"


def _rows(found: Sequence[Sweep], noise_floor: float) -> tuple[Row, ...]:
    rows = []
    for size in sorted({size for sweep in found for size in sweep.points}):
        points = [sweep.points.get(size) for sweep in found]
        samples = [point if isinstance(point, Samples) else None for point in points]
        if not any(samples):
            continue
        times = [sample.time_us if sample else () for sample in samples]
        rates = [sample.busbw_gb_per_s if sample else () for sample in samples]
        rows.append(
            Row(
                size,
                tuple(size in sweep.points for sweep in found),
                tuple(map(_value, times)),
                tuple(map(_value, rates)),
                tuple(_ratio(times[0], other, noise_floor) for other in times[1:]),
                tuple(_ratio(rates[0], other, noise_floor) for other in rates[1:]),
            )
        )
    # A sweep of which one side has nothing is no comparison; `missing` names it.
    return tuple(rows) if any(ratio for row in rows for ratio in row.time_ratio) else ()


def _value(samples: tuple[float, ...]) -> Value | None:
    return Value(median(samples), min(samples), max(samples), len(samples)) if samples else None


def _ratio(base: tuple[float, ...], other: tuple[float, ...], noise_floor: float) -> Ratio | None:
    if not base or not other or min(*base, *other) <= 0:
        return None
    value = median(other) / median(base)
    if min(len(base), len(other)) < 2:
        return Ratio(value, None, None, "one sample, no spread")
    least, most = min(other) / max(base), max(other) / min(base)
    reading = difference(value, noise_floor)
    # A ratio near 1 whose repeats scatter widely shows no difference, and does not show that there is none.
    near, wide = reading == "no difference", max(1 - least, most - 1) > noise_floor
    if (near and wide) or (not near and least <= 1 <= most):
        reading = "within the spread"
    return Ratio(value, least, most, reading)


def _extremes(rows: Sequence[Row], number: int, short_below_bytes: int) -> Extremes:
    short = [row for row in rows if row.size_bytes < short_below_bytes]
    long = [row for row in rows if row.size_bytes >= short_below_bytes]
    return Extremes(
        _ends(short, lambda row: row.time_ratio[number]), _ends(long, lambda row: row.busbw_ratio[number])
    )


def _ends(rows: Sequence[Row], of: Callable[[Row], Ratio | None]) -> tuple[Extreme, Extreme] | None:
    found = [Extreme(ratio.value, row.size_bytes) for row in rows if (ratio := of(row))]
    if not found:
        return None
    return min(found, key=lambda e: e.ratio), max(found, key=lambda e: e.ratio)
