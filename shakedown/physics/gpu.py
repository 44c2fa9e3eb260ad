"""Links of GPU models: what a floor is derived from, and the name that references use for a model."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class GpuModel:
    """One model of GPU.

    Attributes:
        name: as the fact `gpu` of references has it.
        driver_name: pattern of what nvidia-smi calls it.
        pcie_generation: of its host link, x16.
        nvlink_gb_per_s: all its NVLinks together, GB/s (10^9 byte/s) in one direction; None: it has none.
    """

    name: str
    driver_name: str
    pcie_generation: int
    nvlink_gb_per_s: float | None


# NVIDIA's data sheets of each model: "NVLink: 600/900/1800 GB/s" counts both directions. The first that fits
# holds. H100 NVL and PCIe have bridges between two cards only, so no rate holds between any two.
MODELS = (
    GpuModel("A100-SXM", r"A100-SXM", 4, 300),
    GpuModel("A100-PCIe", r"A100", 4, None),
    GpuModel("H100-NVL", r"H100 NVL", 5, None),
    GpuModel("H100-PCIe", r"H100 PCIe", 5, None),
    GpuModel("H100-SXM", r"H100", 5, 450),
    GpuModel("H200-NVL", r"H200 NVL", 5, None),
    GpuModel("H200-SXM", r"H200", 5, 450),
    GpuModel("B200", r"\bB200\b", 5, 900),
    GpuModel("L40S", r"\bL40S\b", 4, None),
    GpuModel("L40", r"\bL40\b", 4, None),
)


def by_name(name: str) -> GpuModel | None:
    """Return the model that references call so, or None."""
    return next((model for model in MODELS if model.name == name), None)


def by_driver_name(name: str) -> GpuModel | None:
    """Return the model that nvidia-smi calls so (`NVIDIA H100 80GB HBM3`), or None."""
    return next((model for model in MODELS if re.search(model.driver_name, name)), None)
