"""NIC families, by the drivers of the kernel. Standard library only: nodes use it."""

from __future__ import annotations

import functools
from typing import NamedTuple


class NicFamily(NamedTuple):
    """A family: its kernel drivers, and how it names its RDMA devices unless the site renames them."""

    name: str
    drivers: frozenset[str]
    device_prefix: str
    rdma: str  # of counter_sets.yml, rdma
    ethtool: str  # likewise, ethtool; empty: the netdev is another driver's


FAMILIES = (
    NicFamily("mlx5", frozenset({"mlx5", "mlx5_core", "mlx5_ib"}), "mlx5", "mlx5_ib", "mlx5_core"),
    NicFamily("bnxt", frozenset({"bnxt", "bnxt_en", "bnxt_re"}), "bnxt_re", "bnxt_re", "bnxt_en"),
    NicFamily("rxe", frozenset({"rxe", "rdma_rxe"}), "rxe", "rxe", ""),
    NicFamily("irdma", frozenset({"irdma", "ice"}), "irdma", "irdma", "ice"),
)
BY_NAME = {family.name: family for family in FAMILIES}


@functools.lru_cache(4096)  # a large site asks for each of its NICs, and they have few names
def family_of(driver: str | None, rdma_device: str) -> NicFamily | None:
    """Return the family of a NIC by its kernel driver, or by its RDMA device's name where that is not said.

    Distributions rename RDMA devices (rdma-core's rdma_rename: rocep65s0f0), and then only the driver tells.
    """
    for family in FAMILIES:
        if driver in family.drivers or (not driver and rdma_device.startswith(family.device_prefix)):
            return family
    return None
