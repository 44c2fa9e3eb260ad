"""Memory bandwidth of every NUMA node, measured as STREAM does: one job with a task on each node."""

from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    NodeAlone,
    Parser,
    Tool,
    all_nodes,
    by_module,
)
from shakedown.benchmarks.stream.output import Stream, StreamSettings, stream
from shakedown.intent.acceptance import Section
from shakedown.plan.draft import PlanDraft
from shakedown.records.base import Better, Params, Stage
from shakedown.records.reading import ExitStatus


def plan_stream(draft: PlanDraft, asked: Stream) -> None:
    """Every kernel that is judged, on every NUMA node of every node."""
    for kernel in asked.kernels:
        for numa in range(asked.numa_nodes):
            entry = draft.reference("stream", "bandwidth", {"operation": kernel, "nodes": 1})
            params: Params = {"kernel": kernel, "numa": numa}
            draft.add(entry, "stream", nodes=draft.nodes, params=params)
    draft.job(
        "node.stream",
        kind="stream",
        tests=("stream",),
        time_limit_s=180 + asked.numa_nodes * asked.timeout_s,
        settings=asked.model_dump(),
    )


BENCHMARK = Benchmark(
    name="stream",
    stage=Stage.NODE,
    section=Section(key="stream", kind=Stream | None),
    plan=plan_stream,
    night=NodeAlone(all_nodes),
    jobs={
        "stream": JobKind(
            catches="a memory module or channel that is missing, slow or disabled, a wrong interleaving or "
            "NPS setting, a NUMA node whose memory is somewhere else",
            order=StreamSettings.model_validate,
            launch=by_module("shakedown.benchmarks.stream.job"),
            uses=("stream",),
            # A NUMA node without a value has its reason; the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
            wait_s=0,  # nodes end at different times
            each_node=True,
        )
    },
    tools={"stream": Tool(metrics=stream)},
    parsers=(Parser(tool="stream", module="shakedown.benchmarks.stream.output", function="parse_stream"),),
    words={"stream": "STREAM memory bandwidth"},
    measures={("stream", "bandwidth"): ("GB/s", Better.HIGHER)},
)
