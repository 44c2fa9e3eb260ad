"""Profiles that no shipped inventory names: a site that has such nodes is held to every row of them.

Each row gets the smallest site that it is about. What no site can be held to says so in its profile, and the
test of that is test_systems.py's.
"""

from typing import Any

import pytest

from shakedown.benchmarks.registry import Acceptance
from shakedown.intent.site import Site
from shakedown.judge.verdict import judge
from shakedown.records.base import Better
from shakedown.records.plan import Plan
from shakedown.references.catalogue import ReferenceEntry
from shakedown.references.files import load_profile
from tests.kit import records
from tests.kit.site import fabric, nic, plan_site

GIB = 1 << 30
# Rows that no plan can have, whatever a site names: what its profile says of them, in part.
NEVER = {"mlperf-lora-8xh100-samples": "FP8", "mlperf-lora-8xh200-samples": "FP8"}
NEVER |= {"mlperf-lora-8xh100-duration": "FP8", "mlperf-lora-8xh200-duration": "FP8"}
NEVER |= {"mlperf-lora-power": "no plan measures"}
ROWS = [e for name in ("published_gpu_nodes", "mlperf_llama2_70b_lora") for e in load_profile(name).entries]


def acceptance(entry: ReferenceEntry) -> dict[str, Any]:
    """What a site must ask for to have this row's cell."""
    scope = entry.scope
    if entry.test.startswith("nccl_"):
        sweep = {"operations": [entry.test.removeprefix("nccl_")], "min_bytes": GIB, "max_bytes": GIB}
        expect = {"nvls": scope.get("algorithm") == "nvls"}
        return {"nccl": {"launchers": ["srun"], "sweeps": [sweep], "expect": expect, "run_timeout_s": 60}}
    if entry.test == "ib_write_bw":
        return {"perftest": [{"test": "ib_write_bw", "size_bytes": 65536, "duration_s": 10}]}
    if entry.test == "resnet50_server":
        return {"inference": {"gpus": [scope["gpus"]]}}
    if entry.test == "lora":
        tokens, rank = scope["sequence_tokens"], scope["lora_rank"]
        job = {"model": f"/models/{scope['model']}", "data": "/data/gov_report.jsonl", "gpus_per_node": 8}
        more = {"sequence_tokens": tokens, "lora_rank": rank, "metrics": [entry.metric]}
        return {"lora": [{**job, **more}]}
    return {"gpu_node": {"nvbandwidth": [entry.test]}}


def planned(entry: ReferenceEntry) -> Plan:
    """The plan of the smallest site that the row is about."""
    scope = entry.scope
    ranks = scope.get("gpus", 8)
    assert isinstance(ranks, int)
    wide = "nics" in scope or entry.test == "ib_write_bw" or scope.get("nodes", 1) != 1
    count = (ranks // 8 if ranks > 8 else 2) if wide else 1
    nodes = [f"n{i}" for i in range(1, count + 1)]
    speed, rails = scope.get("nic_speed_gbps", 400), range(int(scope.get("nics", 1)) if wide else 0)  # type: ignore[arg-type]
    about = {"system": scope.get("system", "site"), "profile": "published_gpu_nodes"}
    mtus = {"link": 9216, "host": 9000, "rdma": scope.get("rdma_mtu_bytes", 4096)}
    intent = about | {"no_fabric": True}
    if wide:
        intent = fabric(len(rails), **about, link_speed_gbps=speed, mtu_bytes=mtus)
    own = {key: scope[key] for key in ("gpu", "interconnect") if key in scope}
    asked = {"scope": own, "counter_tests": False, **acceptance(entry)}
    software = {name: {"from": {"path": "/opt/python3"}} for name in ("pytorch", "loadgen")}
    site = Site.model_validate(
        {
            "fabric": intent,
            "acceptance": Acceptance.model_validate(asked),
            "nics": {
                node: [nic(r, f"eth{r}", f"mlx5_{r}", f"10.{r}.0.{i}") for r in rails]
                for i, node in enumerate(nodes, start=1)
            },
            "addresses": {node: f"192.0.2.{i}" for i, node in enumerate(nodes, start=1)},
            "gpus": dict.fromkeys(nodes, 8),
            "software": software,
        }
    )
    profiles = ["published_gpu_nodes", "mlperf_llama2_70b_lora", "primergy_cdi"]
    return plan_site(site, profiles)[0]


def verdict(plan: Plan, row: str, value: float):
    """The outcome with every cell at its reference, but the first of one row at a value."""
    results, hit = [], []
    for item in plan.items:
        for cell, nodes, rail, direction in item.cells() if not item.not_run else ():
            mine = item.reference == row and not hit
            hit += [cell] if mine else []
            results.append(
                records.measured(
                    item,
                    nodes,
                    value if mine else plan.references[item.reference].value,
                    run=plan.run,
                    rail=rail,
                    direction=direction,
                    job="1",
                )
            )
    found = judge(plan, results, [])
    assert hit
    return found, hit[0]


@pytest.mark.parametrize("entry", [e for e in ROWS if e.id not in NEVER], ids=lambda entry: entry.id)
def test_a_site_with_such_nodes_is_held_to_the_row(entry):
    """Catches: a row that asks for a fact which no plan knows, so that the site that names its profile is
    held to nothing; a row in whose place another decides."""
    plan = planned(entry)
    mine = [item for item in plan.items if item.reference == entry.id]
    assert mine and all(item.required and not item.not_run for item in mine)
    reference = entry.reference()
    # What the row is not about, such as rails without a perftest, need not have been measured.
    found, cell = verdict(plan, entry.id, reference.value)
    assert not [one.cell for one in found.cells if one.outcome == "FAIL" or one.cell == cell]
    away = max(0.05, abs(reference.gate / reference.value - 1) + 0.001)
    worse = reference.value * (1 - away if entry.better is Better.HIGHER else 1 + away)
    found, cell = verdict(plan, entry.id, worse)
    assert found.outcome == "FAIL"
    assert [one.cell for one in found.cells if one.outcome == "FAIL"] == [cell]
    assert "n1" in found.reason


@pytest.mark.parametrize("row", NEVER)
def test_a_row_that_no_site_can_have_says_so(row):
    """Catches: a site told to name a profile whose rows its plan can never match."""
    (outside,) = [one for one in load_profile("mlperf_llama2_70b_lora").outside_plan if one.lists(row)]
    assert NEVER[row] in outside.why
