"""Comparison of two runs: every decision, every refusal, and the fault that each would otherwise hide."""

import json
import sys

import pytest

from shakedown.commands import cli
from shakedown.commands.compare import spread_out
from shakedown.daytwo.compare.paired_metrics import compare
from shakedown.daytwo.compare.run_folders import Change, Named, TooMuchChanged, compare_folders, named
from shakedown.judge.verdict import judge_cells
from shakedown.records.base import Stage
from shakedown.records.plan import ReferenceKind
from shakedown.run.folder import Run
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.files import lines_of, write_lines
from tests.kit.refusal import refused
from tests.unit.daytwo.fleet import Night, names

FIRMWARE = Named("nic", "firmware")
NODES = names(24)
UPGRADED = NODES[:12]
NEW = dict.fromkeys(UPGRADED, "22.2")


@pytest.fixture
def pair(tmp_path):
    """Write A and B; B has the new firmware on the first twelve nodes, and what else is asked for."""

    def write(a: dict | None = None, **b: object):
        before = Night("a", **{"nodes": NODES, **(a or {})}).write(tmp_path / "a")
        after = Night("b", **{"nodes": NODES, "night": 1, "firmware": NEW, **b}).write(tmp_path / "b")
        return before, after

    return write


def decisions(result) -> dict[str, str]:
    """Return the decision by test."""
    return {m.metric.split("/")[1]: m.decision for m in result.metrics}


def test_an_upgrade_without_effect_is_equivalent(pair):
    """Catches: noise taken for an effect, and an honest no-change left undecided."""
    result = compare_folders(*pair(), changed=FIRMWARE)
    assert decisions(result) == dict.fromkeys(("ib_write_bw", "ib_write_lat", "nvbandwidth"), "equivalent")
    assert (result.decision, result.nodes, len(result.controls)) == ("equivalent", UPGRADED, 12)


@pytest.mark.parametrize(
    "seen", [{"disturbed": "process 7"}, {"loaded": [{"node": "n1", "said": "x", "most": 0.6}]}]
)
def test_what_was_measured_beside_something_else_has_no_ratio(seen, pair):
    """Catches: an upgrade called worse, or a node, for a program that ran on its CPUs or GPU meanwhile."""
    slower = {"factor": lambda m, n: 0.97 if m == "write" and n in UPGRADED else 1.0}
    before, after = pair(**slower)
    assert decisions(compare_folders(before, after, changed=FIRMWARE))["ib_write_bw"] == "worse"
    results = lines_of(after / "results.jsonl")
    for one in results:
        one.update(seen if one["test"] == "ib_write_bw" and set(one["nodes"]) & {*UPGRADED} else {})
    write_lines(after / "results.jsonl", results)
    result = compare_folders(before, after, changed=FIRMWARE)
    assert decisions(result).get("ib_write_bw") != "worse"
    assert any("beside other programs left out" in note for note in result.notes)


def test_worse_and_better_have_the_metrics_own_direction(pair):
    """Catches: a latency that fell called worse, or a bandwidth that fell called better."""
    effect = {"write": 0.97, "lat": 0.97}
    result = compare_folders(
        *pair(factor=lambda m, n: effect.get(m, 1.0) if n in UPGRADED else 1.0), changed=FIRMWARE
    )
    assert decisions(result) == {
        "ib_write_bw": "worse",
        "ib_write_lat": "better",
        "nvbandwidth": "equivalent",
    }
    assert result.decision == "worse"


def test_drift_of_all_nodes_is_not_the_upgrades(pair):
    """Catches: a warmer room, which slows untouched nodes too, blamed on the firmware."""
    result = compare_folders(*pair(factor=lambda m, n: 0.95), changed=FIRMWARE)
    assert set(decisions(result).values()) == {"equivalent"}
    assert result.metrics[0].control_shift == pytest.approx(-0.05, abs=0.005)


