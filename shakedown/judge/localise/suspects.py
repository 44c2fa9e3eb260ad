"""What localisation says of a run: causes, idle uplinks, unexplained results, whom to measure again."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np

from shakedown.benchmarks.perftest.mesh.schedule import LESS_LOAD, Pair, random_matchings
from shakedown.judge.localise.causes import SMALL_MESH, Cause, localise
from shakedown.judge.localise.fit import FitSettings
from shakedown.judge.localise.groups import robust_sigma, spread_of
from shakedown.judge.localise.levels import deviations
from shakedown.judge.localise.matrices import routes_of
from shakedown.judge.localise.model import Bools, Cabling, Element, Matrix, Route
from shakedown.judge.localise.pair_results import PairResults, named_in
from shakedown.nos.readings import IDLE, RECEIVED, SENT
from shakedown.plan.jobs import SwitchLink
from shakedown.records.results import CounterReading
from shakedown.records.wording import BLAMES, natural_key
from shakedown.run.folder import Run

# More cables between two switches than a reader needs.
_MOST_CABLES = 4


def with_links(causes: Sequence[Cause], links: Sequence[SwitchLink]) -> list[Cause]:
    """Return the causes with the ports of each uplink, and one for a plane whose spines are all blamed."""
    planes: dict[str, set[str]] = {}
    for link in links:
        if link.plane is not None:
            planes.setdefault(link.plane, set()).add(link.spine)
    blamed = {cause.element.spine for cause in causes if cause.blamed and cause.element.kind == "spine"}
    bad = {name: spines for name, spines in planes.items() if len(spines) > 1 and spines <= blamed}
    found: list[Cause] = []
    for cause in causes:
        plane = next((name for name, spines in bad.items() if cause.element.spine in spines), None)
        if plane is None or cause.element.kind != "spine":
            found.append(_with_ports(cause, links))
        elif not any(one.element == Element("plane", spine=plane) for one in found):
            found.append(_plane(plane, [c for c in causes if c.element.spine in bad[plane]]))
    return found


def _plane(name: str, causes: Sequence[Cause]) -> Cause:
    spines = [cause for cause in causes if cause.element.kind == "spine"]
    return replace(
        spines[0],
        element=Element("plane", spine=name),
        confidence=min(cause.confidence for cause in spines),
        effect=min(cause.effect for cause in spines),
        evidence=tuple(line for cause in spines for line in cause.evidence),
        proposal=f"look at what the spines of plane {name} share, and measure again",
    )


def _with_ports(cause: Cause, links: Sequence[SwitchLink]) -> Cause:
    ends = (cause.element.leaf, cause.element.spine)
    cables = [
        f"{link.leaf}:{link.leaf_port} to {link.spine}:{link.spine_port}"
        for link in links
        if (link.leaf, link.spine) == ends
    ]
    if cause.element.kind != "uplink" or not cables or any(cable in cause.proposal for cable in cables):
        return cause
    more = f" and {len(cables) - _MOST_CABLES} more" if len(cables) > _MOST_CABLES else ""
    return replace(cause, evidence=(*cause.evidence, f"its cables: {', '.join(cables[:_MOST_CABLES])}{more}"))


# Fewer leaves than this tell a spine from one of its links: with two, a link that is down idles the other.
_FEWEST_LEAVES = 3


def idle_uplinks(readings: Iterable[CounterReading], wanted: Collection[tuple[str, str]]) -> list[Cause]:
    """Return, as causes, the uplinks that carried nothing while their siblings did.

    A spine of which no leaf's uplink carried anything is named in place of them. An uplink is named once,
    whatever the stages say.

    Args:
        readings: of OF_UPLINK.
        wanted: the uplinks, by leaf and port, of which the plan requires that they carry something.
    """
    found: dict[tuple[str, str], CounterReading] = {}
    links: dict[str, set[tuple[str, str]]] = {}
    ways: dict[tuple[str, str], dict[str, int | None]] = {}
    for reading in readings:
        place = (reading.device, reading.port)
        ways.setdefault(place, {})[reading.counter] = reading.delta
        if reading.counter != IDLE or place not in wanted:
            continue
        links.setdefault(_spine(reading)[0], set()).add(place)
        if reading.delta:
            found.setdefault(place, reading)
    causes = []
    for spine, places in sorted(links.items()):
        idle = [found[place] for place in sorted(places) if place in found]
        leaves = {reading.device for reading in idle}
        if len(leaves) > 1 and len(idle) == len(places):
            causes.append(_of_spine(spine, idle, blamed=len(leaves) >= _FEWEST_LEAVES))
        else:
            causes += [_of_link(reading, ways[reading.device, reading.port]) for reading in idle]
    return causes


def _spine(reading: CounterReading) -> tuple[str, str]:
    spine, _, port = (reading.peer or "").partition("/")
    return spine, port


def _link(reading: CounterReading) -> str:
    return f"{reading.device}:{reading.port} to {':'.join(_spine(reading))}"


def _of_spine(spine: str, idle: Sequence[CounterReading], *, blamed: bool) -> Cause:
    """Return the cause for a spine that no uplink used; with two leaves either link may be the one."""
    ends = " and ".join(_link(reading) for reading in idle)
    links = tuple(Element("uplink", leaf=reading.device, spine=spine) for reading in idle)
    one = "it is down" if blamed else "it, or its links from one leaf, are down"
    return Cause(
        element=Element("spine", spine=spine),
        blamed=blamed,
        confidence=1.0 if blamed else 1 / (1 + len(links)),
        effect=-1.0,
        evidence=(
            BLAMES["uplink-idle"].told(ends=ends, leaves="their leaves'", stage=idle[0].stage, what=one),
        ),
        rivals=() if blamed else links,
        proposal=f"look at {spine} and at {ends}: a port without LLDP neighbour is the one that is down",
    )


def _of_link(reading: CounterReading, ways: Mapping[str, int | None]) -> Cause:
    """Return the cause for an uplink; of one that carries one way, the spine may be what forwards nothing."""
    ends, spine = _link(reading), _spine(reading)[0]
    one = {SENT: "up", RECEIVED: "down"} if any(ways.get(way) for way in (SENT, RECEIVED)) else {}
    way = next((name for counter, name in one.items() if ways.get(counter) == 0), "both")
    what = {
        "both": "it is down",
        "up": f"it is broken that way, or {reading.device} sends nothing to {spine}",
        "down": f"it is broken that way, or {spine} forwards nothing to {reading.device}",
    }[way]
    told = {"ends": ends, "leaves": f"{reading.device}'s", "stage": reading.stage, "what": what}
    return Cause(
        element=Element("uplink", leaf=reading.device, spine=spine, direction=way),
        blamed=way == "both",
        confidence=1.0 if way == "both" else 0.5,
        effect=-1.0,
        evidence=(BLAMES["uplink-idle"].told(**told),),
        rivals=() if way == "both" else (Element("spine", spine=spine),),
        proposal=f"look at the link {ends}, its optics and its routing; until then capacity is missing",
    )


# A single result is worth a word when it lost a quarter, and far more than the noise of its matrix. Healthy
# fabrics have single results that are a few per cent low for no reason.
SLOW_EFFECT = 0.25
SLOW_SIGMAS = 5.0
# By the median deviation of a small mesh, whose results may have long tails (emulated nodes do).
SMALL_SIGMAS = 8.0


@dataclass(frozen=True)
class Slow:
    """One result that is far below its like: where, and its relative change (-0.5 for half)."""

    label: str
    rail: str
    source: str
    sink: str
    effect: float


def unexplained(routes: Sequence[Route], causes: Iterable[Cause]) -> list[Slow]:
    """Return the slow results in which nothing that was named has a part, worst first.

    Args:
        routes: the matrices that were localised.
        causes: what was named, with its rivals.
    """
    named = [element for cause in causes for element in (cause.element, *cause.rivals)]
    found: list[Slow] = []
    for route in routes:
        for matrix in route.matrices:
            residual = deviations(matrix, route.fabric).residual
            # Of few results one bad pair is a large part: only the median deviation does not see it.
            few = len(matrix.nodes) < SMALL_MESH
            noise = SMALL_SIGMAS * robust_sigma(residual) if few else SLOW_SIGMAS * spread_of(residual)
            limit = min(float(np.log1p(-SLOW_EFFECT)), -noise) if np.isfinite(noise) else -np.inf
            with np.errstate(invalid="ignore"):
                slow = residual < limit
            if not slow.any():
                continue
            for element in named:
                slow &= ~_part_of(element, matrix, route.fabric)
            found += [
                Slow(
                    matrix.label,
                    matrix.rails[r],
                    matrix.nodes[a],
                    matrix.nodes[b],
                    float(np.expm1(residual[r, a, b])),
                )
                for r, a, b in np.argwhere(slow)
            ]
    return sorted(found, key=lambda s: (s.effect, s.label, s.rail, s.source, s.sink))


def _part_of(element: Element, matrix: Matrix, fabric: Cabling) -> Bools:
    """Return the mask of the results in which an element has a part, whichever way it is named."""
    mask = np.zeros(matrix.values.shape, dtype=bool)
    for r, rail in enumerate(matrix.rails):
        source, _, sink = rail.partition(">")
        if element.kind == "pair":
            one, other = (matrix.nodes.index(name) for name in (element.node, element.peer))
            if element.rail in {"", rail}:
                mask[r, one, other] = mask[r, other, one] = True
        elif element.node:
            i = matrix.nodes.index(element.node) if element.node in matrix.nodes else None
            if i is not None and element.rail in {"", source}:
                mask[r, i, :] = True
            if i is not None and element.rail in {"", sink or source}:
                mask[r, :, i] = True
        elif element.kind == "rail":
            mask[r] = element.rail == rail
        elif element.kind == "leaf" and element.leaf in fabric.leaves:
            mask[r] = _on_leaf(element.leaf, r, fabric)
        elif element.spine in fabric.spines and fabric.spine is not None:
            through = fabric.spine[r] == fabric.spines.index(element.spine)
            if element.leaf:
                through &= _on_leaf(element.leaf, r, fabric)
            mask[r] = through
    return mask


def _on_leaf(leaf: str, rail: int, fabric: Cabling) -> Bools:
    """Return the mask of a rail's results that leave or reach a leaf, shape (nodes, nodes)."""
    number = fabric.leaves.index(leaf)
    ends: Bools = (fabric.leaf[rail] == number)[:, None] | (fabric.sink_leaf[rail] == number)[None, :]
    return ends


