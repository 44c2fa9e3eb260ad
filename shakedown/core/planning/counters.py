"""Plan the counters that must not move, and those that must: on NICs over a job, on ports over a stage."""

from __future__ import annotations

from shakedown.core.jobs import JobSpec
from shakedown.core.planning.draft import Draft
from shakedown.core.records import Stage
from shakedown.core.references import Entry


def plan_counters(draft: Draft) -> None:
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
