"""Who lost the packets that a receiver misses: its own counter accuses the good end.

A NIC that receives counts what is missing, and one that sends counts what it had to repeat. Where the packets
went is told by what drops or damages them, the leaf's ports and the NICs. What none of them counted as
dropped is placed by a balance of frames: what a NIC sent and its port received, what entered the leaf and
left it. Where that was not read, all that lies between is named. Where the NICs received to the last packet
what they sent, nothing was lost: packets overtook each other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shakedown.judge.words import counter
from shakedown.nics.rates import counts_errors, end_to_end
from shakedown.nos.system import COUNTERS, LOST, Due
from shakedown.records.base import Stage
from shakedown.records.results import CounterReading
from shakedown.records.wording import BLAMES, count, those

# What a receiver counts: a request or an answer came, and one before it had not.
_MISSED = re.compile(r"out_of_seq|implied_nak_seq")
# What a port moved of anything at all: a link that is up carries at least LLDP.
_MOVED = frozenset({"tx_bytes", "rx_bytes"})
# What a NIC sent and received of RDMA, in packets.
_SENT = frozenset({"rdma.sent_pkts", "ib.port_xmit_packets"})
_RECEIVED = frozenset({"rdma.rcvd_pkts", "ib.port_rcv_packets"})
# Frames of any kind: of a NIC's interface while a job runs, of a port over the stage.
_FRAMES = {"netdev.rx_packets": 0, "netdev.tx_packets": 1, "rx_packets": 0, "tx_packets": 1}
_Place = tuple[Stage, str, str]  # stage, node, rail
_Drop = tuple[int, str, str, str]  # packets, negative so that the most comes first; counter, device, port
# A drop explains up to this many times as many missed packets: after one, others come out of sequence.
_MOST_TIMES = 2


@dataclass
class Losses:
    """What was missed and where packets were dropped, gathered while counters go by."""

    # (stage, test, rail) -> receiver -> packets
    missed: dict[tuple[Stage, str, str], dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    # (stage, test, rail) -> node -> packets sent, and received
    sent: dict[tuple[Stage, str, str], dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    received: dict[tuple[Stage, str, str], dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    # What was read there: the counter that counted the most, which may be nothing.
    at_leaf: dict[_Place, _Drop] = field(default_factory=dict)
    at_nic: dict[_Place, _Drop] = field(default_factory=dict)
    in_leaf: dict[tuple[Stage, str], int] = field(default_factory=lambda: defaultdict(int))
    # What the port of each switch counted that counted the most, toward hosts or switches.
    at_switch: dict[tuple[Stage, str], _Drop] = field(default_factory=dict)
    # Of no rail: what ports between switches dropped, and what entered a switch with links and never left.
    at_link: dict[Stage, _Drop] = field(default_factory=dict)
    in_switch: dict[Stage, dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    # (stage, switch, port between switches) -> its other end, and by counter of _MOVED how much
    moved: dict[tuple[Stage, str, str], tuple[str, dict[str, int]]] = field(default_factory=dict)
    # (stage, node, rail) -> frames received and sent by its NIC in all jobs, and by its leaf's port
    nic_frames: dict[_Place, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    port_frames: dict[_Place, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def add(self, reading: CounterReading) -> None:
        """Take one reading into account; most are of no use here."""
        rail, name, delta = reading.rail, reading.counter, reading.delta
        if delta is None or COUNTERS.get(name) is Due.BOUNDED:
            return
        if reading.kind != "nic" and name != LOST and delta and drops(name):
            drop = (-delta, name, reading.device, reading.port)
            at = (reading.stage, reading.device)
            self.at_switch[at] = min(self.at_switch.get(at, drop), drop)
        if rail is None:
            self._add_link(reading, delta)
            return
        if name == LOST:
            self.in_leaf[reading.stage, rail] += delta
        elif (way := _FRAMES.get(name)) is not None and (reading.kind == "nic") is name.startswith("netdev"):
            frames = self.nic_frames if reading.kind == "nic" else self.port_frames
            frames[reading.stage, _node(reading), rail][way] += delta
        elif reading.kind == "nic" and delta and _MISSED.search(name):
            self.missed[reading.stage, reading.test, rail][reading.device] += delta
        elif reading.kind == "nic" and name in _SENT | _RECEIVED:
            found_of = self.sent if name in _SENT else self.received
            found_of[reading.stage, reading.test, rail][reading.device] = delta
        elif drops(name):
            found = self.at_nic if reading.kind == "nic" else self.at_leaf
            place = reading.stage, _node(reading), rail
            drop = (-delta, name, reading.device, reading.port)
            found[place] = min(found.get(place, drop), drop)

    def _add_link(self, reading: CounterReading, delta: int) -> None:
        name, stage = reading.counter, reading.stage
        if reading.kind == "nic":
            return
        if name in _MOVED and reading.peer:
            at = (stage, reading.device, reading.port)
            self.moved.setdefault(at, (reading.peer, {}))[1][name] = delta
        elif name == LOST:
            self.in_switch[stage][reading.device] += delta
        elif delta and drops(name):
            drop = (-delta, name, reading.device, reading.port)
            self.at_link[stage] = min(self.at_link.get(stage, drop), drop)

    def told(self, stage: Stage, test: str, rail: str, accused: str, pairs: Iterable[tuple[str, ...]]) -> str:
        """Say whose loss it was.

        Args:
            stage: of the counter.
            test: of the counter.
            rail: of the counter.
            accused: the node that counted.
            pairs: the nodes between which that test measured on that rail, two each.
        """
        partners: dict[str, set[str]] = defaultdict(set)
        for first, second in pairs:
            partners[first].add(second)
            partners[second].add(first)
        missed = {node: n for node, n in self.missed.get((stage, test, rail), {}).items() if node in partners}
        if not partners.get(accused):
            return ""
        if not missed:
            others = those(sorted(partners[accused]), "node")
            return BLAMES["lost-between"].told(rail=rail, ends=f"{accused} and {others}")
        sender, alone = _sender(missed, partners), _alone(missed, partners)
        receivers = those(sorted(missed), "node")
        total = sum(missed.values())
        said = f"{receivers} missed {count(total, 'packet')}"
        ends = sorted({*missed, sender}) if sender else sorted(missed)
        leaf, nic = (_most(found, stage, rail, ends) for found in (self.at_leaf, self.at_nic))
        inside = self.in_leaf.get((stage, rail), 0)
        in_nic = nic is not None and -nic[0] * _MOST_TIMES >= total
        if not in_nic and (arrived := self._all_arrived(stage, test, rail, partners)):
            lead = BLAMES["overtook"].told(rail=rail, receivers=receivers)
            came = f"{count(total, 'packet')} came out of sequence and none was lost"
            return f"{lead}: {came}, the NICs received all {arrived} that they sent"
        if leaf and -leaf[0] * _MOST_TIMES >= total:
            _, name, device, port = leaf
            lead, why = (
                BLAMES["port-dropped"].told(device=device, port=port, rail=rail),
                f"the port counted {-leaf[0]} {counter(name)}",
            )
        elif nic and in_nic:
            _, name, device, _ = nic
            lead, why = (
                BLAMES["nic-dropped"].told(device=device, rail=rail),
                f"the NIC counted {-nic[0]} {counter(name)}",
            )
        elif (link := self.at_link.get(stage)) and -link[0] * _MOST_TIMES >= total:
            _, name, device, port = link
            lead, why = (
                BLAMES["link-dropped"].told(device=device, port=port),
                f"the port counted {-link[0]} {counter(name)}",
            )
        elif (worst := _worst(self.in_switch.get(stage, {}))) and worst[1] * _MOST_TIMES >= total:
            lead = BLAMES["switch-lost"].told(device=worst[0])
            why = f"{worst[1]} that entered it never left"
        elif inside * _MOST_TIMES >= total:
            lead, why = BLAMES["leaf-lost"].told(rail=rail), f"{inside} that entered it never left"
        else:
            read = all((stage, node, rail) in self.at_leaf for node in ends)
            read = read and all((stage, node, rail) in self.at_nic for node in missed)
            none = read and not (leaf or nic or inside or link or (worst and worst[1]))
            why = "the leaf dropped none" if none else "not as many were dropped where it was read"
            why = why if read else "not every NIC and port on the way was read"
            one = sender or alone
            placed = self._balance(stage, rail, one, total, up=bool(sender)) if none and one else None
            if placed:
                lead, why = placed
            else:
                all_ends = sorted(missed.keys() | {p for node in missed for p in partners[node]})
                lead = BLAMES["lost-between"].told(rail=rail, ends=those(all_ends, "node"))
        return f"{lead}: {said}, {why}"

    def _balance(self, stage: Stage, rail: str, node: str, total: int, *, up: bool) -> tuple[str, str] | None:
        """Return who lost packets on the way of one node, and why; None where frames place them nowhere.

        `up`: it sent them. Ports count over the whole stage, and a leaf keeps frames that are its own (LLDP):
        only what exceeds that of the rail's other nodes, or of other rails, was lost.
        """
        link = f"{node} {rail} {'tx' if up else 'rx'}"
        beside = sorted(
            {at[1] for at in self.nic_frames.keys() & self.port_frames.keys() if at[::2] == (stage, rail)}
        )
        if node not in beside or len(beside) == 1:
            return link, BLAMES["lost-beside-leaf"].told(node=node)
        lacking = {one: self._on_link(stage, one, rail, up=up) for one in beside}
        usual = max(sent - came for one, (sent, came) in lacking.items() if one != node)
        sent, came = lacking[node]
        inside = dict[str, int]()
        if not any(at == stage for at, *_ in self.moved):  # else frames enter and leave by ports of no rail
            for (at, _, on), (entered, left) in self.port_frames.items():
                if at == stage:
                    inside[on] = inside.get(on, 0) + entered - left
        least = max((n for on, n in inside.items() if on != rail), default=None)
        in_leaf = 0 if least is None else inside[rail] - max(least, 0)
        on_link = sent - came - max(usual, 0)
        if on_link * _MOST_TIMES >= total and on_link >= in_leaf:
            ends = (f"{node}'s NIC", "its port") if up else ("its port", f"{node}'s NIC")
            ways = f"of {sent} frames that {ends[0]} sent, {ends[1]} received {came}"
            return link, BLAMES["lost-on-link"].told(ways=ways, node=node)
        if in_leaf * _MOST_TIMES >= total:
            what = f"{inside[rail]} frames more entered its ports on {rail} than left them"
            return BLAMES["leaf-lost"].told(rail=rail), f"{what}, and no drop counter tells of them"
        return None

    def _on_link(self, stage: Stage, node: str, rail: str, *, up: bool) -> tuple[int, int]:
        """Return the frames that were sent and received on a node's link, one way."""
        nic, port = self.nic_frames[stage, node, rail], self.port_frames[stage, node, rail]
        return (nic[1], port[0]) if up else (port[1], nic[0])

    def of_switch(self, stage: Stage, switch: str) -> str:
        """Say which port lost what entered a switch and never left it, where one counted about as much."""
        inside = self.in_switch.get(stage, {}).get(switch, 0)
        drop = self.at_switch.get((stage, switch))
        if not drop or -drop[0] * _MOST_TIMES < inside:
            return ""
        lost, name, device, port = drop
        of = {"device": device, "port": port, "drops": f"{-lost} {counter(name)}"}
        return BLAMES["port-lost-inside"].told(lost=count(inside, "RoCE packet"), **of)

    def on_dead_link(self, stage: Stage, switch: str, port: str, name: str, packets: int) -> str:
        """Say that a port between switches dropped packets because its link is down, if it carried nothing.

        Routing goes round such a link. What the port drops is what the switch itself goes on sending there,
        as BGP does to find its neighbour.
        """
        peer, moved = self.moved.get((stage, switch, port), ("", {}))
        if moved.keys() != _MOVED or any(moved.values()):
            return ""
        of = {"device": switch, "port": port, "peer": peer.replace("/", " port "), "stage": stage}
        return BLAMES["link-dead"].told(drops=f"{packets} {counter(name)}", **of)

    def _all_arrived(self, stage: Stage, test: str, rail: str, nodes: Iterable[str]) -> int:
        """Return how many packets these nodes sent, if they received exactly as many; else 0."""
        place, both = (stage, test, rail), []
        for told in (self.sent, self.received):
            of_node = told.get(place, {})
            if not all(node in of_node for node in nodes):
                return 0
            both.append(sum(of_node[node] for node in nodes))
        return both[0] if both[0] == both[1] else 0


