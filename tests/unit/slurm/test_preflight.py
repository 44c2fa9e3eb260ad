"""What Slurm would refuse, and another run on the cluster, are told before the first job is submitted."""

import io
import json
import os
import pwd
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from shakedown.intent.slurm_block import SlurmBlock
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.base import to_json
from shakedown.records.reading import BadInput
from shakedown.slurm import preflight
from shakedown.slurm.client import NoAnswer, Slurm, fields
from shakedown.slurm.preflight import check, wanted
from shakedown.slurm.under_way import refuse_other_run
from tests.kit.cases import cases
from tests.kit.files import script

PARTITION = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts={accounts} AllowQos=ALL Default=NO MaxTime=00:20:00 "
    "Nodes=n[1-3] State={state} TotalNodes=3"
)
RESERVATION = (
    "ReservationName=maint1 StartTime=2026-11-23T08:00:00 EndTime=2026-11-24T08:00:00 Nodes=n[1-2] NodeCnt=2 "
    "Flags=MAINT,IGNORE_JOBS Users={users} Accounts={accounts} State={state}"
)


class Fake(Slurm):
    """A Slurm that has one partition, one reservation and accounts, and notes what it is asked."""

    answers: dict[str, object]
    asked: list[tuple[str, ...]]

    def ask(self, *argv: str) -> str:  # noqa: D102
        self.asked.append(argv)
        said = self.answers.get(" ".join(argv[1:]), "")
        if "associations" in argv:
            said = self.answers["associations"]
        if argv[:3] == ("scontrol", "show", "hostnames"):
            first, last = re.fullmatch(r"n\[(\d)-(\d)\]", argv[3]).groups()
            said = "".join(f"n{i}\n" for i in range(int(first), int(last) + 1))
        if isinstance(said, Exception):
            raise said
        return said


def slurm(**changes: object) -> Fake:
    """Return a Slurm in which everything is in order but the changes."""
    unknown = {
        "--oneliner show partition gone": NoAnswer("scontrol --oneliner show: Partition gone not found"),
        "--oneliner show reservation gone": NoAnswer("scontrol --oneliner show: Reservation gone not found"),
    }
    fake = Fake()
    object.__setattr__(fake, "asked", [])
    object.__setattr__(
        fake,
        "answers",
        {
            **unknown,
            "show config": "DisableRootJobs = YES\nAccountingStorageEnforce = associations,limits,qos\n",
            "--oneliner show partition gpu": PARTITION.format(accounts="ALL", state="UP"),
            "--oneliner show partition": PARTITION.format(accounts="ALL", state="UP"),
            "--oneliner show reservation maint1": RESERVATION.format(
                users="alice", accounts="(null)", state="ACTIVE"
            ),
            "--oneliner show reservation": RESERVATION.format(
                users="alice", accounts="(null)", state="ACTIVE"
            ),
            "associations": "bench|normal,high|normal\nother|normal|normal\n",
            **changes,
        },
    )
    return fake


def jobs(nodes: tuple[str, ...] = ("n1", "n2"), **block: object) -> Jobs:
    """Return the jobs of a plan with such a `slurm:` block."""
    spec = JobSpec(name="fabric.a", kind="mesh", stage="fabric", tests=("t",), nodes=nodes, time_limit_s=60)
    return Jobs(run="r1", jobs=(spec,), nics={}, submit=SlurmBlock(**block).job_options())


GOOD = {"partition": "gpu", "account": "bench", "qos": "high", "reservation": "maint1"}


def test_what_slurm_takes_is_taken():
    """Catches: a maintenance reservation of ours, or a site in order, that is refused."""
    check(slurm(), jobs(**GOOD), "alice")
    check(slurm(), jobs(), "alice")


