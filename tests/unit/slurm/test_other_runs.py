"""Two site folders for one cluster: the second does not start beside the first one's run."""

import json
import subprocess
import sys

import pytest

from shakedown.records.reading import BadInput
from shakedown.slurm.client import NoAnswer, Slurm
from shakedown.slurm.under_way import refuse_other_run
from tests.kit.cases import cases


class Queue(Slurm):
    """A Slurm with these jobs in its queue."""

    lines: tuple[str, ...] | None

    def ask(self, *argv: str) -> str:  # noqa: D102
        if argv[0] == "squeue":
            if self.lines is None:
                raise NoAnswer("squeue: Unable to contact slurm controller")
            return "".join(f"{line}\n" for line in self.lines)
        assert argv[:3] == ("scontrol", "show", "hostnames"), argv
        return {"n[1-2]": "n1\nn2\n"}.get(argv[3], argv[3].replace(",", "\n"))


def queue(*lines: str, silent: bool = False) -> Queue:
    """Return a Slurm with these lines of squeue."""
    made = Queue()
    object.__setattr__(made, "lines", None if silent else lines)
    return made


@cases(
    "line",
    "7|bob|n[1-2]||/scratch/b/runs/r9/reframe/stage/x",
    "7|bob||n[1-2]|/scratch/b/runs/r9/reframe/stage/x",  # it waits
    "7|bob|n2||/scratch/b/runs/r9/reframe",
)
def test_a_run_of_another_folder_is_named(tmp_path, line):
    """Catches: two runs that measure on one node, each with a lock of its own."""
    with pytest.raises(
        BadInput, match=r"run r9 of another site folder .* on n[12]: Slurm job 7 of bob, in /scratch/b"
    ):
        refuse_other_run(queue("1|eve|n1||/home/eve/train", line), tmp_path, ["n1", "n2"])


@cases(
    "line",
    "7|bob|n[1-2]||{home}/runs/r9/reframe/stage/x",  # the lock's matter
    "7|bob|n3||/scratch/b/runs/r9/reframe/stage/x",  # on other nodes
    "7|bob|n1||/home/bob/runs/r9",
    "7|bob|$(reboot)||/scratch/b/runs/r9/reframe/stage/x",
    "7|bob",
    "",
)
def test_what_is_no_other_run_refuses_nothing(tmp_path, line):
    """Catches: our own run, another partition's, or a stranger's job that keeps us from starting."""
    refuse_other_run(queue(line.format(home=tmp_path)), tmp_path, ["n1", "n2"])
    refuse_other_run(queue(silent=True), tmp_path, ["n1", "n2"])


def test_a_reframe_between_its_jobs_is_seen(tmp_path):
    """Catches: a run that has no job in the queue at this moment."""
    other = tmp_path / "other"
    run = other / "runs/r9"
    run.mkdir(parents=True)
    (run / "jobs.json").write_text(json.dumps({"jobs": [{"nodes": ["n2", "n3"]}]}))
    words = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    words += [f"--prefix={run}/reframe"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            with pytest.raises(
                BadInput, match=rf"run r9 .* on n2: ReFrame \(process {child.pid}\), in {other}"
            ):
                refuse_other_run(queue(), tmp_path / "mine", ["n1", "n2"])
            refuse_other_run(queue(), other, ["n1", "n2"])
            refuse_other_run(queue(), tmp_path / "mine", ["n1"])
        finally:
            child.kill()
