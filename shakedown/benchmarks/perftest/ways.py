"""The way of every pair of nodes through the fabric, by the cabling: its leaf, its pod, or over the spines.

Pairs of one way are one block each, named by nodes alone, so that a plan of 1,024 nodes stays small.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shakedown.benchmarks.perftest.mesh.spec import rail_ends
from shakedown.benchmarks.perftest.settings import Pair
from shakedown.intent.site import Fabric, Site, oversubscription_percent
from shakedown.records.pairs import AllPairs, PairsAcross


class Way(StrEnum):
    """Where a pair's packets turn round; the nearest first. Values of the scope key `way`."""

    SAME_LEAF = "same-leaf"
    SAME_POD = "same-pod"  # over a spine between two leaves of one pod
    OVER_SPINES = "over-spines"  # from pod to pod, or between leaves without known pods


PairBlock = AllPairs | PairsAcross
# Leaf that a node sends by, and leaf that it receives by; of a plain rail they are one.
_Ends = tuple[str, str]


@dataclass(frozen=True)
class WaysOfRail:
    """The blocks of pairs of one rail or crossing by their way; None: the cabling does not say."""

    rail: str
    blocks: tuple[tuple[Way, PairBlock], ...] | None


def ways(site: Site, nodes: Sequence[str], rail: str) -> WaysOfRail:
    """Return the ways of every two of some nodes over one rail, or crossing `rail0>rail1`.

    Of a crossing whose two directions go different ways, the farther one counts for both.
    """
    fabric = site.network()
    first, last = rail_ends(rail)
    leaf_of = {(node, nic.rail): nic.leaf for node in nodes for nic in site.nics[node]}
    kinds: dict[_Ends, list[str]] = {}
    for node in nodes:
        one, other = leaf_of.get((node, first)), leaf_of.get((node, last))
        if not one or not other:
            return WaysOfRail(rail, None)
        kinds.setdefault((one, other), []).append(node)
    pods = {leaf: pod for pod, leaves in fabric.switches.pods.items() for leaf in leaves}
    found: list[tuple[Way, PairBlock]] = []
    edges: dict[Way, list[tuple[_Ends, _Ends]]] = {}
    listed = list(kinds)
    for place, kind in enumerate(listed):
        if len(kinds[kind]) > 1:
            found.append((_way(kind, kind, pods), AllPairs(all_pairs_of=tuple(kinds[kind]))))
        for other_kind in listed[:place]:
            edges.setdefault(_way(kind, other_kind, pods), []).append((other_kind, kind))
    for way, joined in edges.items():
        found += [(way, block) for block in _across(joined, kinds)]
    return WaysOfRail(rail, tuple(sorted(found, key=lambda one: list(Way).index(one[0]))))


def blocks_by_way(
    site: Site, nodes: Sequence[str], rails: tuple[str, ...], some: tuple[Pair, ...] | None
) -> list[tuple[tuple[str, ...], PairBlock | tuple[Pair, ...], dict[str, int | str]]]:
    """Return (rails, pairs, facts for their reference) of every block, the nearest way first.

    `some`: only these pairs; None: all. Rails with the same pairs on a way share its block. Where the cabling
    of a node is not known, nothing is said of any way.
    """
    by_rail = [ways(site, nodes, rail) for rail in rails]
    everyone: PairBlock | tuple[Pair, ...] = some or AllPairs(all_pairs_of=tuple(nodes))
    if any(one.blocks is None for one in by_rail):
        return [(rails, everyone, {})]
    alike: dict[tuple[tuple[Way, PairBlock], ...], list[str]] = {}
    for one in by_rail:
        alike.setdefault(one.blocks or (), []).append(one.rail)
    found: list[tuple[tuple[str, ...], PairBlock | tuple[Pair, ...], dict[str, int | str]]] = []
    for blocks, names in alike.items():
        for way, pairs in blocks:
            mine = pairs if some is None else tuple(pair for pair in some if pair in pairs)
            if mine:
                found.append((tuple(names), mine, facts_of(site, way)))
    return found


def _way(one: _Ends, other: _Ends, pods: dict[str, str]) -> Way:
    """Return the way between nodes of two kinds, or of one: the farther of its two directions."""
    found = []
    for sender, receiver in ((one, other), (other, one)):
        leaf, into = sender[0], receiver[1]
        pod = pods.get(leaf)
        if leaf == into:
            found.append(Way.SAME_LEAF)
        else:
            found.append(Way.SAME_POD if pod is not None and pod == pods.get(into) else Way.OVER_SPINES)
    return max(found, key=list(Way).index)


def _across(edges: Sequence[tuple[_Ends, _Ends]], kinds: dict[_Ends, list[str]]) -> Iterator[PairBlock]:
    """Yield blocks for the pairs between kinds of nodes that are joined by these edges.

    Kinds that are joined to the same others, as the leaves of a pod are, become one group of one block.
    """
    joined: dict[_Ends, set[_Ends]] = {}
    for one, other in edges:
        joined.setdefault(one, set()).add(other)
        joined.setdefault(other, set()).add(one)
    alike: dict[frozenset[_Ends], list[_Ends]] = {}
    for kind, others in joined.items():
        alike.setdefault(frozenset(others), []).append(kind)
    sets = {kind: number for number, group in enumerate(alike.values()) for kind in group}
    left = set(sets.values())
    groups = list(alike.values())
    nodes = [tuple(node for kind in group for node in kinds[kind]) for group in groups]
    seen: set[tuple[int, int]] = set()
    while left:
        # All sets that are joined to each other, begun with the first that is left.
        block = [min(left)]
        for number in sorted(left - set(block)):
            if all(groups[number][0] in joined[groups[member][0]] for member in block):
                block.append(number)
        left -= set(block)
        if len(block) > 1:
            seen |= {(a, b) for a in block for b in block}
            yield PairsAcross(pairs_across=tuple(nodes[number] for number in block))
    for one, other in edges:
        ends = (sets[one], sets[other])
        if ends not in seen:
            seen |= {ends, ends[::-1]}
            yield PairsAcross(pairs_across=(nodes[ends[0]], nodes[ends[1]]))


def facts_of(site: Site, way: Way) -> dict[str, int | str]:
    """Return what a reference of this way may ask for, as far as the site says it."""
    found: dict[str, int | str] = {"way": way.value}
    if way is Way.SAME_LEAF or not isinstance(site.fabric, Fabric):
        return found
    if site.fabric.switches.routing is not None:
        found["routing"] = site.fabric.switches.routing
    percent = oversubscription_percent(site)
    return found if percent is None else {**found, "oversubscription_percent": percent}
