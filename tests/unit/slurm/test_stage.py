"""A stage's time limit, and what is written of the jobs that it cut off."""

import json
import os
import subprocess
import sys

import pytest
from submit_host import SubmitHost

from shakedown.benchmarks.planning import site_of
from shakedown.judge.judged import judge_folder
from shakedown.plan.jobs import Jobs
from shakedown.plan.time_limits import stage_limit_s
from shakedown.records.base import Stage
from shakedown.records.reading import read_record
from shakedown.run.folder import RESULTS, write_lines
from shakedown.run.lock import Holder, RunLock
from shakedown.slurm.stage import unended
from tests.kit.cases import cases
from tests.kit.run import gather, ran
from tests.kit.site import WHERE, document, plan_site

HOLDER = Holder(run="r1", host="h", boot="b", pid=1, start_ticks=1, user="u", since="s", ticket="t1")


def test_the_limit_follows_from_the_plan():
    """Catches: a stage without a limit, one too short for its own jobs, another stage's jobs counted."""
    job = {"kind": "mesh", "tests": ["t"], "nodes": ["n1"]}
    fabric = [job | {"name": f"f{i}", "stage": "fabric", "time_limit_s": 100} for i in range(3)]
    other = job | {"name": "c", "stage": "config", "time_limit_s": 5000}
    waits = {"slurm_silent_s": 60, "queue_s": 1000}
    jobs = Jobs.model_validate(
        {"schema": 1, "run": "r", "nics": {}, "jobs": [*fabric, other], "waits": waits}
    )
    once = stage_limit_s(jobs, Stage.FABRIC)
    assert once >= 3 * 100 + 60 + 1000
    assert stage_limit_s(jobs, Stage.FABRIC, retries=2) - once == 2 * (once - 60 - 1000 - 240)
    assert stage_limit_s(jobs, Stage.NODE) == 60 + 1000 + 240


@pytest.mark.parametrize("nodes", [2, 3, 16, 48])
def test_every_stage_of_a_plan_has_a_limit_that_its_jobs_fit_into(nodes):
    """Catches: a limit that a tiny plan or a large one cannot keep, or one longer than jobs one by one."""
    made = site_of(document(nodes), WHERE)
    _, jobs = plan_site(made)
    stages = {job.stage for job in jobs.jobs}
    assert {Stage.FABRIC, Stage.COLLECTIVE} <= stages
    for stage in stages:
        own = [job for job in jobs.jobs if job.stage is stage]
        limit = stage_limit_s(jobs, stage)
        on_node = {n: sum(job.time_limit_s for job in own if n in job.nodes) for n in made.nics}
        assert max(on_node.values()) + jobs.waits.slurm_silent_s + jobs.waits.queue_s < limit
        one_by_one = sum(job.time_limit_s + 90 for job in own)
        assert limit <= one_by_one + 240 + jobs.waits.slurm_silent_s + jobs.waits.queue_s
        assert all(job.expected_s is None or job.expected_s < job.time_limit_s for job in own)


def test_a_larger_mesh_has_a_longer_limit():
    """Catches: a limit that is a constant: too long for two nodes, too short for fifty."""
    limits = []
    for nodes in (2, 8, 32):
        made = site_of(document(nodes), WHERE)
        _, jobs = plan_site(made)
        limits.append(stage_limit_s(jobs, Stage.FABRIC))
    assert limits == sorted(set(limits))


@pytest.fixture
def site(tmp_path):
    """A submit host with a planned run, which it holds."""
    made = SubmitHost(tmp_path)
    made.plan("r1")
    (made.runs / "r1").rename(made.home / "runs" / "r1")
    RunLock(made.home).take(HOLDER, over=None)
    return made


def stage(site: SubmitHost, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the fabric stage as the playbook does."""
    run = site.home / "runs" / "r1"
    reframe = [f"{site.home}/venv/bin/reframe", f"--prefix={run}/reframe", "--tag=^fabric$", "--run"]
    argv = [sys.executable, "-m", "shakedown.slurm.stage", site.home, run, "fabric", "--ticket=t1", *options]
    return ran(*argv, "--", *reframe, env=site.environment | {"SHAKEDOWN_RUN": str(run)})


@pytest.mark.slow
def test_a_stage_that_hangs_is_ended_and_says_so_in_the_report(site):
    """Catches: a run that never ends; jobs left in Slurm; others' cancelled; cells lost without a reason."""
    site.hang("fabric")
    (site.home / "queue").write_text("5|mine|/home/alice\n")
    done = stage(site, "--at-most=3")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "the fabric stage was ended at its time limit of 3 s; 5 jobs did not come to their end" in done.stdout
    )
    assert site.text("queue") == "5|mine|/home/alice\n"
    assert site.text("cancelled") == "70\n"
    run = site.home / "runs" / "r1"
    jobs = read_record(run / "jobs.json", Jobs).jobs
    spoiled = [m for m in gather(run)[0] if m.problem]
    assert {m.stage for m in spoiled} == {"fabric"}
    assert {m.problem.message.partition(";")[0] for m in spoiled} == {
        "the fabric stage was ended at its time limit of 3 s"
    }
    first = next(job for job in jobs if job.stage is Stage.FABRIC)
    record = json.loads((run / "raw" / f"{first.name}.a1" / "job.json").read_text())
    assert (record["state"], record["job"]) == ("CANCELLED", "70")
    assert record["problem"]["message"].endswith("job 70 was cancelled")
    write_lines(run / RESULTS, gather(run)[0])
    verdict = judge_folder(run)
    assert verdict.outcome != "PASS"
    cells = {cell.cell: cell for cell in verdict.cells if cell.cell.startswith("fabric/")}
    measured = {name: cell for name, cell in cells.items() if "/counter." not in name}
    assert {cell.outcome.value for cell in measured.values()} == {"INCONCLUSIVE"}
    assert all("was ended at its time limit of 3 s" in cell.reason for cell in measured.values())


