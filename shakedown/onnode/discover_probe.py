"""Print what a site's folder is made from: this host's NICs, addresses, neighbours, PCI tree and GPUs.

    python3 -                       (the program arrives on standard input; see discover.program)

Standard library only. Nothing is changed, and nothing is read that an ordinary user may not. The document is
printed in numbered lines of at most 700 characters, so that the lines of many hosts may arrive mixed.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import sys
import zlib
from pathlib import Path
from typing import Any

from shakedown.onnode import snapshot_probe, topology_probe

TAG = "SHAKEDOWN-DISCOVER"
_LINE_CHARACTERS = 600


def entries(text: str) -> list[dict[str, Any]]:
    """The objects of a JSON list that a tool printed."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def addresses() -> dict[str, list[str]]:
    """The IPv4 addresses of every interface, with prefix length."""
    found: dict[str, list[str]] = {}
    for link in entries(snapshot_probe.run("ip", "-j", "-4", "address")):
        for one in link.get("addr_info", []):
            if isinstance(one, dict) and one.get("scope") == "global":
                found.setdefault(str(link.get("ifname")), []).append(
                    f"{one.get('local')}/{one.get('prefixlen')}"
                )
    return found


def default_interfaces() -> list[str]:
    """The interfaces of the default routes."""
    told = snapshot_probe.run("ip", "-j", "-4", "route", "show", "default")
    return sorted({str(route.get("dev")) for route in entries(told)})


def rdma_devices(root: Path) -> dict[str, dict[str, str]]:
    """The first port of every RDMA device: its link layer and state."""
    found = {}
    folder = root / "sys/class/infiniband"
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        port = entry / "ports/1"
        found[entry.name] = {
            # A NIC of iWARP (node type 4, RNIC) is on Ethernet too.
            "link_layer": "iWARP"
            if topology_probe.text(entry / "node_type").startswith("4:")
            else topology_probe.text(port / "link_layer"),
            "state": topology_probe.text(port / "state"),
            "netdev": topology_probe.text(port / "gid_attrs/ndevs/0")
            or topology_probe.text(entry / "parent"),
        }
    return found


def nics(root: Path) -> list[dict[str, Any]]:
    """Every interface that is a device, or that a Soft-RoCE device is on."""
    found = []
    ipv4, rdma = addresses() if root == Path("/") else {}, rdma_devices(root)
    folder = root / "sys/class/net"
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        on_it = sorted(p.name for p in (entry / "device").glob("infiniband/*"))
        # A device of two ports names the interface of its first one only.
        on_it = [name for name in on_it if rdma.get(name, {}).get("netdev") in ("", entry.name)]
        on_it += sorted(
            name for name, one in rdma.items() if one["netdev"] == entry.name and name not in on_it
        )
        if not (entry / "device").exists() and not on_it:
            continue
        driver = entry / "device/driver"
        master = entry / "master"
        found.append(
            {
                "netdev": entry.name,
                "mac": topology_probe.text(entry / "address"),
                "rdma": on_it,
                "link_layer": rdma[on_it[0]]["link_layer"] if on_it else "",
                "driver": driver.resolve().name if driver.exists() else "",
                "speed_mbps": topology_probe.number(entry / "speed"),
                "mtu_bytes": topology_probe.number(entry / "mtu"),
                "up": topology_probe.text(entry / "operstate") in ("up", "unknown"),
                "master": master.resolve().name if master.exists() else "",
                "virtual_function": (entry / "device/physfn").exists(),
                "ipv4": ipv4.get(entry.name, []),
            }
        )
    return found


def lldp() -> str:
    """What lldpd knows of the neighbours, as it prints it; empty where it does not answer."""
    for tool in ("lldpcli", "lldpctl"):
        words = ("show", "neighbors", "details") if tool == "lldpcli" else ()
        text = snapshot_probe.run(tool, "-f", "json0", *words)
        if text.strip():
            return text
    return ""


def document(root: Path) -> dict[str, Any]:
    """Everything, of the host whose files are below `root`."""
    here = root == Path("/")
    return {
        "schema": 1,
        "host": os.environ.get("SLURMD_NODENAME") or platform.node().partition(".")[0],
        "topology": topology_probe.document(root),
        "nics": nics(root),
        "default_interfaces": default_interfaces() if here else [],
        "lldp": lldp() if here else "",
        "parts": snapshot_probe.components("node") if here else [],
    }


def lines(found: dict[str, Any]) -> list[str]:
    """A document in lines: tag, host, number, how many, and a piece of the packed text."""
    packed = base64.b64encode(zlib.compress(json.dumps(found).encode())).decode()
    pieces = [packed[at : at + _LINE_CHARACTERS] for at in range(0, len(packed), _LINE_CHARACTERS)]
    return [f"{TAG} {found['host']} {n} {len(pieces)} {piece}" for n, piece in enumerate(pieces, start=1)]


def main() -> int:
    """Print the document."""
    for line in lines(document(Path("/"))):
        sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    if globals().get("__package__"):  # not read from standard input, where nothing else of us is
        from shakedown.records.program import ended

        ended(main)
    sys.exit(main())
