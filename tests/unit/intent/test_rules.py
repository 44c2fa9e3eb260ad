"""The one validator of the intent, and all who must ask it: the model, two roles' filters and the leaf."""

import ast
import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shakedown.intent import rules, variables
from shakedown.intent.site import Fabric
from tests.kit.cases import cases
from tests.kit.run import python

ROOT = Path(__file__).parents[3]
INTENT = yaml.safe_load((ROOT / "tests/unit/nos/intent.yml").read_text())


def load(path: str) -> ModuleType:
    """Import a file of a role; Ansible's plugin folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"of_role_{Path(path).stem}", ROOT / "roles" / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


host = load("roce_host/filter_plugins/roce_host.py")
switch = load("roce_switch/filter_plugins/roce_switch.py")
leaf = load("roce_switch/files/roce_leaf.py")
PORTS = [{"port": "swp1", "host": "n1", "netdev": "fab0", "rail": "rail0"}]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The intent with one value changed, or taken out where the value is None."""
    fabric = copy.deepcopy(INTENT)
    *above, last = path.split(".")
    here = fabric
    for key in above:
        here = here[key]
    if value is None:
        del here[last]
    else:
        here[last] = value
    return fabric


def model_refuses(fabric: dict[str, Any]) -> bool:
    """Whether `shakedown plan` would refuse it."""
    try:
        Fabric.model_validate(fabric)
    except ValidationError:
        return True
    return False


def leaf_refuses(fabric: dict[str, Any]) -> bool:
    """Whether the program on a Linux leaf would."""
    try:
        leaf.wanted({"roce": fabric["roce"], "mtu_bytes": 9000, "ports": ["swp1"]})
    except leaf.Refused:
        return True
    return False


def test_a_good_intent_is_refused_by_no_one():
    """Catches a rule that turns every site away."""
    assert not model_refuses(INTENT)
    assert host.problems([], INTENT) == []
    assert switch.refusals(INTENT, "linux", PORTS, [], ["n1"]) == []
    assert not leaf_refuses(INTENT)


def nics_of(*addresses: str) -> list[dict[str, str]]:
    """One NIC a rail, with these addresses."""
    return [
        {"rail": f"rail{n}", "netdev": f"eth{n}", "rdma_device": f"mlx5_{n}", "ipv4": address}
        for n, address in enumerate(addresses)
    ]


@cases(
    "subnets, addresses, refused",
    (("10.10.0.0/24", "10.10.1.0/24"), ("10.10.0.1/24", "10.10.1.1/24"), []),
    (("10.10.0.0/24", "10.10.1.0/24"), ("10.10.0.1/31", "10.10.1.1/26"), []),
    (("10.10.0.0/24", "10.10.1.0/24"), ("10.10.0.1/16", "10.10.1.1/16"), ["eth0", "eth1"]),
    (("10.10.0.0/24", "10.10.1.0/24"), ("10.10.0.1/24", "10.10.1.1/16"), ["eth1"]),
    (("10.10.0.0/24", "10.12.0.0/24"), ("10.10.0.1/16", "10.12.0.1/16"), []),
    # All rails in one network, by the intent.
    (("10.10.0.0/16", "10.10.0.0/16"), ("10.10.0.1/16", "10.10.1.1/16"), []),
    (("10.10.0.0/16", "10.10.1.0/24"), ("10.10.0.1/16", "10.10.1.1/16"), []),
)
def test_a_prefix_that_holds_another_rails_nic_is_refused(subnets, addresses, refused):
    """Catches: two NICs of a node in one prefix that nobody meant, whose ARP goes by the other rail."""
    rails = [{"name": f"rail{n}", "subnet": subnet} for n, subnet in enumerate(subnets)]
    found = rules.nic_problems({"n1": nics_of(*addresses)}, {**INTENT, "rails": rails}, {})
    assert [problem.what.split()[1] for _, problem in found] == refused
    assert all("although their rails have subnets of their own" in problem.what for _, problem in found)


