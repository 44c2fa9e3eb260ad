"""A site's own plan, answered as if measured: its names, each value near its reference, planted faults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shakedown.plan.jobs import Jobs
from shakedown.records.base import Better, Stage, to_json
from shakedown.records.plan import Plan, PlanItem, ReferenceKind
from shakedown.records.reading import BadInput
from shakedown.records.results import CounterReading, Measurement
from shakedown.records.writing import write_aside
from shakedown.run.folder import COUNTERS, JOBS, RESULTS, SIMULATED, write_lines, write_plan
from shakedown.simulate.fabric import HALF_PCIE_FACTOR, TCP_FACTOR, FaultKind
from shakedown.simulate.run import CAVEAT

_NODE = (FaultKind.SLOW_NODE, FaultKind.TCP_FALLBACK)
_NIC = (FaultKind.NIC_TX, FaultKind.NIC_RX, FaultKind.HALF_PCIE, FaultKind.LOSSY_CABLE, FaultKind.FLAPPING)
_FIXED = {FaultKind.HALF_PCIE: 1 - HALF_PCIE_FACTOR, FaultKind.TCP_FALLBACK: 1 - TCP_FACTOR}
# Counters of a bad cable and of a link that goes down, as drivers and switches name them.
_COUNTED = {
    FaultKind.LOSSY_CABLE: re.compile("crc|symbol|fec|rx_errors"),
    FaultKind.FLAPPING: re.compile("link_down|carrier_down|flap"),
}
_ROOM = 0.01  # a healthy value lies at least so far within its gate, as a fraction


@dataclass(frozen=True)
class SiteFault:
    """A fault of a site's node, or of its NIC on a rail; `size` is the part of the rate that is lost."""

    kind: FaultKind
    size: float
    node: str
    rail: str | None

    def __str__(self) -> str:
        place = f"{self.node}/{self.rail}" if self.rail else self.node
        return f"{self.kind.value} at {place} ({self.size:.1%})"

    def slows(self, nodes: Sequence[str], rail: str | None, direction: str | None) -> bool:
        """Whether a cell's data pass what is slow; a cell that names no rail uses all of them."""
        if self.node not in nodes or (self.rail and rail not in (None, self.rail)):
            return False
        if self.rail is None or rail is None:
            return self.kind is FaultKind.SLOW_NODE or len(nodes) > 1
        if self.kind in (FaultKind.NIC_TX, FaultKind.NIC_RX) and direction in ("forward", "reverse"):
            source = nodes[0] if direction == "forward" else nodes[-1]
            return (source == self.node) is (self.kind is FaultKind.NIC_TX)
        return True


def site_fault(kind: FaultKind, size: float, place: str, plan: Plan, rng: np.random.Generator) -> SiteFault:
    """Return a fault at NODE or NODE/RAIL, or at a random place.

    Raises BadInput: the kind is of a made-up fabric alone, or the plan has no such node or rail.
    """
    if kind not in (*_NODE, *_NIC):
        known = ", ".join(one.value for one in (*_NODE, *_NIC))
        raise BadInput(f"--fault {kind.value} is not for --site", fix=f"use one of {known}")
    node, _, rail = place.partition("/")
    node = node or plan.nodes[int(rng.integers(len(plan.nodes)))]
    if kind in _NIC and not rail:
        if not plan.rails:
            raise BadInput(f"--fault {kind.value}: the plan has no rail", fix=f"use {_NODE[0].value}")
        rail = plan.rails[int(rng.integers(len(plan.rails)))]
    for given, names, what in ((node, plan.nodes, "node"), (rail, ("", *plan.rails), "rail")):
        if given not in names:
            raise BadInput(f"--fault: the plan has no {what} {given[:80]!r}", fix="name one of the site's")
    return SiteFault(kind, _FIXED.get(kind, size), node, rail if kind in _NIC else None)


def write_rehearsal(
    folder: Path, plan: Plan, jobs: Jobs, faults: Sequence[SiteFault], rng: np.random.Generator, cv: float
) -> int:
    """Write the plan as a simulated one and what it would measure; return the number of results.

    No job is in it, so there are no raw files that anything could be sealed or collected from.
    `cv`: noise of one measurement, as a fraction. Raises BadInput: the folder holds a run already.
    """
    plan = plan.model_copy(update={"simulated": True, "caveats": (CAVEAT, *plan.caveats)})
    items = [item for item in plan.items if item.not_run is None]
    write_plan(folder, plan)
    write_aside(folder / JOBS, to_json(jobs.model_copy(update={"jobs": ()})))
    measured = [item for item in items if not _counter(item)]
    write_lines(folder / RESULTS, _results(plan, measured, faults, rng, cv))
    write_lines(folder / COUNTERS, _readings(plan, filter(_counter, items), faults))
    return sum(map(len, measured))


def _counter(item: PlanItem) -> bool:
    return item.metric.startswith("counter.")


def _healthy(plan: Plan, item: PlanItem) -> float:
    """Return what a healthy part reaches of a metric, in its unit: its reference, well within the gate."""
    reference = plan.references[item.reference]
    if reference.kind is ReferenceKind.LEARN:
        return 1.0  # nobody knows it yet; 0 would be a dead link's
    if reference.value == 0 or item.stage is Stage.CONFIG:
        return reference.value
    higher = item.better is Better.HIGHER
    gate = reference.gate * (1 + (_ROOM if higher else -_ROOM))
    value = max(reference.value, gate) if higher else min(reference.value, gate)
    if reference.ceiling is not None:
        ceiling = reference.ceiling * (1 - (_ROOM if higher else -_ROOM))
        value = min(value, ceiling) if higher else max(value, ceiling)
    return value


def _results(
    plan: Plan, items: Sequence[PlanItem], faults: Sequence[SiteFault], rng: np.random.Generator, cv: float
) -> Iterator[Measurement]:
    for item in items:
        healthy, least = _healthy(plan, item), plan.references[item.reference].min_samples
        for _, nodes, rail, direction in item.cells():
            value = healthy
            for fault in faults if item.stage is not Stage.CONFIG else ():
                if fault.slows(nodes, rail, direction):
                    value *= 1 - fault.size if item.better is Better.HIGHER else 1 / (1 - fault.size)
            noise = rng.uniform(-1, 1, least) if item.stage is not Stage.CONFIG else np.zeros(least)
            samples = tuple(float(value * (1 + min(cv, _ROOM / 2) * one)) for one in noise)
            yield item.measured(
                plan.run,
                nodes,
                float(np.median(samples)),
                rail=rail,
                direction=direction,
                samples=samples,
                state="COMPLETED",
                attempt=1,
                job=SIMULATED,
                started=plan.created,
                duration_s=2.0,
            )


def _readings(plan: Plan, items: Iterator[PlanItem], faults: Sequence[SiteFault]) -> Iterator[CounterReading]:
    for item in items:
        counter, healthy = item.metric.removeprefix("counter."), int(plan.references[item.reference].value)
        for _, (device, *_), rail, _ in item.cells():
            bad = any(
                fault.node == device and fault.rail == rail and _COUNTED[fault.kind].search(counter)
                for fault in faults
                if fault.kind in _COUNTED
            )
            yield CounterReading(
                run=plan.run,
                stage=item.stage,
                test=item.test,
                kind="nic" if device in plan.nodes else "switch_port",
                device=device,
                port=str(item.params["port"]),
                rail=rail,
                counter=counter,
                before=0,
                after=healthy + 4000 * bad,
            )
