"""From site and references to plan and jobs. A cell without a reference is refused here, never passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

from shakedown.core.jobs import Jobs, JobSpec
from shakedown.core.mesh_spec import SPEC_SCHEMA, natural_key
from shakedown.core.records import Better, Params, Plan, PlanItem, Reference, ReferenceKind, Stage
from shakedown.core.references import Catalogue, Entry
from shakedown.core.settings import (
    ENVIRONMENT,
    OTHERS,
    Expectation,
    expected_of_environment,
    expected_of_nic,
)
from shakedown.core.site import ConfigStage, PerftestTest, Site, Sweep
from shakedown.core.uniformity import PARTS

# Metrics of one perftest test; the names are those of `shakedown.collect`.
_PERFTEST_METRICS = {"bw": ("bandwidth",), "lat": ("latency_typical", "latency_p99")}
INTENT = Reference(
    id="intent.setting", value=0, limit=0, unit="1", better=Better.LOWER, kind=ReferenceKind.CONTRACT,
    source="the site's fabric intent (group_vars/all/fabric.yml) and what its playbooks set",
)  # fmt: skip
ALIKE = Reference(
    id="inventory.alike", value=0, limit=0, unit="1", better=Better.LOWER, kind=ReferenceKind.CONTRACT,
    source="parts of one class are sold and installed as alike (shakedown.core.uniformity)",
)  # fmt: skip
# Start-up and teardown of one measurement on a slow host, for time limits only.
_OVERHEAD_S = 10


@dataclass
class Draft:
    """A plan being made."""

    site: Site
    catalogue: Catalogue
    items: list[PlanItem] = field(default_factory=list)
    references: dict[str, Reference] = field(default_factory=dict)
    jobs: list[JobSpec] = field(default_factory=list)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All compute nodes in natural order."""
        return tuple(sorted(self.site.nics, key=natural_key))

    @property
    def rails(self) -> tuple[str, ...]:
        """All rails in order."""
        return tuple(rail.name for rail in self.site.fabric.rails)

    def reference(self, test: str, metric: str, scope: Mapping[str, int | str]) -> Entry:
        """Find the reference of a cell and keep it for the plan. Raises MissingReference."""
        facts: dict[str, int | str] = {
            "nic_speed_gbps": self.site.fabric.link_speed_gbps,
            "system": self.site.fabric.system,
        }
        entry = self.catalogue.find(
            test=test, metric=metric, scope={**facts, **self.site.acceptance.scope, **scope}
        )
        self.references[entry.id] = entry.reference()
        return entry

    def add(
        self, entry: Entry, test: str, *, nodes: Iterable[tuple[str, ...]], stage: Stage,
        rails: tuple[str | None, ...] = (None,), directions: tuple[str | None, ...] = (None,),
        params: Params | None = None,
    ) -> None:  # fmt: skip
        """Add a block of cells."""
        self.items.append(
            PlanItem(
                stage=stage, test=test, metric=entry.metric, unit=entry.unit, better=entry.better,
                nodes=tuple(nodes), rails=rails, directions=directions, params=params or {},
                reference=entry.id, required=entry.gates,
            )
        )  # fmt: skip


def make_plan(site: Site, catalogue: Catalogue, *, run: str, created: str) -> tuple[Plan, Jobs]:
    """Return the plan of a run and the jobs that carry it out.

    Raises:
        MissingReference: a cell has no reference.
    """
    draft = Draft(site, catalogue)
    if site.acceptance.config:
        _settings(draft, site.acceptance.config)
        _inventory(draft)
    for test in site.acceptance.perftest:
        _perftest(draft, test)
    _mpi(draft)
    if site.acceptance.counter_tests:
        _counters(draft)
    plan = Plan(
        run=run, system=site.fabric.system, profile=site.fabric.profile, created=created, nodes=draft.nodes,
        rails=draft.rails, items=tuple(draft.items), references=draft.references,
        caveats=site.acceptance.caveats,
    )  # fmt: skip
    return plan, Jobs(run=run, jobs=tuple(draft.jobs), nics=site.nics)


