"""Statistics that a verdict rests on. Plain Python: a class of 8,192 values sorts in milliseconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

# A cell is transient only if less than half of its samples lie outside: one of three, two of five.
MOST_OUTSIDE = 2


class Samples(StrEnum):
    """What all samples of one cell say together."""

    WITHIN = "within"  # nothing is wrong with it
    TRANSIENT = "transient"  # outside, or without a value, at first or once; measured again often enough
    PERSISTS = "persists"  # outside too often, whatever came later
    OPEN = "open"  # must be measured again


@dataclass(frozen=True)
class CellTally:
    """The samples of one cell: how often it was tried, how often it had a value, how many lie outside."""

    tried: int
    values: int
    outside: int

    def says(self, again: int) -> Samples:
        """Return what the samples say; `again` is how many more a doubtful cell needs.

        A cell that was outside at first needs `again` further values; one without a value needs `again`
        values at all. A second sample outside asks for two more; a third decides.
        """
        if self.outside > MOST_OUTSIDE:
            return Samples.PERSISTS
        if not self.outside and self.values == self.tried:
            return Samples.WITHIN
        needed = max(again + bool(self.outside), 2 * self.outside + 1)
        return Samples.TRANSIENT if self.values >= needed else Samples.OPEN


def most_by_chance(cells: int, rate: float, risk: float) -> int:
    """Return the smallest k that a binomial count of `cells` at `rate` exceeds with `risk` at most.

    Raises ValueError unless 0 < rate < 1, 0 < risk < 1 and cells >= 0.
    """
    if not (0 < rate < 1 and 0 < risk < 1 and cells >= 0):
        raise ValueError("rate and risk lie between 0 and 1, cells are not negative")
    # Upwards from the mean until what is left no longer counts, then back until it counts for too much.
    k = math.floor(cells * rate)
    terms: list[float] = []
    while k < cells:
        k += 1
        terms.append(_probability(k, cells, rate))
        if terms[-1] < risk * 1e-9:
            break
    tail = 0.0
    risk *= 1 + 1e-12  # a tail that equals the risk but for rounding does not exceed it
    while terms and tail + terms[-1] <= risk:
        tail += terms.pop()
        k -= 1
    if terms:
        return k
    # The mean itself is rarely exceeded: a small count.
    while k > 0 and tail + (p := _probability(k, cells, rate)) <= risk:
        tail += p
        k -= 1
    return k


def more_than(most: int, cells: int, rate: float) -> float:
    """Return the probability that a binomial count of `cells` at `rate` is more than `most`."""
    if rate <= 0 or most >= cells:
        return 0.0
    if rate >= 1:
        return 1.0
    mean = cells * rate
    total, k = 0.0, most
    while k < cells:
        k += 1
        term = _probability(k, cells, rate)
        total += term
        if k > mean and term < 1e-15 * max(total, 1e-300):
            break
    return min(1.0, total)


def _probability(k: int, cells: int, rate: float) -> float:
    ways = math.lgamma(cells + 1) - math.lgamma(k + 1) - math.lgamma(cells - k + 1)
    return math.exp(ways + k * math.log(rate) + (cells - k) * math.log1p(-rate))


# Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): 0.6745 makes the median absolute
# deviation (MAD) of normal data comparable to a standard deviation; 3.5 is their cut-off.
MAD_TO_SIGMA = 0.6745
ROBUST_Z_CUTOFF = 3.5
# The smallest class in which the median has a 95 % interval at all (see `median_interval`).
SMALLEST_CLASS = 6
# Asymptotic efficiency of the MAD against the standard deviation for normal data (Rousseeuw and Croux 1993):
# a MAD of n values knows the spread as well as a standard deviation of 0.37 n values.
MAD_EFFICIENCY = 0.37
FALSE_DISCOVERIES = 0.01  # part of the outliers of a class that may be healthy


def median(values: Sequence[float]) -> float:
    """Return the median. Raises ValueError if there are no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Return (low, high, coverage) of the median: the narrowest order-statistic interval that holds.

    Distribution-free: the k-th smallest and k-th largest of n values cover the median with probability
    1 - 2 P(Binomial(n, 1/2) < k). Below six values no interval reaches 95 %; the whole range is returned
    with what it does cover. Raises ValueError if there are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered, n = sorted(values), len(values)
    k, tail = 1, 0.5**n
    while k < n / 2:
        wider = tail + math.comb(n, k) * 0.5**n
        if 1 - 2 * wider < confidence:
            break
        k, tail = k + 1, wider
    return ordered[k - 1], ordered[n - k], max(0.0, 1 - 2 * tail)


