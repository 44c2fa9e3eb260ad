"""All benchmarks: one line each. All code that must know them asks here."""

from importlib import import_module

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Parser, Tool
from shakedown.intent.acceptance import acceptance_model
from shakedown.records.base import Stage

# A benchmark is the folder of this name: its benchmark.py holds BENCHMARK.
_FOLDERS = (
    "config",
    "software",
    "switches",
    "traffic_class",
    "interconnect",
    "gpu",
    "gpu_rate",
    "gpu_integrity",
    "stream",
    "storage",
    "perftest",
    "gpudirect",
    "incast",
    "mpi",
    "nccl",
    "torch_collectives",
    "inference",
    "lora",
)


def _all() -> tuple[Benchmark, ...]:
    """Return the benchmarks in the order of the ladder."""
    ladder = list(Stage)
    found: list[Benchmark] = [
        import_module(f"shakedown.benchmarks.{name}.benchmark").BENCHMARK for name in _FOLDERS
    ]
    return tuple(sorted(found, key=lambda benchmark: ladder.index(benchmark.stage)))


BENCHMARKS = _all()
# How a job is started, by `JobSpec.kind`; what its outputs mean, by the journal's `tool`.
JOB_KINDS: dict[str, JobKind] = {kind: job for b in BENCHMARKS for kind, job in b.jobs.items()}
TOOLS: dict[str, Tool] = {name: tool for b in BENCHMARKS for name, tool in b.tools.items()}
PARSERS: tuple[Parser, ...] = tuple(parser for b in BENCHMARKS for parser in b.parsers)
# Stage, unit and direction of what benchmarks measure and no shipped profile has, by test and metric.
UNPUBLISHED = {pair: (b.stage, *unit) for b in BENCHMARKS for pair, unit in b.measures.items()}
# Tests in words, where their name is not what a person would say.
TEST_WORDS = {test: words for b in BENCHMARKS for test, words in b.words.items()}
Acceptance = acceptance_model(b.section for b in BENCHMARKS)  # the model of a site's acceptance.yml
