"""What there is beside what is due: delivered against ordered, and versions beside the published ones."""

import copy
import json
import os
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from shakedown.benchmarks.config.ordered import _found, _unread, delivered
from shakedown.benchmarks.config.versions import _told, of_programs, same
from shakedown.benchmarks.planning import site_of
from shakedown.collect.run import collect
from shakedown.discover.folder import _ordered
from shakedown.judge.verdict import judge
from shakedown.records.reading import BadInput
from shakedown.records.results import Component, Part, Snapshot
from shakedown.run.folder import Run
from tests.kit.cases import cases
from tests.kit.job import ENDED
from tests.kit.run import write_run
from tests.kit.site import WHERE, document, fabric, hosts, plan_site, with_nics

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


FIRMWARE = {"n1": "28.39.1002 (MT_0000000838)", "n2": "28.40.1000"}


# What torch.__version__ is in NVIDIA's container of March 2024, and outside of any; None: the job never ran.
TORCH = {"n1": "2.3.0a0+40ec155e58.nv24.03", "n2": "2.5.1+cu121"}
SWITCH_TEXTS = {
    "leaf0": "build_version: '4.3.0-Enterprise_Standard'\nrelease: 'none'\n",
    "leaf1": "---\nbuild_version: SONiC.4.1.1-Enterprise_Base\n",
    "leaf2": "cat: /etc/sonic/sonic_version.yml: No such file",
}


def told_by_programs(folder: Path) -> None:
    """What the look at the site's software found on both nodes."""
    folder.mkdir(parents=True)
    job = {"run": "r1", "stage": "config", "test": "config.software", "job": "1"}
    (folder / "job.json").write_text(json.dumps({**job, **ENDED}))
    for node, version in TORCH.items():
        torch = {"version": version, "cuda": "12.4", "nccl": "2.20.5", "program": "/opt/python3"}
        library = "/usr/lib/libnccl.so.2.21.5" if node == "n1" else "libnccl.so.2"
        for name, found in (("pytorch", torch), ("nccl_tests", {"version": "not told", "libnccl": library})):
            (folder / f"software.{node}.{name}.json").write_text(json.dumps({"found": found}))


def reading(folder: Path, switch: str, text: str, nos: str = "enterprise_sonic", platform: str = "") -> None:
    """The config stage's reading of one switch."""
    folder.mkdir(exist_ok=True)
    output = {"command": "cat /etc/sonic/sonic_version.yml", "stdout": text}
    one = {
        "schema": 1,
        "switch": switch,
        "nos": nos,
        "when": "after",
        "taken": "2026-11-20T08:00:00Z",
        "classes": {"priority": 3, "traffic_class": 3, "queue": 3, "cnp_queue": 6},
        "cabling": [{"port": "Ethernet0", "host": "n1", "netdev": "eth2", "rail": "rail0"}],
        "outputs": {"version": output, "platform": {"command": "show platform", "stdout": platform}},
    }
    (folder / f"{switch}.after.json").write_text(json.dumps(one))


def planned(**more: object):
    """Plan and jobs of two nodes of Tolly's kind."""
    site = with_nics(fabric(profile="tolly_xe9680_z9664f"), list(FIRMWARE), **more)
    return plan_site(site, ["tolly_xe9680_z9664f"])


@pytest.mark.parametrize("how", ["without a version", "not in the snapshot"])
def test_one_nic_without_a_version_is_not_passed_over(how, tmp_path):
    """Catches: firmware said to be the published one where one NIC of several told none."""
    nics = {"eth2": "28.39.1002", "eth3": ""}
    parts = [
        {"host": "n1", "kind": "nic", "name": name, "attributes": {"firmware": version}}
        for name, version in nics.items()
        if version or how == "without a version"
    ]
    parts = [Component.model_validate(part) for part in parts]
    versions, unread = _told(tmp_path, "nic_firmware", "n1", parts, set(nics))
    assert (versions, unread) == (["28.39.1002"], "the snapshot has no firmware of eth3 of n1")
    assert _told(tmp_path, "nic_firmware", "n1", parts, {"eth2"})[1] == (unread if len(parts) > 1 else "")


