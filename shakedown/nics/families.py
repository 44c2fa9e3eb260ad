"""Which family of drivers a NIC is of: what its counters are called, and which profile holds their limits."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from shakedown.nics.counter_sets import ETHTOOL, RDMA, Sets, missing


class Family(NamedTuple):
    """A family: its kernel drivers, and how it names its RDMA devices unless the site renames them."""

    name: str
    drivers: frozenset[str]
    device_prefix: str
    rdma: str  # of counter_sets.RDMA
    ethtool: str  # of counter_sets.ETHTOOL; empty: the netdev is another driver's


FAMILIES = (
    Family("mlx5", frozenset({"mlx5", "mlx5_core", "mlx5_ib"}), "mlx5", "mlx5_ib", "mlx5_core"),
    Family("bnxt", frozenset({"bnxt", "bnxt_en", "bnxt_re"}), "bnxt_re", "bnxt_re", "bnxt_en"),
    Family("rxe", frozenset({"rxe", "rdma_rxe"}), "rxe", "rxe", ""),
    Family("irdma", frozenset({"irdma", "ice"}), "irdma", "irdma", "ice"),
)
BY_NAME = {family.name: family for family in FAMILIES}
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


@functools.lru_cache(4096)  # a large site asks for each of its NICs, and they have few names
def family_of(driver: str | None, rdma_device: str) -> Family | None:
    """Return the family of a NIC by its kernel driver, or by its RDMA device's name where that is not said.

    Distributions rename RDMA devices (rdma-core's rdma_rename: rocep65s0f0), and then only the driver tells.
    """
    for family in FAMILIES:
        if driver in family.drivers or (not driver and rdma_device.startswith(family.device_prefix)):
            return family
    return None


def unwrapped(family: Family | None, name: str, before: int, after: int) -> int:
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


def lacking(family: Family, counters: Mapping[str, int]) -> frozenset[str]:
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
