"""Proof at the receiving end that RoCE keeps its traffic class from node to node."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Tool, module
from shakedown.benchmarks.base.night import EveryNight
from shakedown.benchmarks.config.benchmark import SECTION
from shakedown.benchmarks.perftest.mesh.schedule import drop_superseded
from shakedown.benchmarks.traffic_class.metrics import moved, traffic_class
from shakedown.benchmarks.traffic_class.names import NAME
from shakedown.benchmarks.traffic_class.order import TrafficClassOrder
from shakedown.benchmarks.traffic_class.plan import plan_traffic_class
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage


def _launch(_job: JobSpec, out: Path) -> Launch:
    return Launch(words=module("shakedown.benchmarks.traffic_class.job", out))


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
            order=TrafficClassOrder.model_validate,
            launch=_launch,
            uses=("perftest",),
            # Nodes finish their last pairs at different times.
            wait_s=0,
        )
    },
    tools={NAME: Tool(metrics=traffic_class, that_count=drop_superseded, moved=moved)},
    words={"traffic_class": "traffic class of arriving RoCE"},
)