def _settings(draft: Draft, stage: ConfigStage) -> None:
    """Every setting of every NIC and node, read back in one job."""
    site = draft.site
    draft.references[INTENT.id] = INTENT
    expect: dict[str, dict[str, Expectation]] = {}
    targets: dict[str, dict[str, str | None]] = {}
    for node in draft.nodes:
        targets[node] = {nic.netdev: nic.rail for nic in site.nics[node]} | dict.fromkeys(stage.targets)
        expect[node] = {
            nic.netdev: expected_of_nic(
                site.fabric, rdma_device=nic.rdma_device, ipv4=nic.ipv4,
                dcb=stage.dcb, link_speed=stage.link_speed,
            )
            for nic in site.nics[node]
        }  # fmt: skip
        for target in stage.targets:
            expect[node][target] = expected_of_environment(site.fabric) if target == ENVIRONMENT else {}
    blocks: dict[tuple[str | None, str], list[str]] = {}
    for node, by_target in expect.items():
        for name, expectation in by_target.items():
            for setting in (*expectation, OTHERS):
                key = setting if targets[node][name] else f"{name}:{setting}"
                blocks.setdefault((targets[node][name], key), []).append(node)
    for (rail, setting), nodes in blocks.items():
        draft.items.append(
            PlanItem(
                stage=Stage.CONFIG, test="settings", metric="wrong", unit=INTENT.unit, better=INTENT.better,
                nodes=tuple((node,) for node in nodes), rails=(rail,), params={"setting": setting},
                reference=INTENT.id,
            )
        )  # fmt: skip
    draft.jobs.append(
        JobSpec(
            name="config.settings", kind="settings", stage=Stage.CONFIG, tests=("settings",),
            nodes=draft.nodes, time_limit_s=300, settings={"targets": targets, "expect": expect},
        )
    )  # fmt: skip


def _inventory(draft: Draft) -> None:
    """Firmware, drivers and tools of like parts must be alike; read from the run's own inventory."""
    draft.references[ALIKE.id] = ALIKE
    for part in PARTS:
        if part != "gpu" or "gpu" in draft.site.acceptance.scope:
            draft.items.append(
                PlanItem(
                    stage=Stage.CONFIG, test="inventory", metric="odd", unit=ALIKE.unit, better=ALIKE.better,
                    nodes=tuple((node,) for node in draft.nodes), params={"part": part}, reference=ALIKE.id,
                )
            )  # fmt: skip


def _perftest(draft: Draft, test: PerftestTest) -> None:
    """All pairs, every rail, both directions, in one job."""
    site, nodes = draft.site, draft.nodes
    for at_once in test.rails_at_once:
        scope: dict[str, int | str] = {"size_bytes": test.size_bytes, "rails_at_once": at_once}
        for metric in _PERFTEST_METRICS[test.test.rpartition("_")[2]]:
            entry = draft.reference(test.test, metric, scope)
            draft.add(
                entry, test.test, stage=Stage.FABRIC, nodes=combinations(nodes, 2), rails=draft.rails,
                directions=("forward", "reverse"), params=dict(scope),
            )  # fmt: skip
    slots = 2 * sum(len(draft.rails) if at_once == "one" else 1 for at_once in test.rails_at_once)
    rounds = len(nodes) - 1 + len(nodes) % 2
    settings: dict[str, Any] = {
        "schema": SPEC_SCHEMA,
        "mode": "full",
        "nodes": {
            node: {
                "address": site.addresses[node],
                "rails": {
                    nic.rail: {"rdma_device": nic.rdma_device, "netdev": nic.netdev, "ipv4": nic.ipv4}
                    for nic in site.nics[node]
                },
            }
            for node in nodes
        },
        "rails": list(draft.rails),
        "operations": [
            {
                "test": test.test,
                "size_bytes": test.size_bytes,
                "duration_s": test.duration_s,
                "iterations": test.iterations,
            }
        ],
        "directions": ["forward", "reverse"],
        "rails_at_once": list(test.rails_at_once),
        "tclass": site.fabric.roce.tclass,
        "mtu": site.fabric.mtu_bytes.rdma,
        "qp_timeout": site.acceptance.qp_timeout,
        "timeout_s": site.acceptance.measurement_timeout_s,
        "start_timeout_s": site.acceptance.measurement_timeout_s,
    }
    limit = 120 + rounds * slots * ((test.duration_s or 5) + _OVERHEAD_S)
    draft.jobs.append(
        JobSpec(
            name=f"fabric.{test.test}", kind="mesh", stage=Stage.FABRIC, tests=(test.test,), nodes=nodes,
            time_limit_s=limit, settings=settings,
        )
    )  # fmt: skip


