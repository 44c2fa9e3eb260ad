"""The quick mesh: a few random matchings, then the suspects against partners known to be good, then stop.

With r random disjoint matchings every node meets r partners; a bad node is bad in all of them, while a good
one that met it once has r - 1 good results. What stands out is measured again with partners that do not.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from shakedown.benchmarks.perftest.mesh.schedule import Pair, random_matchings
from shakedown.judge.localise.causes import Cause, localise
from shakedown.judge.localise.fit import Settings
from shakedown.judge.localise.model import Route
from shakedown.records.names import natural_key

MATCHINGS = 3
CONFIRMATIONS = 2
# Suspicion is cheap, since it is checked before anybody is blamed.
SUSPICION = Settings(alpha=0.05, min_effect=0.003)


def first_pairs(names: Sequence[str], seed: int) -> list[Pair]:
    """Return the pairs of the random matchings, in order, so that they pack into as many rounds."""
    return [pair for matching in random_matchings(names, MATCHINGS, seed) for pair in matching]


def suspects(routes: Sequence[Route]) -> list[Cause]:
    """Return what looks bad after the matchings: nodes, to be confirmed, and whatever else shows already."""
    return localise(routes, settings=SUSPICION)


def suspected_nodes(causes: Iterable[Cause]) -> list[str]:
    """Return the nodes among them, in natural order."""
    ends = {end for c in causes for end in (c.element.node, c.element.peer) if end}
    return sorted(ends, key=natural_key)


def confirming_pairs(
    suspected: Sequence[str], names: Sequence[str], measured: Iterable[Pair], seed: int
) -> list[Pair]:
    """Return pairs of each suspect with good partners that it has not met: at most CONFIRMATIONS rounds.

    More suspects than good nodes can serve in a round means that something larger is wrong; then only as many
    are confirmed as there are partners, in the order given.
    """
    met = {frozenset(pair) for pair in measured}
    chooser = random.Random(seed)  # noqa: S311  (a schedule, not a secret)
    good = [n for n in names if n not in set(suspected)]
    pairs: list[Pair] = []
    for _ in range(CONFIRMATIONS):
        chooser.shuffle(good)
        free = list(good)
        for suspect in suspected:
            partner = next((g for g in free if frozenset((suspect, g)) not in met), None)
            if partner is not None:
                free.remove(partner)
                met.add(frozenset((suspect, partner)))
                first, second = sorted((suspect, partner), key=natural_key)
                pairs.append((first, second))
    return pairs
