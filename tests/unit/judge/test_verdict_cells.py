"""The rules of one cell at their boundaries, which the decision cases do not all reach."""

import pytest
from pydantic import ValidationError

from shakedown.judge.cells import Bound, Rule, combine, judge_measurement
from shakedown.judge.verdict import judge, judge_cells
from shakedown.records.base import Outcome
from shakedown.records.plan import Plan, PlanItem, Reference
from shakedown.records.results import CounterReading, Load, Measurement
from shakedown.records.wording import where
from tests.kit.cases import cases

HIGHER = {"id": "bw", "value": 400.0, "tolerance": 0.05, "ceiling": 392.0, "unit": "Gb/s", "better": "higher"}
HIGHER |= {"kind": "physical", "source": "test"}
LOWER = {"id": "lat", "value": 2.0, "limit": 2.5, "ceiling": 0.5, "unit": "us", "better": "lower"}
LOWER |= {"kind": "physical", "source": "test"}


def verdict(value, reference=HIGHER, **fields):
    """Judge one value of a cell of n1 against a reference."""
    ref = Reference(**reference)
    named = fields.pop("metric", "m")
    shared = {"stage": "fabric", "test": "t", "metric": named, "unit": ref.unit, "better": ref.better}
    item = PlanItem(**shared, nodes=(("n1",),), reference=ref.id)
    measured = {**shared, "run": "r", "value": value, "nodes": ("n1",), "state": "COMPLETED", **fields}
    m = Measurement(**measured)
    return judge_measurement(m.cell, m, Bound(item, ref))


@cases(
    "reference, value, rule",
    (HIGHER, 380.0, Rule.WITHIN),  # the gate itself passes
    (HIGHER, 379.999, Rule.GATE),
    (HIGHER, 392.0, Rule.WITHIN),  # so does the ceiling
    (HIGHER, 392.001, Rule.IMPOSSIBLE),
    (HIGHER, 0.0, Rule.GATE),
    (HIGHER, -1.0, Rule.IMPOSSIBLE),
    (HIGHER, float("nan"), Rule.NOT_FINITE),
    (HIGHER, float("inf"), Rule.NOT_FINITE),
    (LOWER, 2.5, Rule.WITHIN),
    (LOWER, 2.501, Rule.GATE),
    (LOWER, 0.5, Rule.WITHIN),
    (LOWER, 0.499, Rule.IMPOSSIBLE),
    (LOWER, float("-inf"), Rule.NOT_FINITE),
)
def test_boundaries(reference, value, rule):
    """Catches a comparison that is off by its equals sign, or turned round for better=lower."""
    judged = verdict(value, reference)
    assert judged.rule == rule
    expected = {Rule.WITHIN: Outcome.PASS, Rule.NOT_FINITE: Outcome.INCONCLUSIVE}.get(rule, Outcome.FAIL)
    assert judged.outcome is expected


@cases(
    "value, most, outcome",
    (190.0, (0.05,), Outcome.FAIL),
    (361.0, (0.05,), Outcome.INCONCLUSIVE),
    (343.0, (0.05, 0.05), Outcome.INCONCLUSIVE),  # at both ends
    (1.0, (1.0, 1.0), Outcome.INCONCLUSIVE),
    (380.0, (1.0,), Outcome.PASS),
)
def test_a_load_excuses_no_more_than_it_can_take(value, most, outcome):
    """Catches: a NIC at half its rate that stays undecided for ever, as its hypervisor keeps back 5 %."""
    loads = [Load(node="n1", said="n1 was busy: x", most=one) for one in most]
    judged = verdict(value, loaded=loads)
    assert judged.outcome is outcome
    assert ("which takes 5% at most" in judged.reason) is (outcome is Outcome.FAIL)
    slow = verdict(25.0, LOWER, loaded=loads)  # one wait in the middle of a time has no such bound
    assert slow.outcome is Outcome.INCONCLUSIVE


def test_reason_tells_value_and_gate_apart():
    """Catches "380.0, gate 380.0": numbers that differ must differ in print."""
    assert "379.999 of 392.0 Gb/s, 97 %, gate 380.000" in verdict(379.999).reason
    assert "392.001 Gb/s is above the ceiling, at most 392.000" in verdict(392.001).reason
    assert "2.501 us, gate 2.500" in verdict(2.501, LOWER).reason


