"""A tiny model on the CPU: the same search, LoadGen and batching where there is no GPU.

It averages image regions and multiplies by a fixed matrix. `pace_us` puts a floor under the time of a sample,
so that its peak, 10^6 / pace_us queries/s, is known and a search can be held to it.
"""

from __future__ import annotations

import time

import numpy as np

IMAGE_SIDE = 16
CLASSES = 10


class Tiny:
    """A Backend (see `loadgen_harness.worker`)."""

    slots = 2

    def __init__(self, *, samples: int, max_batch: int, pace_us: float, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.max_batch = max_batch
        self.images = random.integers(0, 256, (samples, IMAGE_SIDE, IMAGE_SIDE, 3), dtype=np.uint8)
        self.weights = random.standard_normal((IMAGE_SIDE * 3, CLASSES), dtype=np.float32)
        self.pace_s = pace_us * 1e-6
        self.free_at = 0.0
        self.ready_at = [0.0] * self.slots
        self.answers: list[np.ndarray] = [np.empty(0)] * self.slots

    def start(self, slot: int, samples: list[int]) -> None:
        """Compute now; the answer counts as ready when the pace allows it."""
        batch = self.images[np.asarray(samples)].astype(np.float32).mean(axis=1)
        self.answers[slot] = (batch.reshape(len(samples), -1) @ self.weights).argmax(axis=1)
        now = time.perf_counter()
        self.free_at = max(self.free_at, now) + len(samples) * self.pace_s
        self.ready_at[slot] = self.free_at

    def finished(self, slot: int) -> bool:
        """Whether the pace has caught up with the slot's batch."""
        return time.perf_counter() >= self.ready_at[slot]
