"""Jobs that wait for a node that went out of service after they were submitted."""

from dataclasses import dataclass, field

import pytest

from shakedown.records.reading import BadInput
from shakedown.slurm.ending import Pending


@dataclass
class FakeSlurm:
    """Slurm's queue: the jobs that wait, and what is done to them."""

    waiting: list[str] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, *argv: str) -> str:
        """Answer squeue and sinfo, and obey scancel."""
        self.calls.append(argv)
        if argv[0] == "sinfo":
            nodes = argv[3].removeprefix("--nodes=").split(",")
            return "\n".join(f"{node}|{'down' if node in self.down else 'idle'}|none" for node in nodes)
        if argv[0] == "scancel":
            self.waiting.remove(argv[1])
        return "\n".join(self.waiting)

    def cancelled(self) -> list[str]:
        """What was cancelled."""
        return [argv[1] for argv in self.calls if argv[0] == "scancel"]


class Site:
    """Two nodes, of which some are down."""

    def __init__(self) -> None:
        self.slurm = FakeSlurm()
        self.pending = Pending(self.slurm)
        self.pending._thread = object()  # no thread: the test looks

    def submit(self, job: str, *nodes: str) -> None:
        """Put a job of ours into the queue."""
        self.slurm.waiting.append(job)
        self.pending.watch(lambda: job, nodes, reserved=False)


def test_a_job_that_waits_for_a_dead_node_is_cancelled_and_no_other():
    """Catches: a night that waits for its deadline, and a healthy or foreign job cancelled."""
    site = Site()
    site.submit("7", "n1", "n2")
    site.submit("8", "n1")
    site.slurm.waiting.append("99")  # somebody else's, on the same account
    site.slurm.down = {"n2"}
    site.pending.look()
    site.pending.look()
    assert site.slurm.cancelled() == []
    site.pending.look()
    assert site.slurm.cancelled() == ["7"]
    assert site.pending.cancelled == {"7": "Slurm cannot use n2: it is down"}
    site.slurm.down = {"n1", "n2"}
    for _ in range(3):
        site.pending.look()
    assert site.slurm.cancelled() == ["7", "8"]
    site.pending.look()
    assert "99" in site.slurm.waiting


def test_a_node_that_comes_back_costs_nothing():
    """Catches: a job lost to a node that was slow to answer now and then."""
    site = Site()
    site.submit("7", "n1")
    for down in ({"n1"}, {"n1"}, set(), {"n1"}, {"n1"}):
        site.slurm.down = down
        site.pending.look()
    assert site.slurm.cancelled() == []


def test_a_running_job_is_left_to_slurm():
    """Catches: a job cancelled for a node that died under it, which Slurm ends with its own state."""
    site = Site()
    site.submit("7", "n1")
    site.slurm.waiting.clear()
    site.slurm.down = {"n1"}
    for _ in range(5):
        site.pending.look()
    assert site.slurm.cancelled() == []


def test_a_job_that_is_not_submitted_yet_is_kept():
    """Catches: a job that is forgotten before it has an id, and then waits unseen."""
    site, ids = Site(), list[str]()
    site.pending.watch(lambda: ids and ids[0], ("n1",), reserved=False)
    site.slurm.down = {"n1"}
    site.pending.look()
    ids.append("7")
    site.slurm.waiting.append("7")
    for _ in range(3):
        site.pending.look()
    assert site.slurm.cancelled() == ["7"]


def test_looking_goes_on_when_slurm_does_not_answer(monkeypatch):
    """Catches: one failed squeue that ends the thread, and with it the watch over all jobs."""
    import shakedown.slurm.ending as under_test

    site = Site()
    site.submit("7", "n1")
    site.slurm.down = {"n1"}
    answers = iter([BadInput("no slurmctld")])
    ask = site.slurm.ask

    def failing(*argv):
        for error in answers:
            raise error
        if argv[0] == "scancel":
            ask(*argv)
            raise SystemExit
        return ask(*argv)

    site.slurm.ask = failing
    monkeypatch.setattr(under_test, "_CANCEL_EVERY_S", 0.001)
    with pytest.raises(SystemExit):
        site.pending._run()
    assert site.slurm.cancelled() == ["7"]