@cases(
    "block, changes, says",
    ({"partition": "gone"}, {}, r"slurm.partition 'gone': Slurm has no such partition -- use one of gpu"),
    ({"reservation": "gone"}, {}, r"slurm.reservation 'gone': .* no such reservation -- use one of maint1"),
    ({"account": "gone"}, {}, r"slurm.account 'gone': Slurm has no such account for alice -- use one of"),
    ({"account": "bench", "qos": "gone"}, {}, r"slurm.qos 'gone': alice may not use it with .*normal"),
    ({"account": "other", "qos": "high"}, {}, r"slurm.qos 'high': alice may not use it with .*'other'"),
    (
        {"partition": "gpu"},
        {"--oneliner show partition gpu": PARTITION.format(accounts="ALL", state="DRAIN")},
        r"slurm.partition 'gpu' is DRAIN",
    ),
    (
        {"partition": "gpu", "account": "bench"},
        {"--oneliner show partition gpu": PARTITION.format(accounts="chem,bio", state="UP")},
        r"'gpu' does not take slurm.account 'bench' \(AllowAccounts=chem,bio\)",
    ),
    (
        {"reservation": "maint1"},
        {
            "--oneliner show reservation maint1": RESERVATION.format(
                users="root,bob", accounts="(null)", state="ACTIVE"
            )
        },
        r"'maint1' is not for alice but for root, bob",
    ),
    (
        {"reservation": "maint1"},
        {
            "--oneliner show reservation maint1": RESERVATION.format(
                users="alice", accounts="(null)", state="INACTIVE"
            )
        },
        r"'maint1' is INACTIVE: it is from 2026-11-23T08:00:00 to 2026-11-24T08:00:00",
    ),
    ({}, {"associations": ""}, r"Slurm has no account for alice, and takes no job without one"),
)
def test_what_slurm_would_refuse_is_named_by_its_key(block, changes, says):
    """Catches: an unknown partition, account, QOS or reservation told by sbatch, hours into a run."""
    with pytest.raises(BadInput, match=says) as refused:
        check(slurm(**changes), jobs(**block), "alice")
    assert "\n" not in str(refused.value)


@cases(
    "fields_of, says",
    (
        "MaxNodes=1",
        "job fabric.a is for 2 nodes, but slurm.partition 'gpu' takes at most 1 (MaxNodes=1) -- name "
        "another partition, or measure with fewer nodes",
    ),
    (
        "MinNodes=4",
        "job fabric.a is for 2 nodes, but slurm.partition 'gpu' takes no less than 4 (MinNodes=4)",
    ),
    ("RootOnly=YES", "slurm.partition 'gpu' takes jobs of root alone (RootOnly=YES) -- name another"),
    ("AllowQos=low,normal", "slurm.partition 'gpu' does not take slurm.qos 'high' (AllowQos=low,normal)"),
    ("DenyQos=high", "slurm.partition 'gpu' does not take slurm.qos 'high' (DenyQos=high) -- name a"),
    ("MaxNodes=UNLIMITED MinNodes=0 RootOnly=NO DenyQos=N/A", ""),
    ("MaxNodes=2 MinNodes=2 AllowQos=high", ""),
)
def test_what_the_partition_itself_does_not_take_is_told(fields_of, says):
    """Catches: jobs of more nodes than the partition has for one, or of a QOS that it does not take: they
    wait for ever, or are refused in the middle of a stage."""
    line = PARTITION.format(accounts="ALL", state="UP").replace("AllowQos=ALL", fields_of)
    made = slurm(**{"--oneliner show partition gpu": line})
    if not says:
        check(made, jobs(**GOOD), "alice")
        return
    with pytest.raises(BadInput) as refused:
        check(made, jobs(**GOOD), "alice")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("key", "name", "outside"), [("reservation", "maint1", "n3"), ("partition", "gpu", "n4, n5")]
)
def test_nodes_that_are_not_in_it_are_named(key, name, outside):
    """Catches: a job that waits for ever for a node outside its reservation or partition."""
    with pytest.raises(BadInput, match=rf"slurm.{key} '{name}' does not have {outside}, which the plan"):
        check(slurm(), jobs(("n1", *outside.split(", ")), **{key: name}), "alice")


