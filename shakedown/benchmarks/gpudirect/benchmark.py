"""GPUDirect by perftest: every NIC with its nearest GPU, a far one and host memory, in a ring of nodes."""

from typing import get_args

from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    NotAtNight,
    Tool,
    by_module,
    nodes_with_gpus,
)
from shakedown.benchmarks.gpudirect.job import HOST, NAME, perftests, test_of
from shakedown.benchmarks.gpudirect.output import (
    GpuDirect,
    GpuDirectSettings,
    Memory,
    Operation,
    gpudirect,
    moved,
)
from shakedown.benchmarks.perftest.mesh.schedule import drop_superseded
from shakedown.benchmarks.perftest.mesh.spec import BOTH
from shakedown.benchmarks.perftest.settings import mesh_settings, ring, ring_rounds
from shakedown.benchmarks.perftest.ways import blocks_by_way
from shakedown.intent.acceptance import Section
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Better, Params, Stage
from shakedown.records.reading import ExitStatus
from shakedown.records.wording import natural_key

_WRONG = none_allowed(
    "intent.gpudirect_memory",
    "the site's inventory (acceptance.gpudirect): the ordered GPU, path and interface",
)
_OVERHEAD_S = 20  # start-up and teardown of one measurement, with a GPU's context, for the time limit only
# The same as expected: a job's own start and end, and what a measurement takes beside its duration.
_START_S, _SLOT_S = 10, 6
_SOURCE = f"{_SLOT_S} s a measurement beside its duration: a guess, never measured on GPUs with RDMA NICs"


def plan_gpudirect(draft: PlanDraft, asked: GpuDirect | None) -> None:
    """Plan the cells of every NIC, operation, memory and direction, and the one job that measures them."""
    if asked is None:
        return
    having = set(nodes_with_gpus(draft.site))
    nodes = tuple(node for node in draft.nodes if node in having)
    pairs = ring(nodes)
    if not pairs:
        draft.caveats.append("GPUDirect is not measured by perftest: that takes two nodes with GPUs.")
        return
    ways: tuple[tuple[str, tuple[str, ...]], ...] = (("bandwidth", ("forward", "reverse")),)
    if asked.bidirectional:
        ways = (*ways, ("bandwidth_both", (BOTH,)))
    blocks = blocks_by_way(draft.site, nodes, draft.rails, pairs)
    for operation in asked.operations:
        test = test_of(perftests(operation))
        for memory in (HOST, *asked.gpus):
            params: Params = {"size_bytes": asked.size_bytes, "rails_at_once": "one", "memory": memory}
            for metric, directions in ways:
                for rails, some, facts in blocks:
                    scope = {"size_bytes": asked.size_bytes, "nics": 1, "memory": memory, **facts}
                    entries = [draft.reference(test, metric, scope)]
                    if memory != HOST:
                        entries.append(draft.reference(test, "share_of_host", scope))
                    for entry in entries:
                        draft.add(entry, test, nodes=some, rails=rails, directions=directions, params=params)
                if memory != HOST:
                    draft.forbid(
                        _WRONG,
                        test,
                        nodes=pairs,
                        rails=draft.rails,
                        directions=directions,
                        params=params,
                        metric="wrong_memory",
                    )
    _job(draft, asked, nodes, pairs, tuple(way for _, directions in ways for way in directions))


def _job(
    draft: PlanDraft,
    asked: GpuDirect,
    nodes: tuple[str, ...],
    pairs: tuple[tuple[str, str], ...],
    directions: tuple[str, ...],
) -> None:
    site = draft.site
    gpus = max(site.gpus[node] for node in nodes)
    operations = [
        {
            "test": perftests(operation),
            "size_bytes": asked.size_bytes,
            "duration_s": asked.duration_s,
            "memory": memory,
        }
        for operation in asked.operations
        for memory in (HOST, *asked.gpus)
    ]
    settings = mesh_settings(
        site,
        sorted(nodes, key=natural_key),
        rails=draft.rails,
        operation=operations[0],
        rails_at_once=["one"],
        lasts_s=asked.duration_s,
        directions=directions,
        pairs=pairs,
    )
    memory = Memory(interface=asked.interface, path=asked.path, gpus=gpus)
    slots = ring_rounds(len(nodes)) * len(operations) * len(directions) * len(draft.rails)
    draft.job(
        f"{Stage.FABRIC.value}.{NAME}",
        kind=NAME,
        tests=tuple(test_of(perftests(operation)) for operation in asked.operations),
        nodes=nodes,
        time_limit_s=120 + slots * (asked.duration_s + _OVERHEAD_S),
        expected_s=round(_START_S + slots * (asked.duration_s + _SLOT_S)),
        expected_from=_SOURCE,
        settings={**settings, "operations": operations, "memory": memory.model_dump(mode="json")},
    )


BENCHMARK = Benchmark(
    name=NAME,
    stage=Stage.FABRIC,
    section=Section(key=NAME, kind=GpuDirect | None, needs_fabric=True),
    plan=plan_gpudirect,
    night=NotAtNight("drivers and PCI settings change it, not nights: `shakedown rerun` after either"),
    jobs={
        NAME: JobKind(
            catches="GPU memory that a NIC reaches slowly or by a detour: ACS that sends it over the host "
            "bridge, a read request too small, a GPU behind the wrong switch, a missing peer-memory module",
            order=GpuDirectSettings.model_validate,
            launch=by_module(
                f"shakedown.benchmarks.{NAME}.job",
                lambda job: GpuDirectSettings.model_validate(job.settings).memory.gpus,
            ),
            uses=("perftest",),
            # A perftest without CUDA leaves cells with that reason; the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
            wait_s=0,
        )
    },
    tools={
        NAME: Tool(
            metrics=gpudirect,
            that_count=drop_superseded,
            moved=moved,
            own_bytes=lambda text: " PSN 0x" in text,
        )
    },
    words={f"{NAME}_{operation}": f"GPUDirect {operation}" for operation in get_args(Operation)},
    measures={
        (f"{NAME}_{operation}", metric): (unit, Better.HIGHER)
        for operation in get_args(Operation)
        for metric, unit in (("bandwidth", "Gb/s"), ("bandwidth_both", "Gb/s"), ("share_of_host", "%"))
    },
)
