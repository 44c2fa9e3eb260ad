"""What counters say: errors, traffic moved, rates."""

import re
from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from shakedown.physics.ethernet import INTER_FRAME_GAP_BYTES, PREAMBLE_BYTES

_NicT = TypeVar("_NicT")

# What the two ends of a connection count when a packet was lost anywhere between them: says that, not where.
_END_TO_END = re.compile(r"seq|retry|retries|nak|timeout|retrans|icrc|duplicate|rnr|cnp")
# What is counted where it happens: bits damaged on the cable, or packets thrown away.
_DAMAGED = re.compile(r"symbol|crc|fcs|pcs|fec|uncorrect|link_down|err\w*_phy")
_DISCARDED = re.compile(r"drop|discard|overlimit|overrun|buf_|(rx|tx)_err")
# What is no error, whatever its name: bits that FEC corrected (mlx5 calls those of a lane rx_err_lane_N_phy),
# congestion notices and marks, pauses, ratios that are worked out, and what XDP programs drop on purpose.
_NO_ERROR = re.compile(
    r"(?<!un)corrected|err_lane_|cnp_?(sent|handled|pkts)|ecn_mark|pre_fec_|pause|_xdp_|^(?:phy|class|reading)\."
)


def no_error(counter: str) -> bool:
    """Whether a counter that looks like one of errors counts what healthy links and networks have too."""
    return _NO_ERROR.search(counter.lower()) is not None


def end_to_end(counter: str) -> bool:
    """Whether a counter only says that something was lost between two ends, and not at which."""
    return _END_TO_END.search(counter.lower()) is not None


def damaged_on_cable(counter: str) -> bool:
    """Whether a counter counts bits that were damaged on the cable at which it counts."""
    return _DAMAGED.search(counter.lower()) is not None and not no_error(counter)


@cache  # a run has a few dozen names and tens of thousands of readings
def counts_errors(counter: str) -> bool:
    """Whether a counter counts errors of any kind."""
    if no_error(counter):
        return False
    return end_to_end(counter) or damaged_on_cable(counter) or _DISCARDED.search(counter.lower()) is not None


# Counters of bytes that RDMA moved: (sent, received, bytes a unit).
RDMA_BYTES = (
    # IBTA's port counters, in words of four bytes (Linux, Documentation/ABI/stable/sysfs-class-infiniband);
    # mlx5 counts RoCE in them, and not in the netdev's.
    ("ib.port_xmit_data", "ib.port_rcv_data", 4),
    ("rdma.tx_bytes", "rdma.rx_bytes", 1),  # bnxt_re, hw_counters.c
    ("rdma.ip4OutOctets", "rdma.ip4InOctets", 1),  # irdma, hw.c
)
# Soft-RoCE sends through its netdev, which therefore counts all of it (drivers/infiniband/sw/rxe).
_SOFT_ROCE = ("rdma.sent_pkts", "rdma.rcvd_pkts")
NETDEV_BYTES = ("netdev.tx_bytes", "netdev.rx_bytes", 1)
# Frames of the port, as ethtool tells them: mlx5 (en_stats.c), bnxt (bnxt_ethtool.c), ice (ice_ethtool.c).
# Every packet of RDMA is in one; where they stand still, the driver shows what it knew before: mlx5 after an
# error of its firmware, bnxt where the firmware was told to leave no statistics (ethtool -C,
# stats-block-usecs 0).
_FRAMES = tuple(
    f"ethtool.{way}_{name}" for way in ("rx", "tx") for name in ("packets_phy", "good_frames", "unicast.nic")
)
_ENOUGH_MOVED_BYTES = 10_000_000  # less may be within a NIC alone, or counted when a driver looks again


def counts_rdma_bytes(counters: Mapping[str, int]) -> bool:
    """Whether a device has any counter in which the bytes of RDMA must show."""
    known = any(sent in counters and received in counters for sent, received, _ in RDMA_BYTES)
    return known or all(name in counters for name in (*_SOFT_ROCE, *NETDEV_BYTES[:2]))


