"""The way between CPU and every GPU: its switches and links against the plan, and copies over it."""

import sys

import reframe as rfm
from reframe.core.builtins import parameter, run_before

from reframe_tests.guard import Guard, planned_jobs


@rfm.simple_test
class PciePath(rfm.RunOnlyRegressionTest, Guard):
    """Read sysfs while copies keep the links awake.

    Catches: a link that trained down (x8, a generation lower), more or fewer switches than planned, an uplink
    shared by more GPUs than planned, a GPU that is missing or pinned to the wrong NUMA node.
    """

    planned = parameter(planned_jobs("pcie_path"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        self.job.options += [f"--gres=gpu:{int(self.spec.settings['gpus'])}"]
        self.executable = sys.executable
        self.executable_opts = ["-m", "shakedown.benchmarks.interconnect.path_job", str(self.out)]


@rfm.simple_test
class Copies(rfm.RunOnlyRegressionTest, Guard):
    """Copy between pinned host memory and GPUs: each direction and both, each GPU and several at once.

    Catches: a slow link, an uplink that several GPUs share, host memory on the wrong NUMA node.
    """

    planned = parameter(planned_jobs("copies"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        self.job.options += [f"--gres=gpu:{int(self.spec.settings['gpus'])}"]
        self.with_site_python("loadgen_harness.copies")