# With r random disjoint matchings every node meets r partners; a bad node is bad in all of them, while a good
# one that met it once has r - 1 good results. What stands out is measured again with partners that do not.

MATCHINGS = 3
CONFIRMATIONS = 2
# Suspicion is cheap, since it is checked before anybody is blamed.
SUSPICION = FitSettings(alpha=0.05, min_effect=0.003)


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


# As much of what was said as a reader needs; a node with a wrong perftest says the same of every partner.
_MOST_MESSAGES = 3
# When more nodes than that, and more than half of all, would each have to be at fault, it is none of theirs.
_FEW_NODES = 3


def causes_and_suspects(
    pairs: PairResults,
    run: Run | None,
    readings: Iterable[CounterReading],
    settings: FitSettings | None = None,
) -> tuple[list[Cause], list[Route]]:
    """Return the causes, then the suspects, those that kept results away first, and what they rest on.

    Raises:
        BadInput: the run's cabling or paths cannot be read.
    """
    routes = routes_of(pairs, run)
    links = run.jobs.links if run and run.jobs else ()
    causes = with_links(localise(routes, readings, settings), links)
    kept_away = in_the_way(pairs)
    return [c for c in causes if c.blamed] + kept_away + [c for c in causes if not c.blamed], routes


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
        evidence=(*sorted(set(messages))[:_MOST_MESSAGES], f"{len(messages)} results are missing for it"),
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
        evidence=(*said[:_MOST_MESSAGES], f"{len(messages)} results of its pairs are missing for it"),
        rivals=tuple(Element("node", node=rival) for rival in rivals),
        proposal=proposal,
    )