@cases(
    "samples, value, rule",
    ([385.0, 386.0], 385.5, Rule.WITHIN),
    ([370.0, 386.0], 385.5, Rule.NOISE),  # two samples, one on each side
    ([370.0, 386.0], 371.0, Rule.NOISE),  # neither is a failure sure
    ([370.0, 371.0], 370.5, Rule.GATE),
    # One bad sample of nine leaves the interval of the median on the good side.
    ([300.0, 385.0, 385.1, 385.2, 385.3, 385.4, 385.5, 385.6, 385.7], 385.3, Rule.WITHIN),
    ([385.0, 386.0], 390.0, Rule.SAMPLES),  # a value that none of its samples supports
    ([385.0, 393.0], 386.0, Rule.IMPOSSIBLE),  # one impossible repeat
    ([385.0, float("nan")], 385.0, Rule.NOT_FINITE),
)
def test_samples(samples, value, rule):
    """Catches noise that passes, and a median that is judged by its mean or by one sample."""
    assert verdict(value, samples=samples).rule == rule


@cases(
    "metric, unit, better, value, samples",
    ("rank_skew", "x", "lower", -1.0, ()),
    ("rank_skew", "x", "lower", 0.0, ()),
    ("highest_time_ratio", "x", "lower", 0.5, (-0.1, 0.5, 0.6)),
    ("time_reduction", "%", "higher", 2022.0, ()),
    ("time_reduction", "%", "higher", 100.0, ()),
    ("mfu", "%", "higher", 101.0, ()),
    ("accuracy", "%", "higher", 7646.0, ()),
    ("comm_share", "%", "lower", -5.0, ()),
    ("wrong", "1", "lower", -1.0, ()),
    ("drops", "packets", "lower", -1.0, ()),
    ("energy", "J", "lower", 0.0, ()),
    ("server_power", "kW", "lower", -0.1, ()),
    ("temperature", "degC", "lower", -273.0, ()),
    ("rate", "queries/s", "higher", 3.0, (-1.0, 3.0, 4.0)),
)
def test_what_cannot_be_is_no_result(metric, unit, better, value, samples):
    """Catches: a negative ratio, a reduction of 2,022 %, -1 wrong elements, by a gate without ceiling."""
    reference = {"id": "r", "value": 2.0, "limit": 2.0, "unit": unit, "better": better}
    reference |= {"kind": "contract", "source": "test"}
    judged = verdict(value, reference, metric=metric, samples=samples)
    assert (judged.outcome, judged.rule) == (Outcome.FAIL, Rule.IMPOSSIBLE)
    assert "cannot be: a measurement error" in judged.reason


@cases(
    "metric, unit, value",
    ("time_reduction", "%", -300.0),  # three times slower: bad, and possible
    ("traffic_share", "x", 0.0),
    ("share_of_host", "%", 104.0),  # GPU memory a little faster than the host's
    ("mfu", "%", 100 * (1 + 1e-12)),
    ("bandwidth", "Gb/s", 0.0),
)
def test_what_can_be_is_held_to_its_gate(metric, unit, value):
    """Catches: a dead link, or a slower one, called a measurement error."""
    reference = {"id": "r", "value": 2.0, "limit": 2.0, "unit": unit, "better": "higher"}
    judged = verdict(value, {**reference, "kind": "contract", "source": "test"}, metric=metric)
    assert judged.rule == (Rule.GATE if value < 2 else Rule.WITHIN)


def test_state_is_exact():
    """Catches states that merely resemble success."""
    for state in ("COMPLETING", "completed", "", "TIMEOUT", "CANCELLED by 0", "COMPLETED "):
        assert verdict(390.0, state=state).rule == Rule.JOB_STATE


@pytest.mark.parametrize("kind", ["parse", "environment", "busy", "missing-tool", "killed", "setup", "other"])
def test_every_problem_is_inconclusive(kind):
    """Catches a kind of problem that blames the hardware, or lets a value pass."""
    for value in (390.0, 1.0, None):
        judged = verdict(value, problem={"kind": kind, "message": "why"})
        assert (judged.outcome, judged.rule) == (Outcome.INCONCLUSIVE, kind)


@cases("kind", "other-gpu", "impossible")
def test_what_no_such_hardware_gives_fails(kind):
    """Catches: a value of another GPU, or above what a GPU can, that decides nothing."""
    judged = verdict(390.0, problem={"kind": kind, "message": "why"})
    assert (judged.outcome, judged.rule) == (Outcome.FAIL, kind)


LEARN = {"id": "learn", "value": 0.0, "limit": 0.0, "unit": "Gb/s", "better": "higher", "kind": "learn"}
LEARN |= {"source": "none"}


