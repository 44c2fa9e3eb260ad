"""nccl-tests on the GPUs of one or several nodes."""

import shlex
import sys

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_after, run_before

from reframe_tests.guard import Guard, planned_jobs
from shakedown.records.errors import ExitStatus


@rfm.simple_test
class Nccl(rfm.RunOnlyRegressionTest, Guard):
    """Every planned operation and size, checked, with proof of which way the data went.

    Catches: a wrong sum, a collective slower than its reference, and data that go another way than planned:
    through host memory, by TCP, without GPUDirect RDMA, over fewer NICs, without NVLink SHARP.
    """

    # Some runs have a problem instead of numbers; each is recorded with its reason.
    also_good = ExitStatus.INCOMPLETE.value

    planned = parameter(planned_jobs("nccl"), type=str, loggable=True)

    @run_after("setup")
    def in_the_batch_script(self) -> None:
        # The program starts one step after another, by srun or mpirun.
        self.job.launcher = getlauncher("local")()

    @run_before("run")
    def command(self) -> None:
        gpus = max(self.spec.settings["gpus"].values())
        self.job.options += [f"--gres=gpu:{gpus}"]
        self.prerun_cmds = [
            "[ ! -r /etc/shakedown/mpi.env ] || . /etc/shakedown/mpi.env",
            "[ ! -r /etc/shakedown/nccl.env ] || . /etc/shakedown/nccl.env",
            *self.prerun_cmds,
        ]
        self.executable = shlex.quote(sys.executable)
        self.executable_opts = ["-m", "shakedown.benchmarks.nccl.job", shlex.quote(str(self.out))]
