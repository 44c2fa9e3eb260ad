"""Clocks: how far a node's is off, as far as round trips can tell, and what a reader is told."""

import importlib.util
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from shakedown.collect.run import gather
from shakedown.judge.verdict import judge
from shakedown.records.results import ClockReading, Snapshot
from shakedown.references.catalogue import Catalogue
from tests.kit.cases import cases
from tests.kit.run import write_run
from tests.kit.site import fabric, plan_site, with_nics

CHECKOUT = Path(__file__).resolve().parents[4]
CELL = "config/clock/offset/n2/-/-/-"


def reading_of_the_role():
    """Load the role's plugin."""
    path = CHECKOUT / "roles/inventory_snapshot/action_plugins/read_clock.py"
    spec = importlib.util.spec_from_file_location("read_clock", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_round_trips_narrow_each_other():
    """Catches: an offset that is no better known than by the slowest of its round trips."""
    bounds = reading_of_the_role().bounds
    # 90 s ahead; the first round trip waits after the clock was read, the second before it.
    assert bounds([(10.0, 100.1, 12.0), (20.0, 111.9, 22.0)]) == pytest.approx((89.9, 90.1))


def test_a_clock_that_was_set_meanwhile_tells_nothing():
    """Catches: bounds that exclude each other, taken for a reading."""
    bounds = reading_of_the_role().bounds
    assert bounds([(10.0, 10.1, 10.2), (20.0, 50.1, 20.2)]) is None
    assert bounds([]) is None


@pytest.fixture
def verdict(tmp_path):
    """Judge a run of two nodes and a submit host; call it with n2's bounds in seconds."""

    def judged(*clocks: tuple[str, float, float, str], **config: float):
        plan, jobs = plan_site(
            with_nics(fabric(), ("n1", "n2"), acceptance={"config": config}), Catalogue([])
        )
        (tmp_path / "raw").mkdir(exist_ok=True)
        write_run(tmp_path, plan, jobs)
        parts = [{"host": n, "kind": "node", "name": n, "attributes": {"boot_id": n}} for n in plan.nodes]
        found = [dict(zip(("host", "low_s", "high_s", "munge"), clock, strict=True)) for clock in clocks]
        document = {"schema": 1, "run": "r1", "taken": "2026-11-20T00:00:00Z", "components": parts}
        (tmp_path / "inventory.json").write_text(json.dumps(document | {"submit": "head", "clocks": found}))
        measurements, counters = gather(tmp_path)
        return judge(plan, measurements, counters)

    return judged


HEAD = ("head", -0.05, 0.05, "Success")
NEAR = ("n1", -0.1, 0.1, "Success")


def cell(found, name=CELL):
    """Return a cell that did not pass, or None."""
    return next((c for c in found.cells if c.cell == name), None)


def test_a_clock_an_hour_ahead_is_the_first_sentence(verdict):
    """Catches: Slurm's state of the node as the whole story, when its clock is an hour off."""
    found = verdict(HEAD, NEAR, ("n2", 3599.9, 3600.1, "Expired credential"))
    assert found.outcome == "FAIL"
    assert found.reason.startswith(
        "n2's clock is 3600 s ahead of head's (± 0.15 s), at most 1 s allowed; "
        "munge refuses credentials: Expired credential"
    ), found.reason
    assert cell(found, CELL.replace("n2", "n1")) is None


def test_a_clock_behind_is_said_so(verdict):
    """Catches: an offset whose direction is lost or turned round."""
    found = verdict(HEAD, NEAR, ("n2", -90.2, -89.8, "Success"))
    assert "n2's clock is 90 s behind head's" in found.reason
    assert "munge" not in found.reason


@cases(
    "low, high, outcome",
    (-0.5, 0.5, None),
    (0.8, 0.9, None),  # within 0.75 to 0.95 of the submit host's
    (0.9, 1.5, "NOT-RUN"),  # on both sides of the limit
    (-30.0, 30.0, "NOT-RUN"),
    (1.01, 1.04, "NOT-RUN"),  # 0.96 to 1.09: the submit host's own reading has bounds too
    (1.06, 1.1, "FAIL"),
    (-1.1, -1.06, "FAIL"),
)
def test_only_what_the_round_trips_prove_is_decided(verdict, low, high, outcome):
    """Catches: a slow connection that passes or fails a clock by chance."""
    found = cell(verdict(HEAD, NEAR, ("n2", low, high, "")))
    assert (found and found.outcome) == outcome, found
    if outcome == "NOT-RUN":
        assert "cannot be told" in found.reason


def test_a_site_may_set_its_own_limit(verdict):
    """Catches: a key of acceptance.yml that is read and not used."""
    clock = ("n2", 1.9, 2.1, "")
    assert cell(verdict(HEAD, NEAR, clock)).outcome == "FAIL"
    assert cell(verdict(HEAD, NEAR, clock, clock_offset_s=3.0)) is None


def test_a_clock_that_was_not_read_is_not_run_and_required(verdict):
    """Catches: a pass without a reading, of the node or of the host that it is held against."""
    assert "the clock of n2 was not read" in cell(verdict(HEAD, NEAR)).reason
    found = cell(verdict(NEAR, ("n2", 0.0, 0.1, "")))
    assert found.outcome == "NOT-RUN"
    assert "the clock of the submit host was not read" in found.reason


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (float("nan"), 0.0), (0.0, float("inf"))])
def test_bounds_that_are_none_are_refused(bounds):
    """Catches: a reading in the wrong order or not finite, with which every comparison is false."""
    with pytest.raises(ValidationError):
        ClockReading(host="n1", low_s=bounds[0], high_s=bounds[1])


def test_an_old_snapshot_without_clocks_is_still_read():
    """Catches: runs of before that can no longer be judged."""
    old = Snapshot.model_validate({"schema": 1, "run": "r", "taken": "then", "components": []})
    assert old.ahead_s("n1") is None
