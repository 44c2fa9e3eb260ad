"""Which counters a NIC's driver always reports (counter_sets.yml), and what a reading lacks."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import yaml

from shakedown.nics.families import BY_NAME, NicFamily


class Sets(NamedTuple):
    """What a driver reports: `always`, and sets of which it reports all or none.

    `renamed`: how later releases call a counter, and its name in the sets.
    """

    driver: str
    always: frozenset[str]
    together: tuple[frozenset[str], ...] = ()
    renamed: Mapping[str, str] = MappingProxyType({})

    def named(self, counters: Mapping[str, int], prefix: str = "") -> dict[str, int]:
        """Return counters by the names of the sets; one that is there by both names keeps both."""
        return {self._named(name, prefix, counters): value for name, value in counters.items()}

    def _named(self, name: str, prefix: str, counters: Mapping[str, int]) -> str:
        if not name.startswith(prefix) or (known := self.renamed.get(name[len(prefix) :])) is None:
            return name
        return name if prefix + known in counters else prefix + known


def _names(words: str | list[str]) -> frozenset[str]:
    """Return names of a text, or of a list where they have blanks; `{n}` stands for 0 to 7."""
    names = words.split() if isinstance(words, str) else words
    return frozenset(name.replace("{n}", str(n)) for name in names for n in range(8 if "{n}" in name else 1))


def _sets(source: str) -> tuple[Sets, ...]:
    """Return the drivers of a source of counters, `rdma` or `ethtool`."""
    return tuple(
        Sets(
            driver,
            _names(known.get("always", "")),
            (
                *map(_names, known.get("together", ())),
                *(_names(x.replace("{n}", str(n))) for x in known.get("by_priority", ()) for n in range(8)),
            ),
            known.get("renamed", {}),
        )
        for driver, known in _DATA[source].items()
    )


_DATA = yaml.safe_load(Path(__file__).with_name("counter_sets.yml").read_text(encoding="utf-8"))
RDMA, ETHTOOL = _sets("rdma"), _sets("ethtool")
# Names that drivers of other makers have too.
_COMMON = _names(
    "rx_packets rx_bytes tx_packets tx_bytes rx_drops rx_pkts tx_pkts duplicate_request out_of_buffer"
)

# "rx0_kicks" (virtio_net, mlx5), "ch0_events" (mlx5), "rx_queue_0_packets" (ice, older virtio_net),
# "[0]: rx_ucast_packets" (bnxt), "Tx Queue#0: ring full" (vmxnet3, as read).
_QUEUE = re.compile(
    r"(?P<kind>rx|tx|ch|rx_queue_|tx_queue_|\[|[TR]x Queue#)(?P<number>\d{1,4})(?:_|\]: |: )(?P<name>.+)\Z"
)
# mlx5 has these on some of its queues only.
_SOME = ("xdp", "xsk")
_BNXT_QUEUE = "["


def driver_of(counters: Mapping[str, int], known: Iterable[Sets]) -> Sets | None:
    """Return the driver whose names these are; None: a driver that is not known."""
    most = max(known, key=lambda sets: _overlap(counters, sets))
    return most if _overlap(counters, most) else None


def rdma_driver_of(counters: Mapping[str, int]) -> Sets | None:
    """Return the RDMA driver whose names most of these are, and most of whose names these are.

    EFA, ionic or MANA share a name or two with a driver that is known, and drivers of other makers take over
    mlx5's: theirs are not held to its sets.
    """
    known = driver_of(counters, RDMA)
    told = sum(name not in _COMMON for name in counters)
    if known is None or 2 * _overlap(counters, known) < told:
        return None
    due = known.always - _COMMON
    few = 2 * len(due & known.named(counters).keys()) < len(due)
    return None if few and unknown(counters, known) else known


def unknown(counters: Mapping[str, int], sets: Sets) -> list[str]:
    """Return the names that the driver is not known to have, as of a later release."""
    return sorted(counters.keys() - frozenset().union(sets.always, *sets.together, sets.renamed, _COMMON))


def _overlap(counters: Mapping[str, int], sets: Sets) -> int:
    own = frozenset().union(sets.always, *sets.together, sets.renamed) - _COMMON
    return sum(name in counters for name in own)


def missing(counters: Mapping[str, int], sets: Sets) -> list[str]:
    """Return the names that the driver must have reported and are not there."""
    lacking = set(sets.always - counters.keys())
    for names in sets.together:
        if not names.isdisjoint(counters):
            lacking |= names - counters.keys()
    return sorted(lacking)


def queues_missing(counters: Mapping[str, int]) -> str:
    """Return in words what is missing from counters that a driver reports for each of its queues, else "".

    Every name of one kind of queue has the same numbers, from 0 on. A bnxt without shared rings numbers them
    on: what receives first, then what sends.
    """
    numbers: dict[str, dict[str, set[int]]] = {}
    for counter in counters:
        if match := _QUEUE.match(counter):
            numbers.setdefault(match["kind"], {}).setdefault(match["name"], set()).add(int(match["number"]))
    for kind, names in numbers.items():
        # The rings of a bnxt are one series; its names may stop or begin where sending begins.
        whole = set().union(*names.values())
        if whole != set(range(len(whole))):
            lost = min(set(range(len(whole))) - whole)
            return f"nothing of {kind}{lost}"
        for name, own in names.items():
            if name.startswith(_SOME):
                continue
            if own != whole and not (kind == _BNXT_QUEUE and _is_side(own, whole, names.values())):
                return f"{kind}{min(whole - own)} has no {name}, others have"
    return ""


def _is_side(own: set[int], whole: set[int], others: Iterable[set[int]]) -> bool:
    """Tell a bnxt's receiving or sending rings: a run without gaps, and the other side has the rest."""
    run = own == set(range(min(own), max(own) + 1))
    return run and whole - own in list(others)