@pytest.fixture
def told(tmp_path):
    """What a run of two nodes tells of Tolly's versions: (value, detail) by node and what."""
    software = {"pytorch": {"from": {"path": "/opt/python3"}}, "nccl_tests": {"from": "package"}}
    switches = [{"name": name, "nos": "enterprise_sonic", "ports": []} for name in SWITCH_TEXTS]
    plan, jobs = planned(software=software, switches=switches)
    parts = []
    for host, firmware in FIRMWARE.items():
        for name, version in (("eth2", firmware), ("storage0", "1.2.3")):
            attributes = {"firmware": version, "driver_version": "24.01-0.3.3"}
            parts.append({"host": host, "kind": "nic", "name": name, "attributes": attributes})
        parts.append({"host": host, "kind": "node", "name": host, "attributes": {"os": "Ubuntu 22.04.3 LTS"}})
    snapshot = {"schema": 1, "run": "r1", "taken": "now", "components": parts}
    (tmp_path / "raw").mkdir()
    (tmp_path / "plan.json").write_text(plan.model_dump_json(by_alias=True))
    (tmp_path / "jobs.json").write_text(jobs.model_dump_json(by_alias=True))
    (tmp_path / "inventory.json").write_text(json.dumps(snapshot))
    told_by_programs(tmp_path / "raw/config.software.a1")
    for leaf, text in SWITCH_TEXTS.items():
        reading(tmp_path / "raw/switches.config", leaf, text)
    collect(tmp_path)
    found = {
        (m.nodes[0], m.params["what"]): (m.value, m.detail or (m.problem.message if m.problem else ""))
        for m in Run(tmp_path).measurements()
        if m.test == "versions"
    }
    return plan, found


def test_each_version_is_told_of_each_node(told):
    """Catches: a firmware that differs from the published one and is mentioned nowhere; a storage NIC's taken
    for the fabric's."""
    plan, found = told
    assert found["n1", "nic_firmware"] == (0, "published 28.39.1002, found 28.39.1002 (MT_0000000838)")
    assert found["n2", "nic_firmware"] == (1, "published 28.39.1002, found 28.40.1000")
    assert found["n1", "ofed"][0] == found["n2", "os"][0] == 0
    value, why = found["n1", "gpu_driver"]
    assert value is None and "no driver_version of a gpu" in why
    items = {item.params["what"]: item for item in plan.items if item.test == "versions"}
    assert not any(item.required for item in items.values())


def test_what_nothing_reads_is_said(told):
    """Catches: NCCL's or SONiC's version left out in silence, as if it had matched."""
    items = {item.params["what"]: item for item in told[0].items if item.test == "versions"}
    assert {what for what, item in items.items() if item.not_run} == {"trainer"}
    assert "published is NeMo" in items["trainer"].not_run


def test_programs_tell_nccl_cuda_and_the_container(told):
    """Catches: NCCL of PyTorch taken for what nccl-tests ran with, a container's name lost in a version."""
    _, found = told
    assert found["n1", "pytorch"] == (0, "published NGC 24.03, found NGC 24.03 (2.3.0a0+40ec155e58.nv24.03)")
    assert found["n2", "pytorch"] == (1, "published NGC 24.03, found 2.5.1+cu121")
    assert found["n1", "cuda"] == (0, "published 12.4, found 12.4")
    assert found["n1", "nccl"] == (1, "published 2.21.5, found 2.21.5, 2.20.5")
    assert found["n2", "nccl"] == (1, "published 2.21.5, found 2.20.5")


def test_the_last_attempt_tells_whatever_the_times_of_folders_are(tmp_path):
    """Catches: a copy of a run that tells other versions, for its folders have other times; a folder laid in
    that was no job of the run, or lies elsewhere."""
    raw = tmp_path / "raw"
    for attempt in (10, 9):  # the older one is written last
        told_by_programs(raw / f"config.software.a{attempt}")
    file = raw / "config.software.a10/software.n2.pytorch.json"
    file.write_text(file.read_text().replace("2.5.1+cu121", "2.6.0"))
    os.utime(raw / "config.software.a10", (0, 0))
    shutil.copytree(raw / "config.software.a9", raw / "config.software.a11")
    (raw / "config.software.a11/job.json").unlink()
    (raw / "config.software.a12").symlink_to(raw / "config.software.a9")
    assert of_programs(tmp_path, "n2", "pytorch") == ["2.6.0"]


