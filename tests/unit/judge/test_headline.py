"""The first sentence of the verdict: short, in words, and with what matters most."""

import random

import pytest

from shakedown.judge import headline
from shakedown.judge.verdict import judge
from shakedown.records.base import Outcome
from shakedown.records.plan import Plan
from shakedown.records.results import Measurement
from shakedown.records.verdict import CauseVerdict
from tests.kit import records

BANDWIDTH = {"id": "bw", "value": 392.0, "tolerance": 0.03, "ceiling": 392.0, "unit": "Gb/s"}
BANDWIDTH |= {"better": "higher", "kind": "physical", "source": "test"}
NONE = {"id": "none", "value": 0.0, "limit": 0.0, "unit": "1", "better": "lower"}
NONE |= {"kind": "contract", "source": "test"}
LATENCY = {"id": "lat", "value": 2.0, "limit": 2.5, "unit": "us", "better": "lower"}
LATENCY |= {"kind": "measured", "source": "test"}
REFERENCES = {r["id"]: r for r in (BANDWIDTH, NONE, LATENCY)}
NODES = ("n1", "n2", "n3")
PAIRS = (("n1", "n2"), ("n1", "n3"), ("n2", "n3"))


def item(test, metric, reference="bw", **fields):
    """A plan item of the three pairs on rail1."""
    ref = REFERENCES[reference]
    shared = {"unit": ref["unit"], "better": ref["better"], "reference": reference, "stage": "fabric"}
    return {**shared, "test": test, "metric": metric, "nodes": PAIRS, "rails": ("rail1",), **fields}


def verdict(items, results):
    """Judge results, (item, number of its node group, fields of the measurement)."""
    plan = Plan(
        run="r", system="s", created="now", nodes=NODES, rails=("rail1",), references=REFERENCES, items=items
    )
    lines = []
    for which, group, fields in results:
        one = plan.items[which]
        shared = {k: getattr(one, k) for k in ("stage", "test", "metric", "unit", "better", "params")}
        place = {"nodes": one.nodes[group], "rail": one.rails[0], "direction": one.directions[0]}
        lines.append(Measurement(**{**shared, **place, "run": "r", "state": "COMPLETED", **fields}))
    first = judge(plan, lines)
    random.Random(7).shuffle(lines)
    assert judge(plan, lines) == first
    return first


MESH = item("ib_write_bw", "bandwidth", directions=("forward",), params={"size_bytes": 65536})
GOOD = {"value": 391.0}


def test_a_slow_nic_is_told_as_one_would_say_it():
    """Catches a headline of identifiers, without the unit or the share, or without what it looks like."""
    found = verdict([MESH], [(0, 0, {"value": 190.0}), (0, 1, GOOD), (0, 2, GOOD)])
    assert found.reason == (
        "n1's NIC on rail1 sends to n2 at 190.0 Gb/s, 392.0 wanted (-52 %): "
        "likely a PCIe link at half width or a link at half speed, or another's traffic; 1 of 3 cells failed"
    )


def test_the_direction_decides_who_sends():
    """Catches the receiver named as the sender."""
    mesh = {**MESH, "directions": ("reverse",)}
    found = verdict([mesh], [(0, 0, {"value": 120.0}), (0, 1, GOOD), (0, 2, GOOD)])
    assert found.reason.startswith(
        "n2's NIC on rail1 sends to n1 at 120.0 Gb/s, 392.0 wanted (-69 %); 1 of 3"
    )


def test_the_reason_of_most_cells_comes_first():
    """Catches an undecided run told by the reason of one cell, where another explains all others."""
    parse = {"value": None, "problem": {"kind": "parse", "message": "its table ends inside a row"}}
    gone = {"value": None, "problem": {"kind": "environment", "message": "n3 lost: does not answer for 15 s"}}
    found = verdict([MESH], [(0, 0, parse), (0, 1, gone), (0, 2, gone)])
    assert found.reason == (
        "RDMA write bandwidth at n3 on rail1 (2 cells) is undecided: n3 lost: does not answer for 15 s; "
        "3 of 3 cells are undecided; also RDMA write bandwidth at n1 and n2 on rail1"
    )