@cases(
    "value, reference, fields, outcome, rule, says",
    (390.0, HIGHER, {}, Outcome.INCONCLUSIVE, Rule.BUSY, "390 Gb/s decides nothing: process 7 was there"),
    (2.0, LOWER, {}, Outcome.INCONCLUSIVE, Rule.BUSY, "2 us decides nothing: process 7 was there"),
    (390.0, LEARN, {}, Outcome.INCONCLUSIVE, Rule.BUSY, "decides nothing: process 7 was there"),
    (300.0, HIGHER, {"detail": "5 s"}, Outcome.FAIL, Rule.GATE, "gate 380.0: process 7 was there; 5 s"),
    (393.0, HIGHER, {}, Outcome.FAIL, Rule.IMPOSSIBLE, "a measurement error: process 7 was there"),
    (
        385.0,
        HIGHER,
        {"samples": (370.0, 385.0, 386.0)},
        Outcome.INCONCLUSIVE,
        Rule.NOISE,
        "repeat it: process 7 was there",
    ),
    (None, HIGHER, {}, Outcome.INCONCLUSIVE, Rule.NO_VALUE, "the tool gave no value: process 7 was there"),
)
def test_a_value_beside_something_else(value, reference, fields, outcome, rule, says):
    """Catches: a PASS or a reference of what others used; a FAIL without that cause, or with it last."""
    judged = verdict(value, reference, disturbed="process 7 was there", **fields)
    assert (judged.outcome, judged.rule) == (outcome, rule)
    assert judged.reason.endswith(says)


PASS, FAIL, LOST = verdict(390.0), verdict(100.0), verdict(None)


@cases(
    "judged, outcome, rule",
    ([(1, PASS)], Outcome.PASS, Rule.WITHIN),
    ([(2, PASS)], Outcome.INCONCLUSIVE, Rule.FLAKY),
    ([(1, PASS), (2, PASS)], Outcome.PASS, Rule.WITHIN),
    ([(2, PASS), (3, PASS)], Outcome.INCONCLUSIVE, Rule.FLAKY),
    ([(1, FAIL), (2, PASS)], Outcome.INCONCLUSIVE, Rule.FLAKY),
    ([(1, PASS), (2, FAIL)], Outcome.INCONCLUSIVE, Rule.FLAKY),
    ([(1, PASS), (1, PASS)], Outcome.INCONCLUSIVE, Rule.DUPLICATE),
    ([(1, PASS), (1, FAIL)], Outcome.INCONCLUSIVE, Rule.DUPLICATE),
    ([(1, FAIL), (1, FAIL)], Outcome.FAIL, Rule.GATE),
    ([(1, LOST), (2, FAIL)], Outcome.FAIL, Rule.GATE),
    ([(1, LOST), (2, PASS)], Outcome.INCONCLUSIVE, Rule.FLAKY),
    ([(1, LOST), (2, LOST)], Outcome.INCONCLUSIVE, Rule.NO_VALUE),
    ([(2, FAIL)], Outcome.FAIL, Rule.GATE),
)
def test_attempts(judged, outcome, rule):
    """Catches a retry that passes, and a failure that a second line can undo."""
    for order in (judged, judged[::-1]):
        combined = combine(order)
        assert (combined.outcome, combined.rule) == (outcome, rule)


def run_plan(**fields):
    """A plan of one cell of n1."""
    item = {"stage": "fabric", "test": "t", "metric": "m", "unit": "Gb/s", "better": "higher"}
    item |= {"reference": "bw"}
    given = {"run": "r", "system": "s", "created": "now", "nodes": ["n1"], "references": {"bw": HIGHER}}
    return Plan(**{**given, "items": [{**item, "nodes": [["n1"]]}], **fields})


def measured(**fields):
    """A good measurement of that cell."""
    given = {"run": "r", "stage": "fabric", "test": "t", "metric": "m", "value": 390.0, "unit": "Gb/s"}
    return Measurement(**{**given, "better": "higher", "nodes": ["n1"], "state": "COMPLETED", **fields})


def test_plan_that_requires_nothing_does_not_pass():
    """Catches a PASS for an empty set of required cells."""
    item = run_plan().items[0].model_copy(update={"required": False})
    plan = run_plan(nodes=["n1"]).model_copy(update={"items": (item,)})
    assert judge(plan, [measured()]).outcome is Outcome.NOT_RUN


def test_rail_of_the_plan_without_a_cell():
    """Catches a rail that is in the plan and in no cell."""
    result = judge(run_plan(rails=["rail7"]), [measured()])
    assert result.outcome is Outcome.NOT_RUN
    assert "rail rail7 is in the plan, but no required cell measures it" in result.reason


