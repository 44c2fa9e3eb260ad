"""Versions beside the published ones: told for every node, judged for none."""

from __future__ import annotations

import json

import pytest
from settings_site import FABRIC

from shakedown.benchmarks.config.versions import same
from shakedown.benchmarks.planning import make_plan
from shakedown.benchmarks.registry import Acceptance
from shakedown.collect.run import collect
from shakedown.intent.site import Site
from shakedown.references.catalogue import Catalogue
from shakedown.references.files import load_profile
from shakedown.run.folder import Run

FIRMWARE = {"n1": "28.39.1002 (MT_0000000838)", "n2": "28.40.1000"}


@pytest.fixture
def told(tmp_path):
    """What a run of two nodes tells of Tolly's versions: (value, detail) by node and what."""
    site = Site.model_validate(
        {
            "fabric": {**FABRIC, "profile": "tolly_xe9680_z9664f"},
            "acceptance": Acceptance.model_validate({"config": {}, "counter_tests": False}),
            "nics": {
                n: [{"rail": "rail0", "rdma_device": "mlx5_0", "netdev": "eth2", "ipv4": f"10.0.0.{i}"}]
                for i, n in enumerate(FIRMWARE, start=1)
            },
            "addresses": dict.fromkeys(FIRMWARE, "192.0.2.1"),
        }
    )
    catalogue = Catalogue([load_profile("tolly_xe9680_z9664f")])
    plan, jobs = make_plan(site, catalogue, run="r1", created="2026-11-20T00:00:00Z")
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
    assert {what for what, item in items.items() if item.not_run} == {
        "cuda",
        "nccl",
        "pytorch",
        "trainer",
        "switch_os",
    }
    assert "published is 2.21.5" in items["nccl"].not_run


@pytest.mark.parametrize(
    ("published", "found", "cut", "alike"),
    [
        ("MLNX_OFED 24.01-0.3.3.1", "24.01-0.3.3", True, True),
        ("MLNX_OFED 24.01-0.3.3.1", "24.04-0.6.6", True, False),
        ("MLNX_OFED 24.01-0.3.3.1", "6.8.0", True, False),
        ("550.54.15", "550.54", False, False),
        ("550.54.15", "550.54.15", False, True),
        ("28.39.1002", "28.39.100", False, False),
        ("NeMo", "NeMo", False, True),
    ],
)
def test_versions_are_compared_by_their_parts(published, found, cut, alike):
    """Catches: text compared letter by letter, so that 28.39.100 begins 28.39.1002."""
    assert same(published, found, cut=cut) is alike
