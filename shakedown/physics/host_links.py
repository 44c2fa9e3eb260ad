"""Links inside a host: PCI Express, and the links that GPU models have."""

import re
from dataclasses import dataclass
from enum import StrEnum

from shakedown.records.reading import BadInput

# Sources: PCI Express Base Specification 3.0 to 6.0 (transfer rates, encodings, TLP framing, flit layout).

TRANSFER_RATE_GT_PER_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
# Useful over sent bits: 8b/10b, 128b/130b; generation 6 sends flits of 256 B, of which 14 B are CRC and FEC.
ENCODING = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 242 / 256}
WIDTHS = (1, 2, 4, 8, 16)
MAX_PAYLOADS_BYTES = (128, 256, 512, 1024, 2048, 4096)
_TLP_FRAMING_BYTES = 8  # framing (with sequence number) and LCRC around every TLP up to generation 5: 4 + 4 B
# In a flit, 6 B more belong to the data link layer, and TLPs have no framing of their own.
_FLIT_TLP_SHARE = 236 / 242
_FLIT_GENERATION = 6


class Transfer(StrEnum):
    """Who moves the data, which decides the TLP header that every payload pays for."""

    H2D = "h2d"  # the device reads host memory: completions, header of 12 B
    D2H = "d2h"  # the device writes host memory: posted writes to 64-bit addresses, header of 16 B


_HEADER_BYTES = {Transfer.H2D: 12, Transfer.D2H: 16}


def raw_gb_per_s(generation: int, width: int) -> float:
    """Return the link's rate per direction after line coding, in GB/s (10^9 B/s): Gen5 x16 63.02.

    Formula: GT/s x lanes x encoding / 8. Raises BadInput: no such generation or width.
    """
    if generation not in TRANSFER_RATE_GT_PER_S:
        raise BadInput(f"PCIe generation {generation} is not known", fix="use 1 to 6")
    if width not in WIDTHS:
        raise BadInput(f"PCIe width x{width} does not exist", fix="use 1, 2, 4, 8 or 16")
    return TRANSFER_RATE_GT_PER_S[generation] * width * ENCODING[generation] / 8


def payload_ceiling_gb_per_s(
    generation: int, width: int, *, max_payload_bytes: int, transfer: Transfer = Transfer.H2D
) -> float:
    """Return the largest payload rate of one direction, in GB/s (10^9 B/s): Gen5 x16 at MPS 256, H2D: 58.45.

    Formula: raw x MPS / (MPS + header + framing). Flow-control and acknowledge packets are left out, so this
    is an upper bound. A root complex may answer reads in completions smaller than MPS, and then reaches less.
    Raises BadInput: no such generation, width or maximum payload size.
    """
    if max_payload_bytes not in MAX_PAYLOADS_BYTES:
        raise BadInput(
            f"PCIe MaxPayload {max_payload_bytes} B does not exist", fix="use 128, 256, 512 ... 4096"
        )
    raw = raw_gb_per_s(generation, width)
    overhead = _HEADER_BYTES[transfer]
    if generation >= _FLIT_GENERATION:
        raw *= _FLIT_TLP_SHARE
    else:
        overhead += _TLP_FRAMING_BYTES
    return raw * max_payload_bytes / (max_payload_bytes + overhead)


@dataclass(frozen=True)
class GpuModel:
    """One model of GPU."""

    name: str  # as the fact `gpu` of references has it
    driver_name: str  # pattern of what nvidia-smi calls it
    pcie_generation: int  # of its host link, x16
    # All its NVLinks together, GB/s (10^9 byte/s) in one direction; None: it has none.
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


def is_of_model(driver_name: str, model: str) -> bool | None:
    """Return whether a GPU that its driver calls so is of a model; None: the model is not known here."""
    found = by_driver_name(driver_name)
    return None if by_name(model) is None else found is not None and found.name == model


def same_gpu(one: str, other: str) -> bool:
    """Return whether two programs call a GPU alike: older drivers leave NVIDIA out, MIG adds its part."""
    models = by_driver_name(one), by_driver_name(other)
    if None not in models:
        return models[0] == models[1]
    short = [name.removeprefix("NVIDIA ").removeprefix("Tesla ") for name in (one, other)]
    return short[0].startswith(short[1]) or short[1].startswith(short[0])


def by_driver_name(name: str) -> GpuModel | None:
    """Return the model that nvidia-smi calls so (`NVIDIA H100 80GB HBM3`), or None."""
    return next((model for model in MODELS if re.search(model.driver_name, name)), None)
