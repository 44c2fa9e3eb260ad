"""The charts behind the nightly alarms: the state of many series, taken on by one night at a time."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shakedown.daytwo.history.night_noise import (
    CLIP,
    ODD_SCORE,
    NightNoise,
    Tails,
    first_residuals,
    learn,
    normal_scores,
    one_level,
    window_variance,
)

# A night is expected where the night before leads, as far as neighbouring nights hang together; what is new
# in it has the tails that all series show, for the worse and for the better apart (`nighttails`). Two nights
# that are off by the same are a step where two that are off as far, but differently, are not. The ratio is
# the likelihood over losses of every size from `_SMALLEST` to `_FURTHEST`, none preferred (uniform in the
# logarithm), to that of no loss, in which either night, or both, may have been odd.
#
# How often nights without a loss reach a ratio depends on their noise, too: exponential interference reaches
# one of 8.8 three times as often as t4. So what a ratio must reach is found for the noise at hand.

Floats = NDArray[np.float64]

# False alarms of two nights, by the noise found: per night, 0.6 in 1,000 years. The noise is not known that
# well: the benchmark counts what comes of it (research/bench_alarms.py).
FALSE_PER_NIGHT = 0.6 / 365_000
_LEAST = 8.8  # however rare larger ratios are: the logarithm that must be reached
# Losses in spreads. What is smaller is for more than two nights to tell: with it, as many false alarms under
# heavy tails would leave fewer of the losses that two nights are enough for.
_SMALLEST, _FURTHEST = 6.0, 25.0
# Losses that are integrated over: around both nights, to where the tails have ended.
_POINTS, _BEYOND = 41, 6.0
# Odd nights are off by sizes of two powers of ten, none preferred: logarithm of the largest to the smallest.
_ODD_SIZES = 4.6
_LEADS = 3.0  # a night before that was this far off, in spreads, leads no further
# The level's error: where and how much of it (Gauss and Hermite).
_ERRORS, _LIKELY = np.polynomial.hermite_e.hermegauss(5)
_DRAWN = 4096  # steps that are drawn to see how often such ratios come of none


@dataclass(frozen=True)
class Nights:
    """What is known of the noise of the nights in question, by row; tails of all."""

    lead: Floats  # rows x 2: correlation of each of the two nights with the one before it
    ar: Floats
    level_nights: Floats  # that the level is known from
    odd: Floats
    tails: Tails

    def log_ratio(self, away: Floats) -> Floats:
        """Return the logarithm of the ratio for each row of three nights against the level, in spreads.

        The first is the night before the two, NaN where it is none of this level.
        """
        before = np.where(np.isfinite(away[:, 0]), away[:, 0], 0.0)
        lead = np.where(np.isfinite(away[:, 0]), self.lead[:, 0], 0.0)
        two = np.minimum(away[:, 1:], _FURTHEST)
        low = np.maximum(two.min(axis=1) - _BEYOND, _SMALLEST)
        high = np.maximum(two.max(axis=1) + _BEYOND, low + 1)
        losses = low + np.linspace(0, 1, _POINTS)[:, None] * (high - low)
        likely = self._together(before, two[:, 0] - losses, two[:, 1] - losses, lead)
        step = np.logaddexp.reduce(likely + np.log((high - low) / (_POINTS - 1) / losses), axis=0)
        inflated = (1 + self.ar) / (1 - self.ar) / self.level_nights
        error = _ERRORS[:, None] * np.sqrt(np.minimum(inflated, 1.0))
        likely = self._together(before - error, two[:, 0] - error, two[:, 1] - error, lead)
        nothing = np.logaddexp.reduce(likely + np.log(_LIKELY / _LIKELY.sum())[:, None], axis=0)
        # An odd night is off by any size, as a step is.
        odd = np.log(self.odd[:, None] / _ODD_SIZES / np.maximum(two, 1.0))
        alone = self.tails.log_density(two)
        for other in (odd[:, 0] + alone[:, 1], odd[:, 1] + alone[:, 0], odd.sum(axis=1)):
            nothing = np.logaddexp(nothing, other)
        return np.asarray(step - nothing)

    def is_step(self, away: Floats) -> NDArray[np.bool_]:
        """Return which rows of `log_ratio` are a step."""
        ratio = self.log_ratio(away)
        step = ratio > _LEAST
        for row in np.flatnonzero(step):
            lead, ar = round(float(self.lead[row, 1]), 1), round(float(self.ar[row]), 1)
            odd = float(f"{self.odd[row]:.0e}")
            step[row] = ratio[row] > limit(lead, ar, float(self.level_nights[row]), odd, self.tails)
        return np.asarray(step)

    def _together(self, before: Floats, first: Floats, second: Floats, lead: Floats) -> Floats:
        """Return the log density of two nights after the one before."""
        next_lead = self.lead[:, 1]
        new = np.sqrt(1 - lead**2), np.sqrt(1 - next_lead**2)
        first_new = (first - lead * np.clip(before, -_LEADS, _LEADS)) / new[0]
        second_new = (second - next_lead * first) / new[1]
        both = self.tails.log_density(first_new) + self.tails.log_density(second_new)
        return np.asarray(both - np.log(new[0] * new[1]))


@lru_cache(maxsize=64)
def limit(
    lead: float, ar: float, level_nights: float, odd: float, tails: Tails, share: float = FALSE_PER_NIGHT
) -> float:
    """Return the logarithm of a ratio that no more than that share of nights without a loss reaches.

    Steps are drawn and not their absence, which would take millions of nights: a ratio r comes as often
    without a step as with one, divided by r.
    """
    # Points that fill the cube evenly (Roberts 2018: multiples of the powers of the root of x^5 = x + 1).
    even = 1.1673039782614187 ** -np.arange(1, 5)
    u = (0.5 + np.arange(1, _DRAWN + 1)[:, None] * even) % 1
    sizes = np.log(_FURTHEST / _SMALLEST)
    new = tails.quantile(np.clip(u[:, 1:], 1e-9, 1 - 1e-9))
    nights = new.copy()
    for night in (1, 2):
        nights[:, night] = lead * nights[:, night - 1] + np.sqrt(1 - lead**2) * new[:, night]
    nights[:, 1:] += _SMALLEST * np.exp(u[:, :1] * sizes)
    one = np.ones(_DRAWN)
    drawn = Nights(np.full((_DRAWN, 2), lead), ar * one, level_nights * one, odd * one, tails)
    ratios = np.sort(drawn.log_ratio(nights))[::-1]
    false = sizes * np.cumsum(np.exp(-ratios)) / _DRAWN
    return float(ratios[min(int(np.searchsorted(false, share)), _DRAWN - 1)])


Flags = NDArray[np.bool_]

# Of a normal value, half and a tenth are further out. So many series tell them but for a part by chance.
_HALF, _TENTH = 0.6745, 1.645
_FEWEST_OF_A_NIGHT, _BY_CHANCE = 16, 1.2
LEARNING_NIGHTS = 30  # nights that a series must have before it can give an alarm
# Where nodes take turns, so that each has a third of the nights or fewer, thirty nights of the fleet are
# enough: noise is learnt from all nodes, and of each only its level, from no fewer than these.
FEWEST_NIGHTS, _TURNS = 8, 1 / 3


def learning_nights(values: Floats) -> int:
    """Return how many nights of its own a series of a fleet needs, by how many it had of the first thirty."""
    share = float(np.isfinite(values[:, :LEARNING_NIGHTS]).mean()) if values.size else 1.0
    return LEARNING_NIGHTS if share > _TURNS else max(round(share * LEARNING_NIGHTS), FEWEST_NIGHTS)


# Of more than two nights: how many are summed, the limit of the sum in its own standard deviations, and
# whether they must agree: each then counts for hardly more than the one that is least bad, so that a lower
# limit does. The benchmark counts what comes of it (research/bench_alarms.py).
WINDOWS = ((3, 4.7, True), (4, 4.5, True), (4, 5.0, False), (8, 5.0, False))
LONGEST_WINDOW = 8
LIMIT = 4.8
LARGEST_SCORE = 8.0  # a score is bounded: what is further out only says that the night was odd
WORSE_NIGHT = 2.0  # the nights that carry an alarm must each be worse than this
_AGREE = 0.2  # by so much at most a night counts for more than the least bad of those that must agree
# Correlated nights agree by themselves: the limit of those that must rises by so much, in full from AR 0.3.
_CORRELATED = 0.2
_ODD_RUN = 0.8e-6  # so rarely may odd nights alone make an alarm: per night, 0.3 in 1,000 years
# Of two odd nights in a row so many at most are odd by the same: of losses of 1 to 10 % a third are.
_ODD_ALIKE = 0.5
# The level of late: so many nights, short enough that a season of a year hardly moves within them.
LEVEL_NIGHTS = 30
# A smaller deviation than this share of the value raises no alarm, however quiet the metric.
SMALLEST_EFFECT = 0.003
# A loss of this share that no step showed is told as drift, once, and again when the whole loss has doubled.
# A season of a year stays below it if it moves the metric by less than +-0.7 %.
DRIFT_EFFECT = 0.015
# After an alarm the next one tells of a further loss: as large as what was told, or this share at most.
_FURTHER = 0.01
_QUIET_NIGHTS = 3  # an alarm ends when so many nights in a row are back
SETTLING_NIGHTS = 14  # nights after a change of the parts until the new level is the series' own
_RELEARN = 1.2  # the noise is learnt again when so much more is known


@dataclass(frozen=True)
class Alarm:
    """One alarm. `night` counts the series' columns."""

    series: int
    night: int
    chart: Literal["step", "drift"]
    effect: float  # relative, positive for an improvement: the nights that show it against the level before
    baseline: float  # level before, in the metric's unit
    standing: bool  # still in alarm at the last night


