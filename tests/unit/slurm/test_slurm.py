"""What Slurm says of jobs and nodes."""

import pytest

from shakedown.records.errors import BadInput
from shakedown.slurm.client import Slurm, parse_show_job, parse_unusable
from shakedown.slurm.ending import not_submitted

# As Slurm 24.11 prints it with --oneliner, shortened in the middle.
COMPLETED = (
    "JobId=1 JobName=rfm_Perftest_ccde709e UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 Nice=0 "
    "JobState=COMPLETED Reason=None Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:01:28 TimeLimit=00:04:00 StartTime=2026-11-20T11:38:48 EndTime=2026-11-20T11:40:16 "
    "NodeList=n[1-2] Command=/shared/run/rfm_job.sh WorkDir=/shared/run \n"
)


def test_completed_job():
    """Catches: a good job taken for a bad one, and its run time misread."""
    state = parse_show_job(COMPLETED)
    assert (state.job, state.state, state.exit_code, state.good) == ("1", "COMPLETED", "0:0", True)
    assert state.duration_s == 88.0


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("JobState=COMPLETED", "JobState=CANCELLED"),
        ("JobState=COMPLETED", "JobState=TIMEOUT"),
        ("JobState=COMPLETED", "JobState=NODE_FAIL"),
        ("JobState=COMPLETED", "JobState=PREEMPTED"),
        ("ExitCode=0:0", "ExitCode=3:0"),
        ("ExitCode=0:0", "ExitCode=0:9"),
        ("Restarts=0", "Restarts=1"),
    ],
)
def test_everything_else_is_not_good(was, becomes):
    """Catches: a job that printed its number and then failed, was cancelled, requeued or lost its node."""
    assert not parse_show_job(COMPLETED.replace(was, becomes)).good


def test_a_running_job_is_not_finished():
    """Catches: a state read too early taken for the last one."""
    state = parse_show_job(
        COMPLETED.replace("COMPLETED", "COMPLETING").replace("2026-11-20T11:40:16", "Unknown")
    )
    assert not state.finished
    assert state.duration_s is None


def test_a_users_words_cannot_forge_a_state():
    """Catches: `Comment=... JobState=COMPLETED` written by the job's owner read as Slurm's word."""
    forged = COMPLETED.replace("JobState=COMPLETED", "JobState=FAILED").rstrip("\n") + " JobState=COMPLETED\n"
    assert parse_show_job(forged).state == "FAILED"


@pytest.mark.parametrize(
    "text", ["", "slurm_load_jobs error: Invalid job id specified\n", COMPLETED + COMPLETED]
)
def test_no_job_or_several_is_refused(text):
    """Catches: an empty or ambiguous answer read as some state."""
    with pytest.raises(BadInput):
        parse_show_job(text)


def test_missing_exit_code_is_refused():
    """Catches: an unknown format read as success."""
    with pytest.raises(BadInput, match="ExitCode"):
        parse_show_job(COMPLETED.replace("ExitCode=0:0", ""))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n1|idle|none\nn2|idle|none\n", ""),
        ("n1|idle|none\nn2|allocated|none\n", ""),
        ("n1|idle|none\nn2|down*|Not responding\n", "Slurm cannot use n2: it is down and does not respond"),
        ("n1|idle*|none\nn2|idle|none\n", "Slurm cannot use n1: it is idle and does not respond"),
        ("n1|down*|bad DIMM\nn2|idle~|none\n", "n1: it is down and does not respond (bad DIMM)"),
        ("n1|idle|none\nn2|drained|bad DIMM\n", "Slurm cannot use n2: it is drained (bad DIMM)"),
        ("n1|idle|none\n", "n2: it is unknown to Slurm"),
    ],
)
def test_unusable_nodes_are_named(text, says):
    """Catches: a job queued for ever on a node that is down, a drained node named without its reason."""
    assert says in parse_unusable(text, ("n1", "n2"))
    assert bool(parse_unusable(text, ("n1", "n2"))) == bool(says)


def test_reserved_nodes_are_for_jobs_that_name_a_reservation():
    """Catches: a job that waits for a reservation's end, and a retest inside one that is refused."""
    assert "n1: it is reserved" in parse_unusable("n1|reserved|none\n", ("n1",))
    assert parse_unusable("n1|reserved|none\n", ("n1",), reserved=True) == ""


def test_nodes_that_are_out_of_service_are_not_run_and_a_silent_slurm_is_undecided():
    """Catches: a node drained by its owner reported as in doubt, or a silent Slurm as a drained node."""
    drained = parse_unusable("n1|idle|none\nn2|drained|bad DIMM\n", ("n1", "n2"))
    assert not_submitted("") is None
    told = not_submitted(drained)
    assert (told.kind, told.message) == ("not-run", "Slurm cannot use n2: it is drained (bad DIMM)")
    assert not_submitted("Slurm has not answered for 600 s").kind == "environment"


def test_a_maintenance_reservation_keeps_out_those_who_do_not_name_it():
    """Catches: our own maintenance reservation refused, or somebody else's waited for."""
    text = "n1|maint|none\nn2|idle|none\n"
    assert parse_unusable(text, ("n1", "n2"), reserved=True) == ""
    assert parse_unusable(text, ("n1", "n2")) == "Slurm cannot use n1: it is maint"


class Expands(Slurm):
    """A Slurm that would take any word."""

    def ask(self, *argv: str) -> str:  # noqa: D102
        return f"{argv[3]}\n"


@pytest.mark.parametrize("said", ["--help", "-v", "", "(null)", "n1 n2", "$(reboot)", "[1-2]", "n1\nn2"])
def test_what_is_no_list_of_hosts_is_not_asked(said):
    """Catches: an option of scontrol, or a word of a shell, where nodes are expected."""
    assert Expands().hostnames(said) == []
    assert Expands().hostnames("n1") == ["n1"]
