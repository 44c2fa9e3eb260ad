"""A made-up site of any size, as a folder that `shakedown plan` reads: 8 rails of 400G, 8 GPUs a node.

Its references are made up as well: a plan needs one for each cell, and only the plan is looked at.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RAILS = 8
POD = 64  # nodes under one set of leaves, a leaf for each rail
PROFILE = "large.yml"
REFERENCES = """\
schema: 1
profile: large
title: made up for planning
published: nowhere
audit: made up
references:
"""
_METRICS = (
    ("fabric", "ib_write_bw", "bandwidth", "380", "Gb/s", "higher"),
    ("fabric", "ib_write_lat", "latency_typical", "3", "us", "lower"),
    ("fabric", "ib_write_lat", "latency_p99", "6", "us", "lower"),
    ("fabric", "ib_send_lat", "latency_typical", "3", "us", "lower"),
    ("fabric", "ib_send_lat", "latency_p99", "6", "us", "lower"),
    ("collective", "nccl_all_reduce", "busbw", "300", "GB/s", "higher"),
)
# Two message sizes of three tests, each rail alone; the rate of all rails at once beside it.
MESH: list[dict[str, Any]] = [
    {"test": "ib_write_bw", "size_bytes": 65536, "duration_s": 10, "rails_at_once": ["one", "all"]},
    {"test": "ib_write_lat", "size_bytes": 64, "iterations": 1000},
    {"test": "ib_send_lat", "size_bytes": 64, "iterations": 1000},
]
# What single nodes do by themselves, one job each, and the same collective over all of them.
EACH_NODE: dict[str, Any] = {
    "interconnect": {
        "path": {"name": "direct", "switch_hops": 1, "generation": 5, "width": 16, "shared_by": 2}
    },
    "nccl": {
        "launchers": ["srun"],
        "sweeps": [
            {
                "operations": ["all_reduce"],
                "min_bytes": 1 << 30,
                "max_bytes": 1 << 30,
                "nodes": [1, 2],
                "repeats": 3,
                "time_below_bytes": 0,
            }
        ],
        "expect": {"nvls": False, "gdr": True},
        "run_timeout_s": 300,
    },
}


def write_site(folder: Path, nodes: int, acceptance: dict[str, Any]) -> Path:
    """Write the site's folder, and its references beside it; return the folder.

    The command must be called where the references lie.
    """
    site = folder / "site"
    variables = site / "group_vars" / "all"
    variables.mkdir(parents=True)
    (folder / PROFILE).write_text(REFERENCES + "".join(_entry(*metric) for metric in _METRICS))
    # JSON is YAML, and is written in no time.
    (variables / "fabric.yml").write_text(json.dumps({"fabric": _fabric(nodes)}))
    (variables / "acceptance.yml").write_text(json.dumps({"acceptance": acceptance}))
    (site / "hosts.yml").write_text(json.dumps(_hosts(nodes)))
    if "interconnect" in acceptance:
        pytorch = {"from": {"path": "/opt/training/bin/python3"}}
        (variables / "software.yml").write_text(json.dumps({"software": {"pytorch": pytorch}}))
    return site


def _entry(stage: str, test: str, metric: str, value: str, unit: str, better: str) -> str:
    return (
        f"  - {{id: {test}-{metric}, stage: {stage}, test: {test}, metric: {metric}, value: {value}, "
        f"tolerance: 0.05, unit: {unit}, better: {better}, kind: baseline, source: made up}}\n"
    )


def _fabric(nodes: int) -> dict[str, Any]:
    pods = range(-(-nodes // POD))
    return {
        "system": "large",
        "profile": PROFILE,
        "link_speed_gbps": 400,
        "mtu_bytes": {"link": 9216, "host": 9000, "rdma": 4096},
        "roce": {
            "dscp": 26,
            "priority": 3,
            "traffic_class": 3,
            "queue": 3,
            "cnp": {"dscp": 48, "priority": 6, "traffic_class": 6, "queue": 6},
            "ecn": {"min_bytes": 1048576, "max_bytes": 2097152, "mark_percent": 5},
            "pfc": {"enabled": True},
        },
        "rails": [{"name": f"rail{r}", "subnet": f"10.{r}.0.0/16"} for r in range(RAILS)],
        "switches": {
            "leaves": [f"leaf{pod}-{r}" for pod in pods for r in range(RAILS)],
            "spines": [f"spine{s}" for s in range(RAILS)],
            "uplinks_per_leaf_per_spine": 4,
        },
    }


def _hosts(nodes: int) -> dict[str, Any]:
    names = [f"gpu{i:04d}" for i in range(1, nodes + 1)]
    ports: dict[str, list[dict[str, str]]] = {}
    compute: dict[str, Any] = {}
    for number, name in enumerate(names):
        pod, place = divmod(number, POD)
        nics = []
        for r in range(RAILS):
            leaf, port, netdev = f"leaf{pod}-{r}", f"Ethernet{8 * place}", f"ens{r}np0"
            ports.setdefault(leaf, []).append(
                {"port": port, "host": name, "netdev": netdev, "rail": f"rail{r}"}
            )
            nics.append(
                {
                    "rail": f"rail{r}",
                    "netdev": netdev,
                    "rdma_device": f"mlx5_{r}",
                    "ipv4": f"10.{r}.{number // 250}.{number % 250 + 1}/16",
                    "leaf": leaf,
                    "leaf_port": port,
                }
            )
        gpus = [{"index": r, "model": "H100-SXM", "nearest_nic": f"mlx5_{r}"} for r in range(RAILS)]
        address = f"192.168.{number // 250}.{number % 250 + 1}"
        compute[name] = {"ansible_host": address, "fabric_nics": nics, "gpus": gpus}
    leaves = {
        leaf: {"leaf_ports": listed, "roce_switch_nos": "enterprise_sonic"} for leaf, listed in ports.items()
    }
    return {
        "all": {"children": {"compute": {}, "switches": {}, "submit": {}}},
        "compute": {"hosts": compute},
        "switches": {"hosts": leaves},
        "submit": {"hosts": {"login": {}}},
    }
