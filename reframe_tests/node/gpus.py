"""The GPUs of every node: their state, and nvbandwidth, in one job with a task on each node."""

import sys

import reframe as rfm
from reframe.core.builtins import parameter, run_before

from reframe_tests.guard import Guard, planned_jobs
from shakedown.records.errors import ExitStatus


@rfm.simple_test
class GpuNode(rfm.RunOnlyRegressionTest, Guard):
    """Look at the GPUs, copy between host and GPUs and between GPUs while sampling them, look again.

    Catches: a missing GPU, a PCIe or NVLink link that is down, narrow or slow, a GPU on the wrong NUMA node,
    ECC errors, pending row remapping, clocks slowed by heat or power, a driver's Xid; and a GPU whose copies
    are slower than the others'.
    """

    # Some outputs have a problem instead of numbers; each is recorded with its reason.
    also_good = ExitStatus.INCOMPLETE.value
    # Nodes end their last copy at different times.
    wait_s = 120

    planned = parameter(planned_jobs("gpu_node"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        gpus = max(self.spec.settings["gpus"].values())
        self.job.options += [f"--gres=gpu:{gpus}"]
        self.job.launcher.options += [f"--gres=gpu:{gpus}"]
        self.executable = sys.executable
        self.executable_opts = ["-m", "shakedown.benchmarks.gpu.job", str(self.out)]
