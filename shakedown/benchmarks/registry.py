"""Which number of which tool is which metric: one reader a tool, found by the journal's `tool`."""

from shakedown.benchmarks.base.metrics import Read, Reader, Value
from shakedown.benchmarks.config.metrics import settings
from shakedown.benchmarks.gpu.metrics import gpu_state, nvbandwidth
from shakedown.benchmarks.inference.metrics import inference
from shakedown.benchmarks.interconnect.metrics import copies, pcie_path
from shakedown.benchmarks.lora.metrics import lora
from shakedown.benchmarks.mpi.metrics import mpi
from shakedown.benchmarks.nccl.metrics import nccl, nccl_log
from shakedown.benchmarks.perftest.metrics import perftest
from shakedown.benchmarks.torch_collectives.metrics import torch_collectives

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
