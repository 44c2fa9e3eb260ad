"""Bandwidth of a PCI Express link, raw and as payload.

Sources: PCI Express Base Specification 3.0 to 6.0 (transfer rates, encodings, TLP framing, flit layout).
"""

from __future__ import annotations

from enum import StrEnum

from shakedown.records.errors import BadInput

TRANSFER_RATE_GT_PER_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
# Useful over sent bits: 8b/10b, 128b/130b; generation 6 sends flits of 256 B, of which 14 B are CRC and FEC.
ENCODING = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 242 / 256}
WIDTHS = (1, 2, 4, 8, 16)
MAX_PAYLOADS_BYTES = (128, 256, 512, 1024, 2048, 4096)
# Framing (with sequence number) and LCRC around every TLP up to generation 5: 4 + 4 B.
_TLP_FRAMING_BYTES = 8
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

    Formula: GT/s x lanes x encoding / 8.

    Raises:
        BadInput: no such generation or width.
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

    Raises:
        BadInput: no such generation, width or maximum payload size.
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
