"""What a peak of inference says: data rate, share of the link, what is in the way of more.

Also what is watched of GPUs meanwhile. Standard library only: the harness in workloads/ uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The columns of the file, in this order.
FIELDS = ("index", "clocks.sm", "temperature.gpu", "power.draw", "clocks_event_reasons.active")


# The rate over PCIe is queries/s x 150,528 B, a raw image of 224 x 224 x 3 bytes (Fsas PRIMERGY CDI paper).

IMAGE_BYTES = {"resnet50": 224 * 224 * 3, "tiny": 16 * 16 * 3}
NOISE_FLOOR = 0.03  # the paper's own baseline varies by 3 % and more: smaller differences are none
# A part that works this share of the time or more has nothing left to give within a latency bound.
_BUSY = 0.85


def data_rate_gb_per_s(qps: float, model: str = "resnet50") -> float:
    """Return the rate of raw images in GB/s (10^9 byte/s)."""
    return qps * IMAGE_BYTES[model] / 1e9


@dataclass(frozen=True)
class Bottleneck:
    """What limits a peak: `gpu`, `interconnect`, `both` or `neither`, and the shares that say so."""

    limit: str
    words: str
    shares: dict[str, float]


def bottleneck(
    data_rate: float,  # GB/s at the peak
    *,
    h2d: float | None,  # measured host-to-device rate of the same GPUs at once, GB/s
    ceiling: float | None,  # physical limit of their links, GB/s
    network_qps: float | None,  # images/s of the network alone, data on the GPU already, all GPUs together
    qps: float,  # the peak
) -> Bottleneck:
    """Say whether the interconnect or the GPU limits a peak."""
    shares: dict[str, float] = {}
    if h2d:
        shares["of the measured H2D rate"] = data_rate / h2d
    if ceiling:
        shares["of the links' ceiling"] = data_rate / ceiling
    if network_qps:
        shares["of what the GPUs compute without copies"] = qps / network_qps
    link = data_rate / h2d if h2d else None
    gpu = qps / network_qps if network_qps else None
    full = [
        name for name, share in (("interconnect", link), ("gpu", gpu)) if share is not None and share >= _BUSY
    ]
    if link is None and gpu is None:
        limit = "unknown"
    elif len(full) == 2:
        limit = "both"
    else:
        limit = full[0] if full else "neither"
    words = {
        "gpu": "the GPU limits it",
        "interconnect": "the interconnect limits it",
        "both": "GPU and interconnect limit it",
        "unknown": "nothing to compare it with",
        "neither": "neither GPU nor interconnect is busy: host, batching or the latency bound limits it",
    }[limit]
    told = ", ".join(f"{share:.1%} {name}" for name, share in shares.items())
    return Bottleneck(limit, f"{words} ({told})" if told else words, shares)


def difference(ratio: float, noise_floor: float = NOISE_FLOOR) -> str:
    """Return how a ratio to the baseline reads: within the noise floor it is no difference."""
    if abs(ratio - 1) < noise_floor:
        return "no difference"
    return f"{'+' if ratio > 1 else '-'}{abs(ratio - 1):.1%}"


def extrapolated(rates: Mapping[int, float], gpus: int) -> float | None:
    """Return the rate that a straight line through the origin gives for more GPUs; None without any rate.

    The slope is least squares through the origin. What it returns is no measurement and must be marked.
    """
    if not rates:
        return None
    return gpus * sum(n * rate for n, rate in rates.items()) / sum(n * n for n in rates)
