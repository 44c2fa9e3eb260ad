"""How RDMA reaches GPU memory: dma-buf, or peer memory by modules that must be loaded, in order.

Peer memory takes two sides. The RDMA side offers ib_register_peer_memory_client: NVIDIA's RDMA drivers in
ib_core, Broadcom's in a module of their own, ib_peer_mem (package netxtreme-peer-mem), which comes with
bnxt_re and must have its version. The GPU side registers itself there: nvidia_peermem is a module, amdgpu
does it when it is loaded. Neither replaces the other.

Sources: NVIDIA driver README, "GPUDirect RDMA Peer Memory Client"; Broadcom NIC driver installation on
Ubuntu 24.04 (netxtreme-peer-mem-dkms; /sys/module/ib_peer_mem/version equals bnxt_re's); RCCL net_ib.cc (the
places where amdgpu shows that it has registered); linux-rdma/perftest (dma-buf needs CUDA 11.7 and the open
kernel modules from 515 on); kernel drivers/infiniband/hw/bnxt_re/main.c (reg_user_mr_dmabuf).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from host_settings.desired import BadDesired
from host_settings.model import Action, Item, NotApplicable, Run, Setting, Value, WriteFile
from host_settings.system import System

MODULES_FILE = "/etc/modules-load.d/shakedown-gpudirect.conf"
NVIDIA, AMD = "0x10de", "0x1002"
_NVIDIA_PEER, _BROADCOM_PEER = "nvidia_peermem", "ib_peer_mem"
_SYMBOL = "ib_register_peer_memory_client"
# dma-buf for RDMA arrived in kernel 5.12; NVIDIA's open modules export it from 515 on.
_DMABUF_KERNEL, _DMABUF_NVIDIA = (5, 12), 515
_AMD_CLIENTS = tuple(f"/sys/{folder}memory_peers/amdkfd/version" for folder in ("kernel/mm/", "kernel/", ""))
_CHOICES = ("auto", "load")


def parse(data: Mapping[str, Any]) -> str:
    """Return whether peer modules are loaded only for want of dma-buf, or always. Raises BadDesired."""
    choice = data.get("peer_memory", "auto")
    if choice not in _CHOICES:
        raise BadDesired(f"peer_memory is {choice!r} -- use {' or '.join(_CHOICES)}")
    return str(choice)


def read(system: System, gpus: list[str], nics: tuple[str, ...]) -> dict[str, Any]:
    """What could carry RDMA to GPU memory."""
    vendors = {system.read(f"/sys/bus/pci/devices/{bdf}/vendor") for bdf in gpus}
    symbols = system.read("/proc/kallsyms") or ""
    broadcom = None
    if any(system.link_name(f"/sys/class/net/{nic}/device/driver") == "bnxt_en" for nic in nics):
        version = _version(system, _BROADCOM_PEER)
        broadcom = {
            "installed": version is not None,
            "loaded": system.exists(f"/sys/module/{_BROADCOM_PEER}"),
            "version": version,
            # The kernel's own bnxt_re has no version.
            "driver": system.read("/sys/module/bnxt_re/version"),
            "dmabuf": "bnxt_re_reg_user_mr_dmabuf" in symbols,
        }
    nvidia = NVIDIA in vendors
    dmabuf = _nvidia_dmabuf(system) if nvidia else _amd_dmabuf(system)
    return {
        "vendor": NVIDIA if nvidia else AMD,
        "dmabuf": dmabuf and (broadcom is None or broadcom["dmabuf"]),
        "offered": _SYMBOL in symbols,
        "nvidia": system.exists(f"/sys/module/{_NVIDIA_PEER}"),
        "amd": any(map(system.exists, _AMD_CLIENTS)),
        "broadcom": broadcom,
        "persisted": system.read(MODULES_FILE),
    }


def _version(system: System, module: str) -> str | None:
    """The version of a module, that which is loaded or else that on disk; None: there is no such module."""
    loaded = system.read(f"/sys/module/{module}/version")
    if loaded is not None:
        return loaded
    done = system.run("modinfo", "-F", "version", module)
    return done.out.strip() if done.status == 0 else None


def _nvidia_dmabuf(system: System) -> bool:
    release = re.match(r"(\d+)\.(\d+)", system.read("/proc/sys/kernel/osrelease") or "")
    kernel = (int(release.group(1)), int(release.group(2))) if release else (0, 0)
    version = system.read("/proc/driver/nvidia/version") or ""
    major = re.search(r"Kernel Module.*?\s(\d+)\.\d+", version)
    open_modules = (
        "Open Kernel Module" in version and major is not None and int(major.group(1)) >= _DMABUF_NVIDIA
    )
    return open_modules and kernel >= _DMABUF_KERNEL


def _amd_dmabuf(system: System) -> bool:
    config = system.read(f"/boot/config-{system.read('/proc/sys/kernel/osrelease')}") or ""
    needed = ("CONFIG_PCI_P2PDMA=y", "CONFIG_DMABUF_MOVE_NOTIFY=y")
    return system.exists("/sys/module/amdgpu") and all(n in config for n in needed)


def items(memory: Mapping[str, Any], choice: str) -> list[Item]:
    """What should be, beside what is: the RDMA side's module first, which the GPU side's needs."""
    broadcom, nvidia = memory["broadcom"], memory["vendor"] == NVIDIA
    if memory["dmabuf"] and choice == "auto":
        return [
            Setting("gpu_memory", "dma-buf", "dma-buf"),
            *(NotApplicable(f"module.{m}", "dma-buf is there and preferred") for m in _modules(memory)),
        ]
    if not memory["offered"] and not (broadcom and broadcom["installed"]):
        return _no_path(memory)
    wanted = [*_broadcom_items(memory), *(_nvidia_items(memory) if nvidia else _amd_items(memory))]
    settable = [s.key for s in wanted if isinstance(s, Setting) and s.actions is not None]
    loaded = [key.removeprefix("module.") for key in settable]
    return [
        Setting("gpu_memory", "peer-mem", "peer-mem"),
        *wanted,
        Setting(
            f"file:{MODULES_FILE}",
            memory["persisted"],
            "\n".join(loaded) or None,
            lambda v: (WriteFile(MODULES_FILE, None if v is None else f"{v}\n"),),
        ),
    ]


def _modules(memory: Mapping[str, Any]) -> list[str]:
    """The peer modules that could matter on this host."""
    return [
        *([_BROADCOM_PEER] if memory["broadcom"] else []),
        *([_NVIDIA_PEER] if memory["vendor"] == NVIDIA or not memory["broadcom"] else []),
    ]


def _no_path(memory: Mapping[str, Any]) -> list[Item]:
    nvidia, broadcom = memory["vendor"] == NVIDIA, memory["broadcom"]
    ways = "dma-buf: open GPU kernel modules, or peer-mem: the vendor's RDMA drivers"
    if broadcom:
        ways = "dma-buf: a bnxt_re and a GPU driver that have it, or peer-mem: Broadcom's netxtreme-peer-mem"
    reason = f"the RDMA drivers lack {_SYMBOL}, so it cannot load" if nvidia else "it is for NVIDIA GPUs"
    return [
        Setting("gpu_memory", "dma-buf" if memory["dmabuf"] else "none", ways),
        *([NotApplicable(f"module.{_BROADCOM_PEER}", "it is not installed")] if broadcom else []),
        NotApplicable(f"module.{_NVIDIA_PEER}", reason),
    ]


def _load(module: str, found: bool, hint: str = "") -> Setting:
    def load(value: Value) -> tuple[Action, ...]:
        return (Run(("modprobe", module) if value else ("modprobe", "-r", module)),)

    return Setting(f"module.{module}", found, True, load, hint=hint)


def _broadcom_items(memory: Mapping[str, Any]) -> list[Item]:
    found = memory["broadcom"]
    if found is None:
        return []
    if not found["installed"]:
        return [NotApplicable(f"module.{_BROADCOM_PEER}", f"the RDMA core has {_SYMBOL} of its own")]
    version = Setting(
        f"module.{_BROADCOM_PEER}.version",
        found["version"],
        found["driver"] or "that of Broadcom's own bnxt_re, which is not loaded",
    )
    if not version.ok:
        # Of another release it may load and then corrupt or refuse registrations: it is not loaded here.
        return [version, Setting(f"module.{_BROADCOM_PEER}", found["loaded"], True)]
    return [version, _load(_BROADCOM_PEER, found["loaded"])]


def _nvidia_items(memory: Mapping[str, Any]) -> list[Item]:
    return [_load(_NVIDIA_PEER, memory["nvidia"], "it must be built against these RDMA drivers")]


def _amd_items(memory: Mapping[str, Any]) -> list[Item]:
    hint = "amdgpu registers itself when it is loaded: reboot the drained node"
    why = "amdgpu registers GPU memory itself; this module is for NVIDIA GPUs"
    return [
        Setting("peer_client.amdkfd", memory["amd"], True, hint=hint),
        NotApplicable(f"module.{_NVIDIA_PEER}", why),
    ]
