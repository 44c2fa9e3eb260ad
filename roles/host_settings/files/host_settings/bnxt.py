"""Broadcom BCM575xx and BCM576xx with bnxt_en and bnxt_re, the kernel's own or the vendor's.

Sources: kernel drivers/net/ethernet/broadcom/bnxt/bnxt_dcb.c and drivers/infiniband/hw/bnxt_re/debugfs.c;
Broadcom bnxt_setupcc.sh 236.1 (order, classes, configfs attributes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from host_settings import dcb, firmware, link, rdma
from host_settings.desired import Nic
from host_settings.model import Action, ConfigfsWrite, Item, NotApplicable, Setting, Value, attribute_writer
from host_settings.system import System

_ROCE_UDP_PORT = 4791  # RoCE v2, IANA
# The NIC has its own few classes: everything else, RoCE, CNPs.
_OTHER, _ROCE, _CNP = 0, 1, 2


def read(system: System, nic: Nic) -> dict[str, Any]:
    """What is set now."""
    pci = system.link_name(f"/sys/class/net/{nic.netdev}/device") or "unknown"
    folder = f"/sys/kernel/config/bnxt_re/{nic.rdma_device}"
    debug = f"/sys/kernel/debug/bnxt_re/{pci}/cc_config"
    info = system.read(f"/sys/kernel/debug/bnxt_re/{nic.rdma_device}/info") or ""
    profile = re.search(r"^\s*fw_service_prof_type_sup\s*:\s*(\d+)", info, re.M)
    with system.configfs_item(folder):
        attributes = f"{folder}/ports/1/cc"
        vendor = {name: system.read_int(f"{attributes}/{name}") for name in system.names(attributes)}
    return {
        "link": link.read(system, nic),
        "rdma": rdma.read(system, nic),
        "dcb": dcb.read(system, nic.netdev),
        # Whether the firmware has a class for CNPs: then it owns their DSCP and priority.
        "firmware_cnp": int(profile.group(1)) if profile else None,
        "vendor_cc": (folder, vendor),
        "pci": pci,
        "asked": firmware.read_bnxt(system, pci, nic.policy.firmware),
        "inbox_cc": (debug, {name: system.read_int(f"{debug}/{name}") for name in system.names(debug)}),
    }


def items(found: dict[str, Any], nic: Nic) -> list[Item]:
    """What should be, beside what is. ETS first: the driver refuses PFC before it has classes."""
    dev, roce, state = nic.netdev, nic.roce, found["dcb"]
    cnp_class = found["firmware_cnp"] != 0 and (state["ets"]["ets_cap"] or 0) > _CNP
    classes = dcb.Classes(
        of_priority={roce.priority: _ROCE, **({roce.cnp.priority: _CNP} if cnp_class else {})},
        percent={_OTHER: 100 - nic.policy.ets_roce_percent, _ROCE: nic.policy.ets_roce_percent},
        # Strict is also how this driver writes a class that is not used.
        strict=frozenset(dcb.PRIORITIES) - {_OTHER, _ROCE},
    )
    return [
        *link.settings(found["link"], nic),
        dcb.dcbx_setting(state, dev),
        dcb.ets_setting(state, dev, classes),
        dcb.pfc_setting(state, dev, [roce.priority] if roce.pfc else [], "the NIC, which is opened again"),
        dcb.app_setting(
            "app.udp_port",
            state["udp"],
            {_ROCE_UDP_PORT: roce.priority},
            dcb.delete_then_add(dev, "dgram-port-prio"),
        ),
        _dscp_map(state, nic, cnp_class),
        *([] if cnp_class else [NotApplicable("dscp.cnp", "the NIC has no class of its own for CNPs")]),
        *_congestion_control(found, nic),
        *firmware.bnxt_items(found["asked"], nic.policy.firmware, found["pci"], nic.policy.firmware_write),
        *rdma.cm_settings(found["rdma"], nic),
        link.speed_observation(found["link"], nic),
        link.fec_observation(found["link"]),
        *link.observations(found["link"], nic),
        *rdma.observations(found["rdma"], nic),
        Setting("rdma.device", found["rdma"]["device"], nic.rdma_device),
    ]


def _dscp_map(state: Mapping[str, Any], nic: Nic, cnp_class: bool) -> Setting:
    """Only our DSCPs on our priorities; entries on other priorities stay."""
    roce, now = nic.roce, state["dscp"]
    ours = {roce.priority, roce.cnp.priority}
    wanted = {dscp: priority for dscp, priority in now.items() if priority not in ours}
    wanted[roce.dscp] = roce.priority
    if cnp_class:
        wanted[roce.cnp.dscp] = roce.cnp.priority
    return dcb.app_setting("dscp.map", now, wanted, dcb.delete_then_add(nic.netdev, "dscp-prio"))


def _congestion_control(found: Mapping[str, Any], nic: Nic) -> list[Item]:
    """DCQCN, through the vendor driver's configfs or else the kernel driver's debugfs."""
    folder, vendor = found["vendor_cc"]
    if vendor:
        return [_vendor_cc(folder, vendor, nic, found["firmware_cnp"] == 0)]
    debug, inbox = found["inbox_cc"]
    roce = nic.roce
    wanted = {
        "enable_cc": 1,
        "tos_ecn": 1,
        "cc_mode": 1,
        "tos_dscp": roce.dscp,
        "alt_vlan_dscp": roce.cnp.dscp,
        "alt_vlan_pcp": roce.cnp.priority,
    }
    if not inbox:
        # Whether the NIC reacts to congestion is then unknown; that is a failure, not an exception.
        return [Setting("dcqcn", None, "configfs bnxt_re or debugfs bnxt_re/*/cc_config")]
    # Attributes of the firmware's answer; the driver ends a refused write with success, so only the
    # read-back tells.
    return [
        Setting(f"dcqcn.{name}", inbox.get(name), value, attribute_writer(f"{debug}/{name}"))
        for name, value in wanted.items()
    ]


def _vendor_cc(folder: str, now: Mapping[str, int | None], nic: Nic, host_classes: bool) -> Setting:
    roce = nic.roce
    wanted = {"ecn_marking": 1, "ecn_enable": 1, "cc_mode": 1}
    if "disable_prio_vlan_tx" in now:
        wanted["disable_prio_vlan_tx"] = 1
    if host_classes:
        wanted |= {"roce_prio": roce.priority, "cnp_prio": roce.cnp.priority}
        wanted |= {"roce_dscp": roce.dscp, "cnp_dscp": roce.cnp.dscp}

    def write(value: Value) -> tuple[Action, ...]:
        pairs = [(f"ports/1/cc/{k}", str(v)) for k, v in value.items() if v is not None and now.get(k) != v]
        return (ConfigfsWrite(folder, (*pairs, ("ports/1/cc/apply", "1"))),)

    return Setting("dcqcn", {name: now.get(name) for name in wanted}, wanted, write)
