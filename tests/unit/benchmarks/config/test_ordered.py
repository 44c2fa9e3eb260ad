"""Delivered against ordered: each item is a cell, and a folder that contradicts itself is refused."""

import copy
import json
from itertools import chain
from typing import Any

import pytest
import yaml

from shakedown.benchmarks.config.ordered import delivered
from shakedown.benchmarks.planning import site_of
from shakedown.collect.run import collect
from shakedown.discover.folder import _ordered
from shakedown.judge.verdict import judge
from shakedown.records.reading import BadInput
from shakedown.records.results import Part, Snapshot
from shakedown.run.folder import Run
from tests.kit.cases import cases
from tests.kit.run import write_run
from tests.kit.site import WHERE, document, hosts, plan_site

NODE = {
    "product": "PowerEdge XE9680",
    "cpu": "Intel(R) Xeon(R) Platinum 8468",
    "sockets": "2",
    "cores_per_socket": "48",
    "threads_per_core": "2",
    "memory_kib": "2113533440",
    "memory_modules": "32",
    "memory_module_mib": "65536",
    "memory_mts": "4800",
    "bios_version": "2.4.4",
    "bmc_firmware": "7.10",
    "os": "Ubuntu 22.04.3 LTS",
    "kernel": "5.15.0-105-generic",
}
GPU = {
    "name": "NVIDIA H100 80GB HBM3",
    "memory_mib": "81559",
    "vbios_version": "96.00.61.00.01",
    "driver_version": "550.54.15",
    "power_limit_w": "700.00",
    "nvlinks": "18",
    "pcie_generation": "5",
    "pcie_width": "16",
}
NIC = {
    "model": "MT2910 Family [ConnectX-7]",
    "pci_id": "15b3:1021",
    "driver": "mlx5_core",
    "driver_version": "24.01-0.3.3",
    "firmware": "28.39.1002",
    "speed_mbps": "400000",
    "mtu_bytes": "9000",
}
DRIVE = {"model": "SAMSUNG MZQL27T6HBLA 00A07", "firmware": "GDC5602Q", "size_bytes": "7681501126656"}
# As a person writes it from the purchase, with the words of the vendor's sheet.
BILL = {
    "nodes": ["n[1-2]"],
    "count": 2,
    "product": "XE9680",
    "cpu": {"model": "Xeon Platinum 8468", "sockets": 2, "cores": 48, "threads_per_core": 2},
    "memory": {"size": "2 TiB", "modules": 32, "module": "64 GiB", "speed_mts": 4800},
    "gpus": {
        "count": 8,
        "model": "H100-SXM",
        "memory": "80 GiB",
        "vbios": "96.00.61.00.01",
        "power_limit_w": 700,
        "nvlinks": 18,
        "pcie_generation": 5,
        "pcie_width": 16,
    },
    "nics": {
        "fabric": {"model": "ConnectX-7", "cards": 8, "ports": 1, "rate_gbps": 400, "firmware": "28.39.1002"}
    },
    "drives": {"data": {"model": "MZQL27T6HBLA", "count": 2, "size": "7.68 TB", "firmware": "GDC5602Q"}},
    "bios": "2.4.4",
    "bmc": "7.10",
    "os": "22.04.3",
    "kernel": "5.15.0-105",
    "drivers": {"nvidia": "550.54.15", "mlx5_core": "24.01-0.3.3"},
}


def parts(host: str, gpus: int = 8, nics: int = 8, drives: int = 2, **changes: dict[str, str]) -> list[Any]:
    """What one node is made of; `changes` by kind are of its first part."""
    own = [("node", host, NODE)]
    own += [("gpu", f"gpu{n}", GPU) for n in range(gpus)]
    own += [("nic", f"fab{n}", NIC | {"pci": f"0000:{n + 16:x}:00.0"}) for n in range(nics)]
    own += [("drive", f"nvme{n}", DRIVE) for n in range(drives)]
    own += [("software", "perftest", {"version": "6.24"})]
    found = []
    for kind, name, attributes in own:
        mine = attributes | changes.pop(kind, {})
        found.append({"host": host, "kind": kind, "name": name, "attributes": mine})
    return found


