"""Plan GPUDirect: every NIC with its nearest GPU, with a far one and with host memory, in a ring of nodes."""

from __future__ import annotations

from shakedown.benchmarks.base.night import nodes_with_gpus
from shakedown.benchmarks.gpudirect.names import HOST, NAME, perftests, test_of
from shakedown.benchmarks.gpudirect.options import GpuDirect
from shakedown.benchmarks.gpudirect.order import Memory
from shakedown.benchmarks.perftest.mesh.spec import BOTH
from shakedown.benchmarks.perftest.mesh_order import mesh_settings, ring, ring_rounds
from shakedown.benchmarks.perftest.ways import blocks_by_way
from shakedown.plan.draft import Draft, none_allowed
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.names import natural_key

_WRONG = none_allowed(
    "intent.gpudirect_memory",
    "the site's inventory (acceptance.gpudirect): the ordered GPU, path and interface",
)
# Start-up and teardown of one measurement, with a GPU's context, for the time limit only.
_OVERHEAD_S = 20
# The same as expected: a job's own start and end, and what a measurement takes beside its duration.
_START_S, _SLOT_S = 10, 6
_SOURCE = f"{_SLOT_S} s a measurement beside its duration: a guess, never measured on GPUs with RDMA NICs"


def plan_gpudirect(draft: Draft, asked: GpuDirect | None) -> None:
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
                        draft.add(
                            entry,
                            test,
                            stage=Stage.FABRIC,
                            nodes=some,
                            rails=rails,
                            directions=directions,
                            params=params,
                        )
                if memory != HOST:
                    draft.forbid(
                        _WRONG,
                        test,
                        nodes=pairs,
                        stage=Stage.FABRIC,
                        rails=draft.rails,
                        directions=directions,
                        params=params,
                        metric="wrong_memory",
                    )
    _job(draft, asked, nodes, pairs, tuple(way for _, directions in ways for way in directions))


def _job(
    draft: Draft,
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
    draft.jobs.append(
        JobSpec(
            name=f"{Stage.FABRIC.value}.{NAME}",
            kind=NAME,
            stage=Stage.FABRIC,
            tests=tuple(test_of(perftests(operation)) for operation in asked.operations),
            nodes=nodes,
            time_limit_s=120 + slots * (asked.duration_s + _OVERHEAD_S),
            expected_s=round(_START_S + slots * (asked.duration_s + _SLOT_S)),
            expected_from=_SOURCE,
            settings={**settings, "operations": operations, "memory": memory.model_dump(mode="json")},
        )
    )
