"""One worker: takes queries from its ring, forms batches, answers them in order. One process for each GPU.

Batching is dynamic: a batch starts when it is full, when the device is idle, or when its oldest query has
waited for the hold time; so batches are small under light load and full at the peak.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from shakedown.inference.ring import READY, STOP, Ring


class Backend(Protocol):
    """A model on a device. Batches are answered in the order in which they were started."""

    slots: int  # batches that may be under way at once
    max_batch: int

    def start(self, slot: int, samples: list[int]) -> None:
        """Start one batch: host to device, then the model."""

    def finished(self, slot: int) -> bool:
        """Whether the slot's batch has its results on the host."""


def serve(ring: Ring, backend: Backend, *, hold_s: float, poll_s: float, wanted: Callable[[], bool]) -> None:
    """Answer queries until the ring says stop, or until nobody wants answers any more."""
    taken = ring.done
    free = deque(range(backend.slots))
    busy: deque[tuple[int, int]] = deque()  # (slot, count of queries answered with it)
    first_seen: float | None = None
    ring.state = READY
    look_again = time.monotonic() + 1
    while ring.state != STOP:
        moved = False
        while busy and backend.finished(busy[0][0]):
            slot, last = busy.popleft()
            free.append(slot)
            ring.done = last
            moved = True
        waiting = ring.head - taken
        if waiting and free:
            now = time.perf_counter()
            first_seen = first_seen or now
            if waiting >= backend.max_batch or not busy or now - first_seen >= hold_s:
                last = taken + min(waiting, backend.max_batch)
                slot = free.popleft()
                backend.start(slot, ring.samples(taken, last))
                busy.append((slot, last))
                taken, first_seen, moved = last, None, True
        if not moved:
            time.sleep(poll_s)
            if time.monotonic() > look_again:
                # Whoever asked may have been killed: a worker that nobody stops would spin for ever.
                if not wanted():
                    return
                look_again = time.monotonic() + 1