def _node(reading: CounterReading) -> str:
    """Return the node of a NIC's reading, or at whose port of a switch it was read."""
    return reading.device if reading.kind == "nic" else (reading.peer or "").partition("/")[0]


def drops(name: str) -> bool:
    """Whether a counter counts packets where they were dropped or damaged."""
    return counts_errors(name) and not end_to_end(name)


def _worst(inside: Mapping[str, int]) -> tuple[str, int] | None:
    """Return the switch in which the most was lost, and how much."""
    return max(inside.items(), key=lambda one: (one[1], one[0]), default=None)


def _most(found: Mapping[_Place, _Drop], stage: Stage, rail: str, nodes: Iterable[str]) -> _Drop | None:
    """Return what counted the most at these nodes' ends, or nothing if none did."""
    told = [drop for node in nodes if (drop := found.get((stage, node, rail))) and drop[0]]
    return min(told, default=None)


def _sender(missed: Mapping[str, int], partners: Mapping[str, set[str]]) -> str:
    """Return the one node from which all receivers miss packets, and that misses none; else nothing."""
    found = [s for s in sorted(partners) if s not in missed and partners[s] == missed.keys()]
    # One that has a single partner is told from that partner only where the partner has no other.
    lonely = len(missed) == 1 and any(len(partners[node]) > 1 for node in missed)
    return found[0] if len(found) == 1 and not lonely else ""


def _alone(missed: Mapping[str, int], partners: Mapping[str, set[str]]) -> str:
    """Return the one node that misses packets of partners of whom others miss none; else nothing."""
    if len(missed) != 1:
        return ""
    (node,) = missed
    return node if all(partners[p] - {node} for p in partners[node]) else ""
