"""MPI over the fabric: ping-pong between neighbours, and a checked all-reduce over all nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Tool, module
from shakedown.benchmarks.base.night import NotAtNight
from shakedown.benchmarks.base.software import of, within
from shakedown.benchmarks.mpi import job as mpi_job
from shakedown.benchmarks.mpi.metrics import moved, mpi, mpi_log
from shakedown.benchmarks.mpi.options import Mpi, MpiOrder
from shakedown.benchmarks.mpi.plan import plan_mpi
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.errors import ExitStatus
from shakedown.records.places import SOURCE


def _started(words: Callable[[MpiOrder], tuple[str, ...]]) -> Callable[[JobSpec, Path], Launch]:
    def launch(job: JobSpec, out: Path) -> Launch:
        name, source = of(job, "openmpi")
        # A container has a Python of its own, with its own mpi4py; any other software is found by this one.
        order = MpiOrder.model_validate(job.settings)
        inner = words(order)
        inner = (source.interpreter, *inner[1:]) if source and source.contained else inner
        started, options = within(source, name, inner, out, gpus=False)
        # Each rank on the CPUs of its node's rank file.
        pin = module("shakedown.onnode.pin", "--note", out)
        pin = (source.interpreter, *pin[1:]) if source and options else pin
        return Launch(
            words=(*pin, *started),
            step_options=options,
            # Keeps what rank 0 prints and what UCX logs, and notes which cells they measure.
            keep=module("shakedown.benchmarks.mpi.job", out, job.tests[0], ",".join(job.nodes), "--"),
            variables={
                # The heading of mpi4py's table has a plus-minus sign, whatever the site's language.
                "PYTHONIOENCODING": "utf-8",
                **order.variables,
                **mpi_job.variables(out),
                **({"PYTHONPATH": str(SOURCE)} if source and source.contained else {}),
            },
            # The transport that the site allows, and no other: its own words, or what roles/openmpi wrote.
            source=() if order.variables else ("/etc/shakedown/mpi.env",),
        )

    return launch


def _allreduce(sweep: MpiOrder) -> tuple[str, ...]:
    return module(
        "shakedown.benchmarks.mpi.allreduce",
        f"--min={sweep.min_bytes}",
        f"--max={sweep.max_bytes}",
        f"--factor={sweep.factor}",
        f"--iterations={sweep.iterations}",
    )


def _pingpong(sweep: MpiOrder) -> tuple[str, ...]:
    # mpi4py's own numbers of iterations, 10,000 up to 16 KiB, 1,000 up to 1 MiB and 10 above, suit hardware.
    loops = tuple(f"--{name}={sweep.iterations}" for name in ("loop", "loop-large", "loop-huge"))
    sizes = (f"--min-size={sweep.min_bytes}", f"--max-size={sweep.max_bytes}")
    # The times and samples are the second witness of each bandwidth.
    plain = () if sweep.timed else ("--no-stats",)
    return module("mpi4py.bench", "pingpong", *plain, *sizes, *loops, "--skip=2")


BENCHMARK = Benchmark(
    name="mpi",
    stage=Stage.COLLECTIVE,
    section=Section(
        key="mpi", kind=Mpi, absent=Mpi(), joins_nodes=lambda asked: bool(asked.pingpong or asked.allreduce)
    ),
    plan=plan_mpi,
    night=NotAtNight("one job over all nodes leaves no node idle for anything else"),
    jobs={
        "mpi_pingpong": JobKind(
            catches="point-to-point MPI that does not go as planned or is slower than its reference",
            order=MpiOrder.model_validate,
            launch=_started(_pingpong),
            mpi="pmix",
            also_good=ExitStatus.INCOMPLETE.value,
            uses=("openmpi",),
        ),
        "mpi_allreduce": JobKind(
            catches="MPI that does not go as planned, a wrong sum, a collective slower than its reference",
            order=MpiOrder.model_validate,
            launch=_started(_allreduce),
            mpi="pmix",
            also_good=ExitStatus.INCOMPLETE.value,
            uses=("openmpi",),
        ),
    },
    tools={"mpi": Tool(metrics=mpi, moved=moved), "mpi-log": Tool(metrics=mpi_log)},
    words={
        "mpi_allreduce_transport": "MPI all-reduce's transport",
        "mpi_pingpong_transport": "MPI ping-pong's transport",
    },
)