def test_measurement_of_another_run_is_never_counted():
    """Catches a core that relies on its reader for this."""
    result = judge(run_plan(), [measured(run="other")])
    assert result.outcome is Outcome.NOT_RUN
    assert result.unplanned == (measured().cell,)


def test_reported_problem_beats_pass_and_not_failure():
    """Catches a flaw of the run that is lost, and one that hides a failure."""
    assert judge(run_plan(), [measured()], problems=["cut off"]).outcome is Outcome.INCONCLUSIVE
    assert judge(run_plan(), [measured(value=1.0)], problems=["cut off"]).outcome is Outcome.FAIL


def test_counter_read_twice():
    """Catches two readings of one counter of which the harmless one wins."""
    drops = {"id": "d", "value": 0.0, "limit": 0.0, "unit": "packets", "better": "lower"}
    drops |= {"kind": "contract", "source": "test"}
    item = {"stage": "fabric", "test": "t", "metric": "counter.drops", "unit": "packets", "better": "lower"}
    item |= {"reference": "d", "nodes": [["leaf1"]], "params": {"port": "Ethernet0"}}
    plan = run_plan(nodes=["leaf1"], items=[item], references={"d": drops})
    reading = {"run": "r", "stage": "fabric", "test": "t", "kind": "switch_port", "device": "leaf1"}
    reading |= {"port": "Ethernet0", "counter": "drops", "before": 0}
    readings = [CounterReading(**reading, after=after) for after in (0, 7)]
    ((cell,),) = (block.cells for block in judge_cells(plan, [], readings).items)
    assert cell.rule == Rule.DUPLICATE


@cases(
    "cell, text",
    ("fabric/t/m/n1/rail3/rx/size=1", "n1 rail3 rx t m size=1"),
    ("fabric/t/m/n1,n2/-/forward/-", "n1 -> n2 t m"),
    ("fabric/t/m/n1,n2/-/reverse/-", "n2 -> n1 t m"),
    ("fabric/t/m/n1,n2/-/both/-", "n1,n2 both t m"),
    ("fabric/t/m/a,b,c,d/-/-/path=/dev/x,y=1", "a..d (4 nodes) t m path=/dev/x y=1"),
)
def test_where(cell, text):
    """Catches a direction told the wrong way round."""
    assert where(cell) == text


def test_worst_first():
    """Catches a list that starts with a detail: failures by distance, then doubts, then gaps."""
    nodes = ["n5", "n1", "n4", "n2", "n3"]
    item = {"stage": "fabric", "test": "t", "metric": "m", "unit": "Gb/s", "better": "higher"}
    item |= {"reference": "bw"}
    plan = run_plan(nodes=nodes, items=[{**item, "nodes": [[n] for n in nodes]}])
    values = {"n1": 370.0, "n2": 100.0, "n4": None, "n5": 390.0}
    lines = [measured(nodes=[node], value=value) for node, value in values.items()]
    listed = [cell.cell.split("/")[3] for cell in judge(plan, lines).cells]
    assert listed == ["n2", "n1", "n4", "n3"]


def test_unplanned_cells_are_sorted():
    """Catches a verdict that differs from process to process by the order of a set."""
    lines = [measured()] + [measured(metric=f"x{i}") for i in range(20)]
    unplanned = judge(run_plan(), lines).unplanned
    assert len(unplanned) == 20 and list(unplanned) == sorted(unplanned)


@pytest.mark.parametrize("value", ["1,b=2", "a=b", "x\ny"])
def test_parameters_that_could_forge_a_cell_id_are_refused(value: str) -> None:
    """Catches {a: "1,b=2"} taken for {a: 1, b: 2}: one cell would stand for another."""
    with pytest.raises(ValidationError):
        PlanItem.model_validate(
            {
                "stage": "fabric",
                "test": "t",
                "metric": "m",
                "unit": "1",
                "better": "higher",
                "nodes": [["n1"]],
                "params": {"a": value},
                "reference": "r",
            }
        )


def test_a_reason_says_nothing_twice_and_quotes_no_good_value():
    """Catches: a problem repeated as its own detail; the words of a good value as why its job ended badly."""
    twice = verdict(None, problem={"kind": "setup", "message": "no LLDP"}, detail="no LLDP")
    assert twice.reason.count("no LLDP") == 1
    ended = verdict(391.0, state="NOT-SUBMITTED", detail="p99 14.80 ms, worst of 3 full runs")
    assert ended.reason.endswith(": its job ended NOT-SUBMITTED, not COMPLETED")
