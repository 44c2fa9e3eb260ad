"""Draining: who is named on what evidence, and everything that must not be touched."""

import json
from itertools import combinations
from pathlib import Path

import pytest

from shakedown.daytwo.draining import Drainer, Policy
from shakedown.records.base import Stage
from shakedown.records.results import RunProblem
from shakedown.run import folder as runs
from shakedown.slurm.client import Slurm, parse_show_nodes
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.files import script
from tests.kit.refusal import refused
from tests.unit.daytwo.fake_slurm import FakeSlurm

NODES = ("n1", "n2", "n3", "n4")
ALL = Policy(max_nodes=10, max_fraction=1.0)


def pairs_run(folder: Path, run: str, bad: set[str] | None = None, **options) -> Path:
    """Write a run of all pairs; a pair with a bad node has half the rate.

    Options: its `system`, `pairs` instead of all, `killed` pairs without a value, `alone` nodes that fail
    their own test.
    """
    pairs = options.get("pairs") or list(combinations(NODES, 2))
    killed, alone = options.get("killed", ()), options.get("alone")
    reference = records.reference(id="rate", value=390, tolerance=0.05, source="made up")
    item = records.item(
        nodes=tuple(pairs), rails=("rail0",), directions=("forward", "reverse"), reference="rate"
    )
    items = [item]
    values = [
        (item, pair, "rail0", direction, 190.0 if bad and bad & set(pair) else 388.0)
        for pair in pairs
        for direction in item.directions
    ]
    if alone is not None:
        single = records.item(
            stage=Stage.NODE, test="h2d", nodes=tuple((n,) for n in NODES), reference="rate"
        )
        items.append(single)
        values += [(single, (n,), None, None, 100.0 if n in alone else 388.0) for n in NODES]
    path = folder / run
    plan = records.plan(
        *items,
        references=[reference],
        run=run,
        system=options.get("system", "fleet"),
        created="2026-11-20T02:00:00Z",
        nodes=NODES,
        rails=("rail0",),
    )
    runs.write_plan(path, plan)
    runs.write_lines(
        path / "results.jsonl",
        [
            records.measured(
                i,
                nodes,
                None if nodes in killed else value,
                run=run,
                rail=rail,
                direction=direction,
                state="PREEMPTED" if nodes in killed else "COMPLETED",
                problem=RunProblem(kind="killed", message="Slurm says PREEMPTED")
                if nodes in killed
                else None,
            )
            for i, nodes, rail, direction, value in values
        ],
    )
    return path


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A fake Slurm of four nodes on PATH."""
    made = FakeSlurm(tmp_path, NODES)
    monkeypatch.setenv("PATH", str(made.bin))
    return made


@pytest.fixture
def drainer(tmp_path, slurm):
    """Make a drainer with a log in the test's folder."""
    return lambda **options: Drainer(Slurm(), tmp_path / "drain.jsonl", **{"policy": ALL, **options})


def log(tmp_path) -> list[tuple[str, str, str]]:
    """Return the log as (node, action, step)."""
    lines = (tmp_path / "drain.jsonl").read_text().splitlines()
    return [(e["node"], e["action"], e["step"]) for e in map(json.loads, lines)]


def chosen(actions) -> dict[str, str]:
    """Return what is done, by node."""
    return {a.node: a.action for a in actions if a.action != "none"}


def test_only_the_bad_node_of_bad_pairs_is_drained(tmp_path, slurm, drainer):
    """Catches: both nodes of a bad pair taken out."""
    actions = drainer(act=True).after_run(pairs_run(tmp_path, "r1", {"n3"}))
    assert chosen(actions) == {"n3": "drain"}
    assert list(slurm.drained()) == ["n3"]
    assert slurm.drained()["n3"].startswith("shakedown: r1: 6 cells failed, first fabric/ib_write_bw/")
    assert ("n3", "drain", "begin") in log(tmp_path)
    assert ("n3", "drain", "done") in log(tmp_path)
    left = {a.node: a.reason for a in actions if a.action == "none"}
    assert "failed with 0 partners that are well" in left["n1"]


def test_a_dry_run_is_the_default_and_tells_slurm_nothing(tmp_path, slurm, drainer):
    """Catches: a proposal that acts."""
    assert chosen(drainer().after_run(pairs_run(tmp_path, "r1", {"n3"}))) == {"n3": "drain"}
    assert slurm.updates() == []
    assert ("n3", "drain", "dry-run") in log(tmp_path)


def test_one_partner_is_not_enough(tmp_path, slurm, drainer):
    """Catches: a node blamed on the word of one partner, who may be the bad one."""
    run = pairs_run(tmp_path, "r1", {"n2"}, pairs=[("n1", "n2"), ("n3", "n4")])
    assert chosen(drainer(act=True).after_run(run)) == {}
    assert slurm.drained() == {}


def test_what_is_inconclusive_drains_nobody(tmp_path, slurm, drainer):
    """Catches: a preempted job blamed on its nodes."""
    run = pairs_run(tmp_path, "r1", killed=[p for p in combinations(NODES, 2) if "n3" in p])
    assert drainer(act=True).after_run(run) == []
    assert slurm.updates() == []


