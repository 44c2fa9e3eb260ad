"""Where the time of one LoadGen run went: batches, host, device, and what the hypervisor took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from shakedown.inference.ring import Ring, Times


@dataclass(frozen=True)
class Spent:
    """One run, over all workers."""

    batch: float  # queries a batch, mean
    host_ms: float  # a batch, mean: gathering its images and handing it over
    longest_host_ms: float
    device_ms: float  # a batch, mean: copy and model
    device_busy: float  # share of the run in which a device had something to do, mean over workers
    # Share of the CPUs' time that went to other guests: a virtual machine that is robbed answers late for a
    # reason that no profile of ours shows. None where the kernel does not tell (field 8 of "cpu", proc(5)).
    stolen: float | None

    def document(self) -> dict[str, float | None]:
        """Return what the journal keeps, rounded."""
        return {key: None if value is None else round(value, 4) for key, value in asdict(self).items()}

    def __str__(self) -> str:
        stolen = "" if self.stolen is None else f", {self.stolen:.1%} of the CPUs' time stolen"
        return (
            f"{self.batch:.0f} a batch, {self.host_ms:.2f} ms on the host (most {self.longest_host_ms:.1f}), "
            f"{self.device_ms:.2f} ms on the device, busy {self.device_busy:.0%}{stolen}"
        )


class Stopwatch:
    """Begins with its making; `spent` tells what happened since."""

    def __init__(self, rings: Sequence[Ring], root: Path = Path("/")) -> None:
        self.rings, self.root = rings, root
        for ring in rings:
            ring.times = ring.times._replace(longest_host_ns=0)
        self.times, self.done = [ring.times for ring in rings], [ring.done for ring in rings]
        self.cpu = cpu_ticks(root)

    def spent(self, wall_s: float) -> Spent:
        """Return where `wall_s` seconds went."""
        after = [ring.times for ring in self.rings]
        gone = [
            Times(*(b - a for a, b in zip(x, y, strict=True))) for x, y in zip(self.times, after, strict=True)
        ]
        batches = max(1, sum(one.batches for one in gone))
        answered = sum(ring.done - before for ring, before in zip(self.rings, self.done, strict=True))
        device_ns = sum(one.device_ns for one in gone)
        cpu = cpu_ticks(self.root)
        total, stolen = cpu[0] - self.cpu[0], cpu[1] - self.cpu[1]
        return Spent(
            batch=answered / batches,
            host_ms=sum(one.host_ns for one in gone) / batches / 1e6,
            longest_host_ms=max(one.longest_host_ns for one in after) / 1e6,
            device_ms=device_ns / batches / 1e6,
            device_busy=device_ns / 1e9 / max(wall_s, 1e-9) / len(self.rings),
            stolen=stolen / total if total > 0 else None,
        )


def cpu_ticks(root: Path = Path("/")) -> tuple[int, int]:
    """Return (all, stolen) ticks of all CPUs together; zeros where the kernel does not tell."""
    try:
        first, *fields = (root / "proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
        # user nice system idle iowait irq softirq steal; guest time is in user time already
        ticks = [int(field) for field in fields[:8]]
    except (OSError, ValueError):
        return 0, 0
    return (sum(ticks), ticks[7]) if first == "cpu" and len(ticks) == 8 else (0, 0)