@cases(
    "path, value",
    ("roce.cnp.priority", 3),
    ("roce.cnp.dscp", 26),
    ("roce.cnp.traffic_class", 3),
    ("roce.cnp.queue", 3),
    ("roce.priority", 0),
    ("roce.dscp", 0),
    ("roce.dscp", 64),
    ("roce.cnp.priority", 8),
    ("roce.ecn.max_bytes", 1048576),
    ("roce.ecn.mark_percent", 101),
    ("roce.pfc.priorities", [3, 4]),
    ("roce.headroom.cable_m", 1000),
    ("roce.queue", None),
    ("mtu_bytes.host", 4191),
    ("mtu_bytes.host", 9001),
    ("mtu_bytes.rdma", 1000),
    ("ip_version", 6),
    ("rails", [{"name": "rail0", "subnet": "10.0.0.0/24"}] * 2),
    ("rails", [{"name": "rail0", "subnet": "10.0.0.1/24"}]),
)
def test_all_who_read_the_intent_refuse_the_same(path, value):
    """Catches a second validator: an intent that one takes and another refuses when it is applied."""
    fabric = changed(path, value)
    assert model_refuses(fabric)
    assert host.problems([], fabric)
    assert switch.refusals(fabric, "linux", PORTS, [], ["n1"])
    if path.startswith("roce."):  # the leaf gets no more than this
        assert leaf_refuses(fabric)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.text(max_size=3) | st.floats(allow_nan=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
PATHS = ["roce", "rails", "mtu_bytes", "ip_version"]
PATHS += [f"roce.{key}" for key in INTENT["roce"]] + [f"roce.cnp.{key}" for key in INTENT["roce"]["cnp"]]
PATHS += [f"roce.ecn.{key}" for key in INTENT["roce"]["ecn"]] + ["roce.pfc.priorities", "roce.pfc.enabled"]
PATHS += [f"mtu_bytes.{key}" for key in INTENT["mtu_bytes"]] + ["roce.headroom.cable_m"]


@pytest.mark.slow
@given(path=st.sampled_from(PATHS), value=PLAIN)
@settings(max_examples=300, deadline=None)
def test_no_value_of_a_hostile_inventory_is_a_traceback(path, value):
    """Catches a missing key or a wrong type that ends in KeyError or TypeError, and words that lack a fix."""
    fabric = changed(path, "x" if value is None else value)
    found = rules.intent_problems(fabric)
    list(rules.switch_problems(fabric, "os9", 2))
    assert all(problem.key[0] == "fabric" and problem.fix for problem in found)


@given(
    st.fixed_dictionaries({key: st.integers(0, 64) for key in ("dscp", "cnp.dscp")}),
    st.fixed_dictionaries({key: st.integers(0, 8) for key in ("priority", "cnp.priority", "queue")}),
)
@settings(max_examples=100, deadline=None)
def test_the_model_takes_what_the_rules_take(dscps, eights):
    """Catches bounds of the model's own fields that drift from those of the rules."""
    fabric = copy.deepcopy(INTENT)
    for key, value in {**dscps, **eights}.items():
        part = fabric["roce"]["cnp"] if key.startswith("cnp.") else fabric["roce"]
        part[key.removeprefix("cnp.")] = value
    assert model_refuses(fabric) == bool(rules.intent_problems(fabric))


def test_the_program_for_a_leaf_needs_no_package(tmp_path):
    """Catches a program that imports Shakedown on a switch, or that applies there what the rules refuse."""
    source = (ROOT / "roles/roce_switch/files/roce_leaf.py").read_text()
    request = {"roce": changed("roce.cnp.priority", 3)["roce"], "mtu_bytes": 9000, "ports": ["swp1"]}
    done = python(
        "-I", "-S", "-", "check", json.dumps(request), input=switch.leaf_program(source), cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert "fabric.roce.cnp.priority is 3" in json.loads(done.stdout)["refused"]


def test_a_port_without_any_queue_is_given_its_queues(monkeypatch):
    """Catches: a traceback on the switch for a port of which the kernel lists no root."""
    told: list[str] = []
    monkeypatch.setattr(leaf, "run", lambda *argv, stdin="": told.append(stdin) or "[]")
    monkeypatch.setattr(leaf, "wanted", lambda intent: {"swp1": {"queues": {}}})
    monkeypatch.setattr(leaf, "queue_lines", lambda port, queues, gbps, seat: [f"qdisc add {port} {seat}"])
    monkeypatch.setattr(leaf, "read", lambda ports: {})
    leaf.reseat({"ports": {"swp1": {}}, "link_speed_gbps": 100}, ["swp1"])
    assert told[-1] == "qdisc add swp1 root\n"


def test_rules_are_standard_library_only():
    """Catches an import that a switch cannot satisfy."""
    tree = ast.parse(Path(rules.__file__).read_text())
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def test_the_variables_that_planning_reads_are_known():
    """Catches a variable that planning reads and that the check of names takes for a misspelling."""
    source = (ROOT / "shakedown/intent/inventory_values.py").read_text()
    (read,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "READ"
    ]
    planned = {key for keys in read.values() for key in keys} - {"ansible_host"}
    assert planned == variables.INTENT


@cases(
    "nic, subnet, says",
    ({"netdev": "bond0", "rdma_device": "mlx5_bond_0"}, "10.0.0.0/24", "a RoCE LAG, which is not measured"),
    ({"rdma_device": "bnxt_re_bond0"}, "10.0.0.0/24", "bnxt_re_bond0 on ens1 is a RoCE LAG"),
    ({"ipv4": "fd00::1/64"}, "10.0.0.0/24", "ipv4 of ens1: rails of IPv6 alone are not measured"),
    ({}, "fd00::/64", "subnet of rail0: rails of IPv6 alone are not measured"),
)
def test_what_is_not_measured_is_refused_by_name(nic, subnet, says):
    """Catches: a LAG held to a floor that one dead port passes or a healthy queue pair misses; a rail of IPv6
    refused in the words of an address that is written wrongly."""
    fabric = copy.deepcopy(INTENT)
    fabric["rails"] = [{"name": "rail0", "subnet": subnet}]
    nics = [{"rail": "rail0", "netdev": "ens1", "rdma_device": "mlx5_0", "ipv4": "10.0.0.1/24", **nic}]
    found = rules.intent_problems(fabric) or [p for _, p in rules.nic_problems({"n1": nics}, fabric, {})]
    assert len(found) == 1 and says in found[0].what, found
