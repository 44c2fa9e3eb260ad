"""Every node's settings against the intent: one job, a task on each node, one result per node and setting."""

import sys

import reframe as rfm
from reframe.core.builtins import parameter, run_before

from reframe_tests.guard import Guard, planned_jobs


@rfm.simple_test
class Settings(rfm.RunOnlyRegressionTest, Guard):
    """Read back what the playbooks set: RoCE class, MTU, GIDs, links, and whatever else a node keeps.

    Catches: a node that was never configured, lost its settings at boot, drifted, or was configured from
    another intent than the one this run is judged by.
    """

    planned = parameter(planned_jobs("settings"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        self.executable = sys.executable
        self.executable_opts = ["-m", "shakedown.benchmarks.config.job", str(self.out)]
