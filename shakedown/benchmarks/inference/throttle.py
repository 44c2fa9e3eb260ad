"""Whether GPUs lowered their clocks for heat or for want of power while a measurement ran."""

from __future__ import annotations

from shakedown.benchmarks.gpu.output_nvidia_smi import parse_query
from shakedown.benchmarks.inference.watch_fields import FIELDS

# Bits of nvmlClocksEventReasons (nvml.h). A software power cap (0x4) is normal under full load and no fault.
REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def throttled(text: str, *, gpus: int, file: str) -> str:
    """Return in words which GPU was throttled and why; empty if none was.

    Raises:
        BadInput: not the watch's output, a GPU that nvidia-smi could not read, or one that was not watched.
    """
    rows = parse_query(text, fields=FIELDS, samples=True, file=file).gpus
    if missing := sorted(set(range(gpus)) - {row["index"] for row in rows}):
        return f"GPU {missing[0]} was not watched: throttling would have gone unseen"
    for row in rows:
        active = int(str(row["clocks_event_reasons.active"]), 16)
        if words := [name for bit, name in REASONS.items() if active & bit]:
            return (
                f"GPU {row['index']} was throttled, {' and '.join(words)}, at {row['clocks.sm']} MHz, "
                f"{row['temperature.gpu']} degC, {row['power.draw']} W"
            )
    return ""
