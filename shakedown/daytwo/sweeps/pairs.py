"""Sweeps of collectives over two networks or configurations, side by side: ratio per operation and size."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shakedown.benchmarks.inference.peak import NOISE_FLOOR, difference
from shakedown.daytwo.compare.run_folders import differences
from shakedown.records.reading import BadInput
from shakedown.records.results import Snapshot
from shakedown.records.wording import count
from shakedown.statistics.robust import holes, median

# A ratio is the work of everything that differs together: NCCL's variables, the way that the data went, GPUs,
# versions, nodes, firmware. So all of it is named.

Tool = Literal["nccl-tests", "PyTorch"]


@dataclass(frozen=True)
class Combination:
    """What must be alike for two sweeps to be a pair."""

    tool: Tool
    operation: str
    dtype: str
    nodes: int  # how many
    launcher: str  # of nccl-tests: one-process, srun, mpirun; of PyTorch: its backend
    split: str = "none"  # NCCL_TESTS_SPLIT
    messages: int = 1  # in flight together; PyTorch's many small ones

    @property
    def order(self) -> tuple[object, ...]:
        """Where it stands: nccl-tests before PyTorch, then operation by operation."""
        return self.tool != "nccl-tests", self.operation, self.messages, self.nodes, str(self)

    def __str__(self) -> str:
        parts = [f"{self.operation} {self.dtype}", count(self.nodes, "node"), self.launcher]
        parts += [f"split {self.split}"] if self.split != "none" else []
        parts += [f"{self.messages} messages at once"] if self.messages > 1 else []
        return ("PyTorch " if self.tool == "PyTorch" else "") + ", ".join(parts)


@dataclass(frozen=True)
class Repeats:
    """All repeats of one size. busbw is empty on one GPU, where nothing crosses a bus."""

    time_us: tuple[float, ...]
    busbw_gb_per_s: tuple[float, ...]


@dataclass(frozen=True)
class Draw:
    """What all GPUs together drew over one operation, with all its sizes and repeats."""

    power_w: float  # mean
    energy_j: float
    hottest_c: float


@dataclass(frozen=True)
class OperationSweep:
    """One operation over sizes on one side. A size that gave no number has the reason instead."""

    combination: Combination
    nodes: tuple[str, ...]
    short_below_bytes: int  # smaller messages are about time, the others about busbw
    points: Mapping[int, Repeats | str]
    facts: Mapping[str, str]  # what else could make a difference
    variables: Mapping[str, str]  # of the communication libraries, as the job was ordered with
    draw: Draw | None = None  # None: not sampled
    network: str = ""  # the TCP fabric that was measured; none: the RoCE fabric


@dataclass(frozen=True)
class SweepSide:
    """One run under the name that it has in the comparison."""

    name: str
    run: str
    system: str
    created: str
    sweeps: tuple[OperationSweep, ...]
    inventory: Snapshot | None = None
    notes: tuple[str, ...] = ()  # of the reading: another attempt, a log that does not tell
    network: str = ""  # the TCP fabric that its sweeps went over; none: the RoCE fabric
    profile: str = ""  # of the run's plan
    # Of all servers together, by operation and load; None: not asked for.
    watts: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Differing:
    """A fact that is not the same on all sides. `sweeps` is empty where it holds for all of them."""

    fact: str
    values: tuple[str, ...]  # by side
    sweeps: tuple[str, ...] = ()


def of_network(
    sweeps: list[OperationSweep], network: str, folder: Path, notes: list[str]
) -> tuple[str, list[OperationSweep]]:
    """Return the network that is compared and its sweeps; note what else the run measured.

    Raises BadInput: the run did not measure that network, or several and none is chosen.
    """
    there = list(dict.fromkeys(sweep.network for sweep in sweeps))
    chosen = network or ("" if "" in there or len(there) > 1 else there[0])
    if chosen not in there:
        names = ", ".join(name or "the RoCE fabric" for name in there)
        raise BadInput(
            f"the run did not measure {f'network {chosen[:80]!r}' if chosen else 'the RoCE fabric'}",
            fix=f"it has {names}: choose with --network",
            file=folder,
        )
    for other in there:
        if other != chosen:
            notes.append(f"the run measured {other or 'the RoCE fabric'} too, which is not this side's")
    return chosen, [sweep for sweep in sweeps if sweep.network == chosen]


def node_names(nodes: Sequence[str]) -> str:
    """Name the nodes of a sweep; many by the first and the last."""
    return ",".join(nodes) if len(nodes) <= 4 else f"{nodes[0]}..{nodes[-1]} ({len(nodes)} nodes)"


def differing(
    sides: Sequence[SweepSide], paired: Sequence[tuple[OperationSweep, ...]]
) -> Iterator[Differing]:
    """Yield the facts that differ: those of the runs, then those of the sweeps, gathered by their values."""
    if len({side.system for side in sides}) > 1:
        yield Differing("system", tuple(side.system for side in sides))
    if len({side.network for side in sides}) > 1:
        yield Differing("network", tuple(side.network or "RoCE fabric" for side in sides))
    found: dict[tuple[str, tuple[str, ...]], list[Combination]] = {}
    for sweeps in paired:
        told = [{"nodes": node_names(sweep.nodes), **sweep.facts} for sweep in sweeps]
        for known, absent in (([sweep.variables for sweep in sweeps], "not set"), (told, "not reported")):
            for fact in dict.fromkeys(name for facts in known for name in facts):
                values = tuple(facts.get(fact, absent) for facts in known)
                if len(set(values)) > 1:
                    found.setdefault((fact, values), []).append(sweeps[0].combination)
    everything = [sweeps[0].combination for sweeps in paired]
    for (fact, values), combinations in found.items():
        yield Differing(fact, values, tuple(_summed_up(combinations, everything)))


def _summed_up(some: Sequence[Combination], everything: Sequence[Combination]) -> Iterator[str]:
    """Yield the sweeps that a fact holds for: a tool's name for all of its own, nothing for all there are."""
    if len(some) == len(everything):
        return
    for tool in dict.fromkeys(c.tool for c in some):
        mine = [c for c in some if c.tool == tool]
        whole = len(mine) == sum(c.tool == tool for c in everything)
        yield from [tool] if whole else dict.fromkeys(map(str, mine))


