"""What the publications print wrong: each line of the errata is worked out here, apart from its text."""

import ast
import ipaddress
import operator
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from shakedown.benchmarks.planning import read_site
from shakedown.references import files as references_io
from shakedown.references.catalogue import MissingReference, all_missing
from shakedown.references.files import load_profile, profile_names

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
ERRATA = [(name, one) for name in profile_names() for one in load_profile(name).errata]


def worked_out(text):
    """The value of plain arithmetic; anything else is refused."""

    def value(node):
        match node:
            case ast.Expression(body=inner):
                return value(inner)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right):
                return OPERATIONS[type(op)](value(left), value(right))
        raise AssertionError(f"{text}: numbers, + - * / and brackets only")

    return value(ast.parse(text, mode="eval"))


@pytest.mark.parametrize(("name", "erratum"), ERRATA, ids=lambda part: getattr(part, "where", part))
def test_the_arithmetic_gives_what_is_called_right(name, erratum):
    """Catches: an erratum whose own figure is mistyped, or that calls wrong what is right."""
    right = worked_out(erratum.arithmetic)
    assert erratum.right == pytest.approx(right, rel=0.005)
    printed = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", erratum.printed)]
    assert printed, "printed must hold the wrong figure"
    assert all(abs(number - right) > 0.005 * right for number in printed)


def test_all_errata_are_found():
    """Catches: a key that is read no more, with which all tests above would vanish."""
    assert len({name for name, _ in ERRATA}) >= 2


def test_more_than_arithmetic_is_refused():
    """Catches: an errata line that calls something, which a reader could not check by hand."""
    with pytest.raises(AssertionError):
        worked_out("max(1, 2)")


def missing(test: str) -> MissingReference:
    """A cell that no entry fits."""
    return MissingReference.of(test, "busbw", {"gpu": "L40", "nodes": 1}, fix="add one to the profile")


def test_a_site_that_misses_everything_gets_a_line_that_can_be_read():
    """Catches: a refusal of 8,000 characters where a node's GPUs were left out, or a rest without names."""
    thirty = [missing(f"nccl_{number}") for number in range(30)]
    said = str(all_missing(thirty))
    assert said.startswith(
        "30 cells have no reference: nccl_0 busbw gpu=L40 nodes=1: add one to the profile; "
    )
    assert "; and 25 more of nccl_5, nccl_6, " in said
    assert ", nccl_29 (shakedown plan --learn lists all)" in said
    assert said.count("add one to the profile") == 5
    assert "--learn" not in str(all_missing(thirty, learn=True))


def test_five_kinds_are_told_in_full():
    """Catches: `and 0 more`, or the fifth left out."""
    said = str(all_missing([missing(f"nccl_{number}") for number in range(5)]))
    assert "more of" not in said
    assert said.count("add one to the profile") == 5


INVENTORIES = Path(__file__).parents[3] / "inventories"
WITH_FABRIC = ("tolly_xe9680_z9664f", "pt_r7615_bcm57508", "ml_engineering")


def read(name, path):
    """One YAML file of an inventory."""
    return yaml.safe_load((INVENTORIES / name / path).read_text())


@pytest.mark.parametrize("name", WITH_FABRIC)
def test_intent_agrees_with_the_profile(name):
    """A speed or MTU that differs gives ceilings that the hardware never had."""
    intent = read(name, "group_vars/all/fabric.yml")["fabric"]
    profile = references_io.load_profile(intent["profile"])
    assert intent["system"] == intent["profile"] == name
    assert intent["mtu_bytes"]["rdma"] == 4096
    facts = profile.fabric
    if facts is None:  # a study of single nodes; its fabric is an example
        return
    assert facts.link_speed_gbps == intent["link_speed_gbps"]
    assert facts.rdma_mtu_bytes == intent["mtu_bytes"]["rdma"]
    assert facts.ip_version == intent["ip_version"]
    assert facts.rails == len(intent["rails"])
    assert facts.leaves == len(intent["switches"]["leaves"])
    assert facts.spines == len(intent["switches"]["spines"])
    assert facts.uplinks_per_leaf_per_spine == intent["switches"]["uplinks_per_leaf_per_spine"]
    hosts = read(name, "hosts.yml")["compute"]["hosts"]
    assert profile.hardware.nodes == len(hosts)
    for host in hosts.values():
        assert len(host["fabric_nics"]) == profile.hardware.nics_per_node
        assert [gpu["model"] for gpu in host["gpus"]] == [
            profile.hardware.gpu
        ] * profile.hardware.gpus_per_node