def resolution(values: Sequence[float]) -> float:
    """Return the smallest step in which the values are printed: 0.01 for 97.52 and 97.5.

    A tool that prints two decimals makes a quiet class look like a MAD of zero.
    """
    decimals = 0
    for value in dict.fromkeys(values):  # each once: a tool prints few digits
        text = repr(value)
        if "e" in text:
            return abs(value) * 1e-9 or 1e-12
        _, _, fraction = text.partition(".")
        if fraction != "0":
            decimals = max(decimals, len(fraction))
    return float(10.0**-decimals)


def robust_z(values: Sequence[float], floor: float) -> list[float]:
    """Return each value's signed distance from the median in robust standard deviations.

    The MAD is floored at `floor`, the resolution of the tool, in the unit of the values.
    """
    centre = median(values)
    spread = max(median([abs(v - centre) for v in values]), floor)
    return [MAD_TO_SIGMA * (v - centre) / spread for v in values]


def tail_probabilities(z: Sequence[float], members: int | None = None) -> list[float]:
    """Return P(Z > z) for the robust z of a whole class, or 1 where z is at most 2.

    `members` is the size of the class that the MAD comes from, if `z` are not all of it.

    By Student's t with 0.37 (n - 1) degrees of freedom, which is what the MAD of n values is worth. The
    normal tail would be wrong: simulated on healthy normal classes of 6 to 1,024 members, this one with
    Benjamini-Hochberg at q = 0.01 accuses a member in about 1 % of classes, the normal one in up to 8 %.
    """
    freedom = max(1.0, MAD_EFFICIENCY * ((len(z) if members is None else members) - 1))
    # Below 2 the tail is more than 2 % whatever the freedom: that rejects nothing at any sensible q.
    # A tool prints few digits: many members have one value.
    tails = {x: student_t_tail(x, freedom) for x in set(z) if x > 2}
    return [tails.get(x, 1.0) for x in z]


def student_t_tail(t: float, freedom: float) -> float:
    """Return P(T > t) of Student's t with `freedom` degrees of freedom.

    By the incomplete beta function (Abramowitz and Stegun 26.7.1). SciPy has it too, and its import takes
    half a second, as long as judging 20,000 cells; the tests hold this one against it.
    """
    if t == 0:
        return 0.5
    a, rest, both = freedom / 2, t * t, freedom + t * t
    power = math.exp(0.5 * math.log(rest / both) - a * math.log1p(rest / freedom) - _log_beta_of_half(a))
    if freedom / both <= (a + 1) / (a + 2.5):
        tail = power / a * _continued(freedom / both, a, 0.5) / 2
    else:  # where that fraction converges slowly
        tail = 0.5 - power * _continued(rest / both, 0.5, a)
    return tail if t > 0 else 1.0 - tail


def _continued(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz (Numerical Recipes, 6.4)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / ((1.0 - (a + b) * x / (a + 1.0)) or tiny)
    fraction = d
    for m in range(1, 10_000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + step * d) or tiny)
            c = (1.0 + step / c) or tiny
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return fraction


def _log_beta_of_half(a: float) -> float:
    """Return ln B(a, 1/2)."""
    half = math.log(math.pi) / 2  # ln Gamma(1/2)
    if a < 20:
        return half + math.lgamma(a) - math.lgamma(a + 0.5)
    # Two large lgamma lose digits in their difference; Stirling's series of it does not.
    return half - (math.log(a) / 2 - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7))


