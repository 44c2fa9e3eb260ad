"""LoRA fine-tuning over all nodes: does training run, how fast, and who lags."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Parser, Tool, module
from shakedown.benchmarks.base.night import NotAtNight
from shakedown.benchmarks.base.software import of, within
from shakedown.benchmarks.lora.job import given, trainer_command
from shakedown.benchmarks.lora.metrics import lora
from shakedown.benchmarks.lora.options import TrainingSpec
from shakedown.benchmarks.lora.plan import plan_lora
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.places import SOURCE


def _launch(job: JobSpec, out: Path) -> Launch:
    spec = TrainingSpec.from_json(job.settings)
    name, source = of(job, "pytorch")
    python = source.interpreter if source else "python3"
    words = tuple(trainer_command(job.settings, len(job.nodes), SOURCE, out, python))
    gpus = spec.device == "cuda"
    words, options = within(source, name, words, out, gpus=gpus, more=map(str, given(spec)))
    return Launch(
        words=words,
        keep=module("shakedown.benchmarks.lora.job", out, ",".join(job.nodes), "--"),
        gpus=spec.gpus_per_node if gpus else 0,
        variables=spec.variables,
        options=("--exclusive",),
        step_options=("--kill-on-bad-exit=1", *options),
    )


BENCHMARK = Benchmark(
    name="lora",
    stage=Stage.APPLICATION,
    section=Section(key="lora", kind=tuple[TrainingSpec, ...], absent=(), joins_nodes=bool),
    plan=plan_lora,
    night=NotAtNight("training takes all nodes for minutes to hours"),
    jobs={
        "lora": JobKind(
            catches="training that does not start, hangs, diverges or learns nothing; throughput below its "
            "reference; a slow rank, by rank and node; less traffic on the fabric's NICs than the "
            "parallelism must cause",
            order=TrainingSpec.from_json,
            launch=_launch,
            uses=("pytorch",),
            wait_s=30,  # the trainer's own watchdog ends a job and says why; Slurm's must not be quicker
        )
    },
    tools={"trainer": Tool(metrics=lora, own_bytes=lambda text: True)},
    parsers=(
        Parser(
            tool="trainer",
            module="shakedown.benchmarks.lora.output",
            function="parse_trainer",
            options={"--partial": "allow_truncated"},
        ),
    ),
    words={"lora": "LoRA training"},
)