def test_one_bad_node_among_good_ones_is_named(pair):
    """Catches: one node that the upgrade broke, averaged away by eleven that are well."""
    result = compare_folders(
        *pair(factor=lambda m, n: 0.7 if (m, n) == ("h2d", "n5") else 1.0), changed=FIRMWARE
    )
    h2d = next(m for m in result.metrics if "nvbandwidth" in m.metric)
    assert (h2d.decision, [s.node for s in h2d.worse]) == ("worse", ["n5"])
    assert h2d.worse[0].shift == pytest.approx(-0.3, abs=0.015)
    assert sum(len(m.worse) for m in result.metrics) == 1


@cases("level, decision", (0.7, "worse"), (0.95, "undecided"))
def test_a_canary_among_untouched_nodes_is_judged_alone(pair, level, decision):
    """Catches: one upgraded node called undecided for want of pairs; one of unknown noise called worse."""
    result = compare_folders(
        *pair(firmware={"n3": "22.2"}, factor=lambda m, n: level if (m, n) == ("write", "n3") else 1.0),
        changed=FIRMWARE,
        canaries=("n3",),
    )
    assert decisions(result) == {
        "ib_write_bw": decision,
        "ib_write_lat": "undecided",
        "nvbandwidth": "undecided",
    }
    (write,) = (m for m in result.metrics if "ib_write_bw" in m.metric)
    few = "may be worse on n3 (-4.6%): three runs a side tell a change from a noisy node"
    assert decision == "worse" or write.reason == few


def test_a_node_that_died_is_not_left_out_of_equivalent(pair):
    """Catches: a node without a value after the upgrade that just disappears from the statistics."""
    result = compare_folders(*pair(missing=frozenset({("h2d", "n2")})), changed=FIRMWARE)
    h2d = next(m for m in result.metrics if "nvbandwidth" in m.metric)
    assert (h2d.decision, h2d.unpaired) == ("undecided", ("n2",))
    assert result.decision == "undecided"


def test_three_nodes_decide_nothing(pair):
    """Catches: a significance that three pairs can never have."""
    few = names(3)
    result = compare_folders(
        *pair(a={"nodes": few}, nodes=few, firmware=dict.fromkeys(few, "22.2"), factor=lambda m, n: 0.9),
        changed=FIRMWARE,
    )
    assert {m.decision for m in result.metrics} == {"undecided"}
    assert any("no untouched nodes" in note for note in result.notes)


def test_a_second_change_is_refused_and_listed(pair):
    """Catches: an effect credited to the firmware when a kernel changed on the same day."""
    with pytest.raises(TooMuchChanged, match=r"n7 node kernel: 6\.1\.0 -> 6\.2\.0") as error:
        compare_folders(*pair(kernel={"n7": "6.2.0"}), changed=FIRMWARE)
    assert error.value.changes == ("n7 node kernel: 6.1.0 -> 6.2.0",)


@cases(
    "name, covered",
    ("nic.mtu_bytes", ["nic.mtu_bytes", "setting.mtu.host_bytes", "setting.mtu.rdma_bytes"]),
    ("setting.mtu.host_bytes", ["nic.mtu_bytes", "setting.mtu.host_bytes", "setting.mtu.rdma_bytes"]),
    ("setting.mtu.rdma_bytes", ["setting.mtu.rdma_bytes"]),
    ("nic.firmware", ["nic.firmware"]),
)
def test_one_change_seen_in_two_places_is_one(name, covered):
    """Catches: an MTU that was changed on purpose refused because its setting was read back differently."""
    seen = {
        "nic.mtu_bytes": Change("n1", "nic", "enp1", "mtu_bytes", "9000", "1500"),
        "setting.mtu.host_bytes": Change("n1", "setting", "rail0", "mtu.host_bytes", "0 wrong", "1 wrong"),
        "setting.mtu.rdma_bytes": Change("n1", "setting", "rail0", "mtu.rdma_bytes", "0 wrong", "1 wrong"),
        "setting.dscp.map": Change("n1", "setting", "rail0", "dscp.map", "0 wrong", "1 wrong"),
        "nic.firmware": Change("n1", "nic", "enp1", "firmware", "22.1", "22.2"),
    }
    assert [place for place, change in seen.items() if named(name).covers(change)] == covered


