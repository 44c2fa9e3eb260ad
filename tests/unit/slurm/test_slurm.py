"""What Slurm says of jobs and nodes."""

import json
import os
import re
import runpy
from datetime import datetime
from pathlib import Path

import pytest

from shakedown.plan.jobs import Jobs
from shakedown.records.reading import BadInput
from shakedown.slurm.client import Slurm, parse_show_job, parse_show_nodes, parse_unusable, show_job
from shakedown.slurm.ending import not_submitted
from shakedown.slurm.preflight import refuse_over_limits
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.files import script
from tests.kit.refusal import refused

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


@cases(
    "was, becomes",
    ("JobState=COMPLETED", "JobState=CANCELLED"),
    ("JobState=COMPLETED", "JobState=TIMEOUT"),
    ("JobState=COMPLETED", "JobState=NODE_FAIL"),
    ("JobState=COMPLETED", "JobState=PREEMPTED"),
    ("ExitCode=0:0", "ExitCode=3:0"),
    ("ExitCode=0:0", "ExitCode=0:9"),
    ("Restarts=0", "Restarts=1"),
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
    """Catches: `JobState=COMPLETED` in a job's name or comment, by its owner, read as Slurm's word."""
    failed = COMPLETED.replace("JobState=COMPLETED", "JobState=FAILED")
    name, said = re.search(r"JobName=\S+", failed)[0], " JobState=COMPLETED"
    for forged in (failed.rstrip("\n") + f"{said}\n", failed.replace(name, f"{name}{said} y")):
        refused("says twice: JobState", parse_show_job, forged)


@cases("text", "", "slurm_load_jobs error: Invalid job id specified\n", COMPLETED + COMPLETED)
def test_no_job_or_several_is_refused(text):
    """Catches: an empty or ambiguous answer read as some state."""
    with pytest.raises(BadInput):
        parse_show_job(text)


def test_missing_exit_code_is_refused():
    """Catches: an unknown format read as success."""
    with pytest.raises(BadInput, match="ExitCode"):
        parse_show_job(COMPLETED.replace("ExitCode=0:0", ""))


@cases(
    "text, says",
    ("n1|idle|none\nn2|idle|none\n", ""),
    ("n1|idle|none\nn2|allocated|none\n", ""),
    ("n1|idle|none\nn2|down*|Not responding\n", "Slurm cannot use n2: it is down and does not respond"),
    ("n1|idle*|none\nn2|idle|none\n", "Slurm cannot use n1: it is idle and does not respond"),
    ("n1|down*|bad DIMM\nn2|idle~|none\n", "n1: it is down and does not respond (bad DIMM)"),
    ("n1|idle|none\nn2|drained|bad DIMM\n", "Slurm cannot use n2: it is drained (bad DIMM)"),
    ("n1|idle|none\n", "n2: it is unknown to Slurm"),
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


SETTINGS = Path(__file__).parents[3] / "reframe_tests" / "settings.py"


def jobs_json(**more: object) -> str:
    """The jobs.json of a run that measures nothing."""
    return json.dumps({"schema": 1, "run": "r1", "jobs": [], "nics": {}} | more)


@pytest.fixture
def access(tmp_path, monkeypatch):
    """Return what stands in front of every job's own options, for a jobs.json and a night's options.

    None for no run at all, an empty text for a run without the file.
    """

    def read(jobs: str | None, night: str = "[]") -> list[str]:
        run = tmp_path / "runs" / "r1"
        run.mkdir(parents=True, exist_ok=True)
        if jobs:
            (run / "jobs.json").write_text(jobs)
        monkeypatch.setenv("SHAKEDOWN_RUN", "" if jobs is None else str(run))
        monkeypatch.setenv("SHAKEDOWN_ACCESS", night)
        monkeypatch.delenv("SHAKEDOWN_SITE", raising=False)
        made = runpy.run_path(str(SETTINGS))["site_configuration"]
        return made["systems"][0]["partitions"][0]["access"]

    return read


def test_a_plans_options_come_after_the_sites_and_before_the_nights(access):
    """Catches: a slurm: block that no job gets; a night in the site's QOS: the last option holds."""
    assert access(jobs_json(submit=["--partition=gpu", "--qos=normal"]), '["--qos=scavenger"]') == [
        "--no-requeue",
        "--exclusive",
        "--partition=gpu",
        "--qos=normal",
        "--qos=scavenger",
    ]


def test_without_a_block_slurm_decides(access):
    """Catches: a run made by an earlier release, or none yet, that cannot be read."""
    assert access(jobs_json()) == access(None) == ["--no-requeue", "--exclusive"]


@cases(
    "jobs, said",
    ('{"submit": [', r"jobs\.json: Expecting value: line 1 column 13"),
    ('{"schema": 9, "run": "r1", "jobs": [], "nics": {}}', r"jobs\.json: schema: Input should be 1"),
    ("", r"jobs\.json: does not exist"),
    ids=["cut off", "of another release", "not there"],
)
def test_a_run_without_a_usable_plan_ends_it_in_one_line(jobs, said, access, capsys):
    """Catches: ReFrame that leaves out the check which cannot read its jobs, says PASSED 0/0 and exits 0."""
    with pytest.raises(SystemExit) as ended:
        access(jobs)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(f"{said}.* -- .*`shakedown plan INVENTORY --output FOLDER` makes one$", line)


@pytest.mark.parametrize("variable", ["SHAKEDOWN_RUN", "SHAKEDOWN_SITE"])
def test_a_relative_path_is_refused_with_the_absolute_one(variable, monkeypatch, capsys):
    """Catches: a path taken from the folder of settings.py, where ReFrame reads it: another file, or none."""
    for name in ("SHAKEDOWN_RUN", "SHAKEDOWN_SITE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "reports/runs/r1")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SETTINGS))
    assert ended.value.code == 2
    said = f"{variable}: 'reports/runs/r1' is relative -- export {variable}=\"$PWD/reports/runs/r1\"\n"
    assert capsys.readouterr().err == said


# As sacctmgr 24.11 shows them with --parsable2; each row: the columns that are asked for.
ALICE = "bench|alice|||normal|{wall}|{tres}|{jobs}|{submit}|||"
BENCH = "bench|||root||||||{grp}||"
ROOT = "root|||||||||||"
QOS = "{name}|{wall}|{tres}|||{grp}|||{user}"


def jobs(*nodes: int, limit_s: int = 600, at_once: int = 4) -> Jobs:
    """Return jobs of so many nodes each."""
    specs = [
        records.job(
            name=f"fabric.{i}",
            tests=("t",),
            nodes=tuple(f"n{n}" for n in range(1, count + 1)),
            time_limit_s=limit_s,
        )
        for i, count in enumerate(nodes)
    ]
    return Jobs(run="r1", jobs=tuple(specs), nics={}, max_jobs=at_once)


def check(plan, *, qos="", partition_qos="", account="bench", rows=None, **limits):
    """Ask a Slurm with these limits."""
    cells = {"wall": "", "tres": "", "jobs": "", "submit": "", "grp": "", "user": "", **limits}
    asked = []

    def ask(*argv):
        asked.append(argv)
        what = " ".join(argv[4:-1])
        if what == "show associations account=bench":
            lines = rows or [BENCH.format(**cells), ALICE.format(**cells)]
            return "\n".join(lines) + "\n"
        if what == "show associations account=root":
            return ROOT + "\n"
        if what == "show user user=alice":
            return "bench\n"
        if what.startswith("show qos name="):
            name = what.removeprefix("show qos name=")
            empty = dict.fromkeys(cells, "")
            mine = {**empty, **limits.get("of_qos", {}).get(name, {})}
            return QOS.format(name=name, **mine) + "\n"
        raise AssertionError(argv)

    refuse_over_limits(
        ask, plan, "alice", account=account, qos=qos, partition="gpu", partition_qos=partition_qos
    )
    return asked


def test_what_the_account_allows_is_taken():
    """Catches: a limit of exactly what is planned that is refused, and an account without limits."""
    check(jobs(2, 2))
    check(jobs(2, 2, at_once=2), tres="cpu=64,node=2", wall="00:10:00", submit="2", jobs="2", grp="node=2")
    check(jobs(1), rows=["no row of that form"])


@cases(
    "limits, says",
    (
        {"tres": "cpu=9,node=1"},
        "fabric.0 is for 2 nodes, but slurm.account 'bench' of alice allows 1 (MaxTRES",
    ),
    ({"grp": "node=1"}, "fabric.0 is for 2 nodes, but slurm.account 'bench' allows 1 (GrpTRES node=1)"),
    (
        {"wall": "00:09:00"},
        "fabric.0 may take 600 s, but slurm.account 'bench' of alice allows 540 s (MaxWall",
    ),
    (
        {"submit": "1"},
        "2 jobs of a stage are submitted at a time, but slurm.account 'bench' of alice lets alice",
    ),
    ({"jobs": "0"}, "lets alice have 0 (MaxJobs) -- name another account"),
)
@pytest.mark.parametrize("account", ["bench", ""])
def test_what_it_can_never_have_is_refused(limits, says, account):
    """Catches: a job that waits for ever, or is refused in the middle of a stage."""
    with pytest.raises(BadInput) as refused:
        check(jobs(2, 2), account=account, **limits)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "partition", "named"), [("high", "", "high"), ("", "", "normal"), ("high", "of_gpu", "of_gpu")]
)
def test_the_qos_of_job_association_and_partition_count(asked, partition, named):
    """Catches: a limit of the QOS that the job gets without asking for it."""
    limits = {"of_qos": {named: {"user": "node=1"}}}
    with pytest.raises(BadInput, match=rf"slurm.qos '{named}' allows 1 \(MaxTRESPU node=1\)"):
        check(jobs(2), qos=asked, partition_qos=partition, **limits)


def test_what_others_wrote_in_slurm_is_not_asked_for():
    """Catches: an account's parent or a QOS that becomes an option of sacctmgr."""
    rows = [
        BENCH.replace("root", "--format=x").format(grp=""),
        ALICE.format(wall="x|", tres="", jobs="", submit=""),
    ]
    asked = check(jobs(2), qos="a b,-x", rows=rows)
    assert not any("--format=x" in " ".join(argv) or "-x" in argv[-2] for argv in asked)


# A scontrol that prints moments as Slurm does: in the time zone and the format of who asks.
SCONTROL = r"""#!/bin/sh
t() {
  date -d "@$1" +"${SLURM_TIME_FORMAT:-%Y-%m-%dT%H:%M:%S}"
}
echo "JobId=7 JobState=COMPLETED ExitCode=0:0 Requeue=0 Restarts=0 StartTime=$(t BEGIN) EndTime=$(t END)"
"""


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Sydney", "America/New_York", "UTC"])
@pytest.mark.parametrize(
    ("begin", "minutes"),
    [
        ("2026-10-25T00:50:00Z", 15),  # 02:50 in Berlin, and its end at 02:05
        ("2026-10-24T23:55:00Z", 85),  # 01:55, and its end at 02:20, the second one
        ("2026-03-29T00:55:00Z", 15),
        ("2026-04-04T15:50:00Z", 15),  # Sydney's 02:50 before 02:05
        ("2026-11-01T05:50:00Z", 15),  # New York's 01:50 before 01:05
    ],
)
def test_a_job_in_the_night_of_a_change_lasts_as_long_as_it_did(tmp_path, monkeypatch, zone, begin, minutes):
    """Catches: minus 45 minutes, or 25 instead of 85, in the hour that comes twice; another one's format."""
    start = int(datetime.fromisoformat(begin).timestamp())
    script(
        tmp_path / "scontrol", SCONTROL.replace("BEGIN", str(start)).replace("END", str(start + 60 * minutes))
    )
    for name, value in {"TZ": zone, "SLURM_TIME_FORMAT": "%d.%m.%Y %H:%M", "LC_ALL": "tr_TR.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = show_job("7")
    assert (job.started, job.duration_s) == (begin, 60.0 * minutes)


@pytest.mark.parametrize("reason", ["shakedown: rail 3 is slow", "shakedown: [3] A=b flaps=2 of gpu[1]"])
@cases("then", "", " Comment=(null)", " Comment=x [a@2026-01-01] Extra=topo=x InstanceId=i-0")
def test_a_reason_ends_where_the_next_field_begins(reason, then):
    """Catches: a drain of ours that is not known as ours, for a `=` in it or for what stands behind it."""
    line = f"NodeName=n1 State=MIXED+DRAIN Partitions=gpu Reason={reason} [root@2026-03-01T10:00:00]{then}"
    node = parse_show_nodes(line)["n1"]
    assert (node.reason, node.by, node.ours) == (reason, "root", True)
    of_config = parse_show_nodes("NodeName=n1 State=DOWN Partitions=gpu Reason=bad NIC Comment=A=b")["n1"]
    assert (of_config.reason, of_config.by) == ("bad NIC", "")


def test_what_somebody_named_in_another_alphabet_ends_no_program(tmp_path, monkeypatch):
    """Catches: a job that another user named in Latin-1, at which every reader of the queue falls over."""
    script(tmp_path / "squeue", "#!/bin/sh\nprintf '9|Pr\\374fung|RUNNING\\n'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Slurm().ask("squeue") == "9|Pr\ufffdfung|RUNNING\n"
