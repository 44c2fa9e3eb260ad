"""Which number of which tool is which metric: one reader a tool, found by the journal's `tool`."""

from shakedown.readers.common import Reader, Value
from shakedown.readers.mpi import mpi
from shakedown.readers.perftest import perftest
from shakedown.readers.settings import settings

READERS: dict[str, Reader] = {
    "perftest": perftest,
    "mpi": mpi,
    "settings": settings,
}

__all__ = ["READERS", "Reader", "Value"]