@pytest.mark.parametrize("name", WITH_FABRIC)
def test_cabling(name):
    """Two NICs in one port, an address outside its rail, a GPU near a NIC that is not there."""
    intent = read(name, "group_vars/all/fabric.yml")["fabric"]
    groups = read(name, "hosts.yml")
    subnets = {rail["name"]: ipaddress.ip_network(rail["subnet"]) for rail in intent["rails"]}
    ports, addresses = Counter(), Counter()
    for host in groups["compute"]["hosts"].values():
        assert [nic["rail"] for nic in host["fabric_nics"]] == list(subnets)
        for nic in host["fabric_nics"]:
            interface = ipaddress.ip_interface(nic["ipv4"])
            assert interface.network == subnets[nic["rail"]]
            assert nic["leaf"] in intent["switches"]["leaves"]
            ports[nic["leaf"], nic["leaf_port"]] += 1
            addresses[interface.ip] += 1
        devices = {nic["rdma_device"] for nic in host["fabric_nics"]}
        assert {gpu["nearest_nic"] for gpu in host["gpus"]} <= devices
        assert [gpu["index"] for gpu in host["gpus"]] == list(range(len(host["gpus"])))
    assert max(ports.values()) == max(addresses.values()) == 1
    assert sorted(groups["leaf"]["hosts"]) == sorted(intent["switches"]["leaves"])
    assert sorted(groups.get("spine", {}).get("hosts", {})) == sorted(intent["switches"]["spines"])


@pytest.mark.parametrize("name", WITH_FABRIC)
def test_every_switch_has_the_ports_of_its_cables(name):
    """Catches: a switch that its role refuses for want of ports, or a port that nobody cabled."""
    site = read_site(INVENTORIES / name)
    cabled = {
        (nic.leaf, nic.leaf_port, node, nic.netdev, nic.rail)
        for node, nics in site.nics.items()
        for nic in nics
    }
    assert {(switch.name, *port) for switch in site.switches for port in switch.ports} == cabled
    assert all(switch.ports or switch.uplinks for switch in site.switches)


def test_tollys_plan_has_its_spines_and_every_uplink():
    """Catches the published fabric passed by its host ports alone: 64 uplinks and two spines unread."""
    site = read_site(INVENTORIES / "tolly_xe9680_z9664f")
    counted = {switch.name: len(switch.uplinks) for switch in site.switches}
    assert counted == {**{f"leaf{i}": 8 for i in range(8)}, "spine0": 32, "spine1": 32}


def test_tolly_is_rail_optimised():
    """NIC i of every node on leaf i: a host on the wrong leaf would send same-rail traffic over the spine."""
    for host in read("tolly_xe9680_z9664f", "hosts.yml")["compute"]["hosts"].values():
        for nic in host["fabric_nics"]:
            assert nic["leaf"].removeprefix("leaf") == nic["rail"].removeprefix("rail")


def test_primergy_paths_have_references():
    """A host whose path no reference knows would have nothing to be held to."""
    profile = references_io.load_profile("primergy_cdi")
    known = {
        (e.scope["gpu"], e.scope["pcie_generation"], e.scope["path"], e.scope["gpus"])
        for e in profile.entries
        if e.metric == "data_rate" and e.gates
    }
    for host in read("primergy_cdi", "hosts.yml")["compute"]["hosts"].values():
        gpus = host["gpus"]
        first = gpus[0]
        assert all(gpu | {"index": 0} == first for gpu in gpus)
        assert (first["model"], first["pcie_generation"], first["path"], len(gpus)) in known


def test_every_address_is_a_documentation_address_or_private():
    """An example that names somebody's real machine would be configured by whoever copies it."""
    for name in (*WITH_FABRIC, "primergy_cdi", "ml_engineering_h100"):
        for group in read(name, "hosts.yml").values():
            for host in (group.get("hosts") or {}).values():
                assert ipaddress.ip_address(host["ansible_host"]) in ipaddress.ip_network("192.0.2.0/24")
