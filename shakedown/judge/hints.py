"""Signatures of known faults: what a failed value looks like. A hint never changes an outcome.

Every rate is computed by `shakedown.physics`; the shares of NVLink SHARP and of TCP are measured
(NVIDIA GTC slides: 8 x H100 480 against 370 GB/s, 8 x B200 838 against 682; NCCL over sockets reaches a few
GB/s on any NIC).
"""

from __future__ import annotations

from shakedown.physics.pcie import payload_ceiling_gb_per_s
from shakedown.physics.roce import payload_ceiling_gbps
from shakedown.records.plan import Reference
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


def fault_hint(m: Measurement, reference: Reference) -> str:
    """Say what a failed rate looks like, or nothing."""
    value, ceiling = m.value, reference.ceiling
    if value is None or value < 0 or m.metric.startswith("counter."):
        return ""
    if m.unit == "Gb/s" and ceiling is not None:
        return _link_hint(value, ceiling)
    if m.unit == "GB/s" and m.metric.startswith("busbw") and not m.test.startswith("mpi") and _large(m):
        return _collective_hint(m, value, reference)
    return ""


def _link_hint(value_gbps: float, ceiling_gbps: float) -> str:
    """A single RDMA link, against its payload ceiling."""
    if 0.47 <= value_gbps / ceiling_gbps <= 0.502:
        return "half rate, look at PCIe width x8 instead of x16 and at the link speed"
    speed = next((s for s in _LINK_SPEEDS_GBPS if 0.9 * s < ceiling_gbps <= s), None)
    if speed is None:
        return ""
    for mtu in _SMALL_MTUS_BYTES:
        limit = payload_ceiling_gbps(speed, rdma_mtu_bytes=mtu)
        if 0.99 * limit <= value_gbps <= limit < ceiling_gbps:
            return f"as with RDMA MTU {mtu} (at most {limit:.1f} Gb/s), look at the MTU of host and switch"
    for generation, width, name in _PCIE_LINKS:
        limit = 8 * payload_ceiling_gb_per_s(generation, width, max_payload_bytes=_MAX_PAYLOAD_BYTES)
        if 0.85 * limit <= value_gbps <= limit < ceiling_gbps:
            return f"as on PCIe {name} (at most {limit:.1f} Gb/s), look at LnkSta in lspci -vv"
    return ""


def _large(m: Measurement) -> bool:
    """Whether a message is so large that its rate tells of the path, not of latency."""
    size = m.params.get("size_bytes")
    return size is None or (isinstance(size, int | float) and size >= _LARGE_BYTES)


def _collective_hint(m: Measurement, value_gb_per_s: float, reference: Reference) -> str:
    """The bus bandwidth of a GPU collective with large messages, in one node or over several."""
    target = reference.ceiling or reference.value
    if len(m.nodes) == 1:
        if "all_reduce" in m.test and 0.72 <= value_gb_per_s / reference.value <= 0.84:
            return "as without NVLS (NVLink SHARP), look for NVLS in the NCCL log and at the fabric manager"
        return ""
    if value_gb_per_s <= min(_TCP_GB_PER_S, 0.1 * target):
        return "as over TCP, look for NET/Socket in the NCCL log"
    if 0.45 <= value_gb_per_s / target <= 0.502:
        return "half rate, as a ring with one NIC at half rate: look at each rail's own result"
    return ""
