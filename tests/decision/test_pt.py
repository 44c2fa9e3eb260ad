"""The published comparison of 100GbE with RoCE and 10GbE: every figure decides by itself.

Ratios of A against B are judged by `shakedown sweeps` (tests/unit/daytwo/test_sweep_claims.py).
"""

import functools

import pytest
from test_systems import plan_and_jobs, planned, published, shipped, verdict_on

from shakedown.benchmarks.nccl.benchmark import NO_BMC
from shakedown.records.base import Better
from shakedown.records.plan import Plan
from shakedown.references.files import load_profile
from tests.kit.refusal import refused
from tests.kit.site import plan_site

PT = "pt_r7615_bcm57508"
# What a run alone decides.
FIGURES = [entry for entry in load_profile(PT).entries if entry.gates and not entry.id.startswith("pt-ab-")]


@functools.cache
def with_bmcs() -> Plan:
    """The plan of a site that has access to its BMCs."""
    site = shipped(PT)
    nccl = site.acceptance.nccl
    asked = nccl.model_copy(update={"server_power": nccl.server_power.model_copy(update={"bmc": True})})
    acceptance = site.acceptance.model_copy(update={"nccl": asked})
    site = site.model_copy(update={"acceptance": acceptance})
    return plan_site(site, [PT], run=PT)[0]


@pytest.mark.parametrize("entry", FIGURES, ids=lambda entry: entry.id)
def test_one_figure_worse_by_5_percent_fails_by_its_name(entry, tmp_path, capsys, monkeypatch):
    """Catches: a gate that lets 5 % pass, a figure that nothing is held to, A judged by a figure of B.

    A figure that is computed and not published has a spread of its own, which its gate states.
    """
    plan = with_bmcs()
    results, counters = published(plan)
    reference = entry.reference()
    sign = -1 if entry.better is Better.HIGHER else 1
    worse = reference.value * (1 + sign * 0.05)
    if entry.kind == "physical":
        worse = min(worse, 0.999 * reference.gate)
    mine = {cell for item in plan.items if item.reference == entry.id for cell, *_ in item.cells()}
    assert mine, "the plan has no such cell"
    for line in results:
        params = ",".join(f"{k}={line['params'][k]}" for k in sorted(line["params"])) or "-"
        where = [line["stage"], line["test"], line["metric"], ",".join(line["nodes"])]
        if "/".join([*where, line["rail"] or "-", line["direction"] or "-", params]) in mine:
            line["value"] = worse
    verdict, status = verdict_on(tmp_path / "run", plan, results, counters, capsys, monkeypatch)
    assert (verdict.outcome, status) == ("FAIL", 1)
    assert {cell.cell for cell in verdict.cells if cell.outcome == "FAIL"} == mine
    first = verdict.reason.partition(";")[0]
    assert (" over network B " in first) is ("-b-" in entry.id)
    size = entry.id.rpartition("-")[2]
    assert f" with {size} messages " in first or entry.metric != "server_power"


def test_the_published_figures_pass_with_bmcs_too(tmp_path, capsys, monkeypatch):
    """Catches: server power that is asked for and measured, and that no verdict counts."""
    plan = with_bmcs()
    verdict, status = verdict_on(tmp_path / "run", plan, *published(plan), capsys, monkeypatch)
    assert (verdict.outcome, status) == ("PASS", 0), verdict.reason
    results, counters = published(plan)
    without = [line for line in results if line["metric"] != "server_power"]
    assert len(results) - len(without) == 18
    verdict, status = verdict_on(tmp_path / "none", plan, without, counters, capsys, monkeypatch)
    assert (verdict.outcome, status) == ("NOT-RUN", 3)


def test_without_bmcs_power_is_not_run_and_says_why():
    """Catches: power that a site without BMCs must have, or that is missing from its plan without a word."""
    items = [item for item in planned(PT).items if item.metric == "server_power"]
    assert len(items) == 18 == len({item.reference for item in items})
    assert not any(item.required for item in items)
    assert {item.not_run for item in items} == {NO_BMC}
    assert not [job for job in plan_and_jobs(PT)[1].jobs if "power" in job.name]


def test_every_row_is_planned_or_judged_by_sweeps():
    """Catches: a row of the profile that nothing is ever held to."""
    used = {item.reference for item in planned(PT).items}
    unused = {entry.id for entry in load_profile(PT).entries} - used
    assert unused == {entry.id for entry in load_profile(PT).entries if entry.id.startswith("pt-ab-")}


