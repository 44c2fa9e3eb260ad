"""Every figure of every shipped profile, worsened alone: each gate by itself, and each inventory's own plan.

The wiring from a profile to the cells of a plan is test_systems.py's; here no profile is left out, also those
that no shipped inventory plans.
"""

from fnmatch import fnmatch

import pytest

from shakedown.judge.verdict import judge
from shakedown.records.base import Better
from shakedown.records.plan import ReferenceKind
from shakedown.records.results import CounterReading, Measurement
from shakedown.references.catalogue import ReferenceEntry
from shakedown.references.files import load_profile, profile_names
from tests.kit import records

FIVE_PERCENT = 0.05
# Gates wider than 5 %, by row, and the spread that the row's own source or signature states.
LATENCY = "published once and bound by latency, where hosts of one type differ by half"
RUNS = "twice the range of the runs, which each row notes"
STEPS = "the number of steps to the target varies by 13 %"
WIDER = {
    "mle-a100x8-all-reduce-*[0-9]k": LATENCY,
    "mle-a100x8-all-reduce-1m": LATENCY,
    "mle-a100x8-all-reduce-2m": LATENCY,
    "mle-a100x8-all-reduce-4m": LATENCY,
    "mle-a100x8-all-reduce-8m": LATENCY,
    "mle-a100x8-all-reduce-16m": LATENCY,
    "h200x4-alltoall-64m": RUNS,
    "h200x4-alltoall-128m": RUNS,
    "h200x4-alltoall-256m": RUNS,
    "h200x4-alltoall-512m": RUNS,
    "h200x4-*-time": "hosts differ by a factor of two, runs by half",
    "h200x4-all-reduce-time-srun": "hosts differ by a factor of two",
    "mlperf-lora-8xh100-duration": STEPS,
    "mlperf-lora-8xh200-duration": STEPS,
    "lora-rank-skew": "a contract: ten per cent between GPUs of a node is a fault",
    "lora-traffic": "a contract: less than nine tenths did not pass the fabric",
    "pub-dgx-h100-resnet50-latency": "MLPerf's own bound, 15 ms; 13.92 ms is what one submission reached",
}
PUBLISHED = {*ReferenceKind} - {ReferenceKind.BASELINE, ReferenceKind.PHYSICAL, ReferenceKind.LEARN}


def figures() -> list[ReferenceEntry]:
    """Every row that decides and that somebody measured, published or demands."""
    rows = [entry for name in profile_names() for entry in load_profile(name).entries]
    return [entry for entry in rows if entry.gates and entry.reference().kind in PUBLISHED]


def reason(row: str) -> str | None:
    """Why a row's gate is wider than 5 %, if it may be."""
    return next((why for pattern, why in WIDER.items() if fnmatch(row, pattern)), None)


def verdict_at(entry: ReferenceEntry, value: float):
    """The verdict on one cell that is held to this row."""
    reference, node = entry.reference(), ("n1",)
    counter = entry.metric.startswith("counter.")
    params = {"port": "p1"} if counter else {}
    item = records.item(
        stage=entry.stage,
        test=entry.test,
        metric=entry.metric,
        unit=entry.unit,
        better=entry.better,
        nodes=(node,),
        params=params,
        reference=entry.id,
    )
    plan = records.plan(
        item, references=[reference], run="r1", system="one", created="2026-11-20T08:00:00Z", nodes=node
    )
    where = {"schema": 1, "run": "r1", "stage": entry.stage, "test": entry.test, "rail": None}
    if counter:
        port = {"kind": "switch_port", "device": "n1", "port": "p1", "before": 7, "after": 7 + int(value)}
        name = entry.metric.removeprefix("counter.")
        return judge(plan, [], [CounterReading.model_validate({**where, **port, "counter": name})])
    found = {"metric": entry.metric, "value": value, "unit": entry.unit, "better": entry.better}
    more = {"nodes": node, "direction": None, "params": params, "job": "1", "state": "COMPLETED"}
    return judge(plan, [Measurement.model_validate({**where, **found, **more})], [])


@pytest.mark.parametrize("entry", figures(), ids=lambda entry: entry.id)
def test_a_figure_five_percent_worse_fails(entry):
    """Catches: a gate that lets 5 % go, exactly 5 % too; one that is wider than its source says."""
    reference = entry.reference()
    assert verdict_at(entry, reference.value).outcome == "PASS"
    if reference.value:
        spread = abs(reference.gate / reference.value - 1)
        assert (spread >= FIVE_PERCENT) is (reason(entry.id) is not None), f"{spread:.1%}"
        away = max(FIVE_PERCENT, spread + 0.001)
        worse = reference.value * (1 - away if entry.better is Better.HIGHER else 1 + away)
    else:
        worse = 1.0  # one event where none is allowed
    verdict = verdict_at(entry, worse)
    assert verdict.outcome == "FAIL"
    assert [cell.outcome for cell in verdict.cells] == ["FAIL"]
    assert "n1" in verdict.reason


def test_every_reason_for_a_wider_gate_has_its_rows():
    """Catches: a reason that has outlived its row, and then excuses the next row of that name."""
    rows = [entry.id for entry in figures()]
    assert [pattern for pattern in WIDER if not any(fnmatch(row, pattern) for row in rows)] == []
