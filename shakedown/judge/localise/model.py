"""What localisation works on and what it says: matrices of a mesh, the paths through the fabric, causes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shakedown.records.results import Load

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Matrix:
    """All results of one test at one size.

    Attributes:
        label: test and parameters, for the evidence.
        higher: whether more is better.
        nodes: names along the second axis (data's source) and the third (its sink).
        rails: names along the first axis.
        values: the measured values in any unit; NaN where there is none. Shape (rails, nodes, nodes).
        failed: planned and tried, but without a value.
        said: (node, rail) -> what the node itself said was wrong with its rail.
        when: time of each result in seconds; NaN where it is not known. None: no time is known.
        loaded: node -> what else was at work on its CPUs.
    """

    label: str
    higher: bool
    nodes: tuple[str, ...]
    rails: tuple[str, ...]
    values: Floats
    failed: Bools
    said: Mapping[tuple[str, str], str] = field(default_factory=dict)
    when: Floats | None = None
    loaded: Mapping[str, Load] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Cabling:
    """Where the cables go, as far as it is known.

    Attributes:
        leaf: index into `leaves` of the leaf of each (rail, node); -1: not known.
        leaves: names of the leaves.
        spine: index into `spines` for each (rail, source, sink); -1: it crosses none, or it is not
            known. None: no path is known.
        spines: names of the spines.
        ports: (node, rail) -> "leaf port" of its cable.
        into: like `leaf`, of the NIC that receives, where rails are crossings such as `rail0>rail1`; None:
            a rail has one NIC of a node for both ways.
        classes: number of the class of the NIC that sends, then of that which receives, of each (rail, node):
            alike by board, firmware and machine. Shape (2, rails, nodes). None: all are of one.
    """

    leaf: Ints
    leaves: tuple[str, ...] = ()
    spine: NDArray[np.int16] | None = None
    spines: tuple[str, ...] = ()
    ports: Mapping[tuple[str, str], str] = field(default_factory=dict)
    into: Ints | None = None
    classes: Ints | None = None

    @property
    def sink_leaf(self) -> Ints:
        """Leaf of the NIC that receives, for each (rail, node)."""
        return self.leaf if self.into is None else self.into

    @staticmethod
    def unknown(rails: int, nodes: int) -> Cabling:
        """Return a fabric of which nothing is known."""
        return Cabling(leaf=np.full((rails, nodes), -1, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Route:
    """The matrices of traffic that goes the same kind of way, over the same nodes and rails, and its fabric.

    The rails are all plain (`rail0`), or all crossings (`rail0>rail1`: sent by rail0, received by rail1).
    """

    matrices: tuple[Matrix, ...]
    fabric: Cabling


@dataclass(frozen=True)
class Element:
    """A piece of the cluster that can be at fault; the fields that do not apply are empty.

    `kind` is one of node, nic, cable, port, pair, leaf, spine, uplink, rail, fabric (all of it); a pair is
    what lies between `node` and `peer`, which are both well with others; `direction` is tx, rx or both, seen
    from the node, and for an uplink up, down or both, seen from the leaf.
    """

    kind: str
    node: str = ""
    rail: str = ""
    leaf: str = ""
    spine: str = ""
    direction: str = "both"
    peer: str = ""

    def __str__(self) -> str:
        way = "" if self.direction == "both" else f" {self.direction}"
        names = [n for n in (self.node, self.peer, self.rail, self.leaf, self.spine) if n]
        return f"{self.kind} {' '.join(names)}{way}".strip()


@dataclass(frozen=True)
class Explanation:
    """One element that explains results that are worse than their peers, in one matrix.

    Attributes:
        element: what.
        pattern: `slow` (all its results), `intermittent` (some of them) or `failed` (no result at all).
        effect: median relative change against its peers, -0.5 for half; -1 for failed.
        z: effect over its standard error.
        cells: results that it explains.
        partners: different far ends among them.
        share: part of its results that are bad.
        confidence: the probability that it is this one: against the other elements that could explain the
            same results, and, if it is blamed, as often as blames on such evidence are right.
        rivals: those other elements, as likely or nearly so.
        parts: what part of its bad results each rival explains; empty: each explains them all.
        chances: the probability of each rival; empty: all are as likely.
        worth: what a blame rests on, in the words of its calibration.
        blamed: whether the evidence suffices to name it as the cause.
        label: the matrix.
        why: what speaks for it beside the matrix, or what keeps it from being blamed.
    """

    element: Element
    pattern: str
    effect: float
    z: float
    cells: int
    partners: int
    share: float
    confidence: float
    rivals: tuple[Element, ...] = ()
    blamed: bool = False
    label: str = ""
    why: tuple[str, ...] = ()
    parts: tuple[float, ...] = ()
    chances: tuple[float, ...] = ()
    worth: str = ""

    @property
    def sentence(self) -> str:
        """What it rests on, for the evidence."""
        what = {
            "slow": f"{self.effect:+.1%} against its peers, in {self.share:.0%} of its parts, z {self.z:.0f}",
            "intermittent": f"{self.share:.0%} of its results bad now and then, {self.effect:+.0%} when bad",
            "failed": f"{self.cells} results missing",
        }[self.pattern]
        return f"{self.label}: {self.element}: {what}, {self.partners} partners"


def on_hardware(finding: Explanation) -> Explanation:
    """Return a finding about crossings in terms of hardware.

    Over `rail0>rail1` a node sends by its NIC of rail0 and receives by that of rail1. Who is bad both ways
    of a crossing is so with two of its NICs; that makes it the node.
    """

    def real(e: Element) -> Element:
        source, crossing, sink = e.rail.partition(">")
        if not crossing or not e.node:
            return e
        if e.direction == "both":
            return replace(e, kind="node", rail="")
        return replace(e, rail=source if e.direction == "tx" else sink)

    return replace(finding, element=real(finding.element), rivals=tuple(map(real, finding.rivals)))


WAIT_FIRST = "look first for what holds packets there for a time: tc, interrupt moderation, power saving"


# So many partners tell an end from its far ends, and a quiet time one moment from others.
_PARTNERS_AGAIN = 14


def proposal(element: Element, finding: Explanation) -> str:
    """Return what to do next about an element."""
    if element.kind == "pair":
        return f"look at what lies between {element.node} and {element.peer}, and measure them again"
    if element.kind == "fabric":
        return "measure again with fewer pairs at once; look at the hashing and the counters of the uplinks"
    if not finding.blamed:
        busy = any(" was busy: " in why for why in finding.why)
        how = "again, without what else works on its CPUs" if busy else "against another partner"
        rail = f" --rails {element.rail}" if element.rail and ">" not in element.rail else ""
        plan = f"shakedown plan SITE --nodes {element.node}{rail} --stage fabric --partners {_PARTNERS_AGAIN}"
        again = f", at a quiet time: {plan}" if element.kind in {"nic", "node"} else ""
        return f"measure {element} {how}{again}"
    if element.node:
        return f"drain {element.node} and look at its {element.kind}"
    if ">" in element.rail:
        return f"look at the spines between the rails of {element.rail}, and measure again"
    return f"take {element} out of service and measure again"
