"""What a node's GPUs show against what they must show: one finding per check and GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shakedown.benchmarks.gpu.options import GpuState
from shakedown.records.base import Record


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """One check. `wrong` None: unknown, and `detail` says why."""

    check: str
    gpu: int | None
    wrong: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Load:
    """What samples under load showed of one GPU."""

    pcie_generation: int | None
    pcie_width: int | None
    slowdown: int | None  # all reasons that appeared, or-ed
    samples: int


class Gpu(Record):
    """One GPU as its driver shows it. None: the driver does not tell."""

    index: int
    uuid: str
    pci: str
    name: str
    driver: str
    ecc: bool | None
    uncorrectable: int | None  # ECC errors since the driver was loaded
    slowdown: int | None  # reasons for slow clocks, as nvml.h's bits
    nvlinks_gb_per_s: tuple[float, ...] | None  # active links
    remap_pending: bool | None
    remap_failed: bool | None
    numa: int | None
    limit_w: float | None = None


# Reasons for slow clocks that are faults (nvml.h, nvmlClocksEventReason*): what hardware or heat forces.
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def judge_gpu(
    gpu: Gpu, wanted: GpuState, load: Load | None, links: tuple[str, ...] | None, unseen: str = ""
) -> Iterator[GpuCheck]:
    """Yield the finding of every check that is wanted of a GPU.

    Args:
        gpu: what the driver says after the load.
        wanted: the site's `GpuState`.
        load: what it showed under load; None: nothing was sampled.
        links: `nvidia-smi topo -m` between this GPU and the others.
        unseen: why the samples do not tell what slowed it under load; empty: they do, or there was no load.
    """

    def found(check: str, ok: bool | None, text: str) -> GpuCheck:
        return GpuCheck(check, gpu.index, None if ok is None else int(not ok), text)

    generation, width = wanted.pcie_generation, wanted.pcie_width
    if generation is not None or width is not None:
        seen = (load.pcie_generation, load.pcie_width) if load else (None, None)
        due = [(has, want) for has, want in zip(seen, (generation, width), strict=True) if want is not None]
        text = f"PCIe Gen{seen[0]} x{seen[1]} under load, Gen{generation} x{width} wanted"
        text = text if load else f"the link was not seen under load, Gen{generation} x{width} wanted"
        told = [(has, want) for has, want in due if has is not None]
        known = load is not None and len(told) == len(due)
        yield found("pcie", all(has >= want for has, want in told) if known else None, text)
    if (links_wanted := wanted.nvlinks) is not None:
        rates, rate = gpu.nvlinks_gb_per_s, wanted.nvlink_gb_per_s
        slow = [r for r in rates or () if rate is not None and r < 0.99 * rate]
        text = (
            "nvidia-smi does not tell the NVLinks"
            if rates is None
            else (
                f"{len(rates)} NVLinks are active, {wanted.nvlinks} wanted"
                + (f"; {len(slow)} slower than {rate} GB/s" if slow else "")
            )
        )
        yield found("nvlink", None if rates is None else len(rates) >= links_wanted and not slow, text)
    if wanted.topology is not None:
        other = sorted({link for link in links or () if link != wanted.topology})
        text = f"linked by {', '.join(other)}" if other else f"linked by {wanted.topology}"
        text = f"{text}, {wanted.topology} wanted" if links is not None else "no topology was printed"
        yield found("topology", None if links is None else not other, text)
    if (by_gpu := wanted.numa) is not None:
        want = by_gpu[gpu.index] if gpu.index < len(by_gpu) else None
        unknown = gpu.numa is None or gpu.numa < 0 or want is None
        yield found("numa", None if unknown else gpu.numa == want, f"NUMA node {gpu.numa}, {want} wanted")
    if wanted.ecc:
        errors = gpu.uncorrectable
        ok = None if gpu.ecc is None or errors is None else gpu.ecc and errors == 0
        state = {True: "on", False: "off", None: "unknown"}[gpu.ecc]
        yield found("ecc", ok, f"ECC is {state}, {errors} uncorrectable errors")
        flags = (gpu.remap_pending, gpu.remap_failed)
        text = f"row remapping pending: {flags[0]}, failed: {flags[1]}"
        yield found("remapped", None if None in flags else not any(flags), text)
    seen_mask = load.slowdown if load and load.slowdown is not None else gpu.slowdown
    why = [meaning for bit, meaning in SLOWDOWNS.items() if seen_mask is not None and seen_mask & bit]
    text = f"clocks were slowed by {', '.join(why)}" if why else unseen or "no slowdown"
    yield found("slowdown", None if seen_mask is None or (unseen and not why) else not why, text)
