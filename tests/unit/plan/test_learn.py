"""A first run without references: measured, never PASS, and wrong or lost data are judged all the same."""

from pathlib import Path

import pytest
import yaml

from shakedown.benchmarks.planning import site_of
from shakedown.commands.verdict import exit_status
from shakedown.judge.verdict import judge
from shakedown.records.base import Outcome
from shakedown.records.plan import ReferenceKind
from shakedown.records.reading import BadInput
from shakedown.references.catalogue import MissingReference, all_missing
from shakedown.references.files import read_profile
from shakedown.references.of_site import catalogue_of_site
from shakedown.references.propose import profile_of, proposals
from tests.kit.cases import cases
from tests.kit.site import WHERE, document, hosts, plan_site
from tests.unit.plan.test_scope import measured, site

CREATED = "2026-01-01T00:00:00Z"
OTHER = "h200_lora"  # a profile that has nothing of what the site measures


def bare(tmp_path, profile=OTHER, **changes):
    """A site of three nodes whose profile has no reference for it, and its plan."""
    mine = site(3)
    mine = mine.model_copy(update={"fabric": mine.fabric.model_copy(update={"profile": profile})})
    catalogue = catalogue_of_site(mine, tmp_path)
    plan, _ = plan_site(mine, catalogue, created=CREATED, **changes)
    return plan


def results(plan, changed=None):
    """Every cell measured: what is learnt at some value, what is judged at its reference."""
    for one in measured(plan):
        key = f"{one.test}/{one.metric}"
        value = (changed or {}).get(
            key, one.value or (0.0 if one.better == "lower" and one.metric == "wrong" else 7.0)
        )
        if one.metric.startswith("counter.") and key not in (changed or {}):
            value = one.value
        yield one.model_copy(update={"value": value, "samples": (value,)})


def test_without_learn_all_missing_are_told_with_what_to_do(tmp_path):
    """Catches: missing references told one at a time, or without the two ways out."""
    with pytest.raises(MissingReference) as refused:
        bare(tmp_path)
    text = str(refused.value)
    assert "ib_write_bw bandwidth" in text
    assert "mpi_allreduce busbw" in text
    assert "[physical]" in text
    assert "plan --learn" in text


def test_a_run_that_learns_ends_as_baseline(tmp_path):
    """Catches: a first run that passes, or that is not told from one that could not be measured."""
    plan = bare(tmp_path, learn=True)
    verdict = judge(plan, results(plan))
    assert verdict.outcome is Outcome.BASELINE
    assert exit_status(verdict.outcome) == 3
    learnt = verdict.outcomes[Outcome.BASELINE]
    assert learnt > 0
    assert verdict.reason.startswith(
        f"{learnt} of {verdict.coverage.planned} required cells were measured to learn from"
    )
    assert verdict.outcomes[Outcome.PASS] + learnt == verdict.coverage.planned
    assert any("are measured to learn from" in caveat for caveat in plan.caveats)


@cases(
    "cell, value, outcome",
    ("mpi_allreduce/wrong", 1.0, Outcome.FAIL),
    ("ib_write_bw/counter.rdma.out_of_seq_request", 3.0, Outcome.FAIL),
    ("ib_write_bw/bandwidth", 0.0, Outcome.INCONCLUSIVE),
    ("ib_write_bw/bandwidth", float("nan"), Outcome.INCONCLUSIVE),
)
def test_what_is_wrong_is_judged_though_nothing_else_is(tmp_path, cell, value, outcome):
    """Catches: wrong sums, losses, a dead link or no number that become the baseline."""
    plan = bare(tmp_path, learn=True)
    assert any(f"{item.test}/{item.metric}" == cell for item in plan.items)
    assert judge(plan, results(plan, {cell: value})).outcome is outcome


def test_what_was_not_measured_teaches_nothing(tmp_path):
    """Catches: a baseline of half a run."""
    plan = bare(tmp_path, learn=True)
    kept = [one for one in results(plan) if one.test != "mpi_allreduce"]
    assert judge(plan, kept).outcome is Outcome.NOT_RUN


@cases(
    "asked, learnt",
    ({"incast": {"patterns": ["incast", "all_to_all"], "senders": 2}}, {"bandwidth_in"}),
    ({"gpudirect": {"bidirectional": True}}, {"bandwidth", "bandwidth_both", "share_of_host"}),
    ({"stream": {"numa_nodes": 1}}, {"bandwidth"}),
)
def test_what_no_shipped_profile_has_is_learnt(asked, learnt):
    """Catches: a benchmark that a first run cannot measure, and is told to let a first run measure it."""
    inventory = document(3)
    for host in hosts(inventory):
        host["acceptance"] = {**asked, "counter_tests": False, "software_check": False}
        host["fabric"] = {**host["fabric"], "profile": OTHER}
        host["gpus"] = [{"index": index, "model": "H100-SXM"} for index in range(4)]
    plan, _ = plan_site(inventory, catalogue_of_site(site_of(inventory, WHERE), WHERE), learn=True)
    held = {item.metric for item in plan.items if plan.references[item.reference].kind is ReferenceKind.LEARN}
    assert held == learnt


