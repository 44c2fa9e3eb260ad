"""perftest between all pairs of nodes: every rail, both directions, rails one by one and all at once."""

import shlex
import sys

import reframe as rfm
from reframe.core.builtins import parameter, run_before

from reframe_tests.guard import Guard, planned_jobs
from shakedown.records.errors import ExitStatus


@rfm.simple_test
class Perftest(rfm.RunOnlyRegressionTest, Guard):
    """One job per operation measures all pairs, so that no pair is left to chance and Slurm sees few jobs.

    Catches: a lossy, slow or misconfigured path between any two nodes, named by pair, rail and direction.
    """

    # Nodes finish their last pairs at different times, and one that died is noticed late.
    wait_s = 0
    # Some measurements gave no value. Each is recorded with its reason, and the others are good.
    also_good = ExitStatus.INCOMPLETE.value
    # A node that dies costs its own pairs only.
    outlives_nodes = True

    planned = parameter(planned_jobs("mesh"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        self.executable = sys.executable
        self.executable_opts = [
            "-m",
            "shakedown.benchmarks.perftest.mesh.driver",
            str(self.out / "spec.json"),
            str(self.out),
        ]

    def ended_command(self) -> str:
        return shlex.join(
            [sys.executable, "-m", "shakedown.benchmarks.perftest.mesh.completeness", str(self.out)]
        )
