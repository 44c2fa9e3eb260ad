"""perftest between all pairs of nodes: every rail, both directions, rails one by one and all at once."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Parser, Tool, module
from shakedown.benchmarks.base.night import Pairs
from shakedown.benchmarks.perftest.mesh.completeness import lost_nodes
from shakedown.benchmarks.perftest.mesh.schedule import drop_superseded
from shakedown.benchmarks.perftest.metrics import moved, perftest
from shakedown.benchmarks.perftest.night import only, slots
from shakedown.benchmarks.perftest.options import PerftestTests
from shakedown.benchmarks.perftest.order import MeshOrder
from shakedown.benchmarks.perftest.plan import plan_perftest
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.errors import ExitStatus


def _launch(_job: JobSpec, out: Path) -> Launch:
    return Launch(words=module("shakedown.benchmarks.perftest.mesh.driver", out / "spec.json", out))


BENCHMARK = Benchmark(
    name="perftest",
    stage=Stage.FABRIC,
    section=Section(key="perftest", kind=PerftestTests, absent=(), needs_fabric=True),
    plan=plan_perftest,
    night=Pairs(slots, only),
    jobs={
        # One job a test measures all pairs, so that no pair is left to chance and Slurm sees few jobs.
        "mesh": JobKind(
            catches="a lossy, slow or misconfigured path between two nodes, by pair, rail and direction",
            order=MeshOrder.model_validate,
            launch=_launch,
            uses=("perftest",),
            # Nodes finish their last pairs at different times, and one that died is noticed late.
            wait_s=0,
            # Some measurements gave no value. Each is recorded with its reason, and the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
            # A node that dies costs its own pairs only.
            outlives_nodes=True,
            completeness=lambda out: module("shakedown.benchmarks.perftest.mesh.completeness", out),
            lost_nodes=lost_nodes,
        )
    },
    tools={
        # Each end of a connection draws a packet sequence number at random; JSON does not print it.
        "perftest": Tool(
            metrics=perftest,
            that_count=drop_superseded,
            moved=moved,
            own_bytes=lambda text: " PSN 0x" in text,
        )
    },
    parsers=(
        Parser(
            tool="perftest",
            module="shakedown.benchmarks.perftest.output",
            function="parse_perftest",
            options={"--report-gbits": "report_gbits"},
        ),
    ),
)