@pytest.mark.parametrize("key", ["partition", "reservation"])
def test_a_name_that_slurm_does_not_know_is_told_as_scontrol_says_it(tmp_path, monkeypatch, key):
    """Catches: an unknown partition or reservation passed over as a silent Slurm, since scontrol says so on
    standard output and leaves standard error empty (24.11)."""
    program = tmp_path / "scontrol"
    script(
        program,
        f'#!/bin/sh\ncase "$*" in *" gone") echo; echo "{key.capitalize()} gone not found"; exit 1;; esac\n',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(BadInput) as refused:
        check(Slurm(), jobs(**{key: "gone"}), "alice")
    assert str(refused.value).startswith(f"slurm.{key} 'gone': Slurm has no such {key} -- ")
    with pytest.raises(BadInput, match="not found") as told:
        Slurm().ask("scontrol", "--oneliner", "show", key, "gone")
    assert not isinstance(told.value, NoAnswer)


def test_jobs_of_root_are_refused_where_slurm_takes_none():
    """Catches: DisableRootJobs found out by the first job."""
    with pytest.raises(
        BadInput, match=r"no jobs of root \(DisableRootJobs\) -- name an ordinary user in slurm"
    ):
        check(slurm(), jobs(), "root")


def test_a_slurm_that_does_not_answer_or_keeps_no_accounts_refuses_nothing():
    """Catches: a run refused because slurmctld restarts, or because there is no slurmdbd."""
    away = NoAnswer("scontrol: Unable to contact slurm controller (connect failure)")
    changes = dict.fromkeys(
        (
            "show config",
            "--oneliner show partition gpu",
            "--oneliner show reservation maint1",
            "associations",
        ),
        away,
    )
    check(slurm(**changes), jobs(**GOOD), "alice")


def test_a_nights_own_options_go_over_the_sites():
    """Catches: a retest in its own reservation that is held to the site's."""
    assert wanted(["--qos=a", "--comment=x", "--qos=b"]) == {"qos": "b"}
    fake = slurm()
    check(fake, jobs(partition="gone"), "alice", ["--partition=gpu"])
    assert ("scontrol", "--oneliner", "show", "partition", "gone") not in fake.asked


def test_what_others_wrote_in_slurm_is_text():
    """Catches: a comment in a reservation that passes for its users or its nodes."""
    line = RESERVATION.format(users="bob", accounts="(null)", state="ACTIVE") + " Comment=x Users=alice"
    assert fields(line)["Users"] == "bob"
    hostile = line.replace("Nodes=n[1-2]", "Nodes=$(reboot)")
    fake = slurm(**{"--oneliner show reservation maint1": hostile.replace("Users=bob", "Users=alice")})
    check(fake, jobs(reservation="maint1"), "alice")
    assert not any("reboot" in " ".join(argv) for argv in fake.asked)


def test_the_program_ends_with_2_and_one_line(monkeypatch, capsys):
    """Catches: a traceback, or an exit status that the playbook takes for success."""
    monkeypatch.setattr(preflight, "Slurm", slurm)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="alice"))

    def run(text: bytes, *argv: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
        status = preflight.main(argv)
        return status, capsys.readouterr().err

    assert run(to_json(jobs(**GOOD))) == (0, "")
    for text, argv in (
        (to_json(jobs(partition="gone")), ()),
        (b"{}", ()),
        (b"\xff", ()),
        (to_json(jobs()), ("--access={}",)),
        (to_json(jobs()), ("--access=" + json.dumps(["--partition='"]),)),
    ):
        status, said = run(text, *argv)
        assert status == 2 and said.count("\n") == 1, said


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
            # Anybody may name a program so, and put there what has no end.
            (run / "jobs.json").write_text("[" * 100_000)
            refuse_other_run(queue(), tmp_path / "mine", ["n1"])
            (run / "jobs.json").unlink()
            os.mkfifo(run / "jobs.json")
            refuse_other_run(queue(), tmp_path / "mine", ["n1"])
        finally:
            child.kill()
