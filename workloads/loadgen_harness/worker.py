"""One worker: takes queries from its ring, forms batches, answers them in order. One process for each GPU.

Batching is dynamic: a batch starts when it is full, when the device is idle, or when its oldest query has
waited for the hold time and no second batch stands behind the one that runs. What comes meanwhile makes the
next batch larger: a third small batch would wait for as long and keep the device busier, because every batch
has a cost of its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from loadgen_harness.ring import READY, STOP, Ring, Times

_DEPTH = 2  # batches that are not full: one runs, one is ready to follow it


class Backend(Protocol):
    """A model on a device. Batches are answered in the order in which they were started."""

    slots: int  # batches that may be under way at once
    max_batch: int

    def start(self, slot: int, samples: list[int]) -> None:
        """Start one batch: host to device, then the model."""

    def finished(self, slot: int) -> bool:
        """Whether the slot's batch has its results on the host."""


def serve(ring: Ring, backend: Backend, *, hold_s: float, poll_s: float, wanted: Callable[[], bool]) -> None:
    """Answer queries until the ring says stop, or until the harness is gone."""
    taken = ring.done
    free = deque(range(backend.slots))
    busy: deque[tuple[int, int, int]] = deque()  # (slot, count of queries answered with it, started at)
    first_seen = last_finish = 0
    hold_ns = int(hold_s * 1e9)
    ring.state = READY
    look_again = time.monotonic() + 1
    begun = time.perf_counter_ns()
    while ring.state != STOP:
        moved = False
        last_round, begun = begun, time.perf_counter_ns()
        if begun - last_round > ring.times.longest_round_ns:
            ring.times = ring.times._replace(longest_round_ns=begun - last_round)
        while busy and backend.finished(busy[0][0]):
            slot, last, started = busy.popleft()
            free.append(slot)
            ring.done = last
            now = time.perf_counter_ns()
            ring.times = _finished(ring.times, now - max(started, last_finish))
            last_finish = now
            moved = True
        waiting = ring.head - taken
        if waiting and free:
            now = time.perf_counter_ns()
            first_seen = first_seen or now
            held = len(busy) < _DEPTH and now - first_seen >= hold_ns
            if waiting >= backend.max_batch or not busy or held:
                last = taken + min(waiting, backend.max_batch)
                slot = free.popleft()
                backend.start(slot, ring.samples(taken, last))
                started = time.perf_counter_ns()
                ring.times = _started(ring.times, started - now)
                busy.append((slot, last, started))
                taken, first_seen, moved = last, 0, True
        if not moved:
            time.sleep(poll_s)
            if time.monotonic() > look_again:
                # The harness may have been killed: a worker that is never stopped would spin for ever.
                if not wanted():
                    return
                look_again = time.monotonic() + 1


def _started(times: Times, took_ns: int) -> Times:
    return times._replace(
        batches=times.batches + 1,
        host_ns=times.host_ns + took_ns,
        longest_host_ns=max(times.longest_host_ns, took_ns),
    )


def _finished(times: Times, took_ns: int) -> Times:
    return times._replace(
        device_ns=times.device_ns + took_ns, longest_device_ns=max(times.longest_device_ns, took_ns)
    )
