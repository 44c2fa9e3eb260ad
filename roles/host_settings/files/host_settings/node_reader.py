"""`host-settings node`: what only root may read of this node and its jobs must know.

Two things, whoever asks and whatever they send: the lines of the kernel's log since boot that tell of errors
of GPUs, memory, PCIe links and NICs, and the first 256 bytes of the PCI configuration space of GPUs, NICs and
the bridges above them (ports and switches show there). Nothing else of the log leaves: it can hold addresses
and what users did.
"""

from __future__ import annotations

import re
from typing import Any

from host_settings.system import System

SCHEMA = 1
# As in shakedown/onnode/gpus.py, which these nodes need not have.
FRONT = (
    r"(?:<[0-9]{1,3}>|kern *:[a-z]+ *: *|\[(?!Hardware)[^\]\n]{3,40}\] ?|[0-9T:.,+-]{19,32} "
    r"|[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} |\S{1,64} kernel: ){0,5}"
)
KEPT = re.compile(
    rf"^{FRONT}(?:NVRM: Xid|nvidia-nvswitch[0-9]+: SXid"
    r"| {0,40}NVRM: [^\n]{0,120}(?:RmInitAdapter failed|fallen off the bus|global fatal error"
    r"|Heartbeat timed out|GSP-CrashCat Report)"
    r"|NETDEV WATCHDOG: |DMAR: \[|AMD-Vi: Event"
    r"|EDAC \S+: [0-9]+ [CU]E |(?:mce: )?CPU[0-9]+: (?:Core|Package) temperature "
    r"|\S+ [0-9a-f:.]+: (?:AER: |DPC: |PCIe Bus Error: |[0-9.]+ Gb/s available PCIe bandwidth, limited by )"
    r"|(?:mce: |\{[0-9]+\})?\[Hardware Error\]|mce: Uncorrected |Memory failure: "
    r"|amdgpu [^\n]{0,200}(?:uncorrectable hardware errors|GPU reset|RAS poison|ring \S+ timeout)"
    r"|mlx5_core [^\n]{0,200}(?:insufficient power|High temperature|health compromised"
    r"|Port module event| Link down|Fatal error|firmware internal error|TX timeout detected"
    r"| timeout\. Will cause a leak)"
    r"|(?:bnxt_en|ice|ionic) [^\n]{0,200}(?:Link is Down|Link down|thermal threshold!|firmware fatal error"
    r"|Firmware not responding|TX timeout detected)"
    r")[^\n]*",
    re.MULTILINE,
)
_MOST_LINES = 1_000
# PCI classes (pci_ids.h): network, display, bridge, processing accelerator.
_CLASSES = ("0x02", "0x03", "0x06", "0x12")
# Conventional configuration space (PCI Local Bus 3.0, 6.1); the PCI Express capability lies in it.
_CONFIG_BYTES = 256
_MOST_DEVICES = 4_096
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")


def document(system: System) -> dict[str, Any]:
    """Return both; `kernel_error` says why there is no log."""
    log, error = _kernel(system)
    return {"schema": SCHEMA, "kernel": log, "kernel_error": error, "pci": _pci(system)}


def _kernel(system: System) -> tuple[list[str], str]:
    done = system.run("dmesg")
    if done.status != 0:
        return [], done.complaint[:300]
    return [line[:500] for line in KEPT.findall(re.sub(r"\x1b\[[0-9;]{0,20}m", "", done.out))][
        -_MOST_LINES:
    ], ""


def _pci(system: System) -> dict[str, str]:
    """Return the configuration spaces in hexadecimal, by address; one that cannot be read is left out."""
    folder, found = "/sys/bus/pci/devices", {}
    for name in system.names(folder)[:_MOST_DEVICES]:
        if _ADDRESS.match(name) and (system.read(f"{folder}/{name}/class") or "").startswith(_CLASSES):
            try:
                with system.path(f"{folder}/{name}/config").open("rb") as file:
                    found[name] = file.read(_CONFIG_BYTES).hex()
            except OSError:
                continue
    return found