class Charts:
    """The state of all series. Values have their sign turned so that more is worse."""

    def __init__(
        self, values: Floats, higher: bool | NDArray[np.bool_], resolution: float | Floats, *, pooled: bool
    ) -> None:
        count, nights = values.shape
        self.learning = learning_nights(values) if pooled else LEARNING_NIGHTS
        self.sign = np.where(np.broadcast_to(higher, count), -1.0, 1.0)
        self.values = values * self.sign[:, None]
        self.resolution = np.broadcast_to(np.asarray(resolution, dtype=np.float64), (count,))
        self.pooled = pooled
        # Each series' own nights, its first in the first column.
        self.seen = np.zeros(count, dtype=np.intp)
        self.order, self.residuals, self.raw_scores = (np.full((count, nights), np.nan) for _ in range(3))
        self.when = np.zeros((count, nights), dtype=np.intp)  # each of its nights was which
        self.scale = np.ones(nights)
        self.odd, self.looked = np.zeros(count), np.zeros(count)
        self.recent = np.full((count, LEVEL_NIGHTS), np.nan)  # the nights that make the level
        self.taken = np.zeros(count, dtype=np.intp)
        self.scores = np.full((count, LONGEST_WINDOW), np.nan)  # since the level began; the last night last
        self.run = np.zeros(count, dtype=np.intp)  # worse nights in a row, up to tonight
        self.odd_run = np.zeros(count)  # odd ones among them
        self.better = np.zeros(count, dtype=np.intp)  # better nights in a row
        self.home = np.full(count, np.nan)  # the level that is normal
        self.told = np.zeros(count)  # relative loss against home that alarms have told of
        self.quiet = np.zeros(count, dtype=np.intp)
        self.settling = np.zeros(count, dtype=np.intp)  # nights until the level becomes home; 0: never
        self.changed_parts = np.zeros(count, dtype=bool)  # and the level is not home yet
        self.alarmed = np.full(count, -1, dtype=np.intp)  # place of the standing alarm, or -1
        self.with_change = np.zeros(count, dtype=bool)  # it came after a change of the parts
        self.found: list[Alarm] = []
        self.noise: NightNoise | None = None
        self.learnt_from = 0.0

    def alarms(self) -> list[Alarm]:
        """Return what was found."""
        standing = set(self.alarmed[self.alarmed >= 0].tolist())
        return [
            Alarm(a.series, a.night, a.chart, a.effect, a.baseline, place in standing)
            for place, a in enumerate(self.found)
        ]

    def advance(self, night: int, changed: Flags) -> None:
        """Take one night into all series."""
        x = self.values[:, night]
        there = np.isfinite(x)
        self.settling[changed] = SETTLING_NIGHTS
        self.changed_parts |= changed
        rows = np.flatnonzero(there)
        self.order[rows, self.seen[rows]] = x[rows]
        self.when[rows, self.seen[rows]] = night
        self.seen[rows] += 1
        ready = there & (self.seen > self.learning)
        self._learn(np.flatnonzero(there & (self.seen == self.learning)))
        if self.noise is None or not ready.any():
            return
        level, nights = self._level()
        self.scale[night] = self._scale_of((x - level)[ready] / self.noise.spread[ready])
        self._score(night, level, nights, ready, self.noise)
        self._find(night, level, nights, ready, self.noise)
        self._recover(x, ready, self.noise)
        self._take(x, ready, self.noise)
        self._settle(ready)

    def _learn(self, new: NDArray[np.intp]) -> None:
        """Begin the series that have thirty nights now; learn the noise again if much more is known."""
        if len(new):
            first = self.order[new, : self.learning]
            level, residuals = first_residuals(first)
            self.residuals[new, : self.learning] = residuals
            self.recent[new, : self.learning] = level[:, None] + residuals
            self.taken[new] = self.learning
            self.home[new] = level
            # The spread of thirty nights would make tails of its own: first all series' spreads, then tails.
            self._relearn()
            assert self.noise is not None
            away = (first - level[:, None]) / self.noise.spread[new, None]
            # Of the nights that made their level each was a part.
            self.raw_scores[new, : self.learning] = away / np.sqrt(1 - 1 / self.learning)
            drawn_in = np.clip(away, -CLIP, CLIP)
            self.residuals[new, : self.learning] = drawn_in * self.noise.spread[new, None]
            self._relearn()
            # What was odd while it learnt is as likely to come again as what is odd later.
            self.odd[new] += (normal_scores(away, self.noise.of(new)) > ODD_SCORE).sum(axis=1)
            self.looked[new] += self.learning
        known = float(self.seen[self.seen >= self.learning].sum())
        if known and (len(new) or known >= _RELEARN * self.learnt_from):
            self.learnt_from = known
            self._relearn()

    def _relearn(self) -> None:
        begun = self.seen >= self.learning
        last = int(self.seen.max())
        noise = learn(
            self.residuals[begun, :last],
            self.raw_scores[begun, :last],
            self.when[begun, :last],
            self.odd[begun],
            self.looked[begun],
            self._least()[begun],
            pooled=self.pooled,
        )
        self.noise = self._for_all(noise, begun)

    def _for_all(self, noise: NightNoise, begun: Flags) -> NightNoise:
        """Return the noise with a place for every series; those that have not begun have none."""

        def placed(of: Floats) -> Floats:
            every = np.full(len(begun), 0.5)
            every[begun] = of
            return every

        spread = np.maximum(placed(noise.spread), np.maximum(self._least(), 1e-300))
        return replace(
            noise, spread=spread, ar=placed(noise.ar), tail=placed(noise.tail), odd=placed(noise.odd)
        )

    def _least(self) -> Floats:
        """Return the least spread of each series: a step of its print, and 1e-4 of its level.

        No RDMA or GPU benchmark repeats better than that from night to night.
        """
        return np.asarray(np.maximum(self.resolution, 1e-4 * np.abs(np.nan_to_num(self.home))))

    def _level(self) -> tuple[Floats, Floats]:
        """Return the level of late and the nights that it is known from."""
        there = np.isfinite(self.recent)
        nights = np.maximum(there.sum(axis=1), 1).astype(np.float64)
        return np.where(there, self.recent, 0.0).sum(axis=1) / nights, nights

    def _scale_of(self, away: Floats) -> float:
        """Return by how much all series differ more tonight than usual, at least 1.

        Of those that are better than their level: what others lost is no noise.
        """
        better = -away[away < 0]
        if not self.pooled or len(better) < _FEWEST_OF_A_NIGHT:
            return 1.0
        middle, most = np.quantile(better, (0.5, 0.9))
        return max(float(max(middle / _HALF, most / _TENTH)) / _BY_CHANCE, 1.0)

    def _score(self, night: int, level: Floats, nights: Floats, ready: Flags, noise: NightNoise) -> None:
        x = self.values[:, night]
        rows = np.flatnonzero(ready)
        away = np.where(ready, x - level, 0.0)
        fresh = np.sqrt(1 + 1 / nights)
        self.raw_scores[rows, self.seen[rows] - 1] = (away / noise.spread / fresh)[rows]
        limit = CLIP * noise.spread
        self.residuals[rows, self.seen[rows] - 1] = np.clip(away / fresh, -limit, limit)[rows]
        score = np.clip(
            normal_scores(away / noise.spread / self.scale[night], noise), -LARGEST_SCORE, LARGEST_SCORE
        )
        self.scores[rows, :-1] = self.scores[rows, 1:]
        self.scores[rows, -1] = score[rows]
        worse = score > WORSE_NIGHT
        # Odd nights count once it shows that they were no step.
        over = ready & ~worse
        self.odd += np.where(over, self.odd_run, 0.0)
        self.looked += ready
        self.odd_run = np.where(over, 0.0, self.odd_run + (ready & (score > ODD_SCORE)))
        self.run = np.where(ready, np.where(worse, self.run + 1, 0), self.run)
        self.better = np.where(ready, np.where(score < -WORSE_NIGHT, self.better + 1, 0), self.better)

    def _find(self, night: int, level: Floats, nights: Floats, ready: Flags, noise: NightNoise) -> None:
        scale = np.maximum(np.abs(level), 1e-300)
        home_scale = np.maximum(np.abs(self.home), 1e-300)
        inflated = (1 + noise.ar) / (1 - noise.ar)
        unsure = np.minimum(inflated / nights, 1.0)
        # So many odd nights in a row are too rare: any, and such as agree. Two that disagree are often an odd
        # night beside a slow one.
        odd = np.log(np.minimum(noise.odd, 0.5))
        needed = np.maximum(np.ceil(np.log(_ODD_RUN) / odd - 0.01), 3)
        alike = np.maximum(np.ceil(1 + (np.log(_ODD_RUN) - odd) / (odd + np.log(_ODD_ALIKE)) - 0.01), 2)
        may = ready & (self.run >= alike)
        most_apart = one_level(noise)
        further = np.maximum(SMALLEST_EFFECT, np.minimum(self.told, _FURTHER))
        for length, limit, agree in ((2, 0.0, True), *WINDOWS):
            rows = np.flatnonzero(may)
            if not len(rows):
                break
            last = np.arange(-length, 0) + self.seen[rows][:, None]
            values = np.take_along_axis(self.order[rows], last, axis=1)
            mean = values.mean(axis=1)
            agreed = (np.ptp(values, axis=1) <= most_apart[rows]) & (length >= alike[rows])
            loss = (mean - self.home[rows]) / home_scale[rows]
            effect = (mean - level[rows]) / scale[rows]
            with np.errstate(invalid="ignore"):
                if length == 2:
                    hit = self._likely(rows, level, nights, noise)
                else:
                    hit = self._beyond(rows, length, limit, agree, unsure[rows], noise.ar[rows])
                hit &= effect >= SMALLEST_EFFECT
                hit &= (self.run[rows] >= needed[rows]) | agreed
                hit &= loss - self.told[rows] >= np.where(self.alarmed[rows] >= 0, further[rows], -np.inf)
            for i, by, lost in zip(rows[hit], effect[hit], loss[hit], strict=True):
                self._raise(int(i), night, "step", float(by), float(level[i]), float(lost))
                run = min(int(self.run[i]), LEVEL_NIGHTS)
                # A fault's nights say nothing of the noise.
                self.raw_scores[i, self.seen[i] - run : self.seen[i]] = np.nan
                self.residuals[i, self.seen[i] - run : self.seen[i]] = np.nan
                self.recent[i] = np.nan
                self.recent[i, :run] = self.order[i, self.seen[i] - run : self.seen[i]]
                self.taken[i] = run - 1  # tonight is taken below
                self.scores[i] = np.nan
                self.run[i] = self.odd_run[i] = 0
                may[i] = False
        loss = (level - self.home) / home_scale
        error = noise.spread * np.sqrt(inflated * (1 / self.learning + 1 / LEVEL_NIGHTS))
        sure = level - self.home > LIMIT * error
        full = ready & (nights == LEVEL_NIGHTS) & (self.run < 2)
        drifted = full & sure & (loss - self.told >= np.maximum(DRIFT_EFFECT, self.told))
        for i in np.flatnonzero(drifted):
            self._raise(int(i), night, "drift", float(loss[i]), float(self.home[i]), float(loss[i]))

    def _beyond(
        self, rows: NDArray[np.intp], length: int, limit: float, agree: bool, unsure: Floats, ar: Floats
    ) -> Flags:
        """Whether the sum of the last scores is beyond a limit in its own standard deviations."""
        scores = self.scores[rows, -length:]
        # In a sum that need not agree an odd night weighs no more than the tails explain.
        most = scores.min(axis=1) + _AGREE if agree else np.full(len(rows), ODD_SCORE)
        total = np.minimum(scores, most[:, None]).sum(axis=1)
        sigma = np.sqrt(window_variance(length, ar) + length**2 * unsure)
        most_sigma = limit + (_CORRELATED * np.minimum(ar / 0.3, 1.0) if agree else 0.0)
        return np.asarray(total > most_sigma * sigma)

    def _likely(self, rows: NDArray[np.intp], level: Floats, nights: Floats, noise: NightNoise) -> Flags:
        """Whether tonight and the night before are a step by themselves."""
        last = np.arange(-3, 0) + self.seen[rows][:, None]
        away = np.take_along_axis(self.order[rows], last, axis=1) - level[rows, None]
        away[~np.isfinite(self.scores[rows, -3]), 0] = np.nan
        when = np.take_along_axis(self.when[rows], last, axis=1)
        gaps = np.diff(when, axis=1)
        lead = noise.lead(rows[:, None], gaps)
        pair = Nights(lead, noise.ar[rows], nights[rows], noise.odd[rows], noise.new)
        return pair.is_step(away / noise.spread[rows, None] / self.scale[when])

    def _raise(
        self, i: int, night: int, chart: Literal["step", "drift"], effect: float, before: float, loss: float
    ) -> None:
        self.alarmed[i] = len(self.found)
        self.with_change[i] = self.changed_parts[i]
        self.told[i] = max(loss, effect)
        self.quiet[i] = 0
        self.found.append(Alarm(i, night, chart, -effect, before * float(self.sign[i]), True))

    def _recover(self, x: Floats, ready: Flags, noise: NightNoise) -> None:
        """End the alarms of series that are back where they were."""
        standing = ready & (self.alarmed >= 0)
        back = np.minimum(WORSE_NIGHT * noise.spread, 0.5 * self.told * np.abs(self.home))
        self.quiet = np.where(standing, np.where(x - self.home < back, self.quiet + 1, 0), self.quiet)
        over = standing & (self.quiet >= _QUIET_NIGHTS)
        if over.any():
            self._begin_at(over, np.broadcast_to(self.home[over][:, None], (int(over.sum()), LEVEL_NIGHTS)))
            self.alarmed[over], self.told[over], self.quiet[over] = -1, 0.0, 0

    def _begin_at(self, which: Flags, nights: Floats) -> None:
        """Start a level from given nights."""
        self.recent[which] = np.nan
        self.recent[which, : nights.shape[1]] = nights
        self.taken[which] = nights.shape[1]
        self.scores[which] = np.nan
        self.run[which] = self.odd_run[which] = self.better[which] = 0

    def _take(self, x: Floats, ready: Flags, noise: NightNoise) -> None:
        """Take the night into the level, drawn in."""
        rows = np.flatnonzero(ready)
        level, _ = self._level()
        limit = CLIP * noise.spread
        self.recent[rows, self.taken[rows] % LEVEL_NIGHTS] = (level + np.clip(x - level, -limit, limit))[rows]
        self.taken[rows] += 1

    def _settle(self, ready: Flags) -> None:
        """Make the level of late the normal one: two weeks after a change of parts, or once it is better."""
        self.settling = np.where(ready, np.maximum(self.settling - 1, 0), self.settling)
        due = ready & (self.settling == 0) & self.changed_parts
        self.changed_parts &= ~due
        # What was ill before the change is not well because of it.
        ill = (self.alarmed >= 0) & ~self.with_change
        self._go_home(due & ~ill, SETTLING_NIGHTS)
        self._go_home(ready & (self.better >= LONGEST_WINDOW) & (self.alarmed < 0), LONGEST_WINDOW)

    def _go_home(self, which: Flags, nights: int) -> None:
        rows = np.flatnonzero(which)
        if not len(rows):
            return
        last = np.arange(-nights, 0) + self.seen[rows][:, None]
        values = np.take_along_axis(self.order[rows], last, axis=1)
        self.home[rows] = np.median(values, axis=1)
        self._begin_at(which, values)
        self.alarmed[rows], self.told[rows], self.quiet[rows] = -1, 0.0, 0
