"""A fabric NIC. By itself, as programs that start often read `jobs.json` and need no more of the intent."""

from __future__ import annotations

from shakedown.records.base import Name, Record


class NicSpec(Record):
    """One fabric NIC as the inventory describes it."""

    rail: Name
    rdma_device: Name
    netdev: Name
    ipv4: str
    leaf: Name | None = None
    leaf_port: Name | None = None
    # Its kernel driver, where the RDMA device's name does not tell it (rocep65s0f0).
    driver: Name | None = None
