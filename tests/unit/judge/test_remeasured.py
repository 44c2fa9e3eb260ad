"""Cells that were measured again: what passes, what is told, and what no second measurement excuses."""

import random

import pytest

from shakedown.judge.verdict import judge
from shakedown.records.base import Outcome
from shakedown.records.plan import Plan, PlanItem, Remeasure
from shakedown.records.results import Measurement, RunProblem
from tests.kit import records
from tests.kit.cases import cases

NODES = tuple(f"n{i:02d}" for i in range(1, 25))
PAIRS = tuple((a, b) for i, a in enumerate(NODES) for b in NODES[i + 1 :])
SHARED = {"stage": "fabric", "test": "ib_write_bw", "metric": "bandwidth", "unit": "Gb/s", "better": "higher"}
REFERENCE = records.reference(
    id="bw", value=400.0, tolerance=0.05, ceiling=400.0, kind="physical", fleet_min_effect=0.035
)


RULE = Remeasure(tests=("ib_write_bw",))


def plan(rule: Remeasure | None = RULE, **changes) -> Plan:
    """A mesh of 24 nodes on one rail, 552 cells, with or without the rule."""
    item = PlanItem(
        **(SHARED | changes), nodes=PAIRS, rails=("rail0",), directions=("forward", "reverse"), reference="bw"
    )
    reference = REFERENCE.model_copy(update={k: changes[k] for k in ("unit",) if k in changes})
    return records.plan(item, references=[reference], nodes=NODES, rails=("rail0",), remeasure=rule)


def samples(special: dict, **changes) -> list[Measurement]:
    """Every cell at 390 Gb/s at once, but those of `special`: (pair, direction) -> samples."""
    lines = []
    for pair in PAIRS:
        for direction in ("forward", "reverse"):
            for attempt, value in enumerate(special.get((pair, direction), (390.0,)), start=1):
                problem = RunProblem(kind="other", message="ended with 1") if value is None else None
                state = "NODE_FAIL" if value == "died" else "COMPLETED"
                lines.append(
                    records.measurement(
                        **SHARED | changes,
                        nodes=pair,
                        rail="rail0",
                        direction=direction,
                        value=None if value == "died" else value,
                        state=state,
                        attempt=attempt,
                        problem=problem,
                    )
                )
    random.Random(1).shuffle(lines)
    return lines


ONE = (("n01", "n02"), "forward")


@cases(
    "values, outcome, rule",
    ((370.0, 390.0, 391.0), Outcome.PASS, "transient"),
    ((370.0, 370.0, 390.0, 390.0, 390.0), Outcome.PASS, "transient"),
    ((None, 390.0, 390.0), Outcome.PASS, "late"),
    ((None, 390.0, None, 390.0), Outcome.PASS, "late"),
    ((370.0,), Outcome.FAIL, "gate"),  # measured again by no one
    ((370.0, 390.0), Outcome.FAIL, "gate"),
    ((370.0, 370.0, 390.0), Outcome.FAIL, "gate"),
    ((370.0, 370.0, 370.0, 390.0, 390.0, 390.0, 390.0), Outcome.FAIL, "gate"),
    ((370.0, 401.0, 390.0), Outcome.INCONCLUSIVE, "flaky"),  # beyond the ceiling is no measurement
    (("died", 390.0, 390.0), Outcome.INCONCLUSIVE, "flaky"),  # a job that died is not retried into a PASS
    ((370.0, "died", 390.0, 390.0), Outcome.INCONCLUSIVE, "flaky"),
)
def test_all_samples_decide(values, outcome, rule):
    """Catches a failure that a single good repetition hides, and a retried dead job that passes."""
    verdict = judge(plan(), samples({ONE: values}))
    found = {c.rule: c for c in (*verdict.cells, *verdict.transients)}
    assert verdict.outcome is outcome
    assert set(found) == {rule}
    told = "measured again" in verdict.reason
    assert told is (outcome is Outcome.PASS)


@pytest.mark.parametrize("values", [(370.0, 390.0, 391.0), (None, 390.0, 390.0), (370.0,)])
def test_a_plan_without_the_rule_judges_as_before(values):
    """Catches the rule at work in plans that do not hold it."""
    verdict = judge(plan(None), samples({ONE: values}))
    wanted = Outcome.FAIL if len(values) == 1 else Outcome.INCONCLUSIVE
    assert verdict.outcome is wanted and not verdict.transients


def test_what_is_counted_is_never_retried_away():
    """Catches wrong sums that pass because later ones were right."""
    counted = {"unit": "1", "metric": "wrong"}
    verdict = judge(plan(**counted), samples({ONE: (370.0, 390.0, 390.0)}, **counted))
    assert verdict.outcome is not Outcome.PASS


