"""What a GPU says of itself over a step: energy, memory, bytes over NVLink. All of it may be missing."""

from __future__ import annotations

from typing import Any

import torch

# Fields of NVML (nvml.h): throughput counters over all links of a GPU, data only, in KiB.
_NVLINK_DATA_RX = 139
_ALL_LINKS = 0xFFFFFFFF


class Gpu:
    """One GPU's meters. A meter that the driver refuses gives None, for good."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._nvml: Any = None
        self._handle: Any = None
        self.name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        if device.type != "cuda":
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = str(torch.cuda.get_device_properties(device).uuid)
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(
                uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            )
            self._nvml = pynvml
        except Exception:  # NVML is absent, or of another version: no meters
            self._nvml = None

    def energy_j(self) -> float | None:
        """Energy since the driver was loaded, in joules."""
        if self._nvml is None:
            return None
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3
        except self._nvml.NVMLError:
            return None

    def nvlink_rx_bytes(self) -> int | None:
        """Data received over all NVLinks since the driver was loaded."""
        if self._nvml is None:
            return None
        try:
            value = self._nvml.nvmlDeviceGetFieldValues(self._handle, [(_NVLINK_DATA_RX, _ALL_LINKS)])[0]
        except self._nvml.NVMLError:
            return None
        return int(value.value.ullVal) * 1024 if value.nvmlReturn == 0 else None

    def peak_memory_bytes(self) -> int | None:
        """Most memory allocated since the start."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None