def sums_wrong(counters: Mapping[str, int]) -> str:
    """Return in words which total of virtio_net is not the sum of its queues, else "".

    It has as many queues to receive as to send.

    drivers/net/virtio_net.c, virtnet_fill_total_fields, adds them up from the same reading (since 6.9).
    """
    sums: dict[str, int] = {}
    queues: dict[str, set[str]] = {"rx": set(), "tx": set()}
    for counter, value in counters.items():
        if (match := _QUEUE.match(counter)) and match["kind"] in ("rx", "tx"):
            queues[match["kind"]].add(match["number"])
            name = f"{match['kind']}_{match['name']}"
            sums[name] = sums.get(name, 0) + value
    if "rx_kicks" not in counters and "tx_kicks" not in counters:
        return ""
    if queues["rx"] != queues["tx"]:
        return f"{len(queues['rx'])} queues receive, {len(queues['tx'])} send"
    for name in sorted(sums.keys() | {x for x in counters if x.startswith(("rx_", "tx_"))}):
        if name not in sums or name not in counters:
            return f"{name} is only in the total or only in the queues"
        if sums[name] != counters[name]:
            return f"{name} is {counters[name]}, the sum of its queues is {sums[name]}"
    return ""


# What a family's drivers told wrongly: ice's first releases with FEC statistics have the corrected blocks
# under uncorrectable and the others under corrected (ice_ethtool.c, ice_get_port_fec_stats). No evidence.
UNTRUSTED = {"irdma": frozenset({"fec.corrected_blocks", "fec.uncorrectable_blocks"})}
# How many bits a chip gives its counters, where they are less than 64. mlx5: fields of 32 bits in the answer
# of its firmware (mlx5_ib_query_q_counters in drivers/infiniband/hw/mlx5/counters.c; link_down_events in
# en_stats.c).
_Q_COUNTERS = frozenset().union(*(s.always.union(*s.together) for s in RDMA if s.driver == "mlx5_ib"))
_OF_64_BITS = {"rp_cnp_ignored", "rp_cnp_handled", "np_ecn_marked_roce_packets", "np_cnp_sent"}
# bnxt: traffic, which older drivers show as the chip has it (bnxt.c, bnxt_accumulate_stats;
# bnxt_re/hw_counters.c).
_BNXT_TRAFFIC = (
    *(f"ethtool.{way}_good_frames" for way in ("rx", "tx")),
    *(f"rdma.{way}_{unit}" for way in ("rx", "tx") for unit in ("pkts", "bytes")),
)
BITS: dict[str, dict[str, int]] = {
    "mlx5": {
        **{f"rdma.{name}": 32 for name in _Q_COUNTERS - _OF_64_BITS},
        "ethtool.link_down_events_phy": 32,
    },
    "bnxt": dict.fromkeys(_BNXT_TRAFFIC, 48),
}


def unwrapped(family: NicFamily | None, name: str, before: int, after: int) -> int:
    """Return what a counter is after a test had it more bits than the chip gives it.

    One that went from the upper half of its range into the lower went over its end; any other that is less
    than before was set back.
    """
    bits = BITS.get(family.name, {}).get(name) if family else None
    if bits is None:
        return after
    whole = 1 << bits
    return after + whole if after < whole // 2 <= before < whole else after


def traffic_of_bnxt_back(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Whether traffic that a bnxt counted became less, and not because a counter went over its end."""
    return any(
        name in after and unwrapped(BY_NAME["bnxt"], name, value, after[name]) < value
        for name, value in before.items()
        if name in BITS["bnxt"]
    )


def by_known_names(family: NicFamily | None, counters: Mapping[str, int]) -> Mapping[str, int]:
    """Return a device's counters, those of RDMA by the names that references and limits have."""
    sets = next((one for one in RDMA if family and one.driver == family.rdma), None)
    return sets.named(counters, "rdma.") if sets and sets.renamed else counters


def lacking(family: NicFamily, counters: Mapping[str, int]) -> frozenset[str]:
    """Return the counters that a family's drivers always report and that a reading does not have.

    A reading without any counter of a source lacks all of it that is known of every NIC.
    """
    found = set[str]()
    for prefix, driver, known in (("rdma.", family.rdma, RDMA), ("ethtool.", family.ethtool, ETHTOOL)):
        sets = next((one for one in known if one.driver == driver), None)
        if sets is not None:
            own = {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix)}
            found |= {f"{prefix}{name}" for name in _missing(own, sets)}
    return frozenset(found)


def _missing(own: Mapping[str, int], sets: Sets) -> set[str]:
    if own:
        return set(missing(own, sets))
    return set(sets.always or (sets.together[0] if sets.together else ()))