def test_a_test_of_the_node_alone_is_enough(tmp_path, slurm, drainer):
    """Catches: a node with a slow GPU left in service because no partner speaks against it."""
    assert chosen(drainer(act=True).after_run(pairs_run(tmp_path, "r1", alone={"n4"}))) == {"n4": "drain"}


def test_another_persons_drain_is_never_touched(tmp_path, slurm, drainer):
    """Catches: the reason of an admin's drain overwritten, or the drain undone."""
    slurm.set("n3", state="IDLE+DRAIN", reason="bad DIMM, ticket 4711", by="alice")
    actions = drainer(act=True).after_run(pairs_run(tmp_path, "r1", {"n3"}))
    assert chosen(actions) == {}
    drainer(act=True).after_run(pairs_run(tmp_path, "r2"))
    assert slurm.drained() == {"n3": "bad DIMM, ticket 4711"} and slurm.updates() == []
    refused("n3 was not drained by us: bad DIMM", drainer(act=True).begin_retest, "n3", ["n1", "n2"])


def test_our_prefix_alone_does_not_make_a_drain_ours(tmp_path, slurm, drainer):
    """Catches: a drain that a person made with our words, and that our log knows nothing of."""
    slurm.set("n3", state="IDLE+DRAIN", reason="shakedown: looked odd", by="bob")
    actions = drainer(act=True).after_run(pairs_run(tmp_path, "r2"))
    assert [(a.node, a.action, a.reason) for a in actions] == [
        ("n3", "none", "our log does not say that we drained it")
    ]
    assert slurm.updates() == []


@cases(
    "policy, why",
    (Policy(max_nodes=1, max_fraction=1.0), "drained by us already, 1 are allowed"),
    (Policy(max_nodes=9, max_fraction=0.25), "are out of service, 25% may be"),
    (Policy(max_nodes=0, max_fraction=1.0), "0 nodes drained by us already"),
)
def test_the_caps_hold(tmp_path, slurm, drainer, policy, why):
    """Catches: a switch fault that drains the cluster."""
    actions = drainer(act=True, policy=policy).after_run(pairs_run(tmp_path, "r1", alone={"n1", "n2", "n4"}))
    assert len(slurm.drained()) == (0 if policy.max_nodes == 0 else 1)
    assert sum(why in a.reason for a in actions) >= 2


def test_nodes_that_others_took_out_count_against_the_fraction(tmp_path, slurm, drainer):
    """Catches: a cap that forgets that half of the cluster is down already."""
    slurm.set("n1", state="DOWN*", reason="Not responding", by="slurm")
    policy = Policy(max_nodes=9, max_fraction=0.25)
    actions = drainer(act=True, policy=policy).after_run(pairs_run(tmp_path, "r1", alone={"n4"}))
    assert chosen(actions) == {}


def test_a_node_is_given_back_after_a_retest_with_two_partners(tmp_path, slurm, drainer):
    """Catches: a node that stays out for ever, and the whole way back: reserved first, released last."""
    it = drainer(act=True)
    it.after_run(pairs_run(tmp_path, "r1", {"n3"}))
    name = it.begin_retest("n3", ["n1", "n2"])
    assert slurm.state["reservations"][name]["Nodes"] == "n3,n1,n2"
    assert slurm.state["nodes"]["n3"]["state"] == "IDLE"  # it answers again: a job can start
    assert slurm.drained() == {}
    action = it.end_retest("n3", pairs_run(tmp_path, "r2", pairs=[("n1", "n3"), ("n2", "n3")]))
    assert (action.action, action.reason) == ("undrain", "retest r2 passed with n1, n2")
    assert (slurm.drained(), slurm.state["reservations"]) == ({}, {})
    kinds = [c[1] + (" " + c[3] if c[1] == "update" else "") for c in slurm.updates()]
    assert kinds == ["update State=DRAIN", "create", "update State=RESUME", "delete"]
    assert it.after_run(pairs_run(tmp_path, "r3")) == []  # it is nobody's any more


@cases(
    "options, why",
    ({"bad": {"n3"}}, "failed again"),
    ({"pairs": [("n1", "n3"), ("n2", "n4")]}, "passed with 1 partner, not 2"),
    ({"pairs": [("n1", "n2")]}, "was not retested"),
    ({"killed": [("n1", "n3")]}, "neither passed nor failed"),
)
def test_a_retest_that_does_not_pass_drains_again(tmp_path, slurm, drainer, options, why):
    """Catches: a node given back on half a retest."""
    it = drainer(act=True)
    it.after_run(pairs_run(tmp_path, "r1", {"n3"}))
    it.begin_retest("n3", ["n1", "n2"])
    action = it.end_retest("n3", pairs_run(tmp_path, "r2", options.pop("bad", None), **options))
    assert action.action == "none"
    assert why in action.reason
    assert slurm.drained()["n3"].startswith("shakedown: r1: retest r2: ")
    assert slurm.state["reservations"] == {}


