"""Numbers, lists and names in words; names of files; sentences that blame. Standard library only."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

NOT_REQUIRED = " (not required)"  # ends the reason of a cell that decides nothing


_RULER = re.compile(r"([-=*#_~])\1{5,}")
# Where a text may be cut, best first. " / " joins lines of a tool.
_STOPS = (("; ", ". ", " / "), (": ",), (", ",), (" ",))


def clipped(text: str, most: int) -> str:
    """Return text on one line, of at most so many characters, cut at the end of a clause if it can be."""
    text = " ".join(_RULER.sub("", printable(text)).split())
    if len(text) <= most:
        return text
    kept = text[: max(0, most - 3)]
    for stops in _STOPS:
        if (end := max(map(kept.rfind, stops))) >= len(kept) // 2:
            return kept[:end].rstrip(" ,;:./") + "..."
    return kept + "..."


def those(names: Sequence[str], noun: str) -> str:
    """Write `n1`, `n1 and n2`, `n1, n2 and n3`, `n1..n8 (8 nodes)`."""
    if len(names) > 3:
        return f"{names[0]}..{names[-1]} ({count(len(names), noun)})"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def number(value: float, unit: str = "") -> str:
    """Write a number for a person: counts plain, rates and others with about four digits."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if value == int(value) and size < 1e15 and ("/" not in unit or size < 10):
        return str(int(value))
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 10 else f"{value:.3g}"


def in_unit(text: str, unit: str) -> str:
    """Write a number with its unit; a plain count, whose unit is 1, has none."""
    return text if unit == "1" else f"{text} {unit}"


def ended(job: str | None, state: str) -> str:
    """Say of a job, by Slurm's number where it has one, that it did not complete."""
    return f"{f'job {job}' if job else 'its job'} ended {state}, not COMPLETED"


