"""The GPUs of every node: their state, and nvbandwidth, in one job with a task on each node."""

from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    NodeAlone,
    Parser,
    Tool,
    by_module,
    nodes_with_gpus,
)
from shakedown.benchmarks.gpu.metrics import copied_on, gpu_state, nvbandwidth
from shakedown.benchmarks.gpu.state import GpuNode, GpuNodeSettings, plan_gpu_node
from shakedown.intent.acceptance import Section
from shakedown.records.base import Stage
from shakedown.records.reading import ExitStatus

BENCHMARK = Benchmark(
    name="gpu",
    stage=Stage.NODE,
    section=Section(key="gpu_node", kind=GpuNode | None),
    plan=plan_gpu_node,
    night=NodeAlone(nodes_with_gpus),
    jobs={
        "gpu_node": JobKind(
            catches="a missing GPU, a PCIe or NVLink link that is down, narrow or slow, a GPU on the wrong "
            "NUMA node, ECC errors, pending row remapping, clocks slowed by heat or power, a driver's "
            "Xid; and a GPU whose copies are slower than the others'",
            order=GpuNodeSettings.model_validate,
            launch=by_module(
                "shakedown.benchmarks.gpu.job",
                lambda job: max(GpuNodeSettings.model_validate(job.settings).gpus.values()),
            ),
            uses=("nvbandwidth",),
            # Some outputs have a problem instead of numbers; each is recorded with its reason.
            also_good=ExitStatus.INCOMPLETE.value,
            each_node=True,
            wait_s=120,  # nodes end their last copy at different times
        )
    },
    tools={"gpu-state": Tool(metrics=gpu_state), "nvbandwidth": Tool(metrics=nvbandwidth, gpus=copied_on)},
    parsers=(
        Parser(tool="nvbandwidth", module="shakedown.benchmarks.gpu.output", function="parse_nvbandwidth"),
        Parser(
            tool="nvidia-smi",
            module="shakedown.benchmarks.gpu.output",
            function="parse_nvidia_smi",
            options={"--fields": "fields"},
        ),
    ),
    words={"gpu_state": "GPU state"},
)
