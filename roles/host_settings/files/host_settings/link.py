"""What every NIC has, whatever its driver: MTU, global pause, rings, ARP, and the state of the link."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from host_settings import coalesce
from host_settings.desired import Nic
from host_settings.model import Action, Item, NotApplicable, Run, Setting, Value, attribute_writer
from host_settings.system import System, ToolError

_UNSUPPORTED = "Operation not supported"


def read(system: System, nic: Nic) -> dict[str, Any]:
    """The NIC's common state; of interrupt moderation only where it is to be set."""
    netdev = nic.netdev
    net, conf = f"/sys/class/net/{netdev}", f"/proc/sys/net/ipv4/conf/{netdev}"
    found: dict[str, Any] = {
        "mtu": system.read_int(f"{net}/mtu"),
        "operstate": system.read(f"{net}/operstate"),
        "speed_mbps": system.read_int(f"{net}/speed"),
        "arp_ignore": system.read_int(f"{conf}/arp_ignore"),
        "arp_announce": system.read_int(f"{conf}/arp_announce"),
        "rp_filter": system.read_int(f"{conf}/rp_filter"),
        "rp_filter_all": system.read_int("/proc/sys/net/ipv4/conf/all/rp_filter"),
        "mac": system.read(f"{net}/address"),
        "ipv4": _addresses(system, netdev),
        "pause": _pause(system, netdev),
        "rings": _rings(system, netdev),
        "coalesce": None,
        "fec": _fec(system, netdev),
    }
    if nic.policy.rx_usecs is not None:
        found["coalesce"] = coalesce.read(_ethtool(system, "-c", netdev))
    return found


def _addresses(system: System, netdev: str) -> list[str]:
    found = system.run_json("ip", "-j", "-4", "addr", "show", "dev", netdev)
    return [
        f"{address['local']}/{address['prefixlen']}"
        for link in found
        for address in link.get("addr_info", [])
        if "local" in address and "prefixlen" in address
    ]


def _ethtool(system: System, option: str, netdev: str) -> str | None:
    """What `ethtool OPTION NETDEV` prints; None if the driver has no such thing."""
    done = system.run("ethtool", option, netdev)
    if done.status == 0:
        return done.out
    if _UNSUPPORTED in done.out + done.err:
        return None
    raise ToolError(f"ethtool {option} {netdev}: {done.complaint}")


def _pause(system: System, netdev: str) -> dict[str, str] | None:
    text = _ethtool(system, "-a", netdev)
    if text is None:
        return None
    return {key.lower(): value for key, value in re.findall(r"^(RX|TX):\s+(on|off)\b", text, re.M)}


def _rings(system: System, netdev: str) -> dict[str, dict[str, int]] | None:
    text = _ethtool(system, "-g", netdev)
    if text is None:
        return None
    preset, _, current = text.partition("Current hardware settings")
    return {
        name: {key.lower(): int(value) for key, value in re.findall(r"^(RX|TX):\s+(\d+)\s*$", part, re.M)}
        for name, part in (("max", preset), ("now", current))
    }


# As ethtool names them, and as switches do.
_FEC = {"off": "none", "baser": "fc"}


def _fec(system: System, netdev: str) -> str | None:
    """The FEC in use; None if the driver reports none, which is no reason to refuse the NIC."""
    done = system.run("ethtool", "--show-fec", netdev)
    active = re.search(r"^Active FEC encoding:\s*(\w+)\s*$", done.out, re.M) if done.status == 0 else None
    return None if active is None else _FEC.get(active[1].lower(), active[1].lower())


