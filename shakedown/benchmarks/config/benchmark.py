"""The config stage's benchmark of hosts: settings, and parts that must be alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Tool, module
from shakedown.benchmarks.base.night import EveryNight
from shakedown.benchmarks.config.metrics import settings
from shakedown.benchmarks.config.odd_parts import snapshot_measurements
from shakedown.benchmarks.config.options import ConfigStage
from shakedown.benchmarks.config.order import SettingsOrder
from shakedown.benchmarks.config.plan import plan_config
from shakedown.benchmarks.config.versions import version_measurements
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.plan import Plan
from shakedown.records.results import Measurement

SECTION = Section(key="config", kind=ConfigStage | None, needs_fabric=True, reads_switches=True)


def _launch(_job: JobSpec, out: Path) -> Launch:
    return Launch(words=module("shakedown.benchmarks.config.job", out))


def _of_the_snapshot(plan: Plan, folder: Path) -> Iterator[Measurement]:
    yield from snapshot_measurements(plan, folder)
    yield from version_measurements(plan, folder)


BENCHMARK = Benchmark(
    name="config",
    stage=Stage.CONFIG,
    section=SECTION,
    plan=plan_config,
    night=EveryNight(),
    jobs={
        "settings": JobKind(
            catches="a node that was never configured, lost its settings at boot, drifted, or was configured "
            "from another intent than the one this run is judged by",
            order=SettingsOrder.model_validate,
            launch=_launch,
            wait_s=0,  # a node that fails at once must not end the others' read-back
            each_node=True,
        )
    },
    tools={"settings": Tool(metrics=settings)},
    gather=_of_the_snapshot,
    words={
        "inventory": "hardware and software",
        "settings": "host settings",
        "versions": "versions beside the published ones",
    },
)