def test_one_reason_of_several_tests_is_told_once():
    """Catches a list of metrics where their library says it all, and undecided cells left out of a FAIL."""
    names = ("nccl_all_reduce", "nccl_all_gather")
    items = [item(n, "time", "lat", stage="collective", nodes=(NODES,), rails=(None,)) for n in names]
    hung = {"value": None, "problem": {"kind": "killed", "message": "srun: hung, no end within 60 s"}}
    found = verdict(items, [(0, 0, hung), (1, 0, hung)])
    assert found.reason.startswith(
        "NCCL at n1, n2 and n3 (2 cells) is undecided: srun: hung, no end within 60 s;"
    )
    found = verdict(items, [(0, 0, {"value": 5.0}), (1, 0, hung)])
    assert found.reason == (
        "NCCL all-reduce at n1, n2 and n3 takes 5 us, at most 2.5 allowed (2 times as much); "
        "1 of 2 cells failed, 1 undecided"
    )


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.INCONCLUSIVE])
def test_it_stays_one_printable_line_whatever_a_tool_says(outcome):
    """Catches a page of a tool's output or its escapes on the first line, and a count that falls off it."""
    nodes = tuple(f"a-rather-long-name-of-a-node-{n}" for n in range(3))
    check = item(
        "gpu_state", "wrong", "none", stage="node", nodes=[(n,) for n in nodes], params={"check": "ecc"}
    )
    plan_items = [{**check, "rails": (None,)}]
    page = "\x1b[2J" + "what a tool prints, at length; " * 40
    bad = {"value": 1.0, "detail": page[:1000]}
    if outcome is Outcome.INCONCLUSIVE:
        bad = {"value": None, "problem": {"kind": "other", "message": page[:1000]}}
    plan = Plan(run="r", system="s", created="now", nodes=nodes, references=REFERENCES, items=plan_items)
    lines = [
        Measurement(
            **{k: check[k] for k in ("stage", "test", "metric", "unit", "better", "params")},
            **{"run": "r", "state": "COMPLETED", "nodes": (node,), **bad},
        )
        for node in nodes
    ]
    found = judge(plan, lines)
    line = f"{found.outcome}  {found.reason}"
    assert found.outcome is outcome
    assert len(line) <= 300 and line.isprintable()
    assert "3 of 3 cells" in line and "what a tool prints" in line


def test_a_wanted_value_is_never_beyond_what_is_possible():
    """Catches a headline that asks for more than the ceiling, where the reference's value lies above it."""
    above = {**BANDWIDTH, "value": 400.0, "tolerance": 0.05}
    plan = records.plan(MESH, references=[above], nodes=NODES, rails=("rail1",))
    shared = {k: MESH[k] for k in ("stage", "test", "metric", "unit", "better", "params")}
    line = records.measurement(**shared, value=300.0, nodes=("n1", "n2"), rail="rail1", direction="forward")
    assert "300.0 Gb/s, 392.0 wanted (-23 %)" in judge(plan, [line]).reason


def test_what_no_table_names_is_still_words():
    """Catches a benchmark added later whose headline is its identifiers."""
    own = item("stream_triad", "bandwidth", stage="node", nodes=[("n1",)], rails=(None,))
    found = verdict([own, MESH], [(0, 0, {"value": 100.0}), *((1, n, GOOD) for n in range(3))])
    assert found.reason.startswith("stream triad at n1 reaches 100.0 Gb/s, 392.0 wanted (-74 %)")


@pytest.mark.parametrize(
    ("many", "says"), [(1, "confidence 90%)"), (4, "n4 rail1 leaf0:swp1 (-20 %)"), (6, " and 2 more")]
)
def test_every_cause_is_named_up_to_four(many, says):
    """Catches: a headline that names two of four bad NICs, so that two are mended and the run fails again."""
    of = {"blamed": True, "confidence": 0.9, "effect": -0.2, "evidence": (), "proposal": "look"}
    causes = [CauseVerdict(element=f"cable n{n} rail1 leaf0:swp1", **of) for n in range(1, many + 1)]
    cells = judge(
        Plan(
            run="r",
            system="s",
            created="now",
            nodes=NODES,
            rails=("rail1",),
            references=REFERENCES,
            items=[MESH],
        ),
        [],
    ).cells
    plan = Plan(
        run="r", system="s", created="now", nodes=NODES, rails=("rail1",), references=REFERENCES, items=[MESH]
    )
    said = headline.sentence(plan, Outcome.NOT_RUN, [(cell, plan.items[0]) for cell in cells], 3, causes)
    assert said.endswith(says)
    assert all(f"n{n} rail1" in said for n in range(1, min(many, 4) + 1)) and "n5" not in said
    assert len(said) <= 2 * headline.MOST_CHARACTERS