def test_a_stage_that_comes_to_its_end_is_left_alone(site):
    """Catches: the records of good jobs written over, a foreign job cancelled at the end of every stage."""
    (site.home / "queue").write_text("5|mine|/home/alice\n")
    done = stage(site)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    run = site.home / "runs" / "r1"
    states = {json.loads(p.read_text())["state"] for p in run.glob("raw/*/job.json")}
    assert states == {"COMPLETED"}
    assert (run / "raw" / "reframe.fabric.txt").read_text().endswith("\nReFrame prints fabric\n")
    assert site.text("cancelled") == ""


@cases(
    "name",
    *("RFM_STAGE_DIR", "PYTHONPATH", "SBATCH_TIMELIMIT", "SLURM_CPU_BIND", "NCCL_IB_DISABLE", "LD_PRELOAD"),
    *("OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "FI_PROVIDER", "ROCR_VISIBLE_DEVICES"),
)
def test_what_a_user_set_for_himself_reaches_no_job_and_is_told(site, monkeypatch, name):
    """Catches: another clone measured, n1 blamed for a stage folder, a transport that nobody planned."""
    monkeypatch.setitem(site.environment, name, "")
    (site.home / "venv/bin/reframe").write_text("#!/bin/sh\nenv\n")
    stage(site)
    said = (site.home / "runs/r1/raw/reframe.fabric.txt").read_text()
    assert name in said.splitlines()[0]
    assert f"\n{name}=" not in said
    assert "\nTZ=UTC\n" in said


@pytest.mark.parametrize(("of_user", "of_jobs"), [(0o002, "0022"), (0o077, "0077")])
def test_what_jobs_write_is_theirs_alone_to_change(site, of_user, of_jobs):
    """Catches: outputs that the jobs' group may edit, as by a umask of 002; or privacy taken away."""
    (site.home / "venv/bin/reframe").write_text("#!/bin/sh\numask\n")
    before = os.umask(of_user)
    try:
        stage(site)
    finally:
        os.umask(before)
    assert (site.home / "runs/r1/raw/reframe.fabric.txt").read_text().splitlines()[-1] == of_jobs


def test_a_reframe_that_dies_leaves_its_reason(site):
    """Catches: NOT-RUN without a word where ReFrame itself could not start."""
    (site.home / "venv/bin/reframe").write_text("#!/bin/sh\necho no reframe here; exit 7\n")
    done = stage(site)
    assert "ReFrame ended with status 7 in the fabric stage; 5 jobs" in done.stdout
    assert any("status 7" in m.problem.message for m in gather(site.home / "runs" / "r1")[0] if m.problem)


def test_a_run_that_lost_the_host_starts_nothing(site):
    """Catches: a run that was cancelled from elsewhere and goes on with its next stage beside the new one."""
    RunLock(site.home).take(HOLDER.model_copy(update={"run": "r2", "ticket": "t2"}), over=HOLDER)
    done = stage(site)
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not hold the submit host any more, run r2 of u on h does" in done.stderr
    assert site.text("stages") == ""


@pytest.mark.slow
def test_a_silent_slurm_at_the_end_is_said(site):
    """Catches: jobs left behind without a word, or a stage lost, because scancel could not be asked."""
    site.hang("fabric")
    (site.home / "silent").touch()
    done = stage(site, "--at-most=2")
    assert done.returncode == 0
    assert "jobs of this run may be left in Slurm: squeue" in done.stdout


def test_a_job_that_was_cancelled_is_signed_into_the_chain(tmp_path, monkeypatch):
    """Catches: an honest run, of which a job ran into its time limit, that an order
    with a submit host calls unsigned."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "order.json").write_text("{}")
    job = {"kind": "mesh", "tests": ["t"], "nodes": ["n1"], "name": "f0", "stage": "fabric"}
    jobs = Jobs.model_validate(
        {"schema": 1, "run": "r", "nics": {}, "jobs": [job | {"time_limit_s": 9}], "waits": {}}
    )
    asked: list[str] = []

    def sign(request: str) -> dict[str, str]:
        asked.append(request)
        return {"link": "l", "signature": "s"}

    monkeypatch.setattr("shakedown.run.service.signer", lambda: sign)
    assert unended(tmp_path, jobs, Stage.FABRIC, "ended", {"f0": "70"}) == 1
    (line,) = (tmp_path / "raw" / "chain.jsonl").read_text().splitlines()
    assert json.loads(line)["signature"] == "s" and len(asked) == 1
