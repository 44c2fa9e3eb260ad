"""Versions beside the published ones: told for every node, judged for none."""

import json
import os
import shutil
from pathlib import Path

import pytest

from shakedown.benchmarks.config.versions import _told, of_programs, same
from shakedown.collect.run import collect
from shakedown.records.results import Component
from shakedown.run.folder import Run
from tests.kit.cases import cases
from tests.kit.job import ENDED
from tests.kit.site import fabric, plan_site, with_nics

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


def reading(folder: Path, switch: str, text: str) -> None:
    """The config stage's reading of one switch."""
    folder.mkdir(exist_ok=True)
    output = {"command": "cat /etc/sonic/sonic_version.yml", "stdout": text}
    one = {
        "schema": 1,
        "switch": switch,
        "nos": "enterprise_sonic",
        "when": "after",
        "taken": "2026-11-20T08:00:00Z",
        "classes": {"priority": 3, "traffic_class": 3, "queue": 3, "cnp_queue": 6},
        "cabling": [{"port": "Ethernet0", "host": "n1", "netdev": "eth2", "rail": "rail0"}],
        "outputs": {"version": output},
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
