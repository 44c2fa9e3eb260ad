"""The tests behind a comparison: what all nodes of a metric did between two sides, and what single nodes did.

A side is one run or several. Nodes of one run are no independent witnesses of what changed for all: a warm
night moves them together. So the shift of all is tested either against untouched nodes of the same runs, or
against how far runs of one side differ, or, with one run a side, against how far two nights may.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shakedown.statistics.robust import MAD_TO_SIGMA, SMALLEST_CLASS, benjamini_hochberg, median

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
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
_MOST_PRIOR = 1000.0  # degrees of freedom
_FEWEST_FREE = 3  # of a node's own variance: three runs and two
_FEWEST_WIDER = 3
# A loss is beyond noise of any shape if it is so many times as large, in spreads, as what the second node of
# all gained at most: the first may have been mended.
_OF_GAINS = 2.5
# A node that no run repeated may be so many times as noisy as the others: no other value of it tells.
_UNKNOWN_NOISE = 10.0
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
    def repeats(self) -> dict[str, tuple[float, float]]:
        """A run's variance by node, as its runs of one side differ, and its degrees of freedom.

        Of nodes with two runs a side, three of one: a value that no run repeats may be an odd one.
        """
        squares: dict[str, list[float]] = {n: [0.0, 0.0] for n in self.shifts}
        for side in (self.before, self.after):
            common = [self._common(run) for run in side]
            for node, found in squares.items():
                own = [run[node] - c for run, c in zip(side, common, strict=True) if node in run]
                found[0] += sum((v - sum(own) / len(own)) ** 2 for v in own)
                found[1] += len(own) - 1
        floor = max(self.resolution, 1e-9) ** 2
        often = {n: [sum(n in run for run in side) for side in (self.before, self.after)] for n in squares}
        return {
            n: (max(total / free, floor), free)
            for n, (total, free) in squares.items()
            if min(often[n]) > 1 and free >= _FEWEST_FREE
        }

    @cached_property
    def of_a_shift(self) -> float:
        """The standard deviation of a shift in those of a run: a level is the median of a side's runs."""
        return math.hypot(
            *(_MEDIAN_SD.get(len(side), 1.2533 / math.sqrt(len(side))) for side in (self.before, self.after))
        )

    @cached_property
    def between_nodes(self) -> tuple[float, float] | None:
        """The noise of shifts as the nodes of each group differ, all of them if they may; None: too few."""
        groups = [self.moved, self.untouched] if self.controlled else [self.moved]
        apart = [
            [d - median(list(g.values())) for d in g.values()] for g in groups if len(g) >= SMALLEST_CLASS
        ]
        if len(apart) == 2:
            moved, untouched = (_spread(group, self.resolution) for group in apart)
            if moved[0] > _FAR_MORE * untouched[0]:
                # Many of the changed nodes may have lost something, which is no noise.
                return untouched
        return _spread([d for group in apart for d in group], self.resolution) if apart else None

    def scores(self, sigmas: Mapping[str, float]) -> list[float]:
        """Return the shifts that no loss made, in standard deviations: of untouched nodes, or of what gained.

        What wanders from week to week shows in no three nights in a row, but in these.
        """
        away = {n: (d - (self.centre or 0.0)) / sigmas[n] for n, d in self.shifts.items() if n in sigmas}
        return [abs(z) for n, z in away.items() if n in self.controls or (not self.controlled and z > 0)]


@dataclass(frozen=True)
class Noise:
    """How far the shifts of a metric's nodes vary by themselves: standard deviations, degrees of freedom."""

    sigmas: Mapping[str, float]
    freedoms: Mapping[str, float]
    told: frozenset[str]  # nodes whose own repeats say so; of others only how nodes differ does

    @property
    def typical(self) -> tuple[float, float]:
        """That of the node in the middle."""
        return median(list(self.sigmas.values())), median(list(self.freedoms.values()))


