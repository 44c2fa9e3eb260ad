"""The tests behind a comparison: what all nodes of a metric did between two sides, and what single nodes did.

A side is one run or several. Nodes of one run are no independent witnesses of what changed for all: a warm
night moves them together. So the shift of all is tested either against untouched nodes of the same runs, or
against how far runs of one side differ, or, with one run a side, against how far two nights may.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shakedown.statistics.robust import MAD_TO_SIGMA, SMALLEST_CLASS, benjamini_hochberg, median

Run = Mapping[str, float]  # by node: relative deviation from the level before, positive for an improvement

# Standard deviation of the shift that two runs of an unchanged class share (temperature, other jobs). Without
# runs that show it, this much is allowed for: the largest that a comparison of healthy runs was tried with.
RUN_SD = 0.015
# Below this the shift of all nodes between single runs says nothing: two-sided 5 %.
ONE_RUN_BOUND = 1.96 * math.sqrt(2) * RUN_SD
# A side's value of a node is the median of its runs: its standard deviation in those of one run (order
# statistics of the normal distribution: 1, 2, 3, 4, 5 runs).
_MEDIAN_SD = {1: 1.0, 2: 0.7071, 3: 0.6698, 4: 0.5456, 5: 0.5356}
_CLIP = 2.5  # in robust standard deviations: further ones are drawn in before a spread is taken
# A winsorised standard deviation of n values knows the spread as well as a plain one of this share of n.
_EFFICIENCY = 0.8
_FEWEST_REPEATS = 6
_FAR_MORE = 2.0  # changed nodes that differ by so many times what the untouched do differ by what was changed
# A node that lost so many margins must be found in nine of ten cases before all may be called equivalent.
NODE_MARGINS = 3
_OPEN = 3.0  # a node that may have lost as much, by so many standard deviations, keeps its metric open


@dataclass(frozen=True)
class Sides:
    """One metric on both sides. `resolution` is the relative step in which it is printed."""

    before: Sequence[Run]
    after: Sequence[Run]
    treated: frozenset[str]
    controls: frozenset[str]
    resolution: float = 0.0

    @cached_property
    def shifts(self) -> dict[str, float]:
        """Each node's level after less its level before."""
        old, new = (self._levels(side) for side in (self.before, self.after))
        return {n: new[n] - old[n] for n in sorted(old.keys() & new.keys())}

    def _levels(self, side: Sequence[Run]) -> dict[str, float]:
        """Return each node's median over the runs of a side, and the median of what all did beside it.

        Apart: where runs differ by more than nodes do, the run in the middle would be every node's median.
        """
        common = [self._common(run) for run in side]
        middle = median([c for c, run in zip(common, side, strict=True) if run] or [0.0])
        away: dict[str, list[float]] = {}
        for c, run in zip(common, side, strict=True):
            for node, value in run.items():
                away.setdefault(node, []).append(value - c)
        return {node: middle + median(values) for node, values in away.items()}

    def _common(self, run: Run) -> float:
        """Return what the untouched nodes did in a run, or all if those are few; 0 if these are few too."""
        untouched = [v for n, v in run.items() if n in self.controls]
        if len(untouched) >= SMALLEST_CLASS:
            return median(untouched)
        return median(list(run.values())) if len(run) >= SMALLEST_CLASS else 0.0

    @cached_property
    def moved(self) -> dict[str, float]:
        """Shifts of the changed nodes."""
        return {n: d for n, d in self.shifts.items() if n in self.treated}

    @cached_property
    def untouched(self) -> dict[str, float]:
        """Shifts of the nodes left alone."""
        return {n: d for n, d in self.shifts.items() if n in self.controls}

    @property
    def controlled(self) -> bool:
        """Whether untouched nodes are enough to correct by."""
        return len(self.untouched) >= SMALLEST_CLASS

    @property
    def single(self) -> bool:
        """Whether neither side has a second run."""
        return len(self.before) == len(self.after) == 1

    @cached_property
    def centre(self) -> float | None:
        """What a node's shift is held against: what the untouched did, or what all did; None if too few."""
        if self.controlled:
            return median(list(self.untouched.values()))
        return median(list(self.moved.values())) if len(self.moved) >= SMALLEST_CLASS else None

    @cached_property
    def node_noise(self) -> tuple[float, float] | None:
        """Standard deviation of a node's shift and its degrees of freedom; None if neither can be known."""
        repeats = self._repeats()
        found = None
        if repeats is not None:
            found = repeats
            if self.controlled:  # they may have moved by more than one side's runs show
                around = self.centre or 0.0
                own = _spread([d - around for d in self.untouched.values()], self.resolution)
                found = max(repeats, own)
        elif self.centre is not None:
            found = self._between_nodes()
        return found

    def _between_nodes(self) -> tuple[float, float]:
        """Return the noise of shifts as the nodes of each group differ, all of them if they may."""
        groups = [self.moved, self.untouched] if self.controlled else [self.moved]
        apart = [
            [d - median(list(g.values())) for d in g.values()] for g in groups if len(g) >= SMALLEST_CLASS
        ]
        if len(apart) == 2:
            moved, untouched = (_spread(group, self.resolution) for group in apart)
            if moved[0] > _FAR_MORE * untouched[0]:
                # Many of the changed nodes may have lost something, which is no noise.
                return untouched
        return _spread([d for group in apart for d in group], self.resolution)

    def _repeats(self) -> tuple[float, float] | None:
        """Return a shift's standard deviation from how far runs of one side differ; None if too few do."""
        residuals: list[float] = []
        lost = 0  # degrees of freedom: of each node's and each run's own level
        for side in (self.before, self.after):
            if len(side) < 2:
                continue
            common = [median(list(run.values())) for run in side if run]
            own = [
                {n: v - m for n, v in run.items()} for run, m in zip(filter(None, side), common, strict=True)
            ]
            for node in {n for run in own for n in run}:
                values = [run[node] for run in own if node in run]
                middle = sum(values) / len(values)
                residuals += [v - middle for v in values]
                lost += 1
            lost += len(own) - 1
        freedom = len(residuals) - lost
        if freedom < _FEWEST_REPEATS:
            return None
        sigma, _ = _spread(residuals, self.resolution)
        one = sigma * math.sqrt(len(residuals) / freedom)
        both = [
            _MEDIAN_SD.get(len(side), 1.2533 / math.sqrt(len(side))) for side in (self.before, self.after)
        ]
        return one * math.hypot(*both), _EFFICIENCY * freedom


