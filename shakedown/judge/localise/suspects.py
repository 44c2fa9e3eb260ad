"""What localisation says of a run, and the nodes that kept results from being measured at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from shakedown.benchmarks.perftest.mesh.schedule import LESS_LOAD
from shakedown.judge.localise.causes import Cause, localise
from shakedown.judge.localise.fit import Settings
from shakedown.judge.localise.linked import with_links
from shakedown.judge.localise.matrices import routes_of
from shakedown.judge.localise.model import Element, Route
from shakedown.judge.localise.pair_results import PairResults, named_in
from shakedown.plan.jobs import SwitchLink
from shakedown.records.counters import CounterReading
from shakedown.run.folder import Run

# As much of what was said as a reader needs; a node with a wrong perftest says the same of every partner.
_MOST_MESSAGES = 3
# When more nodes than that, and more than half of all, would each have to be at fault, it is none of theirs.
_FEW_NODES = 3


def causes_and_suspects(
    pairs: PairResults, run: Run | None, readings: Iterable[CounterReading], settings: Settings | None = None
) -> tuple[list[Cause], list[Route]]:
    """Return the causes, then the suspects, those that kept results away first, and what they rest on.

    Raises:
        BadInput: the run's cabling or paths cannot be read.
    """
    routes = routes_of(pairs, run)
    causes = with_links(localise(routes, readings, settings), _links(run))
    kept_away = in_the_way(pairs)
    return [c for c in causes if c.blamed] + kept_away + [c for c in causes if not c.blamed], routes


def _links(run: Run | None) -> tuple[SwitchLink, ...]:
    return run.jobs.links if run and run.jobs else ()


def in_the_way(pairs: PairResults) -> list[Cause]:
    """Return, as suspects, the nodes that explain the results missing for no fault of the fabric's.

    A node that died, a tool that is missing or of another version, an MTU that was not ordered: what was said
    of each missing result is about one end, or both, or, if the whole job failed, none. The fewest nodes that
    explain those are taken, those that died first; two that explain the same are each other's rivals.
    Where that is most of the nodes, and they did not die, none is named.
    """
    # What lacked its neighbours' load is a consequence; the neighbour's own record says of what.
    items = [
        (tuple(named_in(message, place)), message)
        for place, message in pairs.spoilt()
        if not message.startswith(LESS_LOAD)
    ]
    of_node: dict[str, list[int]] = defaultdict(list)
    for number, (ends, _) in enumerate(items):
        for node in ends:
            of_node[node].append(number)
    open_ = {node: len(numbers) for node, numbers in of_node.items()}
    explained = [False] * len(items)
    found: list[Cause] = []
    lost: list[Cause] = []
    heap = [(-count, node) for node, count in open_.items()]
    heapify(heap)
    while heap:
        count, node = heappop(heap)
        if -count != open_[node]:
            # It has lost some to another since; nothing is ever gained.
            if open_[node]:
                heappush(heap, (-open_[node], node))
            continue
        mine = [number for number in of_node[node] if not explained[number]]
        shared = Counter(end for number in mine for end in items[number][0] if end != node)
        rivals = sorted(n for n, common in shared.items() if common == len(mine) == open_[n])
        for number in mine:
            explained[number] = True
            for end in items[number][0]:
                open_[end] -= 1
        said = [items[number][1] for number in mine]
        dead = any(message.startswith(f"{node} lost: ") for message in said)
        (lost if dead else found).append(_kept_away(node, said, rivals, dead=dead))
    nodes = {node for places in pairs.values.values() for _, *ends in places for node in ends}
    if len(found) > max(_FEW_NODES, len(nodes) / 2):
        found = [_everywhere([message for _, message in items if " lost: " not in message])]
    return lost + found


def _everywhere(messages: list[str]) -> Cause:
    return Cause(
        element=Element("fabric"),
        blamed=False,
        confidence=1.0,
        effect=-1.0,
        findings=(),
        evidence=(*sorted(set(messages))[:_MOST_MESSAGES], f"{len(messages)} results are missing for it"),
        rivals=(),
        proposal="put right on all nodes what is said here, then measure again",
    )


def _kept_away(node: str, messages: list[str], rivals: list[str], *, dead: bool) -> Cause:
    said = sorted(set(messages))
    if dead:
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
