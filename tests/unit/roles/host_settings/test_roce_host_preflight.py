"""Preflight of roce_host: contradictions that no schema sees, and the site inventories that must pass."""

import copy
import importlib.util
import json
import sys
from pathlib import Path

import pytest
from conftest import ROCE, ROLE
from host_settings import desired

from tests.kit import site as sites
from tests.kit.cases import cases
from tests.kit.run import ran

REPOSITORY = ROLE.parents[1]
_spec = importlib.util.spec_from_file_location(
    "roce_host_filters", REPOSITORY / "roles/roce_host/filter_plugins/roce_host.py"
)
filters = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(filters)

_ECN = {"min_bytes": 1000, "max_bytes": 2000, "mark_percent": 5}
FABRIC = sites.fabric(2, "10.0.{}.0/24", roce={**ROCE, "ecn": _ECN})
FABRIC.pop("profile")
_PORTS = [{"leaf": "leaf0", "leaf_port": f"swp{i}"} for i in range(2)]
NICS = [sites.nic(i, f"eth{i}", f"mlx5_{i}", f"10.0.{i}.1/24", **_PORTS[i]) for i in range(2)]


@pytest.mark.parametrize(
    "site", sorted(p.parent.name for p in (REPOSITORY / "inventories").glob("*/hosts.*"))
)
def test_every_site_of_ours_passes_and_is_understood(site):
    """Catches an inventory that the role would refuse, or whose intent the program cannot read."""
    done = ran(
        Path(sys.executable).with_name("ansible-inventory"),
        "-i",
        REPOSITORY / "inventories" / site,
        "--list",
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "SHAKEDOWN_LAB": "none"},
    )
    document = json.loads(done.stdout)
    hosts = document["_meta"]["hostvars"]
    compute = [hosts[name] for name in document["compute"]["hosts"]]
    policy = {"arp_ignore": 2, "arp_announce": 1, "ets_roce_percent": 50, "rings": "max"}
    if not compute[0]["fabric"].get("rails"):
        pytest.skip("one host, no fabric")
    named = [{**hosts[name], "inventory_hostname": name} for name in document["compute"]["hosts"]]
    assert filters.problems(named, compute[0]["fabric"]) == []
    for host in compute:
        fabric = host["fabric"]
        for nic in host["fabric_nics"]:
            parsed = desired.parse_nic({**fabric, **nic, "policy": policy})
            assert parsed.roce.tos == fabric["roce"]["dscp"] * 4 + 2


@cases(
    "plant, words",
    (lambda f: f["mtu_bytes"].update(host=9500), "fabric.mtu_bytes.host 9500 is above the switches'"),
    (
        lambda f: f["mtu_bytes"].update(host=4100),
        "leaves no room for fabric.mtu_bytes.rdma 4096 -- use at least 4192",
    ),
    (lambda f: f["roce"]["cnp"].update(dscp=26), "fabric.roce.cnp.dscp is 26 like fabric.roce.dscp"),
    (lambda f: f["roce"]["cnp"].update(priority=3), "fabric.roce.cnp.priority is 3"),
    (lambda f: f["roce"]["cnp"].update(traffic_class=3), "fabric.roce.cnp.traffic_class is 3"),
    (lambda f: f["roce"]["cnp"].update(queue=3), "fabric.roce.cnp.queue is 3"),
    (lambda f: f["roce"].update(priority=0), "fabric.roce.priority is 0"),
    (lambda f: f.update(ip_version=6), "fabric.ip_version is 6"),
    (lambda f: f["rails"].append(f["rails"][0]), "fabric.rails names rail0 2 times"),
    (lambda f: f["rails"][0].update(subnet="10.0.0.1/24"), "subnet of rail0"),
)
def test_contradictory_intent_is_refused(plant, words):
    """Each entry is an intent that would be set on every host before anybody noticed."""
    fabric = copy.deepcopy(FABRIC)
    assert filters.problems([], fabric) == []
    plant(fabric)
    assert any(words in sentence for sentence in filters.problems([], fabric))


@cases(
    "plant, words",
    (lambda n: n[0].update(rail="rail7"), "rail rail7 is none of fabric.rails (rail0, rail1)"),
    (lambda n: n[0].update(rail="rail1"), "2 NICs are on rail rail1"),
    (lambda n: n.pop(), "no NIC on rail1"),
    (lambda n: n[0].update(ipv4="10.0.1.9/24"), "eth0 has 10.0.1.9/24, but rail rail0 is 10.0.0.0/24"),
    (lambda n: n[0].update(ipv4="nonsense"), "ipv4 of eth0"),
    (lambda n: n[0].update(netdev="eth1"), "netdev eth1 is there 2 times"),
    (lambda n: n[0].update(rdma_device="mlx5_1"), "rdma_device mlx5_1 is there 2 times"),
    (lambda n: n[0].update(leaf_port="swp1"), "eth0 shares leaf0 port swp1"),
    (lambda n: n[0].update(ipv4="10.0.0.250/24"), "eth0 has the address of ansible_host"),
)
def test_contradictory_nics_are_refused(plant, words):
    """Each entry is a host that would be cabled or addressed otherwise than the inventory says."""
    nics = copy.deepcopy(NICS)
    host = {"inventory_hostname": "n1", "ansible_host": "10.0.0.250", "fabric_nics": nics}
    assert filters.problems([host], FABRIC) == []
    plant(nics)
    assert any(s.startswith("n1: ") and words in s for s in filters.problems([host], FABRIC))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("leaf_port", "swp0", "shares leaf0 port swp0"), ("ipv4", "10.0.0.1/24", "shares address 10.0.0.1")],
)
def test_what_two_hosts_claim_is_refused_and_both_are_named(key, value, words):
    """Catches: one port or one address in two hosts' inventory, which each host alone finds right."""
    hosts = [
        {"inventory_hostname": name, "fabric_nics": copy.deepcopy(NICS)} for name in ("n1", "n2", "no_nics")
    ]
    del hosts[2]["fabric_nics"]  # refused by argument_specs already
    for number, nic in enumerate(hosts[1]["fabric_nics"], 2):
        nic.update(ipv4=f"10.0.{number - 2}.{number}/24", leaf_port=f"swp{number}")
    assert filters.problems(hosts, FABRIC) == []
    hosts[0]["fabric_nics"][0][key] = hosts[1]["fabric_nics"][0][key] = value
    found = filters.problems(hosts, FABRIC)
    assert [s.partition(":")[0] for s in found if words in s] == ["n1", "n2"], found
