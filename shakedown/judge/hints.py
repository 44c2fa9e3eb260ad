"""Signatures of known faults: what a failed value looks like. A hint never changes an outcome.

Every rate is computed by `shakedown.physics`; the shares of NVLink SHARP and of TCP are measured
(NVIDIA GTC slides: 8 x H100 480 against 370 GB/s, 8 x B200 838 against 682; NCCL over sockets reaches a few
GB/s on any NIC).
"""

from __future__ import annotations

from typing import NamedTuple

from shakedown.physics.pcie import payload_ceiling_gb_per_s
from shakedown.physics.roce import payload_ceiling_gbps
from shakedown.records.plan import PlanItem, Reference
from shakedown.records.results import Measurement

_LINK_SPEEDS_GBPS = (10, 25, 40, 50, 100, 200, 400, 800)
_SMALL_MTUS_BYTES = (1024, 2048)
# (generation, width): the links a NIC falls back to, at the usual MaxPayload of 256 B.
_PCIE_LINKS = ((5, 8, "Gen5 x8 or Gen4 x16"), (4, 8, "Gen4 x8 or Gen3 x16"), (3, 8, "Gen3 x8 or Gen4 x4"))
_MAX_PAYLOAD_BYTES = 256
_TCP_GB_PER_S = 5.0
# From here on a collective is bound by bandwidth and no longer by latency: an all-reduce of 8 GPUs reaches
# 95 % of its best bus bandwidth at 512 MiB, 8 % of it at 1 MiB (references/ml_engineering.yml).
_LARGE_BYTES = 512 << 20


class Hint(NamedTuple):
    """What a failed rate looks like."""

    likely: str  # the cause, for the verdict's first sentence
    text: str  # the same and where to look, for the cell's reason


def fault_hint(m: Measurement, reference: Reference) -> str:
    """Say what a failed rate looks like, or nothing."""
    hint = None if m.value is None else signature(m, len(m.nodes), m.value, reference)
    return hint.text if hint else ""


def signature(m: Measurement | PlanItem, nodes: int, value: float, reference: Reference) -> Hint | None:
    """Return the known fault whose failed value looks like this one; `value` in the reference's unit."""
    ceiling = reference.ceiling
    if value < 0 or m.metric.startswith("counter."):
        return None
    if m.unit == "Gb/s" and ceiling is not None:
        return _link_hint(value, ceiling)
    if m.unit == "GB/s" and m.metric.startswith("busbw") and not m.test.startswith("mpi") and _large(m):
        return _collective_hint(m.test, nodes, value, reference)
    return None


def _link_hint(value_gbps: float, ceiling_gbps: float) -> Hint | None:
    """A single RDMA link, against its payload ceiling."""
    if 0.47 <= value_gbps / ceiling_gbps <= 0.502:
        return Hint(
            "a PCIe link at half width or a link at half speed",
            "half rate, look at PCIe width x8 instead of x16 and at the link speed",
        )
    speed = next((s for s in _LINK_SPEEDS_GBPS if 0.9 * s < ceiling_gbps <= s), None)
    if speed is None:
        return None
    for mtu in _SMALL_MTUS_BYTES:
        limit = payload_ceiling_gbps(speed, rdma_mtu_bytes=mtu)
        if 0.99 * limit <= value_gbps <= limit < ceiling_gbps:
            look = f"as with RDMA MTU {mtu} (at most {limit:.1f} Gb/s), look at the MTU of host and switch"
            return Hint(f"an RDMA MTU of {mtu} bytes", look)
    for generation, width, name in _PCIE_LINKS:
        limit = 8 * payload_ceiling_gb_per_s(generation, width, max_payload_bytes=_MAX_PAYLOAD_BYTES)
        if 0.85 * limit <= value_gbps <= limit < ceiling_gbps:
            look = f"as on PCIe {name} (at most {limit:.1f} Gb/s), look at LnkSta in lspci -vv"
            return Hint(f"a PCIe link at {name}", look)
    return None


def _large(m: Measurement | PlanItem) -> bool:
    """Whether a message is so large that its rate tells of the path, not of latency."""
    size = m.params.get("size_bytes")
    return size is None or (isinstance(size, int | float) and size >= _LARGE_BYTES)


def _collective_hint(test: str, nodes: int, value_gb_per_s: float, reference: Reference) -> Hint | None:
    """The bus bandwidth of a GPU collective with large messages, in one node or over several."""
    target = reference.ceiling or reference.value
    if nodes == 1:
        if "all_reduce" in test and 0.72 <= value_gb_per_s / reference.value <= 0.84:
            return Hint(
                "NVLink SHARP (NVLS) not used",
                "as without NVLS (NVLink SHARP), look for NVLS in the NCCL log and at the fabric manager",
            )
        return None
    if value_gb_per_s <= min(_TCP_GB_PER_S, 0.1 * target):
        return Hint("TCP instead of RDMA", "as over TCP, look for NET/Socket in the NCCL log")
    if 0.45 <= value_gb_per_s / target <= 0.502:
        return Hint(
            "one NIC at half rate",
            "half rate, as a ring with one NIC at half rate: look at each rail's own result",
        )
    return None
