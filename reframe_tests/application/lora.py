"""LoRA fine-tuning over all nodes: does training run, how fast, and who lags."""

import shlex
import sys

import reframe as rfm
from reframe.core.builtins import parameter, run_before

from reframe_tests.guard import Guard, planned_jobs
from shakedown.benchmarks.lora.job import trainer_command
from shakedown.records.places import SOURCE


@rfm.simple_test
class Lora(rfm.RunOnlyRegressionTest, Guard):
    """Fine-tune a Llama with LoRA under torchrun, one task a node.

    Catches: training that does not start, hangs, diverges or learns nothing; throughput below its reference;
    a slow rank, by rank and node; less traffic on the fabric's NICs than the parallelism must cause.
    """

    # The trainer's own watchdog ends a job and says why; Slurm's must not be quicker.
    wait_s = 30

    planned = parameter(planned_jobs("lora"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        settings = self.spec.settings
        if settings["device"] == "cuda":
            self.job.options += [f"--gres=gpu:{settings['gpus_per_node']}"]
        self.job.options += ["--exclusive"]
        self.env_vars.update(settings["variables"])
        self.job.launcher.options += ["--kill-on-bad-exit=1"]
        keep = ["-m", "shakedown.benchmarks.lora.job", str(self.out), ",".join(self.spec.nodes), "--"]
        self.job.launcher.modifier = shlex.quote(sys.executable)
        self.job.launcher.modifier_options = [shlex.quote(word) for word in keep]
        words = trainer_command(settings, len(self.spec.nodes), SOURCE, self.out)
        self.executable, *self.executable_opts = words