def test_an_unnamed_change_is_refused(pair):
    """Catches: two runs taken for repeats of each other although the firmware differs."""
    with pytest.raises(TooMuchChanged, match="nothing was named") as error:
        compare_folders(*pair(), changed=None)
    assert len(error.value.changes) == 12


@cases(
    "b, options, message",
    ({"firmware": {}}, {}, "did not change on any host"),
    ({"system": "other"}, {}, "is of system 'other'"),
    ({"run": "a"}, {}, "both are run"),
    ({}, {"canaries": ("n1",)}, "not on the canaries"),
    ({}, {"controls": ("n1",)}, "changed on n1 too"),
    ({}, {"controls": ("n99",)}, "n99 is not a node"),
)
def test_contradictions_are_refused(tmp_path, b, options, message):
    """Catches: an upgrade that was never made, another cluster's run, and names that do not fit."""
    before = Night("a", nodes=NODES).write(tmp_path / "a")
    wanted = {"run": "b", "nodes": NODES, "night": 1, "firmware": NEW, **b}
    after = Night(**wanted).write(tmp_path / "b")
    refused(message, compare_folders, before, after, changed=FIRMWARE, **options)


def test_a_run_without_inventory_is_refused(pair):
    """Catches: 'nothing changed' concluded from nobody having looked."""
    a, b = pair()
    (b / "inventory.json").unlink()
    refused("what changed is unknown", compare_folders, a, b, changed=FIRMWARE)


def test_runs_in_the_wrong_order_are_noted(pair):
    """Catches: before and after swapped, or a clock set back, without a word."""
    a, b = pair()
    result = compare_folders(b, a, changed=FIRMWARE)
    assert any("not before B" in note for note in result.notes)


@pytest.mark.slow
def test_false_alarms_stay_below_the_stated_rate(tmp_path):
    """Catches: nodes accused of noise. 40 comparisons of 24 nodes x 3 metrics with nothing wrong."""
    accused = 0
    for seed in range(40):
        a = Night(f"a{seed}", nodes=NODES).write(tmp_path / f"a{seed}")
        b = Night(f"b{seed}", nodes=NODES, night=1, firmware=NEW).write(tmp_path / f"b{seed}")
        result = compare_folders(a, b, changed=FIRMWARE)
        accused += result.decision == "worse"
    assert accused <= 4  # 5 % of 40 expected at most