def bought(*, two: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """An inventory of two nodes that says what was bought; `two`: another class, of the second."""
    inventory = document()
    classes = {"gpu": copy.deepcopy(BILL) | changes} | ({"other": two} if two else {})
    for host in hosts(inventory):
        host["ordered"] = {"nodes": classes}
        host["acceptance"]["config"] = {"link_speed": False}
    return inventory


@pytest.fixture
def judged(tmp_path):
    """A judge of two nodes by what was bought: outcome and reason of each cell that is no PASS, by item."""

    def run(*of_nodes: list[Any], inventory: dict[str, Any] | None = None) -> dict[str, tuple[str, str]]:
        plan, jobs = plan_site(inventory or bought())
        write_run(tmp_path, plan, jobs)
        (tmp_path / "raw").mkdir(exist_ok=True)
        found = {"schema": 1, "run": "r1", "taken": "now", "components": [*chain(*of_nodes)]}
        (tmp_path / "inventory.json").write_text(
            Snapshot.model_validate(found).model_dump_json(by_alias=True)
        )
        collect(tmp_path)
        verdict = judge(plan, list(Run(tmp_path).measurements()), [])
        cells = [c for c in verdict.cells if c.cell.split("/")[1] in ("ordered", "inventory")]
        assert len([item for item in plan.items if item.test == "ordered"]) > 15
        return {c.cell: (c.outcome.value, c.reason) for c in cells if c.outcome.value != "PASS"}

    return run


def test_what_was_delivered_as_ordered_passes(judged):
    """Catches: good nodes blamed for a sheet's round figures, its short names or the kernel's own memory."""
    assert judged(parts("n1"), parts("n2")) == {}


@cases(
    "item, delivered_so, found",
    ("cpu.model", {"node": {"cpu": "Intel(R) Xeon(R) Platinum 8462Y+"}}, "8462Y+"),
    ("cpu.sockets", {"node": {"sockets": "1"}}, "found 1"),
    ("cpu.cores", {"node": {"cores_per_socket": "24"}}, "found 24"),
    ("cpu.threads_per_core", {"node": {"threads_per_core": "1"}}, "found 1"),
    ("memory.size", {"node": {"memory_kib": "2046424576"}}, "ordered 2 TiB, found 1951"),
    ("memory.modules", {"node": {"memory_modules": "31"}}, "found 31"),
    ("memory.module", {"node": {"memory_module_mib": "32768, 65536"}}, "found 32 GiB, 64 GiB"),
    ("memory.speed_mts", {"node": {"memory_mts": "4400"}}, "found 4400"),
    ("gpus.count", {"gpus": 7}, "found 7"),
    ("gpus.model", {"gpu": {"name": "NVIDIA A10"}}, "NVIDIA A10, NVIDIA H100"),
    ("gpus.memory", {"gpu": {"memory_mib": "24576"}}, "found 24 GiB"),
    ("gpus.vbios", {"gpu": {"vbios_version": "96.00.5E.00.01"}}, "96.00.5E.00.01"),
    ("gpus.power_limit_w", {"gpu": {"power_limit_w": "500.00"}}, "found 500.00"),
    ("gpus.nvlinks", {"gpu": {"nvlinks": "17"}}, "found 17"),
    ("gpus.pcie_generation", {"gpu": {"pcie_generation": "4"}}, "found 4"),
    ("gpus.pcie_width", {"gpu": {"pcie_width": "8"}}, "found 8"),
    ("nics.fabric.cards", {"nics": 7}, "found 7"),
    ("nics.fabric.rate_gbps", {"nic": {"speed_mbps": "200000"}}, "found 200"),
    ("nics.fabric.firmware", {"nic": {"firmware": "28.38.1900"}}, "28.38.1900"),
    ("drives.data.count", {"drives": 1}, "found 1"),
    ("drives.data.size", {"drive": {"size_bytes": "3840755982336"}}, "ordered 7.68 TB, found 3840.8 GB"),
    ("drives.data.firmware", {"drive": {"firmware": "GDC5302Q"}}, "GDC5302Q"),
    ("bios", {"node": {"bios_version": "2.3.0"}}, "found 2.3.0"),
    ("bmc", {"node": {"bmc_firmware": "6.0"}}, "found 6.0"),
    ("os", {"node": {"os": "Ubuntu 22.04.2 LTS"}}, "22.04.2"),
    ("kernel", {"node": {"kernel": "5.15.0-94-generic"}}, "5.15.0-94"),
    ("drivers.nvidia", {"gpu": {"driver_version": "535.129.03"}}, "535.129.03"),
    ("drivers.mlx5_core", {"nic": {"driver_version": "23.10-1.1.9"}}, "23.10-1.1.9"),
    ("product", {"node": {"product": "PowerEdge R760xa"}}, "R760xa"),
)
def test_each_item_that_differs_fails_by_name_on_its_node(judged, item, delivered_so, found):
    """Catches: a DIMM, a GPU, a link or a firmware less than was paid for, on all nodes or on one."""
    same = dict(copy.deepcopy(delivered_so))
    cells = judged(parts("n1", **copy.deepcopy(delivered_so)), parts("n2", **same))  # no like to tell by
    wrong = {cell: said for cell, said in cells.items() if f"what={item}" in cell}
    assert [cell.split("/")[3] for cell in wrong] == ["n1", "n2"]
    for outcome, reason in wrong.values():
        assert outcome == "FAIL" and found in reason and f"{item}: ordered" in reason


def test_what_no_tool_tells_is_not_run_never_passed(judged):
    """Catches: a node whose memory root alone may read, or without lspci, certified as ordered."""
    untold = {"memory_modules": "", "memory_module_mib": ""}
    cells = judged(parts("n1", node=untold), parts("n2"))
    not_run = {cell.partition("what=")[2]: reason for cell, (o, reason) in cells.items() if o == "NOT-RUN"}
    assert set(not_run) == {"memory.module", "memory.modules"}
    assert "tells no memory.modules of n1; ordered is 32" in not_run["memory.modules"]


def test_fewer_nodes_than_were_bought_fail(judged):
    """Catches: a node that was never delivered, and so stands in no inventory."""
    [(cell, (outcome, reason))] = judged(parts("n1"), parts("n2"), inventory=bought(count=3)).items()
    assert "what=count" in cell and outcome == "FAIL" and "ordered 3, found 2 (the inventory)" in reason


CPU_ONLY = {"nodes": ["n2"], "cpu": {"model": "EPYC 9374F", "sockets": 1}, "product": "XE9680"}


def test_a_healthy_site_of_two_classes_is_not_blamed(judged):
    """Catches: good nodes of one product held against another class of it, without majority or by it."""
    other = {"cpu": "AMD EPYC 9374F 32-Core Processor", "sockets": "1", "memory_kib": "395000000"}
    site = bought(two=CPU_ONLY, nodes=["n1"], count=1)
    assert judged(parts("n1"), parts("n2", 0, 2, 0, node=other), inventory=site) == {}


@cases(
    "changes, words",
    ({"gpus": {"count": 8, "model": "H100 SXM5"}}, "no tool names SXM5: write what nvidia-smi prints"),
    ({"cpu": {"model": "Xeon"}}, "ordered.nodes.gpu.cpu.model 'Xeon': no tool names a model without its"),
    ({"memory": {"size": "2048 GB"}}, "memory is counted in MiB or GiB or TiB: GB is another unit"),
    ({"drives": {"d": {"model": "X1", "count": 1, "size": "7 TiB"}}}, "a drive is counted in GB or TB: TiB"),
    ({"memory": {"size": "1 TiB", "modules": 32, "module": "64 GiB"}}, "32 modules of 64 GiB are not 1 TiB"),
    ({"two": {"nodes": ["n2"]}}, "ordered.nodes.other.nodes: n2 is of class gpu too"),
    ({"nodes": ["n1"]}, "ordered.nodes: n2 of the inventory is in no class"),
    ({"nodes": ["n[1-3]"]}, "ordered.nodes.gpu.nodes: 'n3' is not in the inventory"),
    ({"nodes": ["n[1-"]}, "ordered.nodes.gpu.nodes"),
    ({"cpu": {"socket": 2}}, "ordered.nodes.gpu.cpu: unknown key 'socket' -- use sockets"),
)
def test_a_bill_that_cannot_be_is_refused_in_one_line(changes, words):
    """Catches: an order that no node could ever meet, or that every node would."""
    with pytest.raises(BadInput) as refused:
        site_of(bought(**changes), WHERE)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_what_discover_writes_is_met_by_the_nodes_that_it_asked(judged):
    """Catches: a file from the majority that its own nodes fail, or that leaves out what they told."""
    made = {
        host: delivered([Part(**{k: v for k, v in part.items() if k != "host"}) for part in parts(host)])
        for host in ("n1", "n2")
    }
    made["n2"] = dict(made["n2"], **{"gpus.count": "7"})  # the majority is the truth, the odd one a finding
    made["n3"] = made["n1"]
    told = yaml.safe_load("\n".join(_ordered(made)))["ordered"]
    inventory = document(3)
    for host in hosts(inventory):
        host["ordered"] = json.loads(json.dumps(told))
    cells = judged(parts("n1"), parts("n2", 7), parts("n3"), inventory=inventory)
    assert [(cell.partition("what=")[2], outcome) for cell, (outcome, _) in cells.items()] == [
        ("gpus.count", "FAIL")
    ]