def benjamini_hochberg(p: Sequence[float], q: float) -> list[bool]:
    """Return which hypotheses are rejected with a false discovery rate of q (Benjamini and Hochberg 1995)."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    last = 0
    for rank, i in enumerate(order, start=1):
        if p[i] <= q * rank / len(p):
            last = rank
    rejected = [False] * len(p)
    for i in order[:last]:
        rejected[i] = True
    return rejected


def worse_outliers(
    values: Sequence[float], *, higher: bool, min_effect: float, q: float = FALSE_DISCOVERIES
) -> list[bool]:
    """Return which members are worse than their class, by robust z, minimum effect and false discovery rate.

    `min_effect` is a fraction of the class median. A class of fewer than six members, or with a median of
    zero, accuses no member. An improvement is never an outlier.
    """
    none_worse = [False] * len(values)
    if len(values) < SMALLEST_CLASS:
        return none_worse
    centre = median(values)
    if centre == 0:
        return none_worse
    sign = -1.0 if higher else 1.0
    worse_by = [sign * (v - centre) / abs(centre) for v in values]
    if max(worse_by) <= min_effect:
        return none_worse
    z = [sign * x for x in robust_z(values, resolution(values))]
    if max(z) <= ROBUST_Z_CUTOFF:
        return none_worse
    rejected = benjamini_hochberg(tail_probabilities(z), q)
    return [
        r and x > ROBUST_Z_CUTOFF and effect > min_effect
        for r, x, effect in zip(rejected, z, worse_by, strict=True)
    ]


def stands_apart(
    cells: Sequence[Sequence[float]], *, higher: bool, min_effect: float, risk: float
) -> int | None:
    """Return the cell of a class that is worse than its fellows by more than repeats and cells differ.

    Each cell has its repeats, and every one of the odd cell is worse than each of its fellows': no tail of a
    noise does that three times, and of several nodes of another kind none stands alone. Its median is away by
    Student's t for one more value of a class, with `risk` over all cells, by `min_effect` of the class's
    median, and by 1.5 times its own range. None: there is no such cell, or there are fewer than six.
    """
    values = [median(cell) for cell in cells]
    centre, many = median(values) if values else 0, len(cells) - 1
    if many < SMALLEST_CLASS - 1 or centre <= 0:
        return None
    sign = 1 if higher else -1
    ends = [sorted(sign * (1 - x / centre) for x in (min(cell), max(cell))) for cell in cells]
    at = max(range(len(ends)), key=lambda i: ends[i][0])
    best, worst = ends[at]
    behind = [sign * (1 - v / centre) for v in values]
    others = behind[:at] + behind[at + 1 :]
    mean = sum(others) / many
    away = behind[at] - mean
    if (
        behind[at] <= min_effect
        or away <= 1.5 * (worst - best)
        or best <= max(e[1] for e in ends if e is not ends[at])
    ):
        return None
    deviation = math.sqrt(sum((x - mean) ** 2 for x in others) / (many - 1) * (1 + 1 / many))
    certain = student_t_tail(away / max(deviation, 1e-9), many - 1)
    return at if certain <= risk / len(cells) else None


def behind_fellows(
    values: Sequence[float], *, spread: float, cards: int, min_effect: float, risk: float = FALSE_DISCOVERIES
) -> list[bool | None]:
    """Return of each member of a node whether it is slow: True, False, or None where it cannot be told.

    Each value is held to the median of the others by Student's t for one more value of a class. The class's
    deviation is pooled from the others and from `spread`, a fraction, which was published of so many `cards`
    (0: of none). A node is `risk` all its members share. None: `min_effect`, a fraction, or more behind and
    yet within what healthy members differ by. Unlike an outlier test it needs no six, and a few members that
    vary hide none.
    """
    told: list[bool | None] = []
    for place, value in enumerate(values):
        others = [*values[:place], *values[place + 1 :]]
        centre, many = median(others), len(others)
        behind = 1 - value / centre if centre > 0 else 0.0
        mean = sum(others) / many
        own = sum((x - mean) ** 2 for x in others)
        known = max(0, cards - 1)
        freedom = known + many - 1
        if behind <= min_effect:
            told.append(False)
            continue
        deviation = math.sqrt((known * (spread * centre) ** 2 + own) / freedom) if freedom else math.inf
        error = deviation * math.sqrt(1 + (math.pi / 2 if many > 2 else 1) / many)
        certain = student_t_tail((centre - value) / max(error, 1e-12 * centre), freedom or 1)
        told.append(True if certain <= risk / len(values) else None)
    return told


def behind_itself(
    now: float, before: Sequence[float], *, known: tuple[float, int], members: int
) -> bool | None:
    """Return whether a member lost 0.5 % of what it reached before; None: runs may differ so much.

    `known`: what one member differs by, a fraction, over how many runs, beside its own. A node's `members`
    share the risk of blaming one that is well.
    """
    risk = FALSE_DISCOVERIES * (1 + len(before)) / members
    return behind_fellows([now, *before], spread=known[0], cards=known[1], min_effect=0.005, risk=risk)[0]


def smallest_p(n: int, m: int) -> float:
    """Return the smallest two-sided p that any rank or permutation test of n against m samples can give.

    2 / C(n + m, n): 0.1 for three against three, which is therefore never significant.
    """
    return min(1.0, 2 / math.comb(n + m, n))


# Of the recorded sweeps of healthy nodes, the deepest dip between two sizes left 0.55 (alltoall over TCP of
# one host's namespaces), by NVLink and PCIe 0.96; of the published curve (A100 x 8) 0.97.
_HOLE = 0.5


def holes(rates: Sequence[float]) -> Iterator[tuple[int, float]]:
    """Yield where a curve dips below half of what both a smaller and a larger size reach, and to what share.

    `rates`: what comes through, of each size, from the smallest on.
    """
    for at in range(1, len(rates) - 1):
        share = rates[at] / min(max(rates[:at]), max(rates[at + 1 :]))
        if share < _HOLE:
            yield at, share
