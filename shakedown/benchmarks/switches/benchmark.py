"""The config stage's benchmark of switches: their own settings, and both ends of every cable."""

from __future__ import annotations

from shakedown.benchmarks.base.contract import Benchmark
from shakedown.benchmarks.base.night import EveryNight
from shakedown.benchmarks.config.benchmark import SECTION
from shakedown.benchmarks.switches.metrics import switch_measurements
from shakedown.benchmarks.switches.plan import plan_switches
from shakedown.records.base import Stage

# No job: roles read the switches back, and gather reads what they saved.
BENCHMARK = Benchmark(
    name="switches",
    stage=Stage.CONFIG,
    section=SECTION,
    plan=plan_switches,
    night=EveryNight(),
    gather=switch_measurements,
    words={"crosscheck": "cable ends", "switch_settings": "switch settings"},
)
