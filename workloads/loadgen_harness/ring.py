"""Queries on their way to one worker: a ring in shared memory, written by LoadGen's side, read by the worker.

One writer and one reader, no locks: the writer publishes by moving `head` after the entries are written, the
reader answers by moving `done`. That order is what x86-64 keeps between processes (Intel SDM, volume 3, 9.2:
stores are not reordered with other stores); other processors are refused.
"""

from __future__ import annotations

import platform
from multiprocessing import shared_memory
from typing import NamedTuple

SLOTS = 1 << 20  # more queries than any worker can owe within the latency bound
_MASK = SLOTS - 1
_HEADER = 64 * 4  # a cache line each
_HEAD, _DONE, _STATE, _TIMES = 0, 8, 16, 24

STARTING, READY, STOP, FAILED = 0, 1, 2, 3


class Times(NamedTuple):
    """Sums over a worker's batches, and the longest of each since it was last set to zero."""

    batches: int = 0
    host_ns: int = 0  # to start them: gathering and handing over, in which nothing else is done
    device_ns: int = 0  # the device had something to do: copy and model
    longest_host_ns: int = 0  # of one batch
    longest_device_ns: int = 0
    longest_round_ns: int = 0  # between two looks at the ring: long if the worker was stopped


class Ring:
    """One worker's ring. Ids are LoadGen's response ids, indices those of the samples to answer."""

    def __init__(self, name: str | None = None) -> None:
        """Create a ring, or open the one of that name."""
        if platform.machine() != "x86_64":
            raise OSError(f"the query ring needs x86-64's memory order, this is {platform.machine()}")
        size = _HEADER + SLOTS * 12
        self._memory = shared_memory.SharedMemory(name=name, create=name is None, size=size)
        memory = self._memory.buf
        assert memory is not None
        self._whole = whole = memory[:size]
        self._words = whole[:_HEADER].cast("Q")
        self.ids = whole[_HEADER : _HEADER + 8 * SLOTS].cast("Q")
        self.indices = whole[_HEADER + 8 * SLOTS : size].cast("I")
        self.name = self._memory.name
        self._owner = name is None

    @property
    def head(self) -> int:
        """Queries put in so far."""
        return self._words[_HEAD]

    @property
    def done(self) -> int:
        """Queries answered so far, in the order of the ring."""
        return self._words[_DONE]

    @done.setter
    def done(self, count: int) -> None:
        self._words[_DONE] = count

    @property
    def times(self) -> Times:
        """What the worker's batches took since it started."""
        return Times(*self._words[_TIMES : _TIMES + len(Times._fields)])

    @times.setter
    def times(self, times: Times) -> None:
        for place, value in enumerate(times, _TIMES):
            self._words[place] = value

    @property
    def state(self) -> int:
        """STARTING, READY, STOP or FAILED."""
        return self._words[_STATE]

    @state.setter
    def state(self, state: int) -> None:
        self._words[_STATE] = state

    def put(self, ids: list[int], indices: list[int]) -> None:
        """Add queries and publish them."""
        head = self._words[_HEAD]
        for query, sample in zip(ids, indices, strict=True):
            place = head & _MASK
            self.ids[place] = query
            self.indices[place] = sample
            head += 1
        self._words[_HEAD] = head

    def span(self, first: int, last: int) -> list[int]:
        """Return the ids from one count up to another."""
        return _between(self.ids, first, last)

    def samples(self, first: int, last: int) -> list[int]:
        """Return the sample indices from one count up to another."""
        return _between(self.indices, first, last)

    def close(self) -> None:
        """Let go of the memory; its creator removes it."""
        for view in (self._words, self.ids, self.indices, self._whole):
            view.release()
        self._memory.close()
        if self._owner:
            self._memory.unlink()


def _between(entries: memoryview, first: int, last: int) -> list[int]:
    a, b = first & _MASK, last & _MASK
    if a < b or first == last:
        return entries[a:b].tolist()
    return entries[a:].tolist() + entries[:b].tolist()
