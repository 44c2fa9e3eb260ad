"""Memory that LoadGen will need, taken from the kernel before its clock runs.

LoadGen keeps its schedule and every latency in arrays that grow while queries are timed: 17,000 page
faults, and arrays moved to new maps of up to 32 MiB, in a run of 2.75 million queries. On a virtual
machine each may take long and hold up the whole process. So malloc(3) is told to keep what it has, and
given enough to keep.
"""

from __future__ import annotations

import ctypes
import resource

# mallopt(3), from malloc.h of glibc 2.36. No other libc is known to have them.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
# Measured with LoadGen 6.0.17: 346 bytes a query for the schedule, and up to 190 MiB for 2.75 million queries
# while it runs. LoadGen draws some queries more than the rate asks for.
_BYTES_A_QUERY, _BYTES_MORE, _QUERIES_MORE = 400, 256 << 20, 1.1


class KeptMemory:
    """malloc keeps freed memory, in one place for all threads to come; for the whole process and for good.

    Meant for a process that does nothing but LoadGen's runs. `kept` is False where malloc does not take that.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        mallopt = getattr(self._libc, "mallopt", None)
        self.kept = mallopt is not None and all(
            mallopt(option, value) == 1
            for option, value in ((_M_TRIM_THRESHOLD, -1), (_M_MMAP_MAX, 0), (_M_ARENA_MAX, 1))
        )

    def warm(self, queries: float) -> None:
        """Touch as much memory as LoadGen needs for so many queries, and leave it with malloc.

        It is hardly more than LoadGen would take itself. Nothing is done where it would not be kept.
        """
        if not self.kept:
            return
        libc = self._libc
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
        size = int(queries * _QUERIES_MORE) * _BYTES_A_QUERY + _BYTES_MORE
        if place := libc.malloc(size):
            ctypes.memset(place, 0, size)
            libc.free(place)


def page_faults() -> int:
    """Return how many pages this process has had to wait for so far, without input or output."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