@dataclass(frozen=True)
class Shift:
    """What the tests say of all nodes of one metric."""

    median: float  # relative, positive for an improvement, controls taken out
    p_difference: float  # two-sided, against no shift
    p_equivalence: float  # larger of the two one-sided tests, against a shift of the margin or more
    low: float | None = None  # 95 % interval, where the runs give it
    high: float | None = None


def decide_shift(sides: Sides, margin: float) -> Shift | None:
    """Test what all changed nodes did; None if nothing can decide.

    With at least six untouched nodes: Mann-Whitney of the changed nodes against them. Else Student's t of the
    runs' medians, after against before; one run a side is held against `RUN_SD`. Equivalence by two one-sided
    tests of the same kind (TOST; Schuirmann 1987): both "lower by the margin or more" and "higher by the
    margin or more" must be rejected.
    """
    d = list(sides.moved.values())
    if sides.controlled:
        if len(d) < SMALLEST_CLASS:
            return None
        c = list(sides.untouched.values())
        below = _mann_whitney([x + margin for x in d], c, "greater")
        above = _mann_whitney([x - margin for x in d], c, "less")
        return Shift(median(d) - median(c), _mann_whitney(d, c, "two-sided"), max(below, above))
    if not d or (sides.single and len(d) < SMALLEST_CLASS):
        return None
    return _between_runs(sides, margin)


