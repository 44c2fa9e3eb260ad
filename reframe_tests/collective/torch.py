"""Collectives through PyTorch, with NCCL on GPUs or gloo on CPUs."""

import shlex
import sys

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_after, run_before

from reframe_tests.guard import Guard, planned_jobs
from shakedown.records.errors import ExitStatus


@rfm.simple_test
class TorchCollectives(rfm.RunOnlyRegressionTest, Guard):
    """The second opinion, which needs nothing but PyTorch; its numbers stay apart from nccl-tests' own.

    Catches: an nccl-tests build that flatters or slanders the hardware, and what many small messages cost.
    """

    also_good = ExitStatus.INCOMPLETE.value

    planned = parameter(planned_jobs("torch_collectives"), type=str, loggable=True)

    @run_after("setup")
    def in_the_batch_script(self) -> None:
        self.job.launcher = getlauncher("local")()

    @run_before("run")
    def command(self) -> None:
        if self.spec.settings["backend"] == "nccl":
            self.job.options += [f"--gres=gpu:{max(self.spec.settings['ranks'].values())}"]
        self.executable = shlex.quote(sys.executable)
        self.executable_opts = [
            "-m",
            "shakedown.benchmarks.torch_collectives.job",
            shlex.quote(str(self.out)),
        ]
