"""What a plan of this size can tell: how often a healthy cluster fails, how often a slow NIC passes.

A calculation, not a measurement: results of a cell are normal with `CV`, a part `DIPS` of them is outside by
chance, and a healthy cell reaches its reference's value on average. Noise that lasts (a warm leaf, another
firmware) is not in it; what was simulated with such noise is in docs/evidence/gate.md.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from shakedown.records.base import Better, params_text
from shakedown.records.plan import Plan, PlanItem, Reference, Remeasure
from shakedown.records.wording import count
from shakedown.statistics.robust import SMALLEST_CLASS, more_than, most_by_chance

CV, DIPS = 0.003, 0.001
_MEDIAN = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean, for normal values


class _Size(NamedTuple):
    """How large a block of pairs is."""

    cells: int
    nodes: int
    nics: int  # each direction of one counts
    line: int  # cells of one NIC and direction


@dataclass(frozen=True)
class Power:
    """The odds of one block of pairs: all three are probabilities of one run."""

    item: PlanItem
    healthy_fails: float
    slow_2_passes: float  # one NIC, one direction, at -2 %
    slow_5_passes: float

    @property
    def words(self) -> str:
        """Say it."""
        item = self.item
        return (
            f"{item.test} {item.metric} {params_text(item.params)}, {count(len(item), 'cell')} "
            f"({item.rails[0]} and alike): at results "
            f"with a CV of {100 * CV:g} % and {100 * DIPS:g} % low by chance a healthy cluster fails in "
            f"{_part(self.healthy_fails)} of runs, "
            f"and a NIC at -2 % passes in {_part(self.slow_2_passes)}, at -5 % in {_part(self.slow_5_passes)}"
        )


def power_words(plan: Plan) -> tuple[str, ...]:
    """Return what the plan can tell, a sentence a block of pairs, and for which blocks that is not known."""
    floors = sum(_is_floor(reference) for _, reference, _ in _blocks(plan))
    unknown = (
        f"{count(floors, 'block')} of pairs {'has' if floors == 1 else 'have'} a floor as reference, which "
        "does not say what a healthy cell reaches: how often a healthy cluster fails, and a slow NIC passes, "
        "is not known",
    )
    return (*(odds.words for odds in power(plan)), *(unknown if floors else ()))


def power(plan: Plan) -> tuple[Power, ...]:
    """Return the odds of each block of pairs that is measured again and whose healthy level is known."""
    return tuple(
        Power(
            item,
            _healthy_fails(size, reference, rule),
            *(_slow_passes(size, reference, rule, loss) for loss in (0.02, 0.05)),
        )
        for item, reference, rule in _blocks(plan)
        if not _is_floor(reference)
        for size in (_size(item),)
    )


def _blocks(plan: Plan) -> Iterator[tuple[PlanItem, Reference, Remeasure]]:
    """Yield the blocks of pairs that are measured again, with what they are held to."""
    for item in plan.items if plan.remeasure else ():
        reference = plan.references[item.reference]
        pairs = len(next(iter(item.nodes))) == 2 and None not in item.rails and item.unit != "1"
        # Both ways at once are not measured again.
        again = plan.remeasure and item.test in plan.remeasure.tests and "both" not in item.directions
        if plan.remeasure and pairs and again and item.required and reference.value > 0:
            yield item, reference, plan.remeasure


def _is_floor(reference: Reference) -> bool:
    """Whether the gate is the reference's very value: what a dead path misses, and a healthy one exceeds."""
    return reference.gate == reference.value


def _healthy_fails(size: _Size, reference: Reference, rule: Remeasure) -> float:
    cells, nodes, nics, line = size
    low = _outside(reference, 0.0)
    persists, transient = _persists(low), low - _persists(low)
    share = most_by_chance(line, rule.budget, rule.risk / (nics + nodes))
    none_persists = math.exp(cells * math.log1p(-persists)) if persists < 1 else 0.0
    too_many = more_than(most_by_chance(cells, rule.budget, rule.risk), cells, transient)
    piled_up = min(1.0, nics * more_than(share, line, transient))
    return 1 - none_persists * (1 - too_many) * (1 - piled_up)


def _slow_passes(size: _Size, reference: Reference, rule: Remeasure, loss: float) -> float:
    _, nodes, nics, line = size
    low = _outside(reference, loss)
    persists = _persists(low)
    share = most_by_chance(line, rule.budget, rule.risk / (nics + nodes))
    none_persists = math.exp(line * math.log1p(-persists)) if persists < 1 else 0.0
    few = 1 - more_than(share, line, low - persists)
    unseen = 1.0
    if reference.fleet_min_effect is not None and min(line, nics) >= SMALLEST_CLASS:
        unseen = _below((reference.fleet_min_effect - loss) / (_MEDIAN * CV / math.sqrt(line)))
    return none_persists * few * unseen


def _size(item: PlanItem) -> _Size:
    nodes = len(set(chain.from_iterable(item.nodes)))
    nics = 2 * nodes * len(item.rails)
    return _Size(len(item), nodes, nics, max(1, round(2 * len(item) / nics)))


def _outside(reference: Reference, loss: float) -> float:
    """Return the probability that one result of a cell that lost so much lies outside its gate."""
    gate = reference.gate / reference.value
    if reference.better is Better.LOWER:  # a time: what loses 5 % takes 1 / 0.95 as long
        by_noise = _below((1 / (1 - loss) - gate) / CV)
    else:
        by_noise = _below((gate - (1 - loss)) / CV)
    return by_noise + DIPS * (1 - by_noise)


def _persists(low: float) -> float:
    """Return the probability that a cell fails after all of its measurements (statistics.robust.Tally)."""
    good = 1 - low
    return low * (1 - good**2 - 2 * low * good * good**2)


def _below(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _part(probability: float) -> str:
    percent = 100 * probability
    if percent < 0.01:
        return "less than 0.01 %"
    return f"{percent:.2g} %" if percent < 99.5 else f"{percent:.4g} %"
