"""Inference over the way between CPU and GPU: ResNet50 behind MLPerf LoadGen."""

import reframe as rfm
from reframe.core.builtins import parameter, run_before

from reframe_tests.guard import Guard, planned_jobs
from shakedown.records.errors import ExitStatus


@rfm.simple_test
class Inference(rfm.RunOnlyRegressionTest, Guard):
    """Search for the highest rate at which 99 % of the queries are answered within the bound.

    Catches: an interconnect or GPU that carries less than its reference, a rate that holds in a short probe
    only, a result that LoadGen calls INVALID, a GPU that was throttled or lost on the way.
    """

    # One number of GPUs has no peak; it is recorded with its reason, and the others are good.
    also_good = ExitStatus.INCOMPLETE.value

    planned = parameter(planned_jobs("inference"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        settings = self.spec.settings
        if settings["device"] == "cuda":
            self.job.options += [f"--gres=gpu:{max(settings['gpus'])}"]
        self.with_site_python("loadgen_harness.main")
