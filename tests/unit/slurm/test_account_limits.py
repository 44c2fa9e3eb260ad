"""What an account or a QOS can never have is told before the first job, with both numbers."""

import pytest

from shakedown.plan.jobs import Jobs
from shakedown.records.errors import BadInput
from shakedown.slurm.preflight import refuse_over_limits
from tests.kit import records

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


@pytest.mark.parametrize(
    ("limits", "says"),
    [
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
    ],
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