def ethtool_stood_still(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Whether RDMA moved bytes over a port whose frames, as ethtool tells them, did not become more."""
    told = [name for name in _FRAMES if name in before and name in after]
    moved = [
        unit * (after[name] - before[name])
        for *both, unit in RDMA_BYTES
        for name in map(str, both)
        if name in before and name in after
    ]
    return (
        bool(told)
        and max(moved, default=0) >= _ENOUGH_MOVED_BYTES
        and all(after[n] == before[n] for n in told)
    )


def bytes_moved(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[int, int]:
    """Return the most bytes that a device can have (sent, received) between two readings.

    RDMA's counters and the netdev's are added, since either may leave out what the other counts. It is
    a bound from above: whoever claims to have moved more did not. A counter that was read once alone tells
    nothing: it may have counted for months.
    """

    def grown(name: str) -> int:
        return max(after[name] - before[name], 0) if name in before and name in after else 0

    rdma = [(unit * grown(sent), unit * grown(received)) for sent, received, unit in RDMA_BYTES]
    sent, received, _ = NETDEV_BYTES
    return max(s for s, _ in rdma) + grown(sent), max(r for _, r in rdma) + grown(received)


# Whole numbers, so that they are kept and judged like counters; the name says the unit. No input or output.

# Bits that FEC corrected, by driver: mlx5 (en_stats.c, pport_phy_statistical_stats_desc), bnxt
# (bnxt_ethtool.c, bnxt_port_stats_ext_arr), else what any driver tells ethtool's netlink (Linux 5.13).
_CORRECTED_BITS = ("ethtool.rx_corrected_bits_phy", "ethtool.rx_corrected_bits", "fec.corrected_bits")
# Symbols that were wrong and not corrected (the same sources; rx_symbol_err_phy: aSymbolErrorDuringCarrier).
_SYMBOL_ERRORS = ("ethtool.rx_pcs_symbol_err_phy", "ethtool.rx_symbol_err_phy", "ethtool.rx_pcs_symbol_err")
# Microseconds: "The duration of pause requests" of mlx5 (Documentation/networking, counters.rst) and
# pfc_priN_rx_duration_us of bnxt.
_PAUSED_US = re.compile(r"ethtool\.(?:(rx|tx)_prio(\d)_pause_duration|pfc_pri(\d)_(rx|tx)_duration_us)\Z")
# In which a NIC counts that packets came with an ECN mark, by driver.
_MARKS = ("rdma.np_ecn_marked_roce_packets", "rdma.rx_ecn_marked_pkts")
# With more microseconds of pause than this for each marked packet, congestion is no reason of the pause: a
# queue that is beyond its threshold for a millisecond marks hundreds of packets.
_UNMARKED_US = 1000
# Bytes that RDMA received or sent, and those of a priority, by driver; how the part outside it is called.
_BYTES_OF_PRIORITY = (
    ("ethtool.{}_vport_rdma_unicast_bytes", "ethtool.{}_prio{}_bytes"),
    ("rdma.{}_bytes", "ethtool.{}_bytes_pri{}"),
)
_MISSED = {"rx": "class.prio{}_missed_ppm", "tx": "class.prio{}_tx_missed_ppm"}
# Congestion notices travel in a class of their own. What only sends data receives little else, so that they
# may be a third of it. They are counted, by driver (mlx5/counters.c; bnxt_re/hw_counters.c). Each takes at
# most: Ethernet with VLAN 18, IPv6 40, UDP 8, BTH 12, reserved 16, ICRC 4, check sum 4 (IBTA, annex A17.9.3).
_NOTICES = {
    "rx": (("rdma.rp_cnp_handled", "rdma.rp_cnp_ignored"), ("rdma.rx_cnp_pkts",)),
    "tx": (("rdma.np_cnp_sent",), ("rdma.tx_cnp_pkts",)),
}
_NOTICE_BYTES = 102
# Without a counter of notices, a share up to this one may be theirs, and one above it is not.
_MAY_BE_NOTICES_PPM = 500_000
_TOO_LITTLE_PPM = 10_000  # to ask whose it is
# Bytes of frames on the wire, with header and check sum, and frames, by driver: mlx5 (en_stats.c,
# pport_802_3_stats_desc), bnxt (bnxt_ethtool.c, bnxt_port_stats_arr). The netdev's own lack RDMA's.
_ON_THE_WIRE = (
    ("ethtool.{}_bytes_phy", "ethtool.{}_packets_phy"),
    ("ethtool.{}_bytes", "ethtool.{}_good_frames"),
)
_ENOUGH_BYTES = 10_000_000  # of less than this, connection set-up and its answers are a part that shows
_SHORTEST_S = 1.0  # a reading takes some time itself: a ratio over less than this says little

# Requests that came twice, packets sent and received, by driver (rxe_hw_counters.c; mlx5's en_stats.c and
# counters.c; bnxt_re/hw_counters.c).
_TWICE = (
    ("rdma.duplicate_request", "rdma.sent_pkts", "rdma.rcvd_pkts"),
    (
        "rdma.duplicate_request",
        "ethtool.tx_vport_rdma_unicast_packets",
        "ethtool.rx_vport_rdma_unicast_packets",
    ),
    ("rdma.dup_req", "rdma.tx_pkts", "rdma.rx_pkts"),
)
TWICE = "twice.received_ppm"
# Of what came twice, the network must have made this part: elsewhere, packets may be lost.
_COPIED = 0.5
BER = "phy.pre_fec_ber_e12"
SYMBOL_ERRORS = "phy.symbol_errors_e15"
SENT, RECEIVED = "link.tx_utilisation_ppm", "link.rx_utilisation_ppm"


def rates(
    before: Mapping[str, int],  # the counters before a test
    after: Mapping[str, int],  # those after it, of the same start of the driver
    seconds: float,  # from one reading to the other
    speed_mbps: int | None,  # of the link, 10^6 bit/s; None: not known
) -> dict[str, int | None]:
    """Return what two readings say together, by name; of what the driver does not count nothing is said.

    None: the driver counts it, and these readings do not tell it: it stands in one of them only, was set back
    in between, or the link's speed is not known.

    Returns:
        `module.alarms`, `module.warnings`: flags that the cable's module itself had raised at either reading,
        or in between;
        `phy.pre_fec_ber_e12`: bits corrected for 10^12 bits of the line; `phy.symbol_errors_e15`: symbols
        that stayed wrong for 10^15 bits; `pause.prioN_{rx,tx}_ppm`: part of the time for which this NIC was
        told to pause (rx) or told its neighbour to (tx); `pause.prioN_unmarked_ppm`: the latter, unless
        a packet for each millisecond of it had an ECN mark: the receiver was slow, the network not congested;
        `class.prioN_missed_ppm` and `class.prioN_tx_missed_ppm`: part of what RDMA received and sent that
        priority N did not count and that congestion notices do not explain; `link.{tx,rx}_utilisation_ppm`:
        part of the line's rate that frames sent and received filled on average, preambles and gaps included.
    """
    found = _of_module(before, after) | _of_other_priorities(before, after)
    over_time = _over_time(before, after, max(seconds, _SHORTEST_S), speed_mbps)
    # What was counted over no time to speak of is not told, which is not as if it were not counted.
    return found | (over_time if seconds >= _SHORTEST_S else dict.fromkeys(over_time))


def _over_time(
    before: Mapping[str, int], after: Mapping[str, int], seconds: float, speed_mbps: int | None
) -> dict[str, int | None]:
    """Return what is a share of the time, or of the bits that the line carries in it."""
    found: dict[str, int | None] = {}
    bits = (speed_mbps or 0) * 1_000_000 * seconds
    # A driver may have several of these names; the one that counted the most is meant.
    for name, of, scale in ((BER, _CORRECTED_BITS, 10**12), (SYMBOL_ERRORS, _SYMBOL_ERRORS, 10**15)):
        if _counted(before, after, of):
            grown = _grown(before, after, of)
            found[name] = None if grown is None or bits <= 0 else round(grown * scale / bits)
    for name, way in ((SENT, "tx"), (RECEIVED, "rx")):
        if (filled := _line_bits(before, after, way)) is not None and bits > 0:
            found[name] = round(filled * 10**6 / bits)
    return found | _of_pauses(before, after, seconds)


def _of_module(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int | None]:
    """Return how many of its own alarms and warnings a module had raised; nothing of one without any."""
    found: dict[str, int | None] = {}
    for kind in ("alarms", "warnings"):
        raised = [counters.get(f"dom.{kind}") for counters in (before, after)]
        told = [n for n in raised if n is not None]
        if len(told) == len(raised):
            found[f"module.{kind}"] = max(*told, _grown(before, after, (f"dom.{kind}_seen",)) or 0)
        elif told or "dom.unread" in before or "dom.unread" in after:
            # What is raised in one reading is; that nothing is raised, one reading does not say of both.
            found[f"module.{kind}"] = max(told, default=0) or None
    return found


def _of_pauses(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> dict[str, int | None]:
    """Return for what part of the time each priority was paused, and how much of it without congestion."""
    found: dict[str, int | None] = {}
    marks = _grown(before, after, _MARKS)
    for name in before.keys() | after.keys():
        match = _PAUSED_US.match(name)
        if match is None:
            continue
        way, priority = (match[1] or match[4]), (match[2] or match[3])
        grown = _grown(before, after, (name,))
        share = None if grown is None else round(grown / seconds)  # us in a second: parts of a million
        found[f"pause.prio{priority}_{way}_ppm"] = share
        if way == "tx" and _counted(before, after, _MARKS):
            congested = marks is not None and grown is not None and marks * _UNMARKED_US >= grown
            found[f"pause.prio{priority}_unmarked_ppm"] = (
                None if marks is None or grown is None else 0 if congested else share
            )
    return found


def _line_bits(before: Mapping[str, int], after: Mapping[str, int], way: str) -> int | None:
    """Return the bits of the line that all frames of one way took; None: no counters of both tell."""
    for of_bytes, of_frames in _ON_THE_WIRE:
        octets = _grown(before, after, (of_bytes.format(way),))
        frames = _grown(before, after, (of_frames.format(way),))
        if octets is not None and frames is not None:
            return 8 * (octets + frames * (PREAMBLE_BYTES + INTER_FRAME_GAP_BYTES))
    return None


def _of_other_priorities(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int | None]:
    """Return, by priority, how much of what RDMA received and sent it did not, in parts of a million.

    The sender tells whose fault it is: of many senders, one with another class hardly shows at the receiver.
    """
    found: dict[str, int | None] = {}
    for rdma, of_priority in _BYTES_OF_PRIORITY:
        for way, name in _MISSED.items():
            total = _grown(before, after, (rdma.format(way),))
            if not _counted(before, after, (rdma.format(way),)):
                continue
            notices = _notices(before, after, way)
            for priority in range(8):
                own_name = of_priority.format(way, priority)
                own = _grown(before, after, (own_name,))
                if not _counted(before, after, (own_name,)):
                    continue
                if total is None or own is None:
                    found[name.format(priority)] = None
                elif total >= _ENOUGH_BYTES:
                    told = max(total - own - (notices or 0) * _NOTICE_BYTES, 0)
                    share = round(told * 10**6 / total)
                    unsure = notices is None and _TOO_LITTLE_PPM < share <= _MAY_BE_NOTICES_PPM
                    found[name.format(priority)] = None if unsure else share
    return found


def _notices(before: Mapping[str, int], after: Mapping[str, int], way: str) -> int | None:
    """Return how many congestion notices a NIC received or sent; None: its driver does not count them."""
    for names in _NOTICES[way]:
        grown = [_grown(before, after, (name,)) for name in names]
        if None not in grown:
            return sum(n or 0 for n in grown)
    return None


def _counted(before: Mapping[str, int], after: Mapping[str, int], names: tuple[str, ...]) -> bool:
    """Whether a driver has any of these counters."""
    return any(name in before or name in after for name in names)


def _grown(before: Mapping[str, int], after: Mapping[str, int], names: tuple[str, ...]) -> int | None:
    grown = [after[name] - before[name] for name in names if name in before and name in after]
    return max(grown) if grown and min(grown) >= 0 else None


# RDMA's packets sent and received, by driver; mlx5 and bnxt count those of Ethernet as well.
_PACKETS = (
    *(names[1:] for names in _TWICE),
    ("ib.port_xmit_packets", "ib.port_rcv_packets"),
    *((f"ethtool.tx_{name}", f"ethtool.rx_{name}") for name in ("packets_phy", "good_frames")),
)
_SHORTEST_BITS = 8 * (64 + PREAMBLE_BYTES + INTER_FRAME_GAP_BYTES)  # of a frame on the wire


def impossible(
    before: Mapping[str, int], after: Mapping[str, int], seconds: float | None, speed_mbps: int
) -> dict[str, str]:
    """Return the counters that grew by more than can have happened, and why: such a value tells nothing.

    What two ends count of a connection is of packets that the NIC sent or received; what is dropped or
    damaged may not be among them, and all came over a line of so many bits. All bounds are twice as wide.
    Of a time that is not known, or a speed of 0, there is no such line.
    """
    both_ways = [[after.get(name, 0) - before.get(name, 0) for name in both] for both in _PACKETS]
    moved = max(0, *(sum(grown) for grown in both_ways if min(grown) >= 0))
    bits = 2 * 2e6 * max(seconds, _SHORTEST_S) * max(speed_mbps, 0) if seconds else 0.0
    found: dict[str, str] = {}
    for name, value in after.items():
        grown_by = value - before.get(name, value)
        most, what = bits, f"its link carries {bits / 2:.3g} bits in that time"
        if counts_errors(name) and not damaged_on_cable(name):
            most /= _SHORTEST_BITS
        if end_to_end(name) and counts_errors(name) and moved:
            most, what = min(most or 2 * moved, 2 * moved), f"the NIC sent and received {moved} packets"
        if most and grown_by > most:
            found[name] = f"it grew by {grown_by}, and {what}"
    return found


def arrived_twice(
    of_nics: Mapping[_NicT, Mapping[str, tuple[int | None, int | None]]],
    among: Mapping[_NicT, str],  # of every NIC that took part: a name of those that it talked to, itself too
) -> dict[_NicT, int]:
    """Return by NIC how much of what it received came twice by the network's doing, in parts of a million.

    A request that comes twice was sent twice, or copied on the way: copied, if all NICs that talked to each
    other received more than they sent. Nothing is told where one of them was not read.
    """
    found: dict[_NicT, int] = {}
    for name in sorted(set(among.values())):
        known = {nic: _moved_twice(of_nics.get(nic, {})) for nic, of in among.items() if of == name}
        told = {nic: one for nic, one in known.items() if one is not None}
        if len(told) < len(known):
            continue
        again, sent, received = map(sum, zip(*told.values(), strict=True))
        copied = received - sent >= _COPIED * again
        found |= {
            nic: round(n * 10**6 / came) if copied and came else 0 for nic, (n, _, came) in told.items()
        }
    return found


def _moved_twice(told: Mapping[str, tuple[int | None, int | None]]) -> tuple[int, int, int] | None:
    """Return how many requests came twice, and packets sent and received; None: the driver does not count."""
    for names in _TWICE:
        pairs = [told.get(name, (None, None)) for name in names]
        grown = [last - first for first, last in pairs if first is not None and last is not None]
        if len(grown) == len(names) and min(grown) >= 0:
            return grown[0], grown[1], grown[2]
    return None