def test_the_run_that_drained_a_node_cannot_give_it_back(tmp_path, slurm, drainer):
    """Catches: an old run, read again, taken for a retest."""
    it = drainer(act=True)
    it.after_run(pairs_run(tmp_path, "r1", {"n3"}))
    it.begin_retest("n3", ["n1", "n2"])
    assert "for which it was drained" in it.end_retest("n3", pairs_run(tmp_path, "r1")).reason
    assert list(slurm.drained()) == ["n3"]


def test_a_retest_that_was_cut_off_is_found(tmp_path, slurm, drainer):
    """Catches: a bad node that slips back into service because the retest died: its reservation stays."""
    it = drainer(act=True)
    it.after_run(pairs_run(tmp_path, "r1", {"n3"}))
    it.begin_retest("n3", ["n1", "n2"])
    assert it.leftovers() == ["shakedown_n3"]
    it.end_retest("n3", None)
    assert list(slurm.drained()) == ["n3"]
    assert it.leftovers() == []


def test_a_refusal_by_slurm_is_logged_and_said(tmp_path, slurm, drainer):
    """Catches: a drain that Slurm refused, believed to be done."""
    slurm.refuse()
    refused("Access/permission denied", drainer(act=True).after_run, pairs_run(tmp_path, "r1", {"n3"}))
    assert [e for e in log(tmp_path) if e[0] == "n3"] == [("n3", "drain", "begin"), ("n3", "drain", "failed")]


def test_a_log_that_cannot_be_read_stops_everything(tmp_path, slurm, drainer):
    """Catches: acting without knowing what was done before. A last line that was cut off is no entry."""
    path = tmp_path / "drain.jsonl"
    path.write_text('{"time": "x"}\n')
    refused(r"drain\.jsonl:1: is no entry", drainer(act=True).after_run, pairs_run(tmp_path, "r1"))
    path.write_text('{"time": "x", "node"')
    drainer(act=True).after_run(pairs_run(tmp_path, "r2"))


def test_node_states_are_read_as_slurm_prints_them():
    """Catches: a reason with equals signs or brackets that hides the state or the user."""
    text = (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=1 State=IDLE+DRAIN Partitions=all "
        "Reason=State=IDLE [see #1] x=y [alice@2026-11-20T02:10:00]\n"
        "NodeName=n2 State=DOWN* Reason=Not responding [slurm@2026-11-20T02:10:00] Comment=(null)\n"
        "NodeName=n3 State=MIXED Partitions=all\n"
    )
    nodes = parse_show_nodes(text)
    assert (nodes["n1"].drained, nodes["n1"].reason, nodes["n1"].by) == (
        True,
        "State=IDLE [see #1] x=y",
        "alice",
    )
    assert (sorted(nodes["n2"].states), nodes["n2"].reason) == (["DOWN", "NOT_RESPONDING"], "Not responding")
    assert (nodes["n3"].reason, nodes["n3"].drained) == ("", False)
    refused("describes no node", parse_show_nodes, "slurm_load_node error\n")


def test_words_from_outside_do_not_reach_a_shell(tmp_path, monkeypatch):
    """Catches: a cell's name run as a command on the other host when Slurm is asked over ssh."""
    said = tmp_path / "said"
    ssh = tmp_path / "ssh"
    script(ssh, f'#!/bin/sh\nprintf "%s\\n" "$2" > {said}\n')
    Slurm((str(ssh), "head")).drain("n1", "shakedown: $(touch x); `id`")
    assert said.read_text() == (
        "env TZ=UTC LC_ALL=C SLURM_TIME_FORMAT=%Y-%m-%dT%H:%M:%S "
        "scontrol update NodeName=n1 State=DRAIN 'Reason=shakedown: $(touch x); `id`'\n"
    )
    refused("is no name", Slurm().drain, "n1;reboot", "x")


def test_a_drain_that_somebody_took_over_is_not_ours_any_more(tmp_path, slurm, drainer):
    """Catches: a node that we drained, that a person then drained for another reason, given back by us."""
    it = drainer(act=True)
    it.after_run(pairs_run(tmp_path, "r1", {"n3"}))
    slurm.set("n3", reason="bad DIMM, ticket 4711", by="alice")
    assert it.after_run(pairs_run(tmp_path, "r2")) == []
    assert slurm.drained() == {"n3": "bad DIMM, ticket 4711"}


def test_a_dry_run_on_a_laptop_needs_no_slurm(tmp_path, monkeypatch, capsys):
    """Catches: `drain propose` that refuses to look at a run without scontrol, or acts so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    at = {"log": tmp_path / "drain.jsonl", "policy": ALL}
    folder = pairs_run(tmp_path, "r", bad={"n3"})
    assert chosen(Drainer(Slurm(), **at).after_run(folder)) == {"n3": "drain"}
    assert "Slurm was not asked" in capsys.readouterr().err
    assert {step for _, _, step in log(tmp_path)} == {"dry-run", "left"}
    refused("scontrol", Drainer(Slurm(), act=True, **at).after_run, folder)
    refused("ssh", Drainer(Slurm(("ssh", "head")), **at).after_run, folder)  # told where Slurm is