def noise_of(metrics: Sequence[Sides]) -> list[Noise | None]:
    """Return each metric's noise by node; None where too few nodes and runs tell.

    A node's variance is its own of few runs, drawn towards what its other metrics and the other nodes say, as
    far as variances are alike (Smyth 2004); never below its own: the noisy one is in the minority.
    """
    from scipy.special import digamma, polygamma

    places = [(m, n) for m, sides in enumerate(metrics) for n in sides.repeats]
    found: list[Noise | None] = [
        Noise(dict.fromkeys(s.shifts, among[0]), dict.fromkeys(s.shifts, among[1]), frozenset())
        if s.centre is not None and (among := s.between_nodes)
        else None
        for s in metrics
    ]
    if len(places) < _FEWEST_REPEATS:
        return found
    names = sorted({n for _, n in places})
    rows = np.array([m for m, _ in places])
    columns = np.searchsorted(names, [n for _, n in places])
    variance, free = np.array([metrics[m].repeats[n] for m, n in places]).T
    logs = np.log(variance) - digamma(free / 2) + np.log(free / 2)
    by_chance = polygamma(1, free / 2)

    def means(of: Floats, at: Ints) -> Floats:
        return np.asarray((np.bincount(at, of) / np.maximum(np.bincount(at), 1))[at])

    usual = means(logs, rows)
    node = means(logs - usual, columns)
    error = means(by_chance, columns) / np.bincount(columns)[columns]
    alike = max(float(np.mean(node**2 - error)), 0.0)
    usual = usual + node * alike / (alike + error)
    # How much variances differ beyond chance, and a standard error more.
    apart = (logs - usual) ** 2 - by_chance
    more = float(apart.mean() + apart.std() / math.sqrt(len(apart)))
    prior = _inverse_trigamma(max(more, 2 / _MOST_PRIOR))
    centre = np.exp(usual + digamma(prior / 2) - np.log(prior / 2))
    held = np.maximum((prior * centre + free * variance) / (prior + free), variance)
    for m, sides in enumerate(metrics):
        at = np.flatnonzero(rows == m)
        sigmas = {places[i][1]: math.sqrt(held[i]) * sides.of_a_shift for i in at}
        if not sigmas:
            continue
        seen = sides.scores(sigmas)
        wider = max(_spread(seen, 1e-9)[0], 1.0) if len(seen) >= _FEWEST_WIDER else 1.0
        # Of what runs of a side do not show, as much is known as there are nodes (Satterthwaite 1946).
        own = {places[i][1]: float(prior + free[i]) for i in at}
        lack = (wider**2 - 1) ** 2 / max(len(seen), 1)
        free_of = {n: min(f, wider**4 / (1 / f + lack)) for n, f in own.items()}
        sigmas = {n: s * wider for n, s in sigmas.items()}
        usually = median(list(sigmas.values())), median(list(free_of.values()))
        unknown = sides.shifts.keys() - sigmas.keys()
        found[m] = Noise(
            sigmas | dict.fromkeys(unknown, usually[0]),
            free_of | dict.fromkeys(unknown, usually[1]),
            frozenset(sigmas),
        )
    return found


def _inverse_trigamma(value: float) -> float:
    """Return the degrees of freedom whose log variances differ by so much."""
    from scipy.optimize import brentq
    from scipy.special import polygamma

    return 2 * float(brentq(lambda half: polygamma(1, half) - value, 1e-3, _MOST_PRIOR))


@dataclass(frozen=True)
class Shift:
    """What the tests say of all nodes of one metric."""

    median: float  # relative, positive for an improvement, controls taken out
    p_difference: float  # two-sided, against no shift
    p_equivalence: float  # larger of the two one-sided tests, against a shift of the margin or more
    low: float | None = None  # 95 % interval, where the runs give it
    high: float | None = None


def decide_shift(sides: Sides, margin: float, noise: Noise | None) -> Shift | None:
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
    return _between_runs(sides, margin, noise)


def _between_runs(sides: Sides, margin: float, noise: Noise | None) -> Shift:
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
        if noise is not None:  # runs that agree by chance do not make the shift surer than their nodes are
            error = max(error, 1.25 * noise.typical[0] / math.sqrt(len(sides.moved)))
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
    smallest: float | None  # the loss of one node that nine of ten times shows; None: none ever does


def single_nodes(
    metrics: Sequence[Sides], noises: Sequence[Noise | None], margin: float, q: float
) -> list[Nodes]:
    """Return for every metric the changed nodes that moved by more than the margin and beyond the noise.

    One false discovery rate holds over all nodes of all metrics.
    """
    from scipy.special import stdtr, stdtrit

    places: list[tuple[int, str, float, float]] = []
    tails: list[float] = []
    plain: list[float] = []  # as if a node whose noise is not known were as the others
    gains: dict[str, float] = {}
    for number, (sides, noise) in enumerate(zip(metrics, noises, strict=True)):
        if noise is None or sides.centre is None:
            continue
        for node, d in sides.shifts.items():
            away = d - sides.centre
            as_others = away / noise.sigmas[node]
            z = as_others if node in noise.told else as_others / _UNKNOWN_NOISE
            gains[node] = max(z, gains.get(node, 0.0))
            if node in sides.moved:
                places.append((number, node, away, z))
                for probabilities, score in ((tails, z), (plain, as_others)):
                    probabilities.append(2 * float(stdtr(noise.freedoms[node], -abs(score))))
    found: list[dict[str, float]] = [{} for _ in metrics]
    unsure: list[dict[str, float]] = [{} for _ in metrics]
    least_z = _OF_GAINS * sorted([0.0, 0.0, *gains.values()])[-2]
    sure, stands_out = benjamini_hochberg(tails, q), benjamini_hochberg(plain, q)
    for (number, node, away, z), rejected, odd in zip(places, sure, stands_out, strict=True):
        noise = noises[number]
        if rejected and abs(away) > margin and (away > 0 or -z > least_z):
            found[number][node] = away
        elif (odd and away < -margin) or (
            noise is not None and away - _OPEN * noise.sigmas[node] < -NODE_MARGINS * margin
        ):
            unsure[number][node] = away
    smallest: list[float | None] = []
    for sides, noise in zip(metrics, noises, strict=True):
        least = None
        if noise is not None and sides.centre is not None and tails:
            sigma, freedom = noise.typical
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
