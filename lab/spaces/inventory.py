"""The Ansible inventory of a lab of namespaces: groups, the way in, rails and GPUs."""

from __future__ import annotations

import os
from typing import Any

from lab.paths import LabPaths, default_name, lab_paths
from lab.spaces import state
from lab.spaces.cluster import way_in
from lab.topology import DEFAULT_NODES, Machine, Topology


def document() -> dict[str, Any]:
    """What ``--list`` prints, of the running lab or of two nodes without GPUs."""
    paths = lab_paths(default_name())
    current = state.load(state.path_of(paths))
    if current is None or not current.ready:
        current = state.State(paths.name, {f"n{i}": [] for i in range(1, DEFAULT_NODES + 1)}, {})
    topology = Topology(current.nodes)
    hosts = [machine for machine in topology.machines if machine.role in ("head", "compute")]
    return {
        "all": {"children": ["slurm", "ungrouped"], "vars": _common(current, paths)},
        "submit": {"hosts": [m.name for m in hosts if m.role == "head"]},
        "compute": {"hosts": [m.name for m in hosts if m.role == "compute"]},
        "slurm": {"children": ["submit", "compute"]},
        "_meta": {"hostvars": {m.name: _machine(topology, m, current) for m in hosts}},
    }


def _common(current: state.State, paths: LabPaths) -> dict[str, Any]:
    # The machines reach no package index: wheels come from a folder, and where the host has no index either,
    # Debian packages too.
    given = {"bare_host_packages": "SHAKEDOWN_PACKAGES", "reframe_wheelhouse": "SHAKEDOWN_WHEELS"}
    return {
        **{key: os.environ[name] for key, name in given.items() if os.environ.get(name)},
        # One word, because rsync is given it too.
        "ansible_ssh_executable": str(way_in(paths)),
        "ansible_ssh_transfer_method": "piped",
        "ansible_user": "root",
        # A node's processes run on its own share of the host's CPUs.
        "slurm_node_cpus": {
            node: len(mine or os.sched_getaffinity(0)) for node, mine in current.cpus.items()
        },
        "slurm_gpu_files": {
            node: ",".join(f"/dev/nvidia{minor}" for minor in mine)
            for node, mine in current.gpus.items()
            if mine
        },
    }


def _machine(topology: Topology, machine: Machine, current: state.State) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ansible_host": machine.name,
        "mgmt_interface": "mgmt0",
        "mgmt_ip": machine.mgmt_ip,
    }
    if machine.role == "compute":
        found["tcp_nics"] = [
            {"fabric": link.rail, "netdev": link.netdev, "ipv4": link.ipv4}
            for link in topology.links
            if link.node == machine.name
        ]
        # Inside the machine its GPUs are numbered from 0 on.
        if mine := current.gpus[machine.name]:
            model = os.environ.get("SHAKEDOWN_GPU_MODEL", "H200-SXM")
            found["gpus"] = [
                {"index": number, "model": model, **({"shared": True} if minor in current.shared else {})}
                for number, minor in enumerate(mine)
            ]
    return found
