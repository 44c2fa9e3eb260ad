"""Records that tests judge: of one bandwidth between nodes, unless told otherwise."""

from collections.abc import Iterable
from typing import Any

from shakedown.plan.jobs import JobSpec
from shakedown.records.plan import Plan, PlanItem, Reference
from shakedown.records.results import CounterReading, Measurement
from tests.kit.site import CREATED

_WHAT: dict[str, Any] = {"stage": "fabric", "test": "ib_write_bw"}
_BANDWIDTH: dict[str, Any] = {**_WHAT, "metric": "bandwidth", "unit": "Gb/s", "better": "higher"}


def item(**changes: Any) -> PlanItem:
    """Return a plan's item."""
    return PlanItem(**{**_BANDWIDTH, **changes})


def reference(**changes: Any) -> Reference:
    """Return what a bandwidth is held to."""
    return Reference(**{"unit": "Gb/s", "better": "higher", "kind": "measured", "source": "test", **changes})


def plan(*items: PlanItem, references: Iterable[Reference | dict[str, Any]] = (), **changes: Any) -> Plan:
    """Return a plan of these items; its references go by their own names."""
    held = {one["id"] if isinstance(one, dict) else one.id: one for one in references}
    about = {"run": "r", "system": "s", "created": CREATED, "items": items, "references": held}
    return Plan(**{**about, **changes})


def measurement(**changes: Any) -> Measurement:
    """Return what a job that ended well measured."""
    return Measurement(**{**_BANDWIDTH, "run": "r", "state": "COMPLETED", **changes})


def measured(of: PlanItem, nodes: tuple[str, ...], value: float | None, **changes: Any) -> Measurement:
    """Return the measurement of a cell of a plan's item."""
    about = {"stage": of.stage, "test": of.test, "metric": of.metric, "unit": of.unit, "better": of.better}
    return measurement(**{**about, "params": of.params, "nodes": nodes, "value": value, **changes})


def counter(**changes: Any) -> CounterReading:
    """Return the two readings of a counter, of a NIC, from 0."""
    return CounterReading(**{**_WHAT, "run": "r", "kind": "nic", "before": 0, **changes})


def job(**changes: Any) -> JobSpec:
    """Return a job of two nodes."""
    about = {"kind": "mesh", "stage": "fabric", "nodes": ("n1", "n2"), "time_limit_s": 60, "settings": {}}
    return JobSpec(**{**about, **changes})