def test_what_cannot_be_learnt_is_not_sent_to_learn():
    """Catches: a run with --learn that is refused with the advice to use --learn."""
    refused = MissingReference.of("disk", "bandwidth", {"nodes": 1}, fix="add one")
    assert "--learn" in str(all_missing([refused]))
    assert "--learn" not in str(all_missing([refused], learn=True))
    assert "[physical]" in str(all_missing([refused]))
    assert "[physical]" not in str(all_missing([refused], floors=True))  # the site has that profile


def test_learning_where_nothing_is_missing_is_refused():
    """Catches: a run that could pass and is made one that cannot."""
    with pytest.raises(BadInput, match="nothing to learn"):
        plan_site(site(3), catalogue_of_site(site(3), Path()), created=CREATED, learn=True)


def test_proposals_signed_in_the_sites_folder_are_its_profile(tmp_path):
    """Catches: proposals that match no cell of their own plan, and an unsigned profile that is used."""
    plan = bare(tmp_path, learn=True)
    entries = list(proposals(results(plan), scope={}, prefix="mine"))
    entries = [e for e in entries if not str(e["metric"]).startswith("counter.")]
    folder = tmp_path / "profiles"
    folder.mkdir()
    file = folder / "mine.yml"
    text = yaml.safe_dump(profile_of("mine", plan, entries), sort_keys=False)
    file.write_text(text)
    assert read_profile(file)[1] == []
    with pytest.raises(BadInput, match="proposed and not signed") as refused:
        bare(tmp_path, profile="mine")
    assert refused.value.line
    file.write_text(
        text.replace("set_by: 'proposed:", "set_by: 'A. Person, by").replace(
            "set_by: proposed:", "set_by: A. Person"
        )
    )
    mine = site(3)
    mine = mine.model_copy(
        update={
            "fabric": mine.fabric.model_copy(update={"profile": "mine"}),
            "acceptance": mine.acceptance.model_copy(update={"profiles": ("physical",)}),
        }
    )
    later, _ = plan_site(mine, catalogue_of_site(mine, tmp_path), run="r2", created=CREATED)
    held = {later.references[i.reference].id for i in later.items if i.metric == "bandwidth"}
    assert all(name.startswith("mine-") for name in held)
    assert not any(one.kind is ReferenceKind.LEARN for one in later.references.values())


def test_what_was_measured_beside_something_else_is_not_proposed(tmp_path):
    """Catches: a reference that another process on the GPU made too low."""
    found = list(results(bare(tmp_path, learn=True)))
    whole = list(proposals(found, scope={}, prefix="mine"))
    spoilt = [one.model_copy(update={"disturbed": "another process was on GPU 0 of n1"}) for one in found]
    assert whole and list(proposals(spoilt, scope={}, prefix="mine")) == []


def test_a_profile_of_ones_own_may_not_shadow_a_shipped_one(tmp_path):
    """Catches: a file in a site's folder that silently replaces published figures."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/lab.yml").write_text("schema: 1\n")
    with pytest.raises(BadInput, match="name of a shipped profile"):
        catalogue_of_site(site(3), tmp_path)


@pytest.mark.slow
def test_the_longest_job_of_a_site_without_references_is_told(tmp_path, shakedown):
    """Catches: a site whose first run is to make its references, refused by `site.yml` for want of them."""
    values = tmp_path / "group_vars/all"
    values.mkdir(parents=True)
    (tmp_path / "hosts.yml").write_text(
        yaml.safe_dump({"compute": {"hosts": {"n1": {"mgmt_ip": "10.0.0.1", "gpus": [{"index": 0}]}}}})
    )
    nccl = {"expect": {"nvls": False}, "run_timeout_s": 100, "launchers": ["one-process"]}
    nccl |= {"sweeps": [{"operations": ["all_reduce"], "min_bytes": 8, "max_bytes": 8}]}
    for name, what in (
        ("fabric", {"system": "new", "profile": OTHER, "no_fabric": True}),
        ("acceptance", {"nccl": nccl, "counter_tests": False, "software_check": False}),
    ):
        (values / f"{name}.yml").write_text(yaml.safe_dump({name: what}))
    assert shakedown("plan", tmp_path)[0] == 2
    status, printed, error = shakedown("plan", tmp_path, "--longest-job")
    assert (status, printed.strip()) == (0, "00:10:00"), error
