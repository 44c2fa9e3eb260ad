"""What the dynamic Ansible inventory of a lab of machines holds: groups, connections and cabling.

While the lab is down it still prints the topology of the default size, so that planning works without one;
the machines then have port 0 and no key. $SHAKEDOWN_LAB chooses among several labs.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import state
from lab.errors import LabError
from lab.paths import default_name, lab_paths
from lab.remote import common_options
from lab.sites import FABRIC, topology_of
from lab.topology import DEFAULT_NODES, Machine, Topology


def inventory(topology: Topology, connections: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The document that ``--list`` prints; ``connections`` holds each machine's connection variables."""
    machines = topology.machines
    switches = [role for role in ("leaf", "spine") if any(m.role == role for m in machines)]
    groups: dict[str, Any] = {
        "submit": {"hosts": [m.name for m in machines if m.role == "head"]},
        "compute": {"hosts": [m.name for m in machines if m.role == "compute"]},
        **{role: {"hosts": [m.name for m in machines if m.role == role]} for role in switches},
        "slurm": {"children": ["submit", "compute"]},
        "switches": {"children": switches},
    }
    variables = {m.name: {**connections[m.name], **_cabling(topology, m)} for m in machines}
    return {
        "all": {"children": ["slurm", "switches", "ungrouped"]},
        **groups,
        "_meta": {"hostvars": variables},
    }


def _cabling(topology: Topology, machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = {"mgmt_interface": "mgmt0", "mgmt_ip": machine.mgmt_ip}
    if machine.role == "compute":
        found["fabric_nics"] = [
            {
                "rail": link.rail,
                "netdev": link.netdev,
                "rdma_device": link.rdma_device,
                "ipv4": link.ipv4,
                "leaf": link.leaf,
                "leaf_port": link.port,
            }
            for link in topology.links
            if link.node == machine.name
        ]
    if machine.role == "leaf":
        found["leaf_ports"] = [
            {"port": link.port, "host": link.node, "netdev": link.netdev, "rail": link.rail}
            for link in topology.links
            if link.leaf == machine.name
        ]
    return found


def _lab(sites: Sequence[str]) -> tuple[Topology, dict[str, dict[str, Any]]]:
    """The running lab's topology and connections, or the default's."""
    paths = lab_paths(default_name())
    current = state.load(paths.state)
    if current is None or not current.ready:
        topology = topology_of(sites[0], DEFAULT_NODES)
        nothing = {"ansible_host": "127.0.0.1", "ansible_port": 0, "ansible_user": "root"}
        return topology, {m.name: dict(nothing) for m in topology.machines}
    if current.site not in sites:
        folder = "lab_fabric" if current.site == FABRIC else "lab"
        raise LabError(
            f"lab {paths.name} is up as the site {current.site!r}", fix=f"use inventories/{folder}"
        )
    topology = topology_of(current.site, current.nodes)
    return topology, {
        m.name: {
            "ansible_host": "127.0.0.1",
            "ansible_port": current.guests[m.name].ssh_port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(Path(current.image) / "id_ed25519"),
            "ansible_ssh_common_args": shlex.join(common_options(paths)),
        }
        for m in topology.machines
    }


def document(*sites: str) -> dict[str, Any]:
    """What ``--list`` prints of a lab that plays one of these sites; while it is down, of the first.

    Raises:
        LabError: the lab's state cannot be read, or it plays another site.
    """
    return inventory(*_lab(sites))
