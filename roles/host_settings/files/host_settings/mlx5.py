"""NVIDIA ConnectX with the kernel's own mlx5 driver, or the vendor's where that has more.

Sources: kernel drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c and drivers/infiniband/hw/mlx5/cong.c;
NVIDIA doroce-linux; Mellanox nic-configuration-operator (firmware parameters).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from host_settings import dcb, firmware, link, rdma
from host_settings.desired import Nic
from host_settings.model import Action, Item, NotApplicable, Setting, attribute_writer
from host_settings.system import System

# Congestion control reacts on all eight priorities (nic-configuration-operator).
_CC_ALL_PRIORITIES = 255


def read(system: System, nic: Nic) -> dict[str, Any]:
    """What is set now."""
    dev, roce = nic.netdev, nic.roce
    pci = system.link_name(f"/sys/class/net/{dev}/device") or "unknown"
    ofed, debug = f"/sys/class/net/{dev}/ecn", f"/sys/kernel/debug/mlx5/{pci}/cc_params"
    if system.exists(ofed):
        cnp = {"dscp": f"{ofed}/roce_np/cnp_dscp", "priority": f"{ofed}/roce_np/cnp_802p_prio"}
    else:
        cnp = {
            key: f"{debug}/np_cnp_{name}"
            for key, name in (("dscp", "dscp"), ("priority_mode", "prio_mode"), ("priority", "prio"))
        }
    tclass = f"/sys/class/infiniband/{nic.rdma_device}/tc/1/traffic_class"
    enable = {side: f"{ofed}/roce_{side}/enable/{roce.priority}" for side in ("np", "rp")}
    return {
        "link": link.read(system, nic),
        "rdma": rdma.read(system, nic),
        "dcb": dcb.read(system, dev),
        "cnp": {key: (path, system.read_int(path)) for key, path in cnp.items()},
        "enable": {
            side: (path, system.read_int(path)) for side, path in enable.items() if system.exists(path)
        },
        "tclass": (tclass, _tclass(system.read(tclass) or "")) if system.exists(tclass) else None,
        "firmware": _firmware(system, pci) if system.has_tool("mlxconfig") else None,
        "pci": pci,
        "asked": firmware.read_mlx5(system, pci, firmware.mlx5_names(nic.policy.firmware, pci)),
    }


def _tclass(text: str) -> int:
    """The class of all connections; the vendor's driver prints `Global tclass=106`, and nothing of none."""
    match = re.match(r"(?:Global tclass=)?(\d+)\s*$", text, re.M)
    return int(match[1]) if match else 0


def _firmware(system: System, pci: str) -> dict[str, int | None]:
    """Parameters of the firmware's port; mlxconfig prints the value now, or what the next boot brings."""
    port = firmware.port_of(pci)
    names = [f"ROCE_CC_PRIO_MASK_P{port}", f"CNP_DSCP_P{port}", f"CNP_802P_PRIO_P{port}"]
    text = system.run("mlxconfig", "-d", pci, "q", *names).out
    found = {name: re.search(rf"^\W*{name}\s+(\d+)\s*$", text, re.M) for name in names}
    return {name: int(match.group(1)) if match else None for name, match in found.items()}


def items(found: dict[str, Any], nic: Nic) -> list[Item]:
    """What should be, beside what is, in the order of changes."""
    dev, roce, state = nic.netdev, nic.roce, found["dcb"]
    return [
        *link.settings(found["link"], nic),
        dcb.dcbx_setting(state, dev),
        dcb.dscp_map_setting(state, nic, _replace_dscps(dev)),
        dcb.ets_setting(state, dev, dcb.classes_of_intent(nic)),
        dcb.cable_setting(state, dev, roce.cable_m),
        dcb.pfc_setting(
            state,
            dev,
            [roce.priority] if roce.pfc else [],
            "the link: the driver takes it down and up when the PFC mask changes",
        ),
        *_congestion_control(found, nic),
        *rdma.cm_settings(found["rdma"], nic),
        _tclass_item(found["tclass"], nic),
        *_firmware_items(found["firmware"], nic),
        *firmware.mlx5_items(found["asked"], nic.policy.firmware, found["pci"], nic.policy.firmware_write),
        link.speed_observation(found["link"], nic),
        link.fec_observation(found["link"]),
        *link.observations(found["link"], nic),
        *rdma.observations(found["rdma"], nic),
        Setting("rdma.device", found["rdma"]["device"], nic.rdma_device),
    ]


def _replace_dscps(dev: str) -> Callable[[Mapping[int, int], Mapping[int, int]], tuple[Action, ...]]:
    """The driver replaces an entry by itself. An entry without a successor is deleted; deleting the last
    entry brings back trust in PCP, which is what an empty map before meant.

    The map names all 64 DSCPs because what is not listed stays as the firmware has it, by default
    dscp >> 3, which puts 24 to 31 on priority 3 without showing them. The first entry makes the port
    trust DSCP.
    """

    def change(gone: Mapping[int, int], new: Mapping[int, int]) -> tuple[Action, ...]:
        left = {dscp: priority for dscp, priority in gone.items() if dscp not in new}
        add = (dcb.app_argv("add", dev, "dscp-prio", new),) if new else ()
        return (*add, *((dcb.app_argv("del", dev, "dscp-prio", left),) if left else ()))

    return change


def _congestion_control(found: Mapping[str, Any], nic: Nic) -> list[Item]:
    """DCQCN: the class of CNPs, explicitly (NVIDIA's operator sets DSCP 4, which SONiC's default map makes
    lossless), and the switches of the vendor's driver."""
    cnp = nic.roce.cnp
    wanted = {"dscp": cnp.dscp, "priority_mode": 0, "priority": cnp.priority}
    list_: list[Item] = []
    for key, (path, value) in found["cnp"].items():
        if value is None:
            # Without the attribute the class of CNPs is unknown; that is a failure, not an exception.
            list_.append(Setting(f"cnp.{key}", None, wanted[key]))
        else:
            list_.append(Setting(f"cnp.{key}", value, wanted[key], attribute_writer(path)))
    for side, (path, value) in found["enable"].items():
        list_.append(Setting(f"dcqcn.{side}", value, 1, attribute_writer(path)))
    if not found["enable"]:
        list_.append(NotApplicable("dcqcn", "this driver has no switch; the firmware's mask decides"))
    return list_


def _tclass_item(found: tuple[str, int] | None, nic: Nic) -> Item:
    """The traffic class of programs that set none: of the vendor's driver (doroce-linux); lost with it."""
    if found is None:
        return NotApplicable("verbs.traffic_class", "this driver has no default; programs set their own")
    path, value = found
    return Setting("verbs.traffic_class", value, nic.roce.tos, attribute_writer(path))


def _firmware_items(found: Mapping[str, int | None] | None, nic: Nic) -> list[Item]:
    """What only firmware parameters say. They need a reset, so they are compared here and not set.

    One that the site names itself is compared as it says (firmware.py).
    """
    if found is None:
        return [NotApplicable("firmware", "mlxconfig is not installed")]
    wanted = (_CC_ALL_PRIORITIES, nic.roce.cnp.dscp, nic.roce.cnp.priority)
    return [
        Setting(f"firmware.{name}", found[name], value)
        for name, value in zip(found, wanted)
        if name.rpartition("_P")[0] not in nic.policy.firmware
    ]
