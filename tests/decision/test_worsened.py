"""Every figure of every shipped profile, worsened alone and on a whole fleet, which has no outlier then.

The wiring from a profile to the cells of a plan is test_systems.py's; here no profile is left out, also those
that no shipped inventory plans.
"""

from fnmatch import fnmatch

import pytest

from shakedown.judge.verdict import judge
from shakedown.records.base import Better
from shakedown.records.plan import PlanItem, ReferenceKind
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
    "h200-lora-7b-fp8-loss": "the same job in bf16 differs by 8 % (CV) between four seeds",
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


NODES = tuple(f"n{i:02d}" for i in range(1, 13))
COUNTS = frozenset({"1", "x", "%"})  # what counts or compares: no fleet is 5 % slow in it
# Rows whose value is not what a healthy system is known to reach, beside those of test_worsened.
NOT_REACHED = {
    "primergy-copy-*": "what PCIe carries at most, of which hosts reach 85 to 99 %; the data rates decide",
    "pt-b-*-256m": "what TCP carries at most on the network that is compared with; the times decide",
    "h200x4-resnet50-*": "the baseline of one host, at a tenth less",
    "h200-rate-p1-*": "the slowest second of a run, at a tenth less; the median of the seconds decides",
}


def rows(profile: str) -> list[ReferenceEntry]:
    """The rows of a profile that decide on a rate or a time."""
    entries = load_profile(profile).entries
    return [e for e in entries if e.gates and e.unit not in COUNTS and e.reference().value]


def excused(row: str) -> bool:
    """Whether 5 % less may pass a row by itself, with its reason in writing."""
    return reason(row) is not None or any(fnmatch(row, pattern) for pattern in NOT_REACHED)


@pytest.mark.parametrize("profile", [name for name in profile_names() if rows(name)])
def test_a_fleet_that_lost_five_percent_fails(profile):
    """Catches: a profile that accepts a fleet of which each node lost 5 %; such a row without a reason."""
    items, references, results = [], {}, []
    for entry in rows(profile):
        reference = references[entry.id] = entry.reference()
        shared = {"stage": entry.stage, "test": entry.test, "metric": entry.metric}
        shared |= {"params": {"row": entry.id}}
        shared |= {"unit": entry.unit, "better": entry.better}
        nodes = tuple((node,) for node in NODES)
        items.append(PlanItem(**shared, nodes=nodes, reference=entry.id))
        slow = reference.value * (0.95 if entry.better is Better.HIGHER else 1.05)
        results += [
            Measurement(run="r", **shared, nodes=node, value=slow, state="COMPLETED") for node in nodes
        ]
    plan = records.plan(*items, references=references.values(), system="fleet", nodes=NODES)
    verdict = judge(plan, results)
    assert verdict.outcome == "FAIL"
    passed = {group.reference for group in verdict.groups if group.outcomes.get("PASS") == len(NODES)}
    assert {row for row in passed if not excused(row)} == set()


def test_every_row_that_is_not_reached_lets_five_percent_pass():
    """Catches: a reason that has outlived its row, and excuses the next row of that name."""
    lax = [
        entry.id
        for profile in profile_names()
        for entry in rows(profile)
        if abs(entry.reference().gate / entry.reference().value - 1) >= 0.05 - 1e-9
    ]
    assert [p for p in NOT_REACHED if not any(fnmatch(row, p) for row in lax)] == []