def test_switches_tell_their_system(told):
    """Catches: SONiC's version left out, read of one switch alone, or said to match where none was read."""
    _, found = told
    assert found["leaf0", "switch_os"] == (
        0,
        "published Enterprise SONiC 4.3.0, found 4.3.0-Enterprise_Standard",
    )
    assert found["leaf1", "switch_os"][0] == 1
    value, why = found["leaf2", "switch_os"]
    assert value is None and "leaf2 does not say its system's version" in why


def test_what_no_program_could_tell_is_said_in_the_plan():
    """Catches: a version that is not read because the site names no program, and no word of which."""
    plan, _ = planned()
    items = {item.params["what"]: item for item in plan.items if item.test == "versions"}
    assert "software.nccl_tests or software.pytorch is not given" in items["nccl"].not_run
    assert "nothing that says its version is read" in items["switch_os"].not_run


@cases(
    "published, found, cut, alike",
    ("MLNX_OFED 24.01-0.3.3.1", "24.01-0.3.3", True, True),
    ("MLNX_OFED 24.01-0.3.3.1", "24.04-0.6.6", True, False),
    ("MLNX_OFED 24.01-0.3.3.1", "6.8.0", True, False),
    ("550.54.15", "550.54", False, False),
    ("550.54.15", "550.54.15", False, True),
    ("28.39.1002", "28.39.100", False, False),
    ("NeMo", "NeMo", False, True),
)
def test_versions_are_compared_by_their_parts(published, found, cut, alike):
    """Catches: text compared letter by letter, so that 28.39.100 begins 28.39.1002."""
    assert same(published, found, cut=cut) is alike


# What systems print of themselves: by `show version`, and where that has no model, of their platform.
OS10 = "OS Version: 10.5.5.3\nBuild Version: 10.5.5.3.86\nSystem Type: Z9432F-ON\n"
OS9 = "Dell Application Software Version:  9.14(2.4)\nSystem Type: Z9100-ON\n"
NXOS = '{"nxos_ver_str": "10.3(4a)", "chassis_id": "Nexus9000 C9364D-GX2A Chassis"}'
SONIC = "Platform: x86_64-dellemc_z9664f_c3000-r0\nHwSKU: DellEMC-Z9664f-O64\n"
OF_SYSTEMS = (
    ("eos", '{"modelName": "DCS-7060DX5-64S-F", "version": "4.31.2F"}', "", "DCS-7060DX5-64S", "4.31.2F"),
    ("nxos", NXOS, "", "C9364D-GX2A", "10.3(4a)"),
    ("os10", OS10, "", "Z9432F-ON", "10.5.5.3"),
    ("os9", OS9, "", "Z9100-ON", "9.14(2.4)"),
    ("cumulus", "VERSION_ID=5.9.1\n", '{"product-name": "SN5600"}', "MSN5600", "5.9.1"),
    ("enterprise_sonic", "build_version: '4.3.0-Enterprise'\n", SONIC, "Z9664F-ON", "4.3.0-Enterprise"),
)


@pytest.mark.parametrize(("nos", "version", "platform", "model", "system"), OF_SYSTEMS)
@pytest.mark.parametrize(("what", "wanted"), [("", ""), ("model", "Z9332F-ON"), ("system", "1.2.3")])
def test_a_switch_of_each_system_is_the_one_that_was_ordered(
    tmp_path, nos, version, platform, model, system, what, wanted
):
    """Catches: another switch than was paid for, or another system on it, which nobody read."""
    (tmp_path / "raw").mkdir()
    reading(tmp_path / "raw/switches.config", "leaf0", version, nos, platform)
    for item, ordered in ({"model": model, "system": system} | ({what: wanted} if what else {})).items():
        told, who, fits = _found(item, "leaf0", (), {}, tmp_path)
        assert who == "its reading" and [fits(ordered, one) for one in told] == [item != what], (
            told,
            ordered,
        )
    assert not _unread("model", {nos}) and not _unread("system", {nos})