def settings(found: dict[str, Any], nic: Nic) -> list[Item]:
    """What can be set on the NIC itself."""
    dev = nic.netdev
    conf = f"/proc/sys/net/ipv4/conf/{dev}"
    items: list[Item] = [
        Setting(
            "mtu.host_bytes",
            found["mtu"],
            nic.link_mtu,
            lambda v: (Run(("ip", "link", "set", "dev", dev, "mtu", str(v))),),
            interrupts="the link, for an instant",
        )
    ]
    items += _pause_settings(found["pause"], dev)
    items += _ring_settings(found["rings"], nic)
    items += coalesce.settings(found["coalesce"], dev, nic.policy.rx_usecs)
    # Several NICs in one subnet would otherwise answer for each other.
    for key, wanted in (("arp_ignore", nic.policy.arp_ignore), ("arp_announce", nic.policy.arp_announce)):
        items.append(Setting(f"arp.{key}", found[key], wanted, attribute_writer(f"{conf}/{key}")))
    # A strict filter (1) drops what comes in by another NIC of the subnet than answers would leave by
    # (RFC 3704; ip-sysctl.rst of the kernel). The larger of this and conf/all is in force.
    if nic.policy.rp_filter is not None:
        writer = attribute_writer(f"{conf}/rp_filter")
        items.append(Setting("rp_filter", found["rp_filter"], nic.policy.rp_filter, writer))
        in_force = max(nic.policy.rp_filter, found["rp_filter_all"] or 0)
        items.append(Setting("rp_filter.in_force", in_force, nic.policy.rp_filter, hint="conf.all is larger"))
    return items


def _pause_settings(pause: dict[str, str] | None, dev: str) -> list[Item]:
    if pause is None:
        return [NotApplicable("pause.global", "the driver has no global pause")]
    # Global pause stops every class at once and is exclusive with PFC.
    wanted = {"rx": "off", "tx": "off"}
    return [
        Setting(
            "pause.global",
            pause,
            wanted,
            lambda v: (Run(("ethtool", "-A", dev, "rx", v["rx"], "tx", v["tx"])),),
            interrupts="the link, where the driver renegotiates",
        )
    ]


def _ring_settings(rings: dict[str, dict[str, int]] | None, nic: Nic) -> list[Item]:
    if nic.policy.rings == "keep":
        return [NotApplicable("rings", "the role leaves the rings as they are")]
    if rings is None:
        return [NotApplicable("rings", "the driver has no rings to set")]

    def ring(key: str) -> Callable[[Value], tuple[Action, ...]]:
        return lambda value: (Run(("ethtool", "-G", nic.netdev, key, str(value))),)

    return [
        Setting(
            f"rings.{key}",
            rings["now"].get(key),
            rings["max"][key],
            ring(key),
            interrupts="traffic, for an instant",
        )
        for key in ("rx", "tx")
        if rings["max"].get(key)
    ]


def observations(found: dict[str, Any], nic: Nic) -> list[Item]:
    """What the machine must show, but this program does not set."""
    return [
        Setting("link.state", found["operstate"], "up"),
        Setting("ipv4", nic.ipv4 if nic.ipv4 in found["ipv4"] else found["ipv4"], nic.ipv4),
        # RoCE and TCP may leave by any address of the NIC, and each is a GID.
        Setting("ipv4.others", [a for a in found["ipv4"] if _host(a) != _host(nic.ipv4)], []),
        Setting("mac", found["mac"], found["mac"]),
    ]


def _host(address: str) -> str:
    return address.partition("/")[0]


def second_owners(system: System, nic: Nic) -> Item:
    """Other machines that own the NIC's address: connections then end at either of the two."""
    key = "ipv4.duplicates"
    try:
        return Setting(key, system.other_owners(nic.netdev, _host(nic.ipv4)), [])
    except OSError as error:
        return NotApplicable(key, f"no ARP probe could be sent: {error.strerror or error}")


def speed_observation(found: dict[str, Any], nic: Nic) -> Item:
    """The link's rate; a NIC that trained down is a fault of cable, optic or port."""
    mbps = found["speed_mbps"]
    return Setting(
        "link.speed_gbps", None if mbps is None or mbps <= 0 else mbps / 1000, float(nic.link_speed_gbps)
    )


def fec_observation(found: dict[str, Any]) -> Item:
    """The FEC in use. No intent names it: acceptance holds it against the switch port at the other end."""
    if found["fec"] is None:
        return NotApplicable("link.fec", "the driver reports no FEC")
    return Setting("link.fec", found["fec"], found["fec"])