def printable(text: str) -> str:
    """Replace what could drive a terminal: units, parameters and messages come from outside."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def where(cell: str) -> str:
    """Name a cell for a person: `n1 -> n2 rail3 ib_write_bw bandwidth size_bytes=65536`."""
    _, test, metric, nodes, rail, direction, tail = cell.split("/", 6)
    names = nodes.split(",")
    if len(names) == 2 and direction in ("forward", "reverse"):
        who = " -> ".join(names if direction == "forward" else reversed(names))
        direction = "-"
    elif len(names) > 3:
        who = f"{names[0]}..{names[-1]} ({len(names)} nodes)"
    else:
        who = nodes
    parts = (who, rail, direction, test, metric, tail.replace(",", " "))
    return printable(" ".join(p for p in parts if p != "-"))


def apart(value: float, other: float, unit: str = "") -> str:
    """Write a number so that it differs in print from another that it differs from."""
    text = number(value, unit)
    for digits in range(1, 13):
        if value == other or float(text) != float(number(other, unit)):
            break
        if f"{value:.{digits}f}" != f"{other:.{digits}f}":
            return f"{value:.{digits}f}"
    return text


def size(size_bytes: float) -> str:
    """Return a message size exactly, in the unit that it was chosen in (65536 -> 64 KiB, 4000000 -> 4 MB)."""
    binary = ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"))
    for power, unit in binary:
        if size_bytes >= 2**power and size_bytes % 2**power == 0 and size_bytes < 1024 * 2**power:
            return f"{size_bytes / 2**power:g} {unit}"
    for power, unit in ((9, "GB"), (6, "MB")):
        if size_bytes >= 10**power and size_bytes % 10**power == 0:
            return f"{size_bytes / 10**power:g} {unit}"
    for power, unit in binary:
        if size_bytes >= 2**power and size_bytes % 2 ** (power - 2) == 0:
            return f"{size_bytes / 2**power:g} {unit}"
    return f"{size_bytes:,.0f} B"


def count(many: int, noun: str) -> str:
    """Write `1 cell`, `2 cells`."""
    return f"{many} {noun}" if many == 1 else f"{many} {noun}s"


# What file systems take (NAME_MAX of Linux, in bytes; our names are ASCII). The note of a mesh about a cell
# across rails names a node three times and two rails, so nothing less is enough.
LONGEST_FILE_NAME = 255
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.,+=-]*"  # a whole name, without anchors


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return the key that sorts n2 before n10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(p), p) if p.isdigit() and p.isascii() else (1, 0, p) for p in parts)


# A sentence with one witness must leave room for doubt; these words do.
_DOUBT = re.compile(r"\blikely\b|\bor\b|not told|no counter tells")


@dataclass(frozen=True)
class Blame:
    """A sentence that says what is at fault, and the independent readings that carry it.

    Attributes:
        says: the sentence; `{name}` stands for what it is told of.
        witnesses: the readings. One alone leaves doubt: then the sentence says so, and what to look at next.
        or_else: what else gives the same readings.
        next_look: a command that decides between them.
    """

    says: str
    witnesses: tuple[str, ...]
    or_else: str = ""
    next_look: str = ""

    def __post_init__(self) -> None:
        """Refuse a blame that is surer than its readings."""
        doubtful = len(self.witnesses) < 2
        if not self.witnesses or (doubtful and not (_DOUBT.search(self.says) and self.next_look)):
            raise ValueError(f"one witness: say likely, or both, and the next look: {self.says!r}")

    def told(self, **of: object) -> str:
        """Return the sentence, with the next look where it has one witness."""
        text = self.says.format(**of)
        return text if len(self.witnesses) > 1 else f"{text} (next: `{self.next_look.format(**of)}`)"


_MISSED = "the receivers' counters of packets that they missed"
_RATE = "a rate that is as low as this fault makes it"
_READ_BACK, _INTENT = "the node's own kernel", "the site's plan"
BLAMES: dict[str, Blame] = {
    # judge/losses.py
    "port-dropped": Blame(
        "{device} port {port} dropped packets on {rail}",
        (_MISSED, "the port's own counter of drops, at least half as many"),
    ),
    "nic-dropped": Blame(
        "{device}'s NIC on {rail} dropped packets",
        (_MISSED, "the NIC's own counter of drops, at least half as many"),
    ),
    "link-dropped": Blame(
        "{device} port {port}, between switches, dropped packets",
        (_MISSED, "the port's own counter of drops, at least half as many"),
    ),
    "switch-lost": Blame(
        "{device} lost packets", (_MISSED, "packets that entered the switch and never left it")
    ),
    "leaf-lost": Blame(
        "the leaf lost packets on {rail}",
        (_MISSED, "packets or frames that entered its ports on the rail and never left them"),
        "frames that the leaf keeps, as LLDP: the rail's other ports and other rails are taken off",
    ),
    "lost-between": Blame(
        "packets were lost on {rail} between {ends}, by which is not told",
        (_MISSED,),
        "any NIC, cable, port or switch between them, and a host's own filter",
        "ethtool -S NETDEV",
    ),
    "overtook": Blame(
        "packets overtook each other on {rail} on their way to {receivers}",
        ("packets out of sequence", "all NICs received to the last packet what they sent"),
    ),
    "lost-on-link": Blame(
        "the leaf dropped none, {ways}: likely {node}'s NIC, its cable or the port",
        (_MISSED, "frames sent at one end of the link, and received at the other"),
        "each of the three",
        "ethtool -S NETDEV",
    ),
    "lost-beside-leaf": Blame(
        "the leaf dropped none: likely {node}'s NIC, its cable or the port",
        (_MISSED,),
        "what no counter of the leaf tells of",
        "ip -s link show",
    ),
    "port-lost-inside": Blame(
        "{device} port {port} dropped packets: {lost} that entered {device} never left, and the port counted "
        "{drops}",
        ("packets that entered the switch and never left it", "the port's own counter of drops"),
    ),
    "link-dead": Blame(
        "the link from {device} port {port} to {peer} is down: not one byte passed either way in the {stage} "
        "stage, and the port counted {drops}",
        ("bytes that the port sent and received: none", "the port's counter of drops"),
    ),
    # judge/cells.py: what a failed rate looks like
    "half-rate": Blame(
        "half rate, likely a PCIe link at half width or a link at half speed, or another's traffic",
        (_RATE,),
        "another job, or another user's perftest, on the same NIC",
        "lspci -vv | grep LnkSta; ethtool NETDEV | grep Speed",
    ),
    "own-class": Blame(
        "likely a program that marks its own DSCP, as GPU-driven puts do with 0, or the host's own setting",
        ("bytes that left as RDMA and in no RoCE priority",),
        "a program of other users on the node",
        "rdma resource show qp (who sends); mlnx_qos or the driver's own tool (what the host sets)",
    ),
    "rdma-mtu": Blame(
        "likely an RDMA MTU of {mtu} bytes (at most {limit:.1f} Gb/s)",
        (_RATE,),
        "any other limit of the same height",
        "ibv_devinfo -v | grep active_mtu",
    ),
    "pcie": Blame(
        "likely a PCIe link at {name} (at most {limit:.1f} Gb/s)",
        (_RATE,),
        "any other limit of the same height",
        "lspci -vv | grep LnkSta",
    ),
    "nvls-off": Blame("likely NVLink SHARP (NVLS) not used", (_RATE,), "a slow GPU or link", "grep NVLS LOG"),
    "tcp": Blame(
        "likely TCP instead of RDMA, as over TCP", (_RATE,), "a rail that is next to dead", "grep NET/ LOG"
    ),
    "one-nic-half": Blame(
        "half rate, likely one NIC at half rate, which a ring waits for",
        (_RATE,),
        "a rail that NCCL leaves out",
        "shakedown verdict RUN",
    ),
    # judge/localise: slow results of the mesh are the first witness of each
    "cable": Blame(
        "bits were damaged: the cable or its optics{at}",
        ("results that only this NIC explains", "a counter of damaged bits"),
        "the port's or the NIC's own receiver",
        "swap the cable, and measure again",
    ),
    "port": Blame(
        "the switch port counts it and the NIC does not{at}",
        ("results that only this NIC explains", "a counter of the port that stands out"),
    ),
    "nic": Blame(
        "the NIC counts it and the switch port does not{at}",
        ("results that only this NIC explains", "a counter of the NIC that stands out"),
    ),
    "nic-cable-or-port": Blame(
        "no counter tells the NIC from its cable or port{at}, or from busy cores of its host",
        ("results that only this NIC explains",),
        "its cable, the port of the switch, and a program on the cores that serve it",
        "ethtool -S NETDEV; mpstat -P ALL 1 3",
    ),
    "waits": Blame(
        "{element} is late and not slow: likely something holds packets there, and no part is broken",
        ("times that only this end explains, while its rates are like its peers'",),
        "a shaper (tc, the switch's port), interrupt moderation, power saving, a longer way",
        "tc -s qdisc; ethtool -c NETDEV; cpupower idle-info",
    ),
    "uplink-one-way": Blame(
        "{element} is bad one way: that link, or how {spine} forwards over it",
        ("results over this path alone",),
        "the spine's own forwarding table, or its port",
        "show the route and the counters of both ports",
    ),
    "no-results": Blame(
        "no results: likely {element} is down, or a firewall there drops RoCE (UDP port 4791)",
        ("results that are missing with all partners",),
        "a firewall, a VLAN or a route that RoCE does not get through",
        "nft list ruleset; ip -s link",
    ),
    "uplink-idle": Blame(
        "{ends} carried less than 1 % of the mean of {leaves} uplinks, one way or both, over the {stage} "
        "stage: {what}, or routing leaves it out",
        ("bytes of the leaf's uplink", "bytes of its siblings, which had more than a hundred times as many"),
        "routing that leaves it out, which the sentence says",
        "show lldp neighbors",
    ),
    # benchmarks
    "two-owners": Blame(
        "{address} on {rail} is owned by {owner} and by {other}, heard at {node}",
        ("the owner's own read-back", "another's answer, or another node's own addresses"),
        "a host that answers with another of its NICs: then both owners are one node",
        "ip -4 addr show on both; sysctl net.ipv4.conf.NETDEV.arp_ignore",
    ),
    "rewritten": Blame(
        "{what} on the way{ports}, or by {sender} itself",
        ("what arrives",),
        "tc, nftables, XDP or eBPF on the sender's rail",
        "tc filter show dev {netdev} egress",
    ),
    "rewritten-by-port": Blame(
        "{what} on the way{ports}",
        ("what arrives", "the settings that were read back from the port that is named"),
    ),
    "host-stood-still": Blame(
        "in {some} of {all} full runs that missed the bound LoadGen's own process stood still for up to {ms} "
        "ms: look at the host before the GPU",
        ("gaps in the clock of LoadGen's process", "the runs that missed their bound"),
    ),
    # collect/surroundings.py
    "busy-cpus": Blame(
        "{node} was busy: {what}",
        ("the node's own accounting of time", "what took it: processes, a hypervisor, heat or interrupts"),
        "a part that is slow besides: the value decides nothing",
        "mpstat -P ALL 1 3",
    ),
    "busy-nic": Blame(
        "{node} was busy: {what}",
        ("the interface's own bytes", "what the job's outputs imply"),
        "a collective that sends the same more often than is known here",
        "ss -tin; sar -n DEV 1 3",
    ),
    # onnode
    "way-strays": Blame("{node} {netdev} ({rail}): {owner}'s {words}", (_READ_BACK, _INTENT)),
    "interface": Blame("{node} {netdev} ({rail}): {words}", (_READ_BACK, _INTENT)),
    "long-packets": Blame(
        "{rail} loses packets of {full} bytes between {pair}{way}, short ones pass: likely a lower MTU at a "
        "port between them, or something that drops long packets",
        ("datagrams of both sizes",),
        "a filter, or a tunnel on the way",
        "tracepath -n ADDRESS",
    ),
    "rail-silent": Blame(
        "{rail} carries nothing between {pair}, their other rails do",
        ("datagrams over this rail, unanswered", "datagrams over the others, answered"),
        "a firewall of either node on this rail, or a switch port in another VLAN",
        "ping -I NETDEV; ip neigh show dev NETDEV; nft list ruleset",
    ),
    "no-tcp": Blame(
        "{rail} answers datagrams and opens no TCP connection between {pair}{way}, other rails do",
        ("connections over this rail, refused or unanswered", "connections over the others, opened"),
        "a firewall of either node or between them, on this rail alone",
        "nft list ruleset, on both nodes",
    ),
    "link-changed": Blame(
        "{node} {netdev} ({rail}): its link went down or came up {times} times during the job",
        ("the kernel's count of it, before and after",),
        "the switch's port, the cable, the NIC, or somebody who set it down",
        "journalctl -k | grep NETDEV, and the log of the switch's port",
    ),
    "rail-died": Blame(
        "{node} {netdev} ({rail}) no longer reaches {owner}: it did when the job began",
        ("a connection on this rail before the job, answered", "the same after the job, unanswered"),
        "either node's NIC or filter, a cable or port between them, or a node that went down",
        "ping -I NETDEV ADDRESS; ip neigh show dev NETDEV; nft list ruleset",
    ),
    "hangs-alone": Blame(
        "{node} hangs with no other node: the same collective on it alone does not end",
        ("the collective on all nodes, hung", "the same on this node alone, hung"),
    ),
    "hangs-with": Blame(
        "{node}: the same collective hangs or fails on it and {mate}, and ends on {mate} and {other}",
        ("that pair, hung", "its partner with another node, ended"),
        "its NIC, cable, switch port or filter, or the node itself",
        "ping -I NETDEV ADDRESS from its partner; journalctl -k",
    ),
    "hangs-apart": Blame(
        "between {pair}: the same collective hangs or fails on the two, and ends on each with another node",
        ("that pair, hung", "each of the two with another node, ended"),
        "a filter or a route of either, for the other's addresses alone",
        "ping -I NETDEV ADDRESS, both ways; nft list ruleset",
    ),
    "hangs-between": Blame(
        "likely between {pair}: the same collective hangs or fails on the two",
        ("that pair, hung",),
        "either node, where no third was there to try it with",
        "ping -I NETDEV ADDRESS, both ways; nft list ruleset",
    ),
    "long-died": Blame(
        "{node} {netdev} ({rail}) reaches {owner} with short packets alone, before the job with long ones",
        (
            "a datagram of the MTU before the job, answered",
            "the same after it, unanswered; a connection, opened",
        ),
        "an MTU that was lowered on the way, a filter, or an answer that was kept back",
        "ping -M do -s 8972 -I NETDEV ADDRESS; nft list ruleset",
    ),
    "rail-mute": Blame(
        "{node} {netdev} ({rail}) opens no connection to {owner} that leaves by it, its other rails do",
        (
            "connections from this NIC, before and after the job, unanswered",
            "the same from the others, answered",
        ),
        "a rule or a filter of either node for this rail alone, or what lies between them",
        "ping -I NETDEV ADDRESS; ip rule; nft list ruleset",
    ),
    "stands-still": Blame(
        "{name} stands still: {state}", ("its process's own state", "the other ranks, which work")
    ),
    # evidence
    "munge-clock": Blame(
        "munge refused its end ({why}): likely its clock",
        ("munge's own reason",),
        "a credential that waited",
        "chronyc tracking",
    ),
    "munge-key": Blame(
        "munge refused its end ({why}): likely another munge.key",
        ("munge's own reason",),
        "damaged messages",
        "sha256sum /etc/munge/munge.key",
    ),
    "munge": Blame(
        "munge refused its end ({why}): likely its munge.key or its clock",
        ("munge's own reason",),
        "",
        "munge -n | ssh {node} unmunge",
    ),
}
