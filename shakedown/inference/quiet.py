"""No garbage collection while queries are timed.

Python's full collections stop a process for as long as it takes to look at every object that it holds: 79 ms
where LoadGen runs, more with PyTorch loaded. One of them in a run of 20 s makes more than 1 % of the queries
late near the peak, because the queue that it leaves takes long to drain; short probes see none of it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect now, and not again before the end. What is freed by reference counting is freed as ever."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
