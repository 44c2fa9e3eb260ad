"""The shipped sites by the answers that their nodes would give: discover writes what was written by hand."""

from pathlib import Path
from typing import Any

import machines
import yaml

from shakedown.discover.ask import Answers
from shakedown.discover.draft_site import describe
from shakedown.discover.folder import files
from tests.kit.cases import cases

INVENTORIES = Path(__file__).parents[3] / "inventories"
# What a driver calls the GPUs of the shipped sites.
GPUS = {"H100-SXM": "NVIDIA H100 80GB HBM3", "A100-SXM": "NVIDIA A100-SXM4-80GB", "L40": "NVIDIA L40"}


def by_hand(site: str) -> dict[str, dict[str, Any]]:
    """Return the compute hosts of a shipped site."""
    hosts = yaml.safe_load((INVENTORIES / site / "hosts.yml").read_text())
    return hosts["compute"]["hosts"]


def fabric_of(site: str) -> dict[str, Any]:
    """Return its intent."""
    return yaml.safe_load((INVENTORIES / site / "group_vars/all/fabric.yml").read_text())["fabric"]


def answered(name: str, host: dict[str, Any], speed_gbps: int, mtu: int) -> dict[str, Any]:
    """What a node of that description answers: each fabric NIC on a PCIe switch, with the GPUs nearest to it;
    a management NIC with the default route, and the NICs of its other networks at 25 Gb/s."""
    nics, devices, gpus, ends = [], [], [], {}
    for place, one in enumerate(host["fabric_nics"]):
        root, switch = f"pci0000:{0x10 + place:02x}", f"0000:{0x10 + place:02x}:00.0"
        up = [switch, f"0000:{0x10 + place:02x}:01.0"]
        driver = "bnxt_en" if one["rdma_device"].startswith("bnxt") else "mlx5_core"
        rdma = [one["rdma_device"]]
        nics.append(
            machines.nic(
                one["netdev"],
                one["ipv4"],
                rdma=rdma,
                speed_mbps=speed_gbps * 1000,
                driver=driver,
                mtu_bytes=mtu,
            )
        )
        bdf, below = f"0000:{0x20 + place:02x}:00.0", [*up, f"0000:{0x10 + place:02x}:02.0"]
        devices.append(machines.device(bdf, "0x020000", below, root, 0, netdevs=[one["netdev"]], rdma=rdma))
        ends[one["netdev"]] = (one["leaf"], one["leaf_port"])
        near = [gpu for gpu in host.get("gpus", []) if gpu["nearest_nic"] == one["rdma_device"]]
        for gpu in near:
            bdf = f"0000:{0x40 + gpu['index']:02x}:00.0"
            below = [*up, f"0000:{0x10 + place:02x}:{0x10 + gpu['index']:02x}.0"]
            devices.append(machines.device(bdf, "0x030200", below, root, 0, vendor="0x10de"))
            gpus.append({"index": str(gpu["index"]), "bdf": bdf, "name": GPUS[gpu["model"]]})
    others = [(one["netdev"], one["ipv4"]) for one in host.get("tcp_nics", [])]
    for place, (netdev, ipv4) in enumerate([*others, ("eno1", f"{host['ansible_host']}/24")]):
        nics.append(machines.nic(netdev, ipv4, speed_mbps=25000, driver="bnxt_en", mtu_bytes=1500))
        root, path = f"pci0000:{0x70 + place:02x}", [f"0000:{0x70 + place:02x}:00.0"]
        bdf = f"0000:{0x60 + place:02x}:00.0"
        devices.append(machines.device(bdf, "0x020000", path, root, 0, netdevs=[netdev]))
    return machines.answer(name, nics, devices, gpus, default=("eno1",), lldp=ends)


@cases("site", "tolly_xe9680_z9664f", "pt_r7615_bcm57508", "primergy_cdi", "ml_engineering")
def test_a_shipped_site_is_described_as_by_hand(site):
    """Catches: a NIC, rail, subnet, cable, GPU or nearest NIC that discover makes otherwise than a person;
    a NIC of another network taken for the fabric's."""
    hosts, intent = by_hand(site), fabric_of(site)
    if "fabric_nics" not in next(iter(hosts.values())):
        assert intent.get("no_fabric") or intent["rails"] == [], "a site with a fabric must be tried here"
        return
    mtu = intent["mtu_bytes"]["host"]
    nodes = {name: answered(name, host, intent["link_speed_gbps"], mtu) for name, host in hosts.items()}
    addresses = {name: host["ansible_host"] for name, host in hosts.items()}
    found = describe(Answers.model_validate({"schema": 1, "nodes": nodes, "addresses": addresses}))
    keys = ("rail", "netdev", "rdma_device", "ipv4", "leaf", "leaf_port")
    for node in found.nodes:
        host = hosts[node.name]
        assert [{key: getattr(nic, key) for key in keys} for nic in node.nics] == [
            {key: nic[key] for key in keys} for nic in host["fabric_nics"]
        ]
        mine = [{"index": g.index, "model": g.model, "nearest_nic": g.nearest_nic} for g in node.gpus]
        assert mine == host.get("gpus", [])
        assert node.address == host["ansible_host"]
        others = {one.nic.netdev for one in node.others}
        assert others == {"eno1", *(nic["netdev"] for nic in host.get("tcp_nics", []))}
    assert [{"name": rail.name, "subnet": rail.subnet} for rail in found.rails] == intent["rails"]
    assert found.link_speed_gbps == intent["link_speed_gbps"]
    assert {"host": found.host_mtu, "rdma": found.rdma_mtu} == {
        k: intent["mtu_bytes"][k] for k in ("host", "rdma")
    }
    assert set(found.leaves) == set(intent["switches"]["leaves"])
    # What no host tells, and what two rails alike would be: marked.
    text = "\n".join(one.text for one in files(found, "site"))
    for guess in ("roce:", "roce_switch_nos"):
        assert any(guess in line and "# check" in line for line in text.splitlines()), guess