def command(monkeypatch, capsys, *argv: object) -> tuple[int, str, str]:
    """Run a command; return its exit status and what it printed."""
    monkeypatch.setattr(sys, "argv", ["shakedown", *map(str, argv)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out = capsys.readouterr()
    return int(ended.value.code or 0), out.out, out.err


def test_command_exit_status_follows_the_decision(pair, monkeypatch, capsys):
    """Catches: exit status 0 for a worse or an undecided comparison."""
    a, b = pair()
    status, out, _ = command(monkeypatch, capsys, "compare", a, b, "--changed", "nic.firmware")
    assert status == 0
    assert out.startswith("EQUIVALENT")
    _, b = pair(factor=lambda m, n: 0.9 if n in UPGRADED else 1.0)
    status, out, _ = command(monkeypatch, capsys, "compare", a, b, "--changed", "nic.firmware", "--json")
    assert status == 1
    assert json.loads(out)["decision"] == "worse"


def test_command_refuses_in_one_line_and_lists_what_changed(pair, monkeypatch, capsys):
    """Catches: a refusal that a script takes for a result, or that does not say what changed."""
    a, b = pair(kernel={"n7": "6.2.0", "n8": "6.2.0"})
    status, out, err = command(monkeypatch, capsys, "compare", a, b, "--changed", "nic.firmware")
    assert (status, len(err.splitlines())) == (2, 1)
    assert out.splitlines() == ["n7 node kernel: 6.1.0 -> 6.2.0", "n8 node kernel: 6.1.0 -> 6.2.0"]


def test_a_component_is_named_in_known_words():
    """Catches: a misspelt component that would cover nothing."""
    refused("names no component", named, "firmware")


def test_the_shift_is_the_upgrades_own(pair):
    """Catches: 3 % gained while everything lost 5 % called a loss of 2 %."""
    shifted = pair(factor=lambda m, n: 0.95 * (1.03 if n in UPGRADED and m == "write" else 1.0))
    result = compare_folders(*shifted, changed=FIRMWARE)
    write = next(m for m in result.metrics if "ib_write_bw" in m.metric)
    assert (write.decision, write.worse) == ("better", ())
    assert write.shift == pytest.approx(0.0285, abs=0.005)


def three(tmp_path, side, night, *, drift=(1.0, 1.0, 1.0), factor=lambda m, n: 1.0, nodes=NODES[:10], **more):
    """Write three runs of a side; every value of a run is multiplied by its drift."""
    runs = []
    for number, by in enumerate(drift):
        run = Night(
            f"{side}{number}",
            nodes=nodes,
            night=night + number,
            factor=lambda m, n, by=by: by * factor(m, n),
            **more,
        )
        runs.append(run.write(tmp_path / run.run))
    return runs


ALL_NEW = {"firmware": dict.fromkeys(NODES[:10], "22.2")}


@pytest.mark.parametrize("sick", [("n5",), ("n2", "n4", "n6", "n8")])
def test_nodes_that_lost_three_percent_are_named_and_never_equivalent(tmp_path, sick):
    """Catches: one node of ten, or four, averaged away, where three runs a side show them."""
    before = three(tmp_path, "a", 0, drift=(1.0, 0.99, 1.01))
    after = three(
        tmp_path,
        "b",
        3,
        drift=(0.99, 1.01, 1.0),
        factor=lambda m, n: 0.97 if m == "write" and n in sick else 1.0,
        **ALL_NEW,
    )
    result = compare_folders(before, after, changed=FIRMWARE)
    write = next(m for m in result.metrics if "ib_write_bw" in m.metric)
    assert (write.decision, {s.node for s in write.worse}) == ("worse", set(sick))
    assert result.runs == (3, 3)


def test_a_warm_night_of_all_nodes_is_not_the_upgrades(tmp_path):
    """Catches: ten nodes counted as ten witnesses of what one night did to all of them."""
    before = Night("a", nodes=NODES[:10]).write(tmp_path / "a")
    after = Night("b", nodes=NODES[:10], night=1, factor=lambda m, n: 0.98 if m != "lat" else 1.0, **ALL_NEW)
    result = compare_folders(before, after.write(tmp_path / "b"), changed=FIRMWARE)
    assert set(decisions(result).values()) == {"undecided"}
    assert any("one run a side bounds nothing below 4.2%" in note for note in result.notes)
    runs = (
        three(tmp_path, "c", 0, drift=(1.0, 0.985, 1.01)),
        three(tmp_path, "d", 3, drift=(0.98, 1.0, 0.99), **ALL_NEW),
    )
    assert "worse" not in decisions(compare_folders(*runs, changed=FIRMWARE)).values()


def test_all_nodes_five_percent_slower_in_three_runs_are_worse(tmp_path):
    """Catches: runs held against each other so carefully that nothing is ever found."""
    before = three(tmp_path, "a", 0)
    after = three(tmp_path, "b", 3, drift=(0.95, 0.951, 0.949), **ALL_NEW)
    result = compare_folders(before, after, changed=FIRMWARE)
    assert decisions(result)["ib_write_bw"] == "worse"


def test_runs_of_one_side_must_be_repeats(tmp_path):
    """Catches: a kernel that changed between two runs before the upgrade, counted as noise."""
    before = three(tmp_path, "a", 0)
    other = Night("x", nodes=NODES[:10], night=2, kernel={"n2": "6.2.0"}).write(tmp_path / "x")
    after = three(tmp_path, "b", 3, **ALL_NEW)
    with pytest.raises(TooMuchChanged, match="runs of one side"):
        compare_folders([*before[:2], other], after, changed=FIRMWARE)


def test_a_node_silent_in_one_run_after_is_not_equivalent(tmp_path):
    """Catches: a node that gives no value now and then, left to its good runs."""
    nodes = NODES
    before = three(tmp_path, "a", 0, nodes=nodes)
    after = three(tmp_path, "b", 3, nodes=nodes, firmware=NEW)[:2]
    after.append(
        Night("lost", nodes=nodes, night=6, firmware=NEW, missing=frozenset({("h2d", "n2")})).write(
            tmp_path / "lost"
        )
    )
    result = compare_folders(before, after, changed=FIRMWARE)
    h2d = next(m for m in result.metrics if "nvbandwidth" in m.metric)
    assert (h2d.decision, h2d.unpaired) == ("undecided", ("n2",))


@cases(
    "given, spread",
    (["--before", "a", "b", "--after", "c"], ["--before", "a", "--before", "b", "--after", "c"]),
    (["a", "b", "--changed", "nic"], ["a", "b", "--changed", "nic"]),
    (["--before", "a", "--changed", "nic", "--after", "c", "d"], None),
    (["--before", "--after", "c"], ["--before", "--after", "c"]),
)
def test_one_option_takes_several_runs(given, spread):
    """Catches: a second run behind --before read as an argument of its own."""
    wanted = spread or ["--before", "a", "--changed", "nic", "--after", "c", "--after", "d"]
    assert spread_out(given, ("--before", "--after")) == wanted


def test_command_takes_several_runs_or_two_and_refuses_the_rest(tmp_path, monkeypatch, capsys):
    """Catches: a run that is silently left out."""
    before, after = three(tmp_path, "a", 0), three(tmp_path, "b", 3, **ALL_NEW)
    status, out, _ = command(
        monkeypatch, capsys, "compare", "--before", *before, "--after", *after, "--changed", "nic.firmware"
    )
    assert status in (0, 3)
    assert "3 runs before and 3 after" in out
    for argv in ((before[0],), (*before, *after), (before[0], after[0], "--before", before[1])):
        status, _, err = command(monkeypatch, capsys, "compare", *argv, "--changed", "nic.firmware")
        assert (status, len(err.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("read", "decision"), [({"a", "b"}, "equivalent"), ({"a"}, "undecided"), ({"b"}, "equivalent")]
)
def test_settings_that_nobody_read_after_a_change_are_not_equivalent(pair, read, decision):
    """Catches: firmware that is as fast as before, on nodes whose settings it lost and nobody read back."""
    judged, plans = [], {}
    for name, folder in zip("ab", pair(), strict=True):
        run = Run(folder)
        none = records.reference(
            id="none",
            value=0,
            limit=0,
            unit="1",
            better="lower",
            kind=ReferenceKind.CONTRACT,
            source="intent",
        )
        item = records.item(
            stage=Stage.CONFIG,
            test="settings",
            metric="wrong",
            unit="1",
            better="lower",
            nodes=tuple((node,) for node in NODES),
            reference="none",
        )
        plans[name] = run.plan.model_copy(
            update={"items": (*run.plan.items, item), "references": {**run.plan.references, "none": none}}
        )
        settings = [
            records.measurement(
                run=run.plan.run,
                stage=Stage.CONFIG,
                test="settings",
                metric="wrong",
                value=0.0,
                unit="1",
                better="lower",
                nodes=nodes,
            )
            for nodes in item.nodes
            if name in read
        ]
        judged.append([judge_cells(plans[name], [*run.measurements(), *settings])])
    result = compare(*judged, names=("a", "b"), changed="nic.firmware", treated=UPGRADED, controls=NODES[12:])
    assert result.decision == decision
    told = "settings and counters that passed in A and were not decided in B: config/settings/wrong/n1/-/-/-"
    assert any(note.startswith(told) for note in result.notes) == (decision == "undecided")
    # A run of a part of the site, as a rerun of the fabric stage alone, has no such cells to decide.
    judged[1] = [judge_cells(Run(folder).plan, Run(folder).measurements())]
    result = compare(*judged, names=("a", "b"), changed="nic.firmware", treated=UPGRADED, controls=NODES[12:])
    assert result.decision == "equivalent"
