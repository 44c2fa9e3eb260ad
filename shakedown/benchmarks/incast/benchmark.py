"""Incast and all-to-all."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Tool, module
from shakedown.benchmarks.base.night import NotAtNight
from shakedown.benchmarks.incast.metrics import incast, moved
from shakedown.benchmarks.incast.names import ALL_TO_ALL, NAME
from shakedown.benchmarks.incast.options import Incast
from shakedown.benchmarks.incast.order import IncastOrder
from shakedown.benchmarks.incast.plan import plan_incast
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.errors import ExitStatus


def _launch(_job: JobSpec, out: Path) -> Launch:
    return Launch(words=module(f"shakedown.benchmarks.{NAME}.job", out))


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
            order=IncastOrder.model_validate,
            launch=_launch,
            uses=("perftest",),
            # Rounds that lost a partner are noted with the reason, and the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
            wait_s=0,
        )
    },
    tools={NAME: Tool(metrics=incast, moved=moved)},
    words={ALL_TO_ALL: "all-to-all between NICs"},
)
