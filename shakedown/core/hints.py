"""Signatures of known faults, as hints in a reason. A hint never changes an outcome."""

from __future__ import annotations

from shakedown.core.records import Measurement, Reference


def fault_hint(m: Measurement, reference: Reference) -> str:
    """Say what a failed value looks like, or nothing."""
    value, ceiling = m.value, reference.ceiling
    if value is None or ceiling is None or ceiling <= 0:
        return ""
    share = value / ceiling
    if 0.45 <= share <= 0.52 and m.unit in ("Gb/s", "GB/s"):
        return "half rate, look at PCIe width x8 instead of x16, or one link of two"
    return ""
