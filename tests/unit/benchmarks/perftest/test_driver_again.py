"""Drivers measure again what lies outside its limit, at the end and in the same job."""

from collections import defaultdict

import pytest

from shakedown.benchmarks.perftest.mesh.schedule import blocks_of, pairs_of
from shakedown.judge.localise.outdir import Outdir
from shakedown.judge.verdict import judge
from shakedown.records.base import Outcome
from shakedown.records.plan import Plan, Reference, Remeasure
from tests.kit import records

pytestmark = pytest.mark.slow  # drivers that wait for each other by the clock

LIMIT = {"test": "ib_write_bw", "size_bytes": 65536, "rails_at_once": "one", "rails": ["rail0"]}
LIMIT |= {"metric": "bandwidth", "limit": 90.0}
LOW = {"node": "n1", "side": "client", "fault": "low"}


def attempts(local):
    """Return how often each cell was measured, by source and sink."""
    found = defaultdict(list)
    for record in local.records():
        source, sink = record.nodes if record.direction == "forward" else record.nodes[::-1]
        found[source, sink].append(record.attempt)
    return {ends: sorted(numbers) for ends, numbers in found.items()}


def run(mesh, times, most_per_nic=10, **changes):
    """Run a mesh of three in which n1 sends slowly, to each partner as often as `times`."""
    rule = {"again": 2, "at_most": 6, "most_per_nic": most_per_nic, "within_s": 100, "limits": [LIMIT]}
    rule |= {**changes}
    local = mesh(3, remeasure=rule)
    local.faults = [{**LOW, "times": times}]
    assert set(local.run(timeout=120).values()) == {0}, local.errors
    return local, attempts(local)


def test_a_low_cell_is_measured_twice_again_and_no_other(mesh):
    """Catches a low result that stands alone, and healthy cells that are measured again for nothing."""
    local, found = run(mesh, times=1)
    assert found.pop(("n1", "n2")) == [1, 2, 3]
    assert found.pop(("n1", "n3")) == [1, 2, 3]
    assert set(map(tuple, found.values())) == {(1,)} and len(found) == 4
    files = {record.file for record in local.records()}
    assert all((local.out / name).is_file() for name in files) and len(files) == 10


def test_a_cell_that_stays_low_is_left_at_three(mesh):
    """Catches a driver that measures a sick cell until it passes, or for as long as it may."""
    _, found = run(mesh, times=99)
    assert found["n1", "n2"] == found["n1", "n3"] == [1, 2, 3]


def test_a_nic_that_is_low_everywhere_is_not_measured_on_and_on(mesh):
    """Catches a sick node that makes the stage take as long again."""
    _, found = run(mesh, times=1, most_per_nic=1)
    assert sorted((found["n1", "n2"], found["n1", "n3"])) == [[1], [1, 2]]


def test_a_second_start_measures_nothing_again_that_is_settled(mesh):
    """Catches a restart that adds samples until the verdict is another."""
    local, found = run(mesh, times=1)
    assert set(local.run(timeout=120).values()) == {0}
    assert attempts(local) == found


def test_no_longer_than_the_plan_allows(mesh):
    """Catches re-measurements that run into the job's time limit and take every result with them."""
    _, found = run(mesh, times=1, within_s=0.001)
    assert set(map(tuple, found.values())) == {(1,)}


@pytest.mark.parametrize(("times", "outcome"), [(1, Outcome.PASS), (99, Outcome.FAIL)])
def test_what_the_drivers_left_is_judged_by_all_of_it(mesh, times, outcome):
    """Catches attempts that the verdict does not take for samples."""
    local, _ = run(mesh, times=times)
    spec = local.spec
    limits = {"value": 100.0, "limit": LIMIT["limit"], "unit": "Gb/s", "better": "higher"}
    item = records.item(
        nodes=tuple(pairs_of(spec)),
        rails=spec.rails,
        directions=spec.directions,
        params=blocks_of(spec)[0].params,
        reference="bw",
    )
    plan = Plan(
        run="outdir",
        system="s",
        created="2026-01-01T00:00:00Z",
        nodes=tuple(spec.nodes),
        items=(item,),
        references={"bw": Reference(id="bw", kind="physical", source="test", **limits)},
        # Two transients of six cells are more than a healthy cluster's share; here the samples are asked.
        remeasure=Remeasure(tests=("ib_write_bw",), budget=0.09),
    )
    verdict = judge(plan, Outdir(local.out, spec).measurements())
    assert verdict.outcome is outcome, verdict.reason
    assert len(verdict.transients) == (2 if outcome is Outcome.PASS else 0)
    assert verdict.coverage.complete
