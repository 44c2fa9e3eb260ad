"""What failed is measured again: its nodes, rails and stages, with partners that were good."""

from __future__ import annotations

import random

import pytest

from shakedown.benchmarks.planning import make_plan, site_of
from shakedown.daytwo.rerun import failed_part
from shakedown.judge.judged import judge_run
from shakedown.records.base import Stage
from shakedown.records.errors import BadInput
from shakedown.references.files import load_catalogue
from shakedown.run.folder import Run, write_aside, write_plan
from tests.unit.plan.test_planner import WHERE, document
from tests.unit.plan.test_scope import measured


def site(nodes: int = 6):
    """Return a site of the lab's kind whose leaf is cabled."""
    inventory = document(nodes)
    hostvars = inventory["_meta"]["hostvars"]
    cabling = [
        {"port": nic["leaf_port"], "host": name, "netdev": nic["netdev"], "rail": nic["rail"]}
        for name in inventory["compute"]["hosts"]
        for nic in hostvars[name]["fabric_nics"]
    ]
    inventory["switches"] = {"hosts": ["leaf0"]}
    hostvars["leaf0"] = {"roce_switch_nos": "linux", "leaf_ports": cabling}
    return site_of(inventory, WHERE)


def run_with(tmp_path, bad) -> Run:
    """Write a run of the site. `bad` gives the factor of a value, or nothing for one that is missing."""
    catalogue = load_catalogue(["lab"])
    plan, _ = make_plan(site(), catalogue, run="r1", created="2026-01-01T00:00:00Z")
    folder = tmp_path / "r1"
    folder.mkdir()
    write_plan(folder, plan)
    noise = random.Random(7)
    lines = []
    for m in measured(plan):
        factor = bad(m)
        if factor is None:
            continue
        value = m.value * (noise.uniform(998, 1002) if m.metric == "bandwidth" else 1) * factor
        lines.append(m.model_copy(update={"value": value, "samples": (value,) * len(m.samples)}))
    text = "".join(m.model_dump_json(by_alias=True) + "\n" for m in lines)
    write_aside(folder / "results.jsonl", text.encode())
    return Run(folder)


def part_of_run(tmp_path, bad):
    """Return the part that is to be measured again."""
    return failed_part(site(), judge_run(run_with(tmp_path, bad)))


def test_a_slow_nic_is_measured_again_with_two_good_nodes(tmp_path):
    """Catches: a rerun of all partners of the slow node, of all rails or of all stages."""

    def slow(m):
        return 0.0005 if m.metric == "bandwidth" and m.rail == "rail1" and "n4" in m.nodes else 1

    wanted = part_of_run(tmp_path, slow)
    assert (wanted.nodes, wanted.rails, wanted.stages) == (("n4",), ("rail1",), (Stage.FABRIC,))
    plan, _ = make_plan(
        site(), load_catalogue(["lab"]), run="r2", created="2026-01-02T00:00:00Z", wanted=wanted
    )
    assert plan.scope.partners == ("n1", "n2")
    assert plan.scope.words == "1 of 6 nodes, 1 of 2 rails, fabric only: not an acceptance of the site"


def test_both_ends_of_a_pair_that_names_none(tmp_path):
    """Catches: a pair of which one end alone is measured again, without evidence which."""
    wanted = part_of_run(
        tmp_path, lambda m: 0.0005 if m.metric == "bandwidth" and m.nodes == ("n2", "n5") else 1
    )
    assert wanted.nodes == ("n2", "n5")


def test_what_was_not_run_is_measured_again(tmp_path):
    """Catches: a rerun that takes what is missing for what passed."""
    wanted = part_of_run(tmp_path, lambda m: None if m.metric == "bandwidth" and "n3" in m.nodes else 1)
    assert "n3" in wanted.nodes


def test_a_switch_port_is_its_hosts(tmp_path):
    """Catches: a dirty port of a leaf that is planned again for no node, or for all."""
    port = next(p for s in site().switches for p, host, *_ in s.ports if host == "n6")

    def dropping(m):
        return None if m.nodes == ("leaf0",) and m.params.get("port") == port else 1

    assert part_of_run(tmp_path, dropping).nodes == ("n6",)


def test_a_run_that_passed_has_nothing_to_measure_again(tmp_path):
    """Catches: a rerun of everything after a PASS."""
    with pytest.raises(BadInput, match="every required cell passed"):
        part_of_run(tmp_path, lambda _: 1)


def test_a_run_of_another_site_is_refused(tmp_path):
    """Catches: nodes of the run that are silently left out because the site does not know them."""
    judged = judge_run(run_with(tmp_path, lambda m: None if "n6" in m.nodes else 1))
    with pytest.raises(BadInput, match="n6 of the run is not in the site"):
        failed_part(site(3), judged)
