"""What localisation says of a run, and the nodes that kept results from being measured at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from shakedown.core.localise import Cause, localise
from shakedown.core.localise_fit import Settings
from shakedown.core.localise_model import Element, Route
from shakedown.core.records import CounterReading
from shakedown.mesh.matrices import routes_of
from shakedown.mesh.pair_results import PairResults, named_in
from shakedown.runs import Run

# As much of what was said as a reader needs; a node with a wrong perftest says the same of every partner.
_MOST_MESSAGES = 3


def culprits(
    pairs: PairResults, run: Run | None, readings: Iterable[CounterReading], settings: Settings | None = None
) -> tuple[list[Cause], list[Route]]:
    """Return the causes, then the suspects, those that kept results away first, and what they rest on.

    Raises:
        BadInput: the run's cabling or paths cannot be read.
    """
    routes = routes_of(pairs, run)
    causes = localise(routes, readings, settings)
    kept_away = in_the_way(pairs)
    return [c for c in causes if c.blamed] + kept_away + [c for c in causes if not c.blamed], routes


def in_the_way(pairs: PairResults) -> list[Cause]:
    """Return, as suspects, the nodes that explain the results missing for no fault of the fabric's.

    A node that died, a tool that is missing or of another version, an MTU that was not ordered: what was said
    of each missing result names one end, or both, or none, which is as good as both. The fewest nodes that
    explain all of them are taken, the one that explains most first; two that explain the same are each
    other's rivals.
    """
    messages: dict[str, dict[int, str]] = defaultdict(dict)
    for number, (place, message) in enumerate(pairs.spoilt()):
        for node in named_in(message, place):
            messages[node][number] = message
    found: list[Cause] = []
    while messages:
        most = max(len(open_) for open_ in messages.values())
        node = min(n for n, open_ in messages.items() if len(open_) == most)
        mine = messages.pop(node)
        rivals = [n for n, theirs in messages.items() if theirs.keys() == mine.keys()]
        found.append(_kept_away(node, list(mine.values()), sorted(rivals)))
        for other in list(messages):
            messages[other] = {k: m for k, m in messages[other].items() if k not in mine}
            if not messages[other]:
                del messages[other]
    return found


def _kept_away(node: str, messages: list[str], rivals: list[str]) -> Cause:
    said = sorted(set(messages))
    lost = any(message.startswith(f"{node} lost: ") for message in said)
    if lost:
        proposal = f"see why {node} stopped answering, then measure its pairs"
    else:
        proposal = f"put right on {node} what is said here, then measure its pairs"
    return Cause(
        element=Element("node", node=node),
        blamed=False,
        confidence=1 / (1 + len(rivals)),
        effect=-1.0,
        findings=(),
        evidence=(*said[:_MOST_MESSAGES], f"{len(messages)} results of its pairs are missing for it"),
        rivals=tuple(Element("node", node=rival) for rival in rivals),
        proposal=proposal,
    )
