"""Which number of which tool is which metric: one reader a tool, found by the journal's `tool`."""

from shakedown.readers.common import Read, Reader, Value
from shakedown.readers.gpus import gpu_state, nvbandwidth
from shakedown.readers.inference import inference
from shakedown.readers.interconnect import copies, pcie_path
from shakedown.readers.lora import lora
from shakedown.readers.mpi import mpi
from shakedown.readers.nccl import nccl, nccl_log
from shakedown.readers.perftest import perftest
from shakedown.readers.settings import settings
from shakedown.readers.torch_collectives import torch_collectives

READERS: dict[str, Reader] = {
    "perftest": perftest,
    "mpi": mpi,
    "settings": settings,
    "pcie-path": pcie_path,
    "copies": copies,
    "inference": inference,
    "trainer": lora,
    "nccl": nccl,
    "nccl-log": nccl_log,
    "gpu-state": gpu_state,
    "nvbandwidth": nvbandwidth,
    "torch-collectives": torch_collectives,
}

__all__ = ["READERS", "Read", "Reader", "Value"]
