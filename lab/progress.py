"""What `make acceptance` says while it works: its steps, what it does now, and that it still does it."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.errors import LabError

# A person who hears nothing for longer thinks that it hangs.
EVERY_S = 15.0


class Steps:
    """Says which step runs, for how long, and what it does now: one live line, or many without a terminal.

    While nothing new is said, the last line is repeated with its own seconds. `more` gives other words,
    such as which job runs; it may take its time, and returns an empty text where it knows nothing.
    """

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._now = ("", self._begin)  # what is done now, and since when
        self._said = self._begin
        self.more: Callable[[], str] | None = None
        self.timings: list[tuple[str, float]] = []

    def say(self, text: str) -> None:
        """One line with the time since the start."""
        with self._lock:
            self._wipe()
            print(f"[{self._clock()}] {text}", flush=True)
            self._said = time.monotonic()

    def doing(self, text: str) -> None:
        """What is being done now; on a terminal it replaces the line before."""
        self._now, self.more = (text, time.monotonic()), None
        self._show(text)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step: its name when it begins, its time when it ends, and signs of life in between."""
        self._now, self.more = (name, time.monotonic()), None
        self.say(name)
        begin, ended = time.monotonic(), threading.Event()
        alive = threading.Thread(target=self._repeat, args=(ended,), daemon=True)
        alive.start()
        try:
            yield
        finally:
            ended.set()
        self.timings.append((name, time.monotonic() - begin))

    def summary(self) -> None:
        """Where the time went."""
        with self._lock:
            self._wipe()
            for name, seconds in self.timings:
                print(f"  {name:<34} {_minutes(seconds)}")
            print(f"  {'total':<34} {self._clock()}", flush=True)

    def _repeat(self, ended: threading.Event) -> None:
        while not ended.wait(max(0.1, self._said + EVERY_S - time.monotonic())):
            if time.monotonic() < self._said + EVERY_S:
                continue
            (text, since), more = self._now, self.more
            words = more() if more else ""
            if not ended.is_set() and self._now[1] == since:
                self._show(words or f"{text}, {time.monotonic() - since:.0f} s")

    def _show(self, text: str) -> None:
        with self._lock:
            self._said = time.monotonic()
            if not self._terminal:
                print(f"[{self._clock()}]   {text}", flush=True)
                return
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{f'[{self._clock()}]   {text}'[:width]}", end="", flush=True)

    def _clock(self) -> str:
        return _minutes(time.monotonic() - self._begin)

    def _wipe(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="")


class JobsNow:
    """Which of a run's jobs runs: `job 7 of 21, fabric.ib_write_bw, 40 s`, as the submit host has it.

    Args:
        run: the run's folder on the controller, which has the plan's jobs.
        ask: runs a shell script on the submit host and returns what it prints.
        remote: the run's folder there.
    """

    def __init__(self, run: Path, ask: Callable[[str], str], remote: str) -> None:
        self._run, self._ask = run, ask
        self._script = f"ls -d {remote}/raw/*/job.json 2>/dev/null | wc -l; squeue -h -t RUNNING -o '%j %M'"

    def __call__(self) -> str:
        """Return the words, or an empty text where nothing is known."""
        try:
            total = len(json.loads((self._run / "jobs.json").read_bytes())["jobs"])
            done, *running = self._ask(self._script).split("\n")
            ended = int(done)
        except (OSError, ValueError, KeyError, TypeError, LabError):
            return ""
        now = [line.rpartition(" ") for line in running if " " in line]
        if not now:
            return f"{ended} of {total} jobs have ended, none runs now"
        first, more = now[0], f", and {len(now) - 1} beside it" if len(now) > 1 else ""
        return f"job {min(ended + 1, total)} of {total}, {first[0]}, {_seconds(first[2])} s{more}"


def busy_host(expected_s: float, took_s: float) -> str:
    """Return what to say of a host that was too slow for the plan's times; nothing where it was not.

    Half as long again as planned is usual where machines are emulated.
    """
    if took_s <= 1.5 * expected_s:
        return ""
    return f"planned {_words(expected_s)}, took {_words(took_s)}: this host is busy or too slow"


def _seconds(text: str) -> int:
    """Return the seconds of Slurm's D-HH:MM:SS, HH:MM:SS or MM:SS."""
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return seconds + 86400 * int(days or 0)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


def _words(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
