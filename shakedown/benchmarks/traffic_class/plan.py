"""Plan the proof of the traffic class: every node receives from its neighbours in a ring, on every rail."""

from __future__ import annotations

from shakedown.benchmarks.config.options import ConfigStage
from shakedown.benchmarks.perftest.mesh_order import mesh_settings, ring, ring_rounds
from shakedown.benchmarks.traffic_class.names import NAME, OPERATION
from shakedown.benchmarks.traffic_class.order import Wanted
from shakedown.plan.draft import Draft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Better, Params, Stage
from shakedown.records.plan import PlanItem, Reference, ReferenceKind

# Of the data, one part in a hundred may be something else's on the same NIC. A switch that rewrites does so
# to every packet of a port.
_TOLERANCE = 0.01
ARRIVES = Reference(
    id="intent.traffic_class",
    value=100,
    tolerance=_TOLERANCE,
    ceiling=100,
    ceiling_source="all of it",
    unit="%",
    better=Better.HIGHER,
    kind=ReferenceKind.CONTRACT,
    source="the site's fabric intent (group_vars/all/fabric.yml): RoCE keeps DSCP and ECN from end to end",
)
# Start-up and teardown of one exchange on a slow host, for the time limit only.
_OVERHEAD_S = 25
# The same as expected: a job's own start and end, and what an exchange takes beside its duration.
_START_S, _SLOT_S = 10, 10
_SOURCE = (
    f"{_SLOT_S} s an exchange of the traffic class beside its duration: a config stage of at most 81 s "
    "between emulated hosts; not measured on RDMA hardware"
)


def plan_traffic_class(draft: Draft, stage: ConfigStage) -> None:
    """One cell for each receiver, sender and rail; one job measures them all."""
    if stage.traffic_class is None:
        draft.caveats.append(
            "The traffic class of RoCE is not proved where it arrives: the site leaves it out."
        )
        return
    pairs = ring(draft.nodes)
    if not pairs:
        draft.caveats.append(
            "The traffic class of RoCE is not proved where it arrives: that takes two nodes."
        )
        return
    asked, network = stage.traffic_class, draft.site.network()
    params: Params = {"size_bytes": asked.size_bytes, "rails_at_once": "all"}
    draft.references[ARRIVES.id] = ARRIVES
    draft.items.append(
        PlanItem(
            stage=Stage.CONFIG,
            test=NAME,
            metric="share",
            unit=ARRIVES.unit,
            better=ARRIVES.better,
            nodes=pairs,
            rails=draft.rails,
            directions=("forward", "reverse"),
            params=params,
            reference=ARRIVES.id,
        )
    )
    site, roce = draft.site, network.roce
    wanted = Wanted(
        dscp=roce.dscp,
        ecn=roce.tclass & 3,
        priority=roce.priority,
        ports={
            node: {n.rail: (n.leaf, n.leaf_port) for n in site.nics[node] if n.leaf and n.leaf_port}
            for node in draft.nodes
        },
    )
    settings = mesh_settings(
        site,
        draft.nodes,
        rails=draft.rails,
        operation={"test": OPERATION, "size_bytes": asked.size_bytes, "duration_s": asked.duration_s},
        rails_at_once=["all"],
        lasts_s=asked.duration_s,
        pairs=pairs,
    )
    rounds = ring_rounds(len(draft.nodes))
    draft.jobs.append(
        JobSpec(
            name=f"{Stage.CONFIG.value}.{NAME}",
            kind=NAME,
            stage=Stage.CONFIG,
            tests=(NAME,),
            nodes=draft.nodes,
            time_limit_s=120 + rounds * 2 * (asked.duration_s + _OVERHEAD_S),
            expected_s=round(_START_S + rounds * 2 * (asked.duration_s + _SLOT_S)),
            expected_from=_SOURCE,
            settings={**settings, "wanted": wanted.model_dump(mode="json")},
        )
    )
