"""What Slurm said of a job, as its folder keeps it, lets its outputs count or not."""

from shakedown.evidence.job_folder import as_kept, shared_jobs
from shakedown.records.base import Stage
from shakedown.records.results import JobRecord, RunProblem
from tests.kit import records
from tests.kit.cases import cases

SPEC = records.job(name="fabric.ib_read_bw", tests=("ib_read_bw",), nodes=("n1", "n2"), expected_s=1)
GOOD = JobRecord(
    run="r1",
    stage=Stage.FABRIC,
    test=SPEC.name,
    job="7",
    state="COMPLETED",
    exit_code="0:0",
    nodes=("n2", "n1"),
    started="2026-11-20T13:29:27Z",
    duration_s=16.0,
)


FOLDER = "fabric.ib_read_bw.a1"


def problem(folder=FOLDER, spec=SPEC, others=(), **changes):
    """What is wrong with the record beside others; None if nothing is."""
    job = GOOD.model_copy(update=changes)
    kept = as_kept(folder, job, spec, shared_jobs([*others, (folder, job)]))
    return kept.problem and kept.problem.message


@cases(
    "changes, words",
    ({"nodes": ("n3", "n4")}, "the job ran on n3 and n4, planned were n1 and n2"),
    ({"nodes": ("n1",)}, "the job ran on n1, planned were n1 and n2"),
    ({"nodes": ()}, "the job ran on nodes that are not known"),
    ({"exit_code": "1:0"}, "Slurm says COMPLETED and exit code 1:0"),
    ({"exit_code": "0:9"}, "Slurm says COMPLETED and exit code 0:9"),
    ({"exit_code": None}, "Slurm says COMPLETED and no exit code"),
    ({"attempt": 2}, "the folder fabric.ib_read_bw.a1 holds the record of attempt 2"),
    ({"started": None}, "when the job ran is not known"),
    ({"duration_s": None}, "when the job ran is not known"),
)
def test_a_record_that_contradicts_itself_or_its_order_is_told(changes, words):
    """Catches: outputs of other nodes, of a failed job or of an unknown time, which a good state covers."""
    assert words in problem(**changes)


def test_good_records_and_those_that_have_a_problem_stay_as_they_are():
    """Catches: a good job doubted, or the reason of a bad one replaced."""
    assert problem() is None
    assert problem("fabric.ib_read_bw.a2", attempt=2) is None
    assert problem(spec=None, nodes=()) is None
    node_fail = RunProblem(kind="killed", message="Slurm says NODE_FAIL")
    assert problem(state="NODE_FAIL", problem=node_fail, nodes=()) == "Slurm says NODE_FAIL"


def test_one_job_has_one_folder():
    """Catches: a job's outputs copied to another job's folder, with its record under the other's name."""
    other = ("fabric.ib_write_bw.a1", GOOD)
    words = f"{FOLDER} and {other[0]} say that they are Slurm's job 7: at most one is"
    assert words in problem(others=[other])
    # Another job, and one of which Slurm never told.
    assert problem(job="8", others=[other]) is None
    assert problem(job=None, others=[(other[0], GOOD.model_copy(update={"job": None}))]) is None
