"""Cumulus Linux: counters from `nv show interface PORT qos roce counters -o json` and `ip -s -s -j link`.

The RoCE counters' names are those of NVIDIA's Cumulus Linux 5.15 guide, RoCE, "Verify the configuration".
NVUE prints byte counts with a unit (56.52 MB), too coarse for a difference, so they are left out.
"""

import re
from collections.abc import Sequence
from typing import Any

from shakedown.nos import lldp
from shakedown.nos.crosscheck import CABLING, DSCP, FEC, MTU, PFC, SPEED
from shakedown.nos.linux import links as link_counters
from shakedown.nos.system import Classes, Outputs, PortCounters, SwitchSystem, Tree, count, json_object

_ROCE = {
    "roce_rx_packets": ("rx-stats", "rx-roce-stats", "roce-packets"),
    "roce_ingress_drops": ("rx-stats", "rx-roce-stats", "no-buffer-discard"),
    "roce_tx_packets": ("tx-stats", "tx-roce-stats", "roce-packets"),
    "roce_queue_drops": ("tx-stats", "tx-roce-stats", "unicast-no-buffer-discard"),
    "cnp_tx_packets": ("tx-stats", "tx-cnp-stats", "cnp-packets"),
    "cnp_queue_drops": ("tx-stats", "tx-cnp-stats", "unicast-no-buffer-discard"),
    "ecn_marked": ("tx-stats", "tx-ecn-stats", "ecn-marked-packets"),
}
_PAUSES = {
    "rx": ("rx-stats", "rx-pfc-stats", "pause-packets"),
    "tx": ("tx-stats", "tx-pfc-stats", "pause-packets"),
}
_LABEL = "roce "  # label prefix; the port follows


def reported(classes: Classes) -> tuple[str, ...]:
    """Name the counters of every port on which `qos roce` is configured."""
    link = (
        "rx_packets",
        "rx_bytes",
        "tx_packets",
        "tx_bytes",
        "rx_drops",
        "tx_drops",
        "rx_errors",
        "tx_errors",
        "link_flaps",
    )
    return (*link, *_ROCE, *(f"pfc_{way}_prio{classes.priority}" for way in _PAUSES))


def parse(outputs: Outputs, classes: Classes) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not these commands' JSON."""
    ports = link_counters(outputs)
    for label in outputs:
        port = label.removeprefix(_LABEL)
        if port == label or port not in ports:
            continue
        tree = json_object(outputs, label)
        wanted = {**_ROCE, **{f"pfc_{way}_prio{classes.priority}": path for way, path in _PAUSES.items()}}
        for name, path in wanted.items():
            value = _at(tree, path)
            if value is not None:
                ports[port][name] = count(value, f"{port} {'.'.join(path)}")
    return ports


def _at(tree: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401  (a value of JSON)
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def end(found: Tree, port: str) -> Tree:
    """Return what a port's read-back says of the cable's end."""
    roce = found["qos"]["roce"]
    # `enable on` until 5.14, `state enabled` from 5.15.
    on = (roce.get("enable", roce.get("state")), roce["mode"]) in (
        ("on", "lossless"),
        ("enabled", "lossless"),
    )
    # What `qos roce` maps (Cumulus Linux 5.15 guide): DSCP 24-31 to class 3, 48-55 to class 6.
    fixed = {**dict.fromkeys(range(24, 32), 3), **dict.fromkeys(range(48, 56), 6)}
    mtu = found["interface"][port]["link"]["mtu"]
    return {
        "mtu_bytes": mtu and int(mtu),
        "pfc_priorities": frozenset({3}) if on else frozenset(),
        "dscp_map": fixed if on else {},
    }


_FEC = {"off": "none", "baser": "fc"}  # as ethtool names them, and as switches do


def links(outputs: Outputs, ports: Sequence[str]) -> dict[str, Tree]:
    """Return rate and FEC of ports as ethtool tells them; None where it tells none."""
    found = {}
    for port in ports:
        speed = re.search(r"(?m)^[^\S\n]*+Speed: (\d+)Mb/s$", outputs.get(f"ethtool {port}", ""))
        fec = re.search(r"(?m)^Active FEC encoding:[^\S\n]*(\w+)[^\S\n]*$", outputs.get(f"fec {port}", ""))
        found[port] = {
            "speed_gbps": int(speed[1]) / 1000 if speed else None,
            "fec": _FEC.get(fec[1].lower(), fec[1].lower()) if fec else None,
        }
    return found


SYSTEM = SwitchSystem(
    name="cumulus",
    parse=parse,
    reported=reported,
    tells=frozenset({MTU, PFC, DSCP, CABLING, SPEED, FEC}),
    end=end,
    links=links,
    neighbours=lldp.by_every_name,
    model=r'"(?:product-name|model)": *"([^"]+)"',  # nv show platform -o json
    version=r"(?m)^VERSION_ID=\"?([^\"\n]+)",  # /etc/os-release
    not_done=("PFC watchdog: its action and the time until it restores are the platform's own",),
)