def changes(sides: Sequence[SweepSide]) -> Iterator[str]:
    """Yield what differs between the baseline's inventory and the others': hardware, firmware, software."""
    base = sides[0].inventory
    for side in sides[1:]:
        if base is not None and side.inventory is not None and not _apart(base, side.inventory):
            yield from (f"{side.name}: {change}" for change in differences(base, side.inventory))


def uncompared(sides: Sequence[SweepSide]) -> Iterator[str]:
    """Yield why the inventories of some sides say nothing."""
    if without := [side.name for side in sides if side.inventory is None]:
        yield f"{' and '.join(without)} without inventory: hardware, firmware and drivers are not compared"
    base = sides[0].inventory
    for side in sides[1:]:
        if base is not None and side.inventory is not None and _apart(base, side.inventory):
            yield f"{side.name} is of other hosts: the inventories are not compared"


def _apart(one: Snapshot, other: Snapshot) -> bool:
    return {c.host for c in one.components}.isdisjoint(c.host for c in other.components)


# A pair is the same operation, size, data type, number of nodes, launcher and split on two sides; all else
# that differs is named, for a ratio is the work of everything that differs together. Readings describe, they
# are no verdict: three repeats against three cannot be told apart by any rank test at 5 %.

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
class PairRow:
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
    rows: tuple[PairRow, ...]
    extremes: tuple[Extremes, ...]  # one for each side but the baseline


@dataclass(frozen=True)
class SweepComparison:
    """Everything, baseline first.

    `differing` and `changes` (of the inventories) are what else could be the cause of a ratio. `missing` says
    what has no pair, or no number, and why.
    """

    sides: tuple[SweepSide, ...]
    noise_floor: float
    pairings: tuple[Pairing, ...]
    differing: tuple[Differing, ...]
    changes: tuple[str, ...]
    unknown: tuple[str, ...]  # what of the inventories could not be compared
    missing: tuple[str, ...]


def compare_sweeps(
    sides: Sequence[SweepSide],  # two to four, the baseline first
    noise_floor: float = NOISE_FLOOR,  # ratios closer to 1 than this fraction read "no difference"
) -> SweepComparison:
    """Pair the sweeps of several sides."""
    pairings: list[Pairing] = []
    paired: list[tuple[OperationSweep, ...]] = []
    missing: list[str] = []
    for found in _partners(sides, missing):
        combination = found[0].combination
        where = _where(found)
        missing += [*_missing(sides, found, where), *_holes(sides, found, where)]
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


def _partners(sides: Sequence[SweepSide], missing: list[str]) -> Iterator[tuple[OperationSweep, ...]]:
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


def _grouped(side: SweepSide) -> dict[Combination, dict[tuple[str, ...], OperationSweep]]:
    found: dict[Combination, dict[tuple[str, ...], OperationSweep]] = {}
    for sweep in side.sweeps:
        found.setdefault(sweep.combination, {})[sweep.nodes] = sweep
    return found


def _where(found: Sequence[OperationSweep]) -> str:
    same = len({sweep.nodes for sweep in found}) == 1
    return f"{found[0].combination}" + (f", {node_names(found[0].nodes)}" if same else "")


def _missing(sides: Sequence[SweepSide], found: Sequence[OperationSweep], where: str) -> Iterator[str]:
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


def _holes(sides: Sequence[SweepSide], found: Sequence[OperationSweep], where: str) -> Iterator[str]:
    """Say at which sizes a side's own curve has a hole: its number is no good one."""
    for side, sweep in zip(sides, found, strict=True):
        curve = [
            (s, s / median(p.time_us)) for s, p in sorted(sweep.points.items()) if isinstance(p, Repeats)
        ]
        for at, share in holes([rate for _, rate in curve]):
            text = f"a hole at {curve[at][0]} B, {share:.0%} of what smaller and larger messages reach"
            yield f"{where}: {side.name} has {text}"


def _rows(found: Sequence[OperationSweep], noise_floor: float) -> tuple[PairRow, ...]:
    rows = []
    for size in sorted({size for sweep in found for size in sweep.points}):
        points = [sweep.points.get(size) for sweep in found]
        samples = [point if isinstance(point, Repeats) else None for point in points]
        if not any(samples):
            continue
        times = [sample.time_us if sample else () for sample in samples]
        rates = [sample.busbw_gb_per_s if sample else () for sample in samples]
        rows.append(
            PairRow(
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


def _extremes(rows: Sequence[PairRow], number: int, short_below_bytes: int) -> Extremes:
    short = [row for row in rows if row.size_bytes < short_below_bytes]
    long = [row for row in rows if row.size_bytes >= short_below_bytes]
    return Extremes(
        _ends(short, lambda row: row.time_ratio[number]), _ends(long, lambda row: row.busbw_ratio[number])
    )


def _ends(rows: Sequence[PairRow], of: Callable[[PairRow], Ratio | None]) -> tuple[Extreme, Extreme] | None:
    found = [Extreme(ratio.value, row.size_bytes) for row in rows if (ratio := of(row))]
    if not found:
        return None
    return min(found, key=lambda e: e.ratio), max(found, key=lambda e: e.ratio)
