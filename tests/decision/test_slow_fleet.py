"""A fleet that is slow as one has no outlier: each shipped profile must fail it by its gates.

Every row of a profile that holds a rate or a time, on twelve nodes at once, each 5 % worse than its value.
"""

from fnmatch import fnmatch

import pytest

from shakedown.judge.verdict import judge
from shakedown.records.base import Better
from shakedown.records.plan import PlanItem
from shakedown.records.results import Measurement
from shakedown.references.catalogue import ReferenceEntry
from shakedown.references.files import load_profile, profile_names
from tests.decision.test_worsened import reason
from tests.kit import records

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
