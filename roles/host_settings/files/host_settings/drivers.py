"""Which driver's rules hold for a NIC, by the kernel driver that sysfs names."""

from __future__ import annotations

import os
from types import ModuleType

from host_settings import bnxt, mlx5, rxe
from host_settings.desired import BadDesired
from host_settings.system import System

_DRIVERS: dict[str, ModuleType] = {
    "mlx5_core": mlx5,
    "bnxt_en": bnxt,
    # Virtual NICs have no RDMA of their own: Soft-RoCE.
    **dict.fromkeys(("virtio_net", "e1000", "e1000e", "vmxnet3"), rxe),
}


def kernel_driver(system: System, netdev: str) -> str | None:
    """The kernel driver of a netdev; None for a device without one (a bridge, a bond)."""
    return system.link_name(f"/sys/class/net/{netdev}/device/driver")


def driver_for(system: System, netdev: str) -> ModuleType:
    """The rules for a NIC. Raises BadDesired if there is no such NIC, or none that these rules know."""
    if not system.exists(f"/sys/class/net/{netdev}"):
        have = [name for name in system.names("/sys/class/net") if name != "lo"]
        raise BadDesired(
            f"there is no NIC {netdev!r}; this host has {', '.join(have)} -- correct fabric_nics"
        )
    name = kernel_driver(system, netdev)
    if name not in _DRIVERS:
        raise BadDesired(
            f"NIC {netdev!r} has kernel driver {name!r}, which has no rules here -- "
            f"use a NIC with one of {', '.join(sorted(_DRIVERS))}, or take it out of fabric_nics"
        )
    return _DRIVERS[name]


def refuse_management(system: System, netdev: str) -> None:
    """Raise BadDesired if the NIC carries the default route or the present SSH session."""
    for line in (system.read("/proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[0] == netdev and fields[1] == "00000000" and fields[7] == "00000000":
            raise BadDesired(
                f"NIC {netdev!r} carries the default route, so it is the management path -- "
                "take it out of fabric_nics"
            )
    session = os.environ.get("SSH_CONNECTION", "").split()
    if len(session) == 4:
        for link in system.run_json("ip", "-j", "addr", "show", "dev", netdev):
            if any(address.get("local") == session[2] for address in link.get("addr_info", [])):
                raise BadDesired(
                    f"NIC {netdev!r} carries this SSH session ({session[2]}) -- take it out of fabric_nics"
                )
