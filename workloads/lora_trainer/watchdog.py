"""Ends a job whose ranks make no progress, and names the rank at fault.

A collective that one rank never enters blocks all others for the backend's timeout, half an hour by default,
and then every rank complains about every other. Here each rank has a thread that reports its progress to the
store. Rank 0 reads all reports, the others read rank 0's. A rank that is silent, or behind the others, is at
fault. A store whose node is gone without a word leaves its clients waiting, for the operating system's limit
of many minutes: a second thread ends the rank when the first has waited too long for an answer.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

EXIT_HUNG = 75
_PERIOD_S = 2.0
STOP = "watch/stop"


class Store(Protocol):
    """What of torch's TCPStore is used."""

    def set(self, key: str, value: str) -> None:
        """Set a key."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return the values of keys, waiting for those that are not there yet."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""


@dataclass
class Beat:
    """What is known of one rank: where it is, and since when that has not changed."""

    node: str
    step: int
    place: int  # grows within a step: layers forward, then waiting for gradients, then done
    phase: str
    count: int  # of beats; a rank whose count stands still is dead or stopped
    changed: float
    moved: float


def ranks_at_fault(
    beats: dict[int, Beat], now: float, *, silent_s: float, hang_s: float
) -> tuple[str, list[int]]:
    """Return what is wrong, and with which ranks; an empty text if nothing is.

    Args:
        beats: by rank.
        now: the clock of `Beat.changed` and `Beat.moved`, in seconds.
        silent_s: a rank that sends nothing for longer is dead or stopped.
        hang_s: no rank moving for longer is a hang; those behind the others are at fault.
    """
    silent = [rank for rank, beat in beats.items() if now - beat.changed > silent_s]
    if silent:
        return f"no sign of life for {silent_s:.0f} s", silent
    if min(now - beat.moved for beat in beats.values()) <= hang_s:
        return "", []
    last = min((beat.step, beat.place) for beat in beats.values())
    behind = [rank for rank, beat in beats.items() if (beat.step, beat.place) == last]
    if len(behind) == len(beats):
        return f"no progress for {hang_s:.0f} s and no rank is behind: a hung collective", behind
    return f"no progress for {hang_s:.0f} s while the others wait", behind


def describe(what: str, ranks: list[int], beats: dict[int, Beat]) -> str:
    """Name ranks by number and node: `rank 1 on n2: ... (step 5, forward)`."""
    shown = ", ".join(f"rank {rank} on {beats[rank].node}" for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    first = beats[ranks[0]]
    return f"{shown}{more}: {what} (step {first.step}, {first.phase})"


class Watchdog(threading.Thread):
    """The thread of one rank. `mark` is called by the training loop and costs two assignments."""

    def __init__(
        self,
        store: Store,
        rank: int,
        world: int,
        node: str,
        *,
        hang_s: float,
        start_s: float,
        give_reason: Callable[[str, str], None],
    ) -> None:
        super().__init__(daemon=True, name="watchdog")
        self._store, self._rank, self._world, self._node = store, rank, world, node
        self._hang_s, self._start_s, self._give_reason = hang_s, start_s, give_reason
        self._position = (0, 0, "start")
        self._done = threading.Event()
        self._silent_s = max(hang_s / 2, 3 * _PERIOD_S)
        self._count = 0
        self._unanswered = 0  # periods since the store last answered
        self._beats: dict[int, Beat] = {}

    def mark(self, step: int, place: int, phase: str) -> None:
        """Say where this rank is."""
        self._position = (step, place, phase)

    def stop(self) -> None:
        """Training is over; silence is no fault from here on."""
        self._done.set()

    def start(self) -> None:
        """Send the first beat, so that no rank falls silent before it was ever heard; then watch."""
        self._send()
        super().start()
        threading.Thread(target=self._watch_store, daemon=True, name="watchdog of the store").start()

    def run(self) -> None:
        """Send and read beats until told to stop."""
        began, beats = time.monotonic(), self._beats
        watched = range(self._world) if self._rank == 0 else (0,)
        while not self._done.wait(_PERIOD_S):
            try:
                self._send()
                if self._store.check([STOP]):
                    os._exit(EXIT_HUNG)
                heard = [rank for rank in watched if rank in beats or self._store.check([_key(rank)])]
                found = self._store.multi_get([_key(rank) for rank in heard])
            except Exception as error:
                # Any error here means that the store is gone, and with it the node that serves it.
                self._end_without_store(str(error))
                return
            self._unanswered, now = 0, time.monotonic()
            for rank, value in zip(heard, found, strict=True):
                _note(beats, rank, json.loads(value), now)
            if len(heard) < len(watched) and now - began > self._start_s:
                missing = next(rank for rank in watched if rank not in beats)
                self._end(f"rank {missing}: no sign of life for {self._start_s:.0f} s, its node is unknown")
            if beats and (told := self._judge(beats, now)):
                self._end(told)

    def _send(self) -> None:
        self._count += 1
        step, place, phase = self._position
        self._store.set(_key(self._rank), json.dumps([self._node, step, place, phase, self._count]))

    def _judge(self, beats: dict[int, Beat], now: float) -> str:
        started = all(beat.step > 1 for beat in beats.values())
        # Only rank 0 sees which ranks are behind; the others see whether rank 0 lives.
        limit = (self._hang_s if started else self._start_s) if self._rank == 0 else float("inf")
        what, ranks = ranks_at_fault(beats, now, silent_s=self._silent_s, hang_s=limit)
        return describe(what, ranks, beats) if what else ""

    def _watch_store(self) -> None:
        # Counted, not timed: a process that was itself stopped for a while has not waited for the store.
        while not self._done.wait(_PERIOD_S):
            self._unanswered += 1
            if self._unanswered * _PERIOD_S > self._silent_s:
                self._end_without_store(f"silent for {self._silent_s:.0f} s")
                return

    def _end_without_store(self, why: str) -> None:
        if self._done.is_set():
            return
        # torchrun's agent on the first node serves the store, and rank 0 runs there.
        first = self._beats.get(0)
        node = f"rank 0 on {first.node}: " if first else ""
        self._give_reason(
            "environment", f"{node}the node that serves the job's store no longer answers ({why})"
        )
        os._exit(EXIT_HUNG)

    def _end(self, message: str) -> None:
        if self._done.is_set():  # training ended while the store was asked
            return
        self._give_reason("environment", message)
        try:
            self._store.set(STOP, "1")
        finally:
            os._exit(EXIT_HUNG)


def _key(rank: int) -> str:
    return f"watch/{rank}"


def _note(beats: dict[int, Beat], rank: int, sent: tuple[str, int, int, str, int], now: float) -> None:
    node, step, place, phase, count = sent
    old = beats.get(rank)
    changed = old.changed if old and old.count == count else now
    moved = old.moved if old and (old.step, old.place) == (step, place) else now
    beats[rank] = Beat(node, step, place, phase, count, changed, moved)
