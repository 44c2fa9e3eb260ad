"""Run folders of a made-up fleet, with inventories. Nothing here is measured."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shakedown.records.base import Better, Stage
from shakedown.records.results import Component, Measurement, RunProblem, Snapshot
from shakedown.run import folder as runs
from tests.kit import records

START = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
CV = 0.003
METRICS: dict[str, tuple[Stage, str, str, str, Better, float]] = {
    "write": (Stage.FABRIC, "ib_write_bw", "bandwidth", "Gb/s", Better.HIGHER, 390.0),
    "lat": (Stage.FABRIC, "ib_write_lat", "latency_typical", "us", Better.LOWER, 2.5),
    "h2d": (Stage.NODE, "nvbandwidth", "bandwidth", "GB/s", Better.HIGHER, 55.0),
}


def names(count: int) -> tuple[str, ...]:
    """n1, n2, ..."""
    return tuple(f"n{i + 1}" for i in range(count))


def clock(night: int) -> str:
    """When a night's run was planned."""
    return (START + timedelta(days=night)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Night:
    """One run to be written. `factor` says how a (metric, node) deviates: 0.98 is 2 % less of the value."""

    run: str
    nodes: tuple[str, ...]
    night: int = 0
    metrics: tuple[str, ...] = ("write", "lat", "h2d")
    factor: Callable[[str, str], float] = lambda metric, node: 1.0
    firmware: dict[str, str] = field(default_factory=dict)  # by node; 22.1 otherwise
    kernel: dict[str, str] = field(default_factory=dict)  # by node; 6.1.0 otherwise
    missing: frozenset[tuple[str, str]] = frozenset()  # (metric, node) without a value
    system: str = "fleet"
    created: str | None = None
    started: str | None = None

    def write(self, folder: Path) -> Path:
        """Write the run folder and return it."""
        folder.mkdir(parents=True, exist_ok=True)
        created = self.created or clock(self.night)
        references = {
            name: records.reference(
                id=name, value=value, tolerance=0.5, unit=unit, better=better, source="made up"
            )
            for name, (_, _, _, unit, better, value) in METRICS.items()
        }
        items = tuple(
            records.item(
                stage=stage,
                test=test,
                metric=metric,
                unit=unit,
                better=better,
                nodes=tuple((n,) for n in self.nodes),
                params={"size_bytes": 65536},
                reference=name,
            )
            for name, (stage, test, metric, unit, better, _) in METRICS.items()
            if name in self.metrics
        )
        plan = records.plan(
            references=({k: v for k, v in references.items() if k in self.metrics}).values(),
            run=self.run,
            system=self.system,
            created=created,
            nodes=self.nodes,
            items=items,
        )
        runs.write_plan(folder, plan)
        runs.write_lines(folder / "results.jsonl", self._lines(created))
        runs.write_inventory(
            folder, Snapshot(run=self.run, taken=created, components=tuple(self._components()))
        )
        return folder

    def _lines(self, created: str) -> Iterable[Measurement]:
        for name in self.metrics:
            stage, test, metric, unit, better, middle = METRICS[name]
            for node in self.nodes:
                own = 1 + 0.01 * random.Random(f"{name} {node}").gauss(0, 1)  # nodes differ for good
                noise = 1 + CV * random.Random(f"{self.run} {name} {node}").gauss(0, 1)
                value = round(middle * own * noise * self.factor(name, node), 6)
                lost = (name, node) in self.missing
                yield records.measurement(
                    run=self.run,
                    stage=stage,
                    test=test,
                    metric=metric,
                    unit=unit,
                    better=better,
                    nodes=(node,),
                    params={"size_bytes": 65536},
                    state="NODE_FAIL" if lost else "COMPLETED",
                    value=None if lost else value,
                    started=self.started or created,
                    problem=RunProblem(kind="killed", message="the node died") if lost else None,
                )

    def _components(self) -> Iterable[Component]:
        for node in self.nodes:
            yield Component(
                host=node,
                kind="nic",
                name="fab0",
                attributes={"firmware": self.firmware.get(node, "22.1"), "board": "CX7"},
            )
            yield Component(
                host=node, kind="node", name=node, attributes={"kernel": self.kernel.get(node, "6.1.0")}
            )
