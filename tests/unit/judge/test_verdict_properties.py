"""What must hold for every run: no line can be added, doubled, moved or removed to a run's advantage."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shakedown.judge.cells import SEVERITY
from shakedown.judge.verdict import judge
from shakedown.records.base import Outcome, to_json
from shakedown.records.plan import Plan
from shakedown.records.results import Measurement
from tests.kit import records

NODES = tuple(f"n{i}" for i in range(1, 8))
SHARED = {"stage": "fabric", "test": "t", "unit": "Gb/s", "better": "higher"}
REFERENCE = {"id": "bw", "value": 400.0, "tolerance": 0.05, "ceiling": 392.0, "unit": "Gb/s"}
REFERENCE |= {"better": "higher", "kind": "physical", "source": "test", "fleet_min_effect": 0.01}
PLAN = records.plan(
    references=[REFERENCE],
    nodes=NODES,
    items=[
        {**SHARED, "metric": "bw", "nodes": [[n] for n in NODES], "reference": "bw"},
        {**SHARED, "metric": "other", "nodes": [NODES[:2]], "reference": "bw"},
        {**SHARED, "metric": "aside", "nodes": [["n1"]], "reference": "bw", "required": False},
    ],
)

# The machine may be busy: a slow example is not a wrong one.
UNHURRIED = settings(deadline=None)
MANY = settings(deadline=None, max_examples=300)
STATE = {"state": "COMPLETED"}
GOOD = st.sampled_from([391.0, 390.9, 390.8, 391.1])
BAD_VALUES = st.sampled_from([0.0, 196.0, 379.9, 393.0, 1e9])
BAD_FIELDS = st.one_of(
    st.fixed_dictionaries({"value": BAD_VALUES}),
    st.sampled_from(
        [
            {"value": None},
            {"value": float("nan")},
            {"state": "TIMEOUT"},
            {"unit": "GB/s"},
            {"problem": {"kind": "busy", "message": "other job"}},
            {"samples": (370.0, 391.0)},
        ]
    ),
)


@st.composite
def measurements(draw, fields):
    """A measurement of one of the planned cells, or of one that is not planned."""
    metric = draw(st.sampled_from(["bw", "bw", "bw", "other", "aside"]))
    nodes = NODES[:2] if metric == "other" else (draw(st.sampled_from((*NODES, "n99"))),)
    extra = {"attempt": draw(st.sampled_from([1, 1, 1, 2])), "value": 391.0, **draw(fields)}
    return Measurement(
        **{**SHARED, "run": "r", "metric": metric, "nodes": nodes, "state": "COMPLETED", **extra}
    )


GOOD_FIELDS = GOOD.map(lambda v: {"value": v})
ANY = st.lists(measurements(st.one_of(GOOD_FIELDS, BAD_FIELDS)), max_size=14)


def full(draw_values):
    """One good first measurement of every cell."""
    cells = [("bw", (n,)) for n in NODES] + [("other", NODES[:2])]
    return [
        Measurement(**SHARED, run="r", metric=metric, nodes=nodes, state="COMPLETED", value=value)
        for (metric, nodes), value in zip(cells, draw_values, strict=True)
    ]


FULL = st.lists(GOOD, min_size=8, max_size=8).map(full)


def severity(lines) -> int:
    """How bad the verdict is."""
    return SEVERITY[judge(PLAN, lines).outcome]


@UNHURRIED
@given(FULL)
def test_a_full_good_run_passes(lines):
    """Catches properties that hold only because nothing ever passes."""
    assert judge(PLAN, lines).outcome is Outcome.PASS


@UNHURRIED
@given(st.one_of(ANY, FULL), st.randoms(use_true_random=False))
def test_order_of_lines_does_not_matter(lines, shuffler: random.Random):
    """Catches a verdict that depends on which of two lines comes last: identical to the byte."""
    shuffled = list(lines)
    shuffler.shuffle(shuffled)
    assert to_json(judge(PLAN, lines)) == to_json(judge(PLAN, shuffled))


@pytest.mark.slow
@MANY
@given(st.one_of(ANY, FULL, st.tuples(FULL, ANY).map(lambda t: t[0] + t[1])), measurements(BAD_FIELDS))
def test_a_bad_line_never_improves(lines, bad):
    """Catches a failure that can be buried under another bad result, in the same cell or in another."""
    assert severity([*lines, bad]) >= severity(lines)


@UNHURRIED
@given(st.one_of(ANY, FULL), st.one_of(st.none(), BAD_FIELDS), st.sampled_from(["bw", "new"]))
def test_a_bad_cell_never_improves(lines, fields, metric):
    """Catches a plan that passes better for a further cell that is bad or was not measured."""
    shared = {**SHARED, "metric": metric, "nodes": ["n1", "n8"]}
    items = [*PLAN.model_dump()["items"], {**shared, "nodes": [["n1", "n8"]], "reference": "bw"}]
    wider = Plan.model_validate({**PLAN.model_dump(by_alias=True), "items": items})
    extra = (
        [] if fields is None else [Measurement(**{"value": 391.0, **shared, "run": "r", **STATE, **fields})]
    )
    worst = max(severity(lines), SEVERITY[Outcome.NOT_RUN])
    assert SEVERITY[judge(wider, [*lines, *extra]).outcome] >= worst


@pytest.mark.slow
@MANY
@given(st.one_of(ANY, FULL), st.data())
def test_a_doubled_line_never_improves(lines, data):
    """Catches a failure that turns into a mere doubt when its line is written twice."""
    if lines:
        line = data.draw(st.sampled_from(lines))
        assert severity([*lines, line]) >= severity(lines)


@UNHURRIED
@given(FULL, st.integers(0, 7))
def test_a_removed_line_never_passes(lines, gone):
    """Catches coverage that is not counted: every line of a passing run is needed."""
    assert judge(PLAN, lines[:gone] + lines[gone + 1 :]).outcome is not Outcome.PASS


@pytest.mark.slow
@MANY
@given(st.one_of(ANY, st.tuples(FULL, measurements(BAD_FIELDS)).map(lambda t: [*t[0], t[1]])), st.data())
def test_removing_all_of_a_cell_never_makes_a_pass(lines, data):
    """Catches a bad cell that can be hidden by deleting what was measured of it."""
    required = [m for m in lines if m.metric != "aside" and m.nodes != ("n99",)]
    if required:
        cell = data.draw(st.sampled_from(required)).cell
        assert judge(PLAN, [m for m in lines if m.cell != cell]).outcome is not Outcome.PASS


@UNHURRIED
@given(ANY)
def test_pass_means_every_required_cell_passed(lines):
    """Catches a PASS beside an undecided required cell, and coverage that counts other cells."""
    verdict = judge(PLAN, lines)
    required = verdict.groups[0].outcomes, verdict.groups[1].outcomes
    all_passed = all(n == 0 for o in required for k, n in o.items() if k is not Outcome.PASS)
    assert (verdict.outcome is Outcome.PASS) == all_passed
    assert verdict.coverage.planned == 8 and verdict.coverage.measured <= 8
