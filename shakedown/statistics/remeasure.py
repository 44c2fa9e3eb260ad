"""When a cell outside its gate is measured again, what its samples say, and how many a healthy cluster has.

Standard library only: the mesh's driver asks on compute nodes what the verdict asks later.
"""

from __future__ import annotations

import math
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
