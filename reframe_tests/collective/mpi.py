"""MPI over the fabric: ping-pong between neighbours, and a checked all-reduce over all nodes."""

import shlex
import sys

import reframe as rfm
from reframe.core.builtins import parameter, run_before

from reframe_tests.guard import Guard, planned_jobs


class MpiCheck(rfm.RunOnlyRegressionTest, Guard):
    """An MPI program under Slurm's PMIx, with the transport that roles/openmpi allows and no other."""

    mpi = "pmix"

    def run_mpi(self, test: str, *arguments: str) -> None:
        """Build `shakedown.onnode.output ... -- srun ... python ARGUMENTS`."""
        self.prerun_cmds = [*self.prerun_cmds, ". /etc/shakedown/mpi.env"]
        keep = ["-m", "shakedown.onnode.output", str(self.out), "mpi", test, ",".join(self.spec.nodes), "--"]
        self.job.launcher.modifier = shlex.quote(sys.executable)
        self.job.launcher.modifier_options = [shlex.quote(word) for word in keep]
        self.executable = shlex.quote(sys.executable)
        self.executable_opts = [shlex.quote(word) for word in arguments]


@rfm.simple_test
class Allreduce(MpiCheck):
    """All-reduce over all nodes, every element checked.

    Catches: MPI that cannot use the fabric, a wrong sum, a collective slower than its reference.
    """

    planned = parameter(planned_jobs("mpi_allreduce"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        sizes = self.spec.settings
        self.run_mpi(
            "mpi_allreduce",
            "-m",
            "shakedown.benchmarks.mpi.allreduce",
            f"--min={int(sizes['min_bytes'])}",
            f"--max={int(sizes['max_bytes'])}",
            f"--factor={int(sizes['factor'])}",
            f"--iterations={int(sizes['iterations'])}",
        )


@rfm.simple_test
class Pingpong(MpiCheck):
    """Ping-pong between two nodes with mpi4py's own benchmark.

    Catches: point-to-point MPI that cannot use the fabric or is slower than its reference.
    """

    planned = parameter(planned_jobs("mpi_pingpong"), type=str, loggable=True)

    @run_before("run")
    def command(self) -> None:
        sizes = self.spec.settings
        self.run_mpi(
            "mpi_pingpong",
            "-m",
            "mpi4py.bench",
            "pingpong",
            "--no-stats",
            f"--min-size={int(sizes['min_bytes'])}",
            f"--max-size={int(sizes['max_bytes'])}",
            # Its defaults, 10,000 below 16 KiB and 1,000 above, suit hardware.
            f"--loop={int(sizes['iterations'])}",
            f"--loop-large={int(sizes['iterations'])}",
            "--skip=2",
        )
