"""Where the time of one LoadGen run went: batches, host, device, and what the hypervisor took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from loadgen_harness.ring import Ring, Times


class Gap:
    """The longest time between two calls of `tick`; nothing before the first one counts."""

    def __init__(self) -> None:
        self.longest_ns = self._last = 0

    def tick(self) -> None:
        """Note that it happened."""
        now = time.perf_counter_ns()
        if self._last and now - self._last > self.longest_ns:
            self.longest_ns = now - self._last
        self._last = now


class Rise:
    """How much a counter rose between the first and the last look at it."""

    def __init__(self) -> None:
        self._first: int | None = None
        self.count = 0

    def look(self, value: int) -> None:
        """Note what it says now."""
        self._first = value if self._first is None else self._first
        self.count = value - self._first


class Pauses:
    """The longest pauses of LoadGen's own process in one run: it may have been late, not what is measured."""

    def __init__(self) -> None:
        self.ask = Gap()  # LoadGen issues queries
        self.look = Gap()  # the reporting thread looks for answers
        self.faults = Rise()  # page faults while queries are under way


@dataclass(frozen=True)
class TimeBreakdown:
    """One run, over all workers. The longest of each tells who was late where a few queries were."""

    batch: float  # queries a batch, mean
    host_ms: float  # a batch, mean: gathering its images and handing it over
    device_ms: float  # a batch, mean: copy and model
    device_busy: float  # share of the run in which a device had something to do, mean over workers
    longest_host_ms: float
    longest_device_ms: float
    longest_round_ms: float  # a worker did not look at its ring for so long
    longest_ask_ms: float  # LoadGen issued nothing for so long
    longest_look_ms: float  # LoadGen's process did not look for answers for so long
    page_faults: int  # of LoadGen's process while queries were under way; each may stop all of it
    # Share of the CPUs' time that went to other guests: a virtual machine that is robbed answers late for a
    # reason that no profile of ours shows. None where the kernel does not tell (field 8 of "cpu", proc(5)).
    stolen: float | None

    def document(self) -> dict[str, float | None]:
        """Return what the journal keeps, rounded."""
        return {key: None if value is None else round(value, 4) for key, value in asdict(self).items()}

    def __str__(self) -> str:
        stolen = "" if self.stolen is None else f"; {self.stolen:.1%} of the CPUs' time stolen"
        return (
            f"{self.batch:.0f} a batch, host {self.host_ms:.2f} ms, device {self.device_ms:.2f} ms and busy "
            f"{self.device_busy:.0%}; longest: host {self.longest_host_ms:.1f}, "
            f"device {self.longest_device_ms:.1f}, worker away {self.longest_round_ms:.1f}, "
            f"LoadGen {self.longest_ask_ms:.1f} and {self.longest_look_ms:.1f} ms; "
            f"{self.page_faults:,} page faults{stolen}"
        )


class Stopwatch:
    """Begins with its making; `breakdown` tells what happened since."""

    def __init__(self, rings: Sequence[Ring], root: Path = Path("/")) -> None:
        self.rings, self.root = rings, root
        for ring in rings:
            ring.times = ring.times._replace(longest_host_ns=0, longest_device_ns=0, longest_round_ns=0)
        self.times, self.done = [ring.times for ring in rings], [ring.done for ring in rings]
        self.cpu = cpu_ticks(root)

    def breakdown(self, wall_s: float, pauses: Pauses) -> TimeBreakdown:
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
        return TimeBreakdown(
            batch=answered / batches,
            host_ms=sum(one.host_ns for one in gone) / batches / 1e6,
            device_ms=device_ns / batches / 1e6,
            device_busy=device_ns / 1e9 / max(wall_s, 1e-9) / len(self.rings),
            longest_host_ms=max(one.longest_host_ns for one in after) / 1e6,
            longest_device_ms=max(one.longest_device_ns for one in after) / 1e6,
            longest_round_ms=max(one.longest_round_ns for one in after) / 1e6,
            longest_ask_ms=pauses.ask.longest_ns / 1e6,
            longest_look_ms=pauses.look.longest_ns / 1e6,
            page_faults=pauses.faults.count,
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
