"""Proof at the receiving end that RoCE keeps its traffic class from node to node: its plan and its object."""

from shakedown.benchmarks.base.contract import Benchmark, EveryNight, JobKind, Tool, by_module
from shakedown.benchmarks.config.benchmark import SECTION
from shakedown.benchmarks.config.settings import ConfigStage
from shakedown.benchmarks.perftest.mesh.schedule import drop_superseded
from shakedown.benchmarks.perftest.settings import mesh_settings, ring, ring_rounds
from shakedown.benchmarks.traffic_class.job import NAME, OPERATION
from shakedown.benchmarks.traffic_class.output import TrafficClassSettings, WantedClass, moved, traffic_class
from shakedown.plan.draft import PlanDraft
from shakedown.records.base import Better, Params, Stage
from shakedown.records.plan import Reference, ReferenceKind

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
_OVERHEAD_S = 25  # start-up and teardown of one exchange on a slow host, for the time limit only
# The same as expected: a job's own start and end, and what an exchange takes beside its duration.
_START_S, _SLOT_S = 10, 10
_SOURCE = (
    f"{_SLOT_S} s an exchange of the traffic class beside its duration: a config stage of at most 81 s "
    "between emulated hosts; not measured on RDMA hardware"
)


def plan_traffic_class(draft: PlanDraft, stage: ConfigStage) -> None:
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
    ways = ("forward", "reverse")
    draft.forbid(
        ARRIVES, NAME, metric="share", nodes=pairs, rails=draft.rails, directions=ways, params=params
    )
    site, roce = draft.site, network.roce
    wanted = WantedClass(
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
    draft.job(
        f"{Stage.CONFIG.value}.{NAME}",
        kind=NAME,
        tests=(NAME,),
        time_limit_s=120 + rounds * 2 * (asked.duration_s + _OVERHEAD_S),
        expected_s=round(_START_S + rounds * 2 * (asked.duration_s + _SLOT_S)),
        expected_from=_SOURCE,
        settings={**settings, "wanted": wanted.model_dump(mode="json")},
    )


BENCHMARK = Benchmark(
    name=NAME,
    stage=Stage.CONFIG,
    section=SECTION,
    plan=plan_traffic_class,
    night=EveryNight(),
    jobs={
        NAME: JobKind(
            catches="a switch that classifies RoCE as wanted and rewrites its DSCP or clears its ECN "
            "on the way out, so that the next hop and the receiver treat it as other traffic",
            order=TrafficClassSettings.model_validate,
            launch=by_module("shakedown.benchmarks.traffic_class.job"),
            uses=("perftest",),
            # Nodes finish their last pairs at different times.
            wait_s=0,
        )
    },
    tools={NAME: Tool(metrics=traffic_class, that_count=drop_superseded, moved=moved)},
    words={"traffic_class": "traffic class of arriving RoCE"},
)
