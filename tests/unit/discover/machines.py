"""Answers of nodes, made as the probe prints them."""

import json
from typing import Any

from lab.topology import Topology


def nic(netdev: str, ipv4: str = "", **more: Any) -> dict[str, Any]:
    """One interface; `bdf` and `path` place it on the PCI tree."""
    return {
        "netdev": netdev,
        "rdma": [],
        "link_layer": "Ethernet" if more.get("rdma") else "",
        "driver": "mlx5_core",
        "speed_mbps": None,
        "mtu_bytes": 9000,
        "up": True,
        "master": "",
        "virtual_function": False,
        "ipv4": [ipv4] if ipv4 else [],
        **more,
    }


def device(bdf: str, kind: str, path: list[str], root: str, numa: int, **more: Any) -> dict[str, Any]:
    """One PCI function."""
    return {
        "bdf": bdf,
        "class": kind,
        "vendor": "0x15b3",
        "device": "0x1021",
        "driver": None,
        "root": root,
        "path": path,
        "numa_node": numa,
        "speed_gt_s": 32.0,
        "max_speed_gt_s": 32.0,
        "width": 16,
        "max_width": 16,
        "largest_bar_bytes": 0,
        "netdevs": [],
        "rdma": [],
        **more,
    }


def answer(
    name: str,
    nics: list[dict[str, Any]],
    devices: list[dict[str, Any]] | None = None,
    gpus: list[dict[str, str]] | None = None,
    default: tuple[str, ...] = (),
    lldp: dict[str, tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """What one node answers."""
    return {
        "schema": 1,
        "host": name,
        "topology": {
            "schema": 1,
            "host": name,
            "virtual": False,
            "numa": [{"node": n, "cpus": f"{n}-{n}", "distances": [10, 20]} for n in (0, 1)],
            "cores": [],
            "devices": devices or [],
            "gpus": gpus or [],
        },
        "nics": nics,
        "default_interfaces": list(default),
        "lldp": heard(lldp) if lldp else "",
    }


def heard(ends: dict[str, tuple[str, str]]) -> str:
    """What lldpd prints of one neighbour at each interface."""
    return json.dumps(
        {
            "lldp": [
                {
                    "interface": [
                        {
                            "name": netdev,
                            "chassis": [{"name": [{"value": switch}]}],
                            "port": [{"id": [{"value": port}], "descr": [{"value": port}]}],
                        }
                        for netdev, (switch, port) in ends.items()
                    ]
                }
            ]
        }
    )


def lab(nodes: int = 2, *, lldp: bool = True) -> dict[str, Any]:
    """What the guests of the lab answer: virtio NICs that tell no rate, Soft-RoCE on two of them."""
    topology = Topology(nodes)
    found = {}
    for machine in topology.machines:
        if machine.role != "compute":
            continue
        soft = {link.netdev: link.rdma_device for link in topology.links if link.node == machine.name}
        found[machine.name] = answer(
            machine.name,
            [
                nic(
                    one.name,
                    one.address,
                    driver="virtio_net",
                    rdma=[soft[one.name]] if one.name in soft else [],
                    speed_mbps=-1,
                    mtu_bytes=one.mtu,
                )
                for one in machine.nics
            ],
            [
                device(
                    f"0000:00:{n:02x}.0",
                    "0x020000",
                    [],
                    "pci0000:00",
                    -1,
                    netdevs=[one.name],
                    rdma=list(filter(None, [soft.get(one.name)])),
                )
                for n, one in enumerate(machine.nics, start=2)
            ],
            default=("adm0",),
            lldp={link.netdev: (link.leaf, link.port) for link in topology.links if link.node == machine.name}
            if lldp
            else None,
        )
    return {
        "schema": 1,
        "nodes": found,
        "addresses": {m.name: m.mgmt_ip for m in topology.machines if m.role == "compute"},
        "submit": "head",
        "partition": "all",
    }


# mlx5_N of an HGX H100: eight of the fabric, three others (two 100G for storage, one for management).
COMPUTE = (0, 3, 4, 5, 6, 9, 10, 11)


def hgx(name: str, number: int, **more: Any) -> dict[str, Any]:
    """A node of eight H100, each sharing a PCIe switch with a 400G NIC; two sockets; eleven RDMA devices.

    mlx5_1 hangs on GPU 0's switch, at 100 Gb/s; mlx5_2 has the default route; mlx5_7 is a 400G NIC for
    storage, by itself at a root port.
    """
    nics, devices, gpus = [], [], []
    for i, mlx in enumerate(COMPUTE):
        root, switch, numa = f"pci0000:{0x10 + i:02x}", f"0000:{0x10 + i:02x}:00.0", i // 4
        netdev, rdma = f"ens{mlx}np0", f"mlx5_{mlx}"
        nics.append(nic(netdev, f"10.10.{i}.{number}/24", rdma=[rdma], speed_mbps=400000))
        up = [switch, f"0000:{0x10 + i:02x}:01.0"]
        devices.append(
            device(
                f"0000:{0x20 + i:02x}:00.0",
                "0x020000",
                [*up, f"0000:{0x10 + i:02x}:02.0"],
                root,
                numa,
                netdevs=[netdev],
                rdma=[rdma],
            )
        )
        devices.append(
            device(
                f"0000:{0x40 + i:02x}:00.0",
                "0x030200",
                [*up, f"0000:{0x10 + i:02x}:03.0"],
                root,
                numa,
                vendor="0x10de",
            )
        )
        gpus.append({"index": str(i), "bdf": f"0000:{0x40 + i:02x}:00.0", "name": "NVIDIA H100 80GB HBM3"})
    others = (
        (
            "ens1np0",
            "mlx5_1",
            100000,
            f"10.20.0.{number}/24",
            "pci0000:10",
            ["0000:10:00.0", "0000:10:01.0", "0000:10:04.0"],
        ),
        ("ens2np0", "mlx5_2", 100000, f"192.0.2.{number}/24", "pci0000:70", ["0000:70:00.0"]),
        ("ens7np0", "mlx5_7", 400000, f"10.30.0.{number}/24", "pci0000:71", ["0000:71:00.0"]),
    )
    for n, (netdev, rdma, speed, address, root, path) in enumerate(others):
        nics.append(nic(netdev, address, rdma=[rdma], speed_mbps=speed))
        devices.append(
            device(f"0000:{0x60 + n:02x}:00.0", "0x020000", path, root, 0, netdevs=[netdev], rdma=[rdma])
        )
    return answer(name, nics, devices, gpus, default=("ens2np0",), **more)


def answers(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The document of `--record`."""
    return {"schema": 1, "nodes": {node["host"]: node for node in nodes}, **more}
