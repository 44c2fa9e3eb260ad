"""Incast and all-to-all: one cell a receiver and rail, one job for all; plan and object."""

from shakedown.benchmarks.base.contract import Benchmark, JobKind, NotAtNight, Tool, by_module
from shakedown.benchmarks.incast.job import ALL_TO_ALL, HELD_BACK, NAME, Round, rounds_of
from shakedown.benchmarks.incast.output import Crowd, Incast, IncastSettings, incast, moved
from shakedown.benchmarks.perftest.settings import mesh_settings, ring
from shakedown.intent.acceptance import Section
from shakedown.nics.families import family_of
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Better, Params, Stage
from shakedown.records.reading import ExitStatus

HELD = none_allowed(
    "intent.incast_held_back",
    "the site's fabric intent (group_vars/all/fabric.yml): PFC is on, so senders of more than the "
    "receiver's link carries are paused or marked",
    value=1,
    limit=1,
    better=Better.HIGHER,
)
_OVERHEAD_S = 25  # start-up and teardown of a round with many processes, for the time limit only
# The same as expected: a job's own start and end, and what a round takes beside its duration.
_START_S, _ROUND_S = 10, 6
_SOURCE = f"{_ROUND_S} s a round beside its duration: a guess, never measured on RDMA hardware"


def plan_incast(draft: PlanDraft, asked: Incast | None) -> None:
    """Plan the cells of every receiver, and the job."""
    if asked is None:
        return
    nodes = draft.nodes
    rounds = rounds_of(nodes, draft.rails, asked.patterns, asked.senders, asked.receivers)
    if not rounds:
        draft.caveats.append("Incast and all-to-all are not measured: they take three nodes.")
        return
    for each in rounds:
        _cells(draft, asked, each)
    site, network = draft.site, draft.site.network()
    crowd = Crowd(
        patterns=asked.patterns,
        senders=asked.senders,
        receivers=asked.receivers,
        priority=network.roce.priority,
    )
    settings = mesh_settings(
        site,
        nodes,
        rails=draft.rails,
        operation={
            "test": f"ib_{asked.operation}_bw",
            "size_bytes": asked.size_bytes,
            "duration_s": asked.duration_s,
        },
        rails_at_once=["one"],
        lasts_s=asked.duration_s,
        pairs=ring(nodes),
    )
    draft.job(
        f"{Stage.FABRIC.value}.{NAME}",
        kind=NAME,
        tests=asked.patterns,
        nodes=nodes,
        time_limit_s=120 + len(rounds) * (asked.duration_s + _OVERHEAD_S),
        expected_s=_START_S + len(rounds) * (asked.duration_s + _ROUND_S),
        expected_from=_SOURCE,
        settings={**settings, "crowd": crowd.model_dump(mode="json")},
    )


def _cells(draft: PlanDraft, asked: Incast, each: Round) -> None:
    for receiver, senders in each.senders.items():
        params: Params = {"size_bytes": asked.size_bytes, "senders": len(senders)}
        scope: dict[str, int | str] = {"size_bytes": asked.size_bytes, "senders": len(senders), "nics": 1}
        entry = draft.reference(each.pattern, "bandwidth_in", scope)
        draft.add(entry, each.pattern, nodes=[receiver], rails=(each.rail,), params=params)
        why = _uncounted(draft, receiver, each.rail)
        draft.forbid(
            HELD,
            each.pattern,
            nodes=[receiver],
            rails=(each.rail,),
            params=params,
            metric="held_back",
            not_run=why,
        )


def _uncounted(draft: PlanDraft, receiver: str, rail: str) -> str:
    """Return why nothing can show that senders are held back; empty if something must."""
    if not draft.site.network().roce.pfc.enabled:
        return "PFC is off in the fabric intent: nothing need hold senders back"
    nic = next(nic for nic in draft.site.nics[receiver] if nic.rail == rail)
    family = family_of(nic.driver, nic.rdma_device)
    if family is None or family.name not in HELD_BACK:
        return f"{nic.rdma_device} counts neither pause frames nor marks"
    return ""


BENCHMARK = Benchmark(
    name=NAME,
    stage=Stage.FABRIC,
    section=Section(key=NAME, kind=Incast | None, needs_fabric=True),
    plan=plan_incast,
    night=NotAtNight("it fills links that other groups of the night measure at the same time"),
    jobs={
        NAME: JobKind(
            catches="PFC or ECN that is configured and does nothing when a port is overloaded: packets are "
            "lost, or a sender starves, only when many send to one",
            order=IncastSettings.model_validate,
            launch=by_module(f"shakedown.benchmarks.{NAME}.job"),
            uses=("perftest",),
            # Rounds that lost a partner are noted with the reason, and the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
            wait_s=0,
        )
    },
    tools={NAME: Tool(metrics=incast, moved=moved)},
    words={ALL_TO_ALL: "all-to-all between NICs"},
)