def test_a_hidden_attempt_does_not_pass():
    """Catches a re-measurement that was taken out of the files: attempts 1, 3 and 4 are not all samples."""
    lines = samples({ONE: (370.0, 371.0, 390.0, 390.0)})
    verdict = judge(plan(), [m for m in lines if m.attempt != 2])
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_transients_that_pile_up_on_a_nic_fail():
    """Catches a flapping NIC: each of its cells passes when measured again, all of them together do not."""
    one_low = (370.0, 390.0, 390.0)
    flapping = {(p, "forward"): one_low for p in PAIRS if p[0] == "n05"}
    verdict = judge(plan(), samples(dict(list(flapping.items())[:8])))
    assert verdict.outcome is Outcome.FAIL
    assert {c.rule for c in verdict.cells} == {"piled-up"}
    assert "nic n05 rail0 tx" in verdict.cells[0].reason
    apart = {(p, "forward"): one_low for p in (("n01", "n02"), ("n07", "n09"), ("n11", "n20"))}
    assert judge(plan(), samples(apart)).outcome is Outcome.PASS


def test_tools_that_end_without_a_value_decide_nothing_where_they_pile_up():
    """Catches: a node that crashed tools in a lost round, blamed for rates that were all well."""
    late = {(p, "forward"): (None, 390.0, 390.0) for p in PAIRS if p[0] == "n05"}
    verdict = judge(plan(), samples(late))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert {c.rule for c in verdict.cells} == {"piled-up"}
    assert "nothing bad was measured" in verdict.cells[0].reason


def test_more_transients_than_the_budget_fail():
    """Catches a fabric that is bad everywhere, a little: no NIC has more than its share."""
    spread = {(PAIRS[k], "forward"): (370.0, 390.0, 390.0) for k in range(0, len(PAIRS), 12)}
    verdict = judge(plan(), samples(spread))
    assert verdict.outcome is Outcome.FAIL
    assert "the plan's share" in verdict.cells[0].reason


def test_a_nic_slower_than_its_class_fails_within_the_gate():
    """Catches a slow NIC whose every cell lies within a gate at -5 %, and a low cell blamed on a NIC."""
    slow = {(p, "forward"): (390.0 * 0.975 + 0.01 * k,) for k, p in enumerate(PAIRS) if p[0] == "n05"}
    slower = {(p, "forward"): (380.01 + 0.05 * (k % 3),) for k, p in enumerate(PAIRS) if p[0] == "n05"}
    reference = REFERENCE.model_copy(update={"fleet_min_effect": 0.0252})
    strict = plan().model_copy(update={"references": {"bw": reference}})
    assert judge(strict, samples(slow)).outcome is Outcome.PASS
    verdict = judge(strict, samples(slower))
    assert verdict.outcome is Outcome.FAIL
    assert {c.rule for c in verdict.cells} == {"outlier"}
    assert all("nic n05 rail0 tx" in c.reason for c in verdict.cells)


def test_a_slow_nic_is_held_against_its_own_rail_too():
    """Catches a NIC at -5 % that passes because its whole rail ran 2 % fast when it was measured.

    Against the NICs of all rails it is 3.1 % slow, which its class allows.
    """
    rails = ("rail0", "rail1", "rail2")
    whole = plan()
    item = whole.items[0].model_copy(update={"rails": rails})
    reference = REFERENCE.model_copy(update={"value": 390.0})
    wide = whole.model_copy(update={"items": (item,), "rails": rails, "references": {"bw": reference}})
    level = {"rail0": 390.0, "rail1": 390.0 * 1.02, "rail2": 390.0}

    def mesh(share: float) -> list[Measurement]:
        lines = []
        for rail in rails:
            for m in samples({}):
                sends = m.nodes[0] if m.direction == "forward" else m.nodes[1]
                slow = share if (rail, sends) == ("rail1", "n05") else 1.0
                value = level[rail] * slow + 0.1 * (sum(map(ord, "".join(m.nodes))) % 5)
                lines.append(m.model_copy(update={"rail": rail, "value": value}))
        return lines

    assert judge(wide, mesh(1.0)).outcome is Outcome.PASS
    verdict = judge(wide, mesh(0.95))
    assert verdict.outcome is Outcome.FAIL
    assert {c.rule for c in verdict.cells} == {"outlier"} and len(verdict.cells) == 23
    assert all("nic n05 rail1 tx" in c.reason and "of 48 on rail1" in c.reason for c in verdict.cells)
