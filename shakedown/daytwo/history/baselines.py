"""Taken out of nightly values before they are charted: a node's own week, what all nodes do together."""

import numpy as np
from numpy.typing import NDArray

from shakedown.statistics.robust import SMALLEST_CLASS

# How much of each weekday's mean is believed follows from how much more the weekdays of all nodes differ than
# their noise explains (James and Stein 1961; empirical Bayes). Where no node has a week of its own, nothing
# is taken out. Only nights before count: no later night changes an alarm.

Floats = NDArray[np.float64]
Days = NDArray[np.intp]

DAYS = 7
# A night further than this from its weekday, in spreads, says nothing of the week: it was odd, or a step.
_FAR = 3.0
_SURE = 3.0  # weekdays must differ by so many standard errors, over all nodes, before any of it is believed
# Nights in the level, and of each weekday in the week: half a year, so that a new week is learnt.
_LEVEL_NIGHTS, _MOST_OF_A_DAY = 28, 26
# One node with a week of its own is not to speak for all: its variance counts so many times its noise's.
_MOST_OF_ONE = 10.0


def weekdays(times: NDArray[np.datetime64], first: int) -> Days:
    """Return the day of the week of each run, 0 to 6.

    A day begins twelve hours away from when the first runs began, so that one of 23:50 and one of 00:10 are
    nights of the same name.
    """
    minutes = times.astype("datetime64[m]").astype(np.int64)
    turn = np.exp(2j * np.pi * (minutes[:first] % 1440) / 1440)
    usual = round(float(np.angle(turn.mean())) / (2 * np.pi) * 1440) if len(turn) else 0
    return np.asarray((minutes - usual + 720) // 1440 % DAYS, dtype=np.intp)


def without_own_weeks(values: Floats, days: Days, learning: int) -> Floats:
    """Return the values of series x nights without each series' own week.

    Args:
        values: in time, of one metric of many nodes; NaN where a night has no value.
        days: the day of the week of each night, 0 to 6.
        learning: nights after which a series gives alarms. These are held against each other, later ones
            against what was before.
    """
    weeks = _Weeks(values.shape[0])
    out = values.copy()
    there = np.isfinite(values)
    seen = there.cumsum(axis=1)
    for night in range(values.shape[1]):
        begin = np.flatnonzero(there[:, night] & (seen[:, night] == learning))
        if len(begin):
            columns = np.nonzero(there[begin, : night + 1])[1].reshape(len(begin), learning)
            first = values[begin[:, None], columns]
            weeks.begin(begin, first, days[columns])
            out[begin[:, None], columns] = first - weeks.of_the_others(begin, first, days[columns])
        rows = np.flatnonzero(there[:, night] & (seen[:, night] > learning))
        if len(rows):
            out[rows, night] = weeks.take(rows, values[rows, night], int(days[night]))
    return out


class _Weeks:
    """What is known of each series: level, spread, and by weekday the nights and their sum."""

    def __init__(self, count: int) -> None:
        self.level, self.variance = np.zeros(count), np.ones(count)
        # Sums are about the level.
        self.sums, self.squares, self.nights = (np.zeros((count, DAYS)) for _ in range(3))
        self.begun = np.zeros(count, dtype=bool)

    def begin(self, rows: NDArray[np.intp], first: Floats, days: Days) -> None:
        """Learn level, spread and week of series from their first nights."""
        of_day = days[:, :, None] == np.arange(DAYS)
        usual = np.nan_to_num(_medians(np.where(of_day, first[:, :, None], np.nan)))
        of_night = np.take_along_axis(usual, days, axis=1)
        away = first - of_night
        # The median of four nights is nearer to each of them than their level is.
        spread = 1.4826 * np.median(np.abs(away), axis=1) * np.sqrt(first.shape[1] / (first.shape[1] - DAYS))
        spread = np.where(spread > 0, spread, np.std(away, axis=1))[:, None]
        drawn = of_night + np.clip(away, -_FAR * spread, _FAR * spread)
        nights = of_day.sum(axis=1).astype(np.float64)
        means = (drawn[:, :, None] * of_day).sum(axis=1) / np.maximum(nights, 1)
        level = (means * (nights > 0)).sum(axis=1) / (nights > 0).sum(axis=1)
        inside = drawn - np.take_along_axis(means, days, axis=1)
        free = np.maximum(first.shape[1] - (nights > 0).sum(axis=1), 1)
        self.level[rows], self.nights[rows] = level, nights
        self.sums[rows] = (means - level[:, None]) * nights
        self.squares[rows] = ((drawn - level[:, None])[:, :, None] ** 2 * of_day).sum(axis=1)
        self.variance[rows] = np.maximum((inside**2).sum(axis=1) / free, 1e-300)
        self.begun[rows] = True

    def prior(self) -> float:
        """Return how many nights of a weekday weigh as much as what all weekdays have in common.

        Two nights of one weekday vary together by the variance of weeks, and by nothing else, however heavy
        the tails.
        """
        nights, sums = self.nights[self.begun], self.sums[self.begun]
        pairs = np.maximum((nights * (nights - 1)).sum(axis=1), 1)
        together = (sums**2 - self.squares[self.begun]).sum(axis=1) / pairs / self.variance[self.begun]
        share = np.minimum(together, _MOST_OF_ONE)
        # Few series do not show how far they differ: no less than chance makes of normal ones.
        error = np.sqrt(max(float(np.var(share)), 2 / float(pairs.mean())) / len(share))
        return float(1 / share.mean()) if share.mean() > _SURE * error else np.inf

    def of_the_others(self, rows: NDArray[np.intp], first: Floats, days: Days) -> Floats:
        """Return for each learning night what the other nights of its weekday say."""
        prior = self.prior()
        if np.isinf(prior):
            return np.zeros_like(first)
        sums = np.take_along_axis(self.sums[rows], days, axis=1)
        nights = np.take_along_axis(self.nights[rows], days, axis=1)
        spread = np.sqrt(self.variance[rows])[:, None]
        mean = self.level[rows][:, None] + sums / np.maximum(nights, 1)
        own = mean + np.clip(first - mean, -_FAR * spread, _FAR * spread) - self.level[rows][:, None]
        return np.asarray((sums - own) / (nights - 1 + prior))

    def take(self, rows: NDArray[np.intp], x: Floats, day: int) -> Floats:
        """Take a night into the week; return it without the week as it was known before."""
        prior = self.prior()
        level = self.level[rows]
        week = (
            self.sums[rows] / (self.nights[rows] + prior)
            if np.isfinite(prior)
            else np.zeros((len(rows), DAYS))
        )
        plain = x - (week[:, day] - week.mean(axis=1))
        far = _FAR * np.sqrt(self.variance[rows])
        away = plain - level
        self.level[rows] += np.clip(away, -far, far) / _LEVEL_NIGHTS
        near = np.abs(away) <= far
        kept = rows[near]
        older = np.minimum(self.nights[kept, day], _MOST_OF_A_DAY - 1) / np.maximum(self.nights[kept, day], 1)
        self.sums[kept, day] = self.sums[kept, day] * older + (x - level)[near]
        self.squares[kept, day] = self.squares[kept, day] * older + (x - level)[near] ** 2
        self.nights[kept, day] = np.minimum(self.nights[kept, day] + 1, _MOST_OF_A_DAY)
        # A spread that was believed to be too narrow would call all nights far: they count, drawn in.
        all_nights = self.nights[rows].sum(axis=1)
        self.variance[rows] += (np.clip(away, -far, far) ** 2 - self.variance[rows]) / (all_nights + 1)
        return np.asarray(plain)


def _medians(values: Floats) -> Floats:
    """Return the median over the second axis, NaN where there is none."""
    ordered = np.sort(values, axis=1)  # NaN last
    n = np.isfinite(values).sum(axis=1)
    low, high = np.maximum((n - 1) // 2, 0), n // 2
    pick = [np.take_along_axis(ordered, at[:, None, :], axis=1)[:, 0, :] for at in (low, high)]
    return np.asarray((pick[0] + pick[1]) / 2)


_KNOWN_NIGHTS = 5  # nights that a node must have before it says anything about the others

# Beyond so many median deviations from the centre a node says nothing of it: three standard deviations. The
# usual 4.685 takes in a quarter that lost as much, and tells of a loss of all.
_REACH, _ROUNDS = 3 * 1.4826, 4


def split_common(values: Floats) -> tuple[Floats, Floats]:
    """Return (each node's values without what all did, the common factor by night).

    Args:
        values: nodes x nights, in time; NaN where there is no value.

    The factor of a night is the centre over the nodes of their value against their own level; fewer than half
    of the nodes may be ill without moving it far. It is NaN, and what was last known is taken out, on nights
    that fewer than six known nodes measured. Only nights before count: no later night changes an alarm.

    A node's level is the median of its first nights, and then moves as far as the night's centre weighs it:
    over all nodes that sums to nothing. Levels that are means would follow one-sided noise, whose mean is not
    its centre, and each night's factor would push them on.
    """
    count, nights = values.shape
    level, seen = np.zeros(count), np.zeros(count)
    first = np.full((count, _KNOWN_NIGHTS), np.nan)
    common = np.full(nights, np.nan)
    own = np.full_like(values, np.nan)
    last = 1.0
    for night in range(nights):
        x = values[:, night]
        there = np.isfinite(x)
        known = there & (seen >= _KNOWN_NIGHTS) & (level != 0)
        weight = np.zeros(count)
        if known.sum() >= SMALLEST_CLASS:
            last, weight[known] = _centre(x[known] / level[known])
            common[night] = last
        if last <= 0:  # no factor: the values change their sign
            last, common[night], weight[:] = 1.0, np.nan, 0.0
        own[there, night] = x[there] / last
        new = np.flatnonzero(there & (seen < _KNOWN_NIGHTS))
        first[new, seen[new].astype(np.intp)] = own[new, night]
        seen += there
        if len(new):
            level[new] = np.nanmedian(first[new], axis=1)
        level += weight * (np.where(known, own[:, night], level) - level) / np.maximum(seen, 1)
    return own, common


def _centre(shares: Floats) -> tuple[float, Floats]:
    """Return the biweight centre (Mosteller and Tukey 1977), and what each share weighs in it.

    A tenth that is sick does not move it. It would move a median by an eighth of the noise of a night, away
    from what is to be found.
    """
    centre, weight = float(np.median(shares)), np.zeros_like(shares)
    reach = _REACH * float(np.median(np.abs(shares - centre)))
    for _ in range(_ROUNDS if reach > 0 else 0):
        weight = np.maximum(1 - ((shares - centre) / reach) ** 2, 0.0) ** 2
        centre = float((weight * shares).sum() / weight.sum())
    return centre, weight