def _mpi(draft: Draft) -> None:
    nodes = draft.nodes
    allreduce, pingpong = draft.site.acceptance.mpi.allreduce, draft.site.acceptance.mpi.pingpong
    if pingpong:
        sizes = [1 << i for i in range(33) if pingpong.min_bytes <= 1 << i <= pingpong.max_bytes]
        # Neighbours in the order of names: every node is tested, each against two others.
        pairs = list(pairwise(nodes))
        for size in sizes:
            entry = draft.reference("mpi_pingpong", "bandwidth", {"size_bytes": size, "nodes": 2})
            draft.add(entry, "mpi_pingpong", stage=Stage.COLLECTIVE, nodes=pairs, params={"size_bytes": size})
        for pair in pairs:
            _mpi_job(draft, "mpi_pingpong", pair, pingpong, suffix=f".{'-'.join(pair)}")
    if allreduce:
        sizes = [allreduce.min_bytes]
        while sizes[-1] * allreduce.factor <= allreduce.max_bytes:
            sizes.append(sizes[-1] * allreduce.factor)
        for size in sizes:
            # A small message's bandwidth says nothing that its time does not.
            for metric in ("time", "wrong", "busbw") if size == sizes[-1] else ("time", "wrong"):
                scope = {"size_bytes": size, "nodes": len(nodes)}
                entry = draft.reference("mpi_allreduce", metric, scope)
                draft.add(
                    entry, "mpi_allreduce", stage=Stage.COLLECTIVE, nodes=[nodes], params={"size_bytes": size}
                )
        _mpi_job(draft, "mpi_allreduce", nodes, allreduce)


def _mpi_job(draft: Draft, kind: Any, nodes: tuple[str, ...], sweep: Sweep, suffix: str = "") -> None:  # noqa: ANN401
    draft.jobs.append(
        JobSpec(
            name=f"collective.{kind}{suffix}", kind=kind, stage=Stage.COLLECTIVE, tests=(kind,), nodes=nodes,
            time_limit_s=300, settings=sweep.model_dump(),
        )
    )  # fmt: skip


def _counters(draft: Draft) -> None:
    """Counters that must not move, and those that must: every NIC over a job, every port over a stage.

    The references say which: entries of test `nic` or `switch` with a metric `counter.NAME`.
    """
    for entry in draft.catalogue.entries.values():
        if not entry.metric.startswith("counter.") or entry.test not in {"nic", "switch"}:
            continue
        draft.references[entry.id] = entry.reference()
        if entry.test == "nic":
            for job in draft.jobs:
                if entry.stage == job.stage:
                    _nic_counter(draft, entry, job)
        else:
            for stage in sorted({job.stage for job in draft.jobs}):
                if entry.stage == stage:
                    _switch_counter(draft, entry, stage)


def _nic_counter(draft: Draft, entry: Entry, job: JobSpec) -> None:
    # One block for each device name on a rail: nodes of one type name their NICs alike.
    blocks: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for node in job.nodes:
        for nic in draft.site.nics[node]:
            blocks.setdefault((nic.rail, nic.rdma_device), []).append((node,))
    for (rail, device), nodes in blocks.items():
        draft.add(entry, job.tests[0], stage=job.stage, nodes=nodes, rails=(rail,), params={"port": device})


def _switch_counter(draft: Draft, entry: Entry, stage: Stage) -> None:
    for switch in draft.site.switches:
        for port, _host, _netdev, rail in switch.ports:
            draft.add(
                entry, "switches", stage=stage, nodes=[(switch.name,)], rails=(rail,), params={"port": port}
            )