def test_a_cluster_at_7_8_gbps_fails(tmp_path, capsys, monkeypatch):
    """Catches: large messages without an absolute gate; 7.8 Gb/s is less than 10GbE has."""
    plan = planned(PT)
    results, counters = published(plan)
    for line in results:
        if line["metric"] == "busbw" and line["params"]["network"] == "roce":
            line["value"] = 7.8 / 8
    verdict, status = verdict_on(tmp_path / "run", plan, results, counters, capsys, monkeypatch)
    assert (verdict.outcome, status) == ("FAIL", 1)
    failed = {cell.cell for cell in verdict.cells if cell.outcome == "FAIL"}
    assert len(failed) == 3 and all("network=roce,size_bytes=268435456" in cell for cell in failed)


@pytest.mark.parametrize(
    ("samples", "outcome", "says"),
    [
        ([400.0], "FAIL", "is impossible: 400.0 GB/s is above the ceiling"),
        ([0.0], "FAIL", "is impossible: 0 GB/s where 1048576 bytes were moved"),
        ([2.0, 2.0, 2.1], "FAIL", "20% of what both smaller and larger messages"),
        ([2.0], "INCONCLUSIVE", "a hole or a hiccup of the host: measure it again"),
    ],
)
def test_sizes_that_are_only_shown_are_held_to_what_can_be(
    samples, outcome, says, tmp_path, capsys, monkeypatch
):
    """Catches: 400 GB/s over one 100GbE NIC, 0 GB/s, or a hole at a size that no table prints: all PASSed.

    And a healthy network that FAILs for one hiccup of a host.
    """
    plan = planned(PT)
    results, counters = published(plan)
    for line in results:
        params = line["params"]
        if line["metric"] == "busbw" and params["network"] == "roce" and params["size_bytes"] < 1 << 28:
            line["value"] = 10.0
            if line["test"] == "nccl_all_reduce" and params["size_bytes"] == 1 << 20:
                line.update({"value": samples[0], "samples": samples})
    verdict, status = verdict_on(tmp_path / "run", plan, results, counters, capsys, monkeypatch)
    assert (verdict.outcome, status) == (outcome, {"FAIL": 1, "INCONCLUSIVE": 3}[outcome])
    (failed,) = (cell.cell for cell in verdict.cells if cell.rule in {"hole", "impossible"})
    assert "nccl_all_reduce/busbw" in failed and "size_bytes=1048576" in failed
    assert says in verdict.reason


def test_a_hole_beside_another_program_accuses_nothing(tmp_path, capsys, monkeypatch):
    """Catches: good hardware blamed for a size that was measured while something else ran."""
    plan = planned(PT)
    results, counters = published(plan)
    for line in results:
        if line["metric"] == "busbw" and line["params"]["network"] == "roce":
            low = line["params"]["size_bytes"] == 1 << 20
            line.update({"disturbed": "another program was on GPU 0"} if low else {})
            line["value"] = 2.0 if low else 10.0
    verdict, status = verdict_on(tmp_path / "run", plan, results, counters, capsys, monkeypatch)
    assert (verdict.outcome, status) == ("PASS", 0)


def test_a_time_of_nothing_is_no_result(tmp_path, capsys, monkeypatch):
    """Catches: 0 us for 4 B, which is better than any gate."""
    plan = planned(PT)
    results, counters = published(plan)
    line = next(line for line in results if line["metric"] == "time")
    line["value"] = 0.0
    verdict, status = verdict_on(tmp_path / "run", plan, results, counters, capsys, monkeypatch)
    assert (verdict.outcome, status) == ("FAIL", 1)
    assert "0 us where 4 bytes were moved" in verdict.reason


def test_b_is_a_network_of_its_own():
    """Catches: B planned as A with other variables, over another interface, or held to A's figures."""
    plan, jobs = plan_and_jobs(PT)
    over = {job.name: job for job in jobs.jobs if job.kind == "nccl"}
    networks = [job.settings["network"] for job in over.values()]
    assert networks == ["", "", "B", "B"]
    for job in over.values():
        variables = job.settings["variables"]
        if job.settings["network"] == "B":
            assert variables == {
                "NCCL_IB_DISABLE": "1",
                "NCCL_NET": "Socket",
                "NCCL_SOCKET_IFNAME": "=ens2f0np0",
            }
            assert job.settings["expect"]["interfaces"] == dict.fromkeys(job.nodes, ("ens2f0np0",))
        else:
            assert variables == {} and not job.settings["expect"]["interfaces"]
    for item in plan.items:
        if item.test.startswith("nccl_") and item.reference.startswith("pt-"):
            assert item.reference.startswith("pt-b-" if item.params["network"] == "B" else "pt-a-")
    checks = {
        item.params["check"]
        for item in plan.items
        if item.params.get("network") == "B" and "check" in item.params
    }
    assert checks == {"ranks", "intra_node", "nvls", "network", "nics"}


def test_a_network_that_is_not_described_is_refused():
    """Catches: a misspelt network that is measured over RoCE."""
    site = shipped(PT)
    without = site.model_copy(update={"tcp_fabrics": ()})
    refused("measures network B, which tcp_fabrics does not describe", plan_site, without, [PT], run="r")