def _between_runs(sides: Sides, margin: float) -> Shift:
    from scipy.special import stdtr, stdtrit

    levels = [
        [median(own) for run in side if (own := [v for n, v in run.items() if n in sides.moved])]
        for side in (sides.before, sides.after)
    ]
    means = [sum(side) / len(side) for side in levels]
    share = math.sqrt(sum(1 / len(side) for side in levels))
    shift = median(list(sides.moved.values())) if sides.single else means[1] - means[0]
    freedom = float(sum(len(side) - 1 for side in levels))
    if freedom:
        squares = sum((v - m) ** 2 for side, m in zip(levels, means, strict=True) for v in side)
        error = math.sqrt(squares / freedom) * share
        noise = sides.node_noise
        if noise is not None:  # runs that agree by chance do not make the shift surer than their nodes are
            error = max(error, 1.25 * noise[0] / math.sqrt(len(sides.moved)))
    else:
        error, freedom = RUN_SD * share, 1e6
    error = max(error, sides.resolution, 1e-9)
    reach = float(stdtrit(freedom, 0.975)) * error
    below = float(stdtr(freedom, -(shift + margin) / error))
    above = float(stdtr(freedom, (shift - margin) / error))
    difference = 2 * float(stdtr(freedom, -abs(shift) / error))
    alike = 1.0 if sides.single else max(below, above)
    return Shift(shift, difference, alike, shift - reach, shift + reach)


@dataclass(frozen=True)
class Nodes:
    """What single changed nodes of one metric did."""

    found: Mapping[str, float]  # shifts beyond margin and noise, against what the others did
    open: Mapping[str, float]  # too slow to be called equivalent, not surely enough to be found
    smallest: float | None  # the loss of one node that nine of ten times is found; None: none ever is


def single_nodes(metrics: Sequence[Sides], margin: float, q: float) -> list[Nodes]:
    """Return for every metric the changed nodes that moved by more than the margin and beyond the noise.

    One false discovery rate holds over all nodes of all metrics.
    """
    from scipy.special import stdtr, stdtrit

    places: list[tuple[int, str, float]] = []
    tails: list[float] = []
    for number, sides in enumerate(metrics):
        if sides.node_noise is None or sides.centre is None:
            continue
        sigma, freedom = sides.node_noise
        for node, d in sides.moved.items():
            away = d - sides.centre
            places.append((number, node, away))
            tails.append(2 * float(stdtr(freedom, -abs(away) / sigma)))
    found: list[dict[str, float]] = [{} for _ in metrics]
    unsure: list[dict[str, float]] = [{} for _ in metrics]
    for (number, node, away), rejected in zip(places, benjamini_hochberg(tails, q), strict=True):
        noise = metrics[number].node_noise
        if rejected and abs(away) > margin:
            found[number][node] = away
        elif noise is not None and away - _OPEN * noise[0] < -NODE_MARGINS * margin:
            unsure[number][node] = away
    smallest: list[float | None] = []
    for sides in metrics:
        least = None
        if sides.node_noise is not None and sides.centre is not None and tails:
            sigma, freedom = sides.node_noise
            least = (float(stdtrit(freedom, 1 - q / len(tails) / 2)) + 1.28) * sigma
        smallest.append(least)
    return [Nodes(*three) for three in zip(found, unsure, smallest, strict=True)]


def _spread(residuals: Sequence[float], resolution: float) -> tuple[float, float]:
    """Return a winsorised standard deviation about zero and its degrees of freedom."""
    floor = max(resolution, 1e-9)
    limit = _CLIP * max(median([abs(r) for r in residuals]) / MAD_TO_SIGMA, floor)
    squares = sum(min(abs(r), limit) ** 2 for r in residuals)
    freedom = max(len(residuals) - 1, 1)
    return max(math.sqrt(squares / freedom), floor), max(_EFFICIENCY * freedom, 1.0)


def _mann_whitney(d: Sequence[float], c: Sequence[float], alternative: str) -> float:
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(d, c, alternative=alternative).pvalue)
