"""The one check: any planned job of any benchmark, started as the benchmark's own object says."""

import shlex
import sys
from pathlib import Path

import reframe as rfm
import reframe.core.runtime as rt
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_after, run_before

# As settings.py describes its system. By any other ReFrame would leave this check out, run none and exit 0.
if rt.runtime().system.descr != "made from the Ansible inventory":
    own = Path(__file__).with_name("settings.py")
    print(f"this check needs settings of its own, and others are in use -- add -C {own}", file=sys.stderr)
    sys.exit(2)

from reframe_tests.guard import Guard, planned_jobs
from shakedown.onnode.standing import WITH_SLURM


@rfm.simple_test
class Check(rfm.RunOnlyRegressionTest, Guard):
    """One job of the plan. What it catches is in its description: `reframe --describe`, or the plan."""

    planned = parameter(planned_jobs(), type=str, loggable=True)

    @run_after("setup")
    def in_the_batch_script(self) -> None:
        if not self.kind.by_srun:
            self.job.launcher = getlauncher("local")()

    @run_before("run")
    def command(self) -> None:
        launch = self.kind.launch(self.spec, self.out)
        self.env_vars.update(launch.variables)
        self.prerun_cmds = [
            # Without it the job would run by other settings than were meant.
            *(f". {shlex.quote(file)} || exit 66" for file in launch.source),
            *(f"[ ! -r {shlex.quote(file)} ] || . {shlex.quote(file)}" for file in launch.optional_source),
            *self.prerun_cmds,
        ]
        self.job.options += [*([f"--gres=gpu:{launch.gpus}"] if launch.gpus else []), *launch.options]
        self.job.launcher.options += [
            *([f"--gres=gpu:{launch.step_gpus}"] if launch.step_gpus else []),
            *launch.step_options,
        ]
        if before := [*launch.keep, *(map(shlex.quote, WITH_SLURM) if self.kind.by_srun else ())]:
            self.job.launcher.modifier, *self.job.launcher.modifier_options = before
        self.executable, *self.executable_opts = launch.words
