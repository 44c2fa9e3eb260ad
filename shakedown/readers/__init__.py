"""Which number of which tool is which metric: one reader a tool, found by the journal's `tool`."""

from shakedown.readers.common import Read, Reader, Value
from shakedown.readers.inference import inference
from shakedown.readers.interconnect import copies, pcie_path
from shakedown.readers.mpi import mpi
from shakedown.readers.perftest import perftest
from shakedown.readers.settings import settings

READERS: dict[str, Reader] = {
    "perftest": perftest,
    "mpi": mpi,
    "settings": settings,
    "pcie-path": pcie_path,
    "copies": copies,
    "inference": inference,
}

__all__ = ["READERS", "Read", "Reader", "Value"]
