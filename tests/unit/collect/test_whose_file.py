"""Outputs of another node, target, time or run prove nothing; a task that failed undoes no other node's."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shakedown.benchmarks.config import job as settings_job
from shakedown.evidence.job_folder import failed_tasks, note_contents
from shakedown.judge.judged import judge_folder
from shakedown.onnode import counters
from tests.kit.cases import cases
from tests.kit.files import edited


def collected(shakedown, run: Path):
    """Collect and judge; return the verdict."""
    assert shakedown("collect", run)[0] == 0
    return judge_folder(run)


@pytest.fixture
def lab(recorded_run) -> Path:
    """A healthy run of the lab."""
    return recorded_run("lab_healthy")


@cases(
    "of, to, said",
    ("n1.after", "n2.after", "says that it is of n1, its name says n2"),
    ("n2.before", "n2.after", "says that it is of before, its name says after"),
)
def test_counters_of_another_node_or_time(lab, shakedown, of, to, said):
    """Catches: a clean node's counters counted as a lossy one's."""
    job = lab / "raw/fabric.ib_write_bw.a1"
    shutil.copyfile(job / f"counters.{of}.json", job / f"counters.{to}.json")
    verdict = collected(shakedown, lab)
    assert verdict.outcome == "INCONCLUSIVE"
    assert any(said in cell.reason for cell in verdict.cells)
    assert all("/ib_write_bw/" in cell.cell for cell in verdict.cells)


@cases(
    "of, to, said",
    ("n1.fab0", "n1.fab1", "fab0 is of rail0, its record says rail1"),
    ("n1.environment", "n1.pinning", "this is the read-back of environment, its record says"),
)
def test_settings_of_another_target(lab, shakedown, of, to, said):
    """Catches: a good NIC's settings taken for those of the one beside it."""
    job = lab / "raw/config.settings.a1"
    shutil.copyfile(job / f"settings.{of}.json", job / f"settings.{to}.json")
    verdict = collected(shakedown, lab)
    assert verdict.outcome == "INCONCLUSIVE"
    assert any(said in cell.reason for cell in verdict.cells)


def test_settings_of_another_node(lab, shakedown):
    """Catches: a configured node's settings taken for those of one that nobody configured."""
    job = lab / "raw/config.settings.a1"
    report = json.loads((job / "settings.n1.environment.json").read_text())
    (job / "settings.n2.environment.json").write_text(json.dumps({"node": "n1", **report}))
    verdict = collected(shakedown, lab)
    assert verdict.outcome == "INCONCLUSIVE"
    assert any("this is the read-back of n1, its record says n2" in cell.reason for cell in verdict.cells)


def test_one_output_for_two_measurements(lab, shakedown):
    """Catches: a good measurement copied over a bad one of the same ends, which no address tells apart."""
    job = lab / "raw/fabric.ib_write_bw.a1"
    one = "ib_write_bw.n1,n2.rail0.forward.65536.one.txt"
    shutil.copyfile(job / one, job / one.replace(".one.", ".all."))
    verdict = collected(shakedown, lab)
    assert verdict.outcome == "INCONCLUSIVE"
    told = [cell for cell in verdict.cells if "is to the byte" in cell.reason]
    assert {re.search(r"rails_at_once=(\w+)", cell.cell)[1] for cell in told} == {"one", "all"}


def test_one_nccl_output_three_times(recorded_run, shakedown):
    """Catches: one good repeat that stands for all three, so that no spread is seen."""
    run = recorded_run("h200x4_nccl_healthy")
    (job,) = run.glob("raw/collective.nccl0*")
    for number in (2, 3):
        shutil.copyfile(job / "nccl_all_reduce.r1.txt", job / f"nccl_all_reduce.r{number}.txt")
    verdict = collected(shakedown, run)
    assert any("nccl_all_reduce.r1.txt once more" in cell.reason for cell in verdict.cells)


def renamed(run: Path, name: str) -> Path:
    """A run as its copy under another name, two months later."""
    copy = run.with_name(name)
    shutil.copytree(run, copy)
    was = json.loads((copy / "plan.json").read_text())["run"]
    for path in [*copy.glob("*.json"), *copy.glob("raw/*/*.json*")]:
        text = path.read_text().replace(f'"{was}"', f'"{name}"').replace('"2026-11-', '"2026-09-')
        path.write_text(text)
    return copy


def test_history_knows_a_run_by_its_raw_outputs(lab, tmp_path, shakedown):
    """Catches: last month's good night taken in once more under another name and date."""
    store = tmp_path / "store"
    copy = renamed(lab, "another")
    for run in (lab, copy):
        assert shakedown("collect", run)[0] == 0
    status, _, error = shakedown("history", "ingest", "--store", store, lab, "--at", "2026-11-20T13:00:00Z")
    assert status == 0, error
    status, out, error = shakedown(
        "history", "ingest", "--store", store, copy, "--at", "2026-09-20T13:00:00Z"
    )
    assert status != 0
    assert "has the raw outputs of run 20261120T132502Z" in out + error


def test_no_series_of_metrics_prom_is_there_twice(lab, shakedown):
    """Catches: a file that Prometheus refuses, because plan items differ in their rail alone."""
    assert shakedown("collect", lab)[0] == 0
    assert shakedown("report", lab)[0] == 0
    lines = (lab / "metrics.prom").read_text().splitlines()
    series = Counter(line.rpartition(" ")[0] for line in lines if not line.startswith("#"))
    assert [name for name, count in series.items() if count > 1] == []
    assert any('rail="rail0"' in name for name in series)
    numbered = [name for name in series if ',part="' in name]
    assert not numbered, numbered[0]
    # As Prometheus' own library reads it; promtool and a Prometheus 2.42 took this very file, once.
    read = [
        (sample.name, *sorted(sample.labels.items()))
        for family in text_string_to_metric_families((lab / "metrics.prom").read_text())
        for sample in family.samples
    ]
    assert len(read) == len(set(read)) == len(series)


JOB = "raw/config.settings.a1"
# As srun and the programs print it when n2 has mounted the stage read-only.
STDERR = """\
n2: cannot write its outputs to /shared/runs/r/raw/config.settings.a1: Read-only file system
srun: error: n2: task 1: Exited with exit code 1
n2: cannot write its outputs to /shared/runs/r/raw/config.settings.a1: Read-only file system
srun: error: n2: task 1: Exited with exit code 1
n2: cannot write its outputs to /shared/runs/r/raw/config.settings.a1: Read-only file system
srun: error: n2: task 1: Exited with exit code 1
"""
SLURM = "Slurm says FAILED, exit code 1:0, 0 restarts"


def fail(run: Path, stderr: str, exit_code: str = "1:0", *, left: bool = False) -> None:
    """Turn the recorded settings job into one that failed at n2; `left`: what n2 wrote stays."""
    folder = run / JOB
    for path in () if left else [*folder.glob("*.n2.*")]:
        path.unlink()
    with edited(folder / "job.json") as record:
        problem = {"kind": "other", "message": SLURM.replace("1:0", exit_code)}
        record |= {"state": "FAILED", "exit_code": exit_code, "problem": problem}
    (folder / "rfm_job.err").write_text(stderr)


def test_a_read_only_stage_costs_its_own_node_and_is_named(recorded_run, shakedown):
    """Catches: `n1 settings ... found "106", wanted "106"` as the first words about n2's read-only stage."""
    run = recorded_run("lab_healthy")
    fail(run, STDERR)
    verdict = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE" and "at n2" in verdict.reason
    assert "n2: cannot write its outputs" in verdict.reason and "Read-only file system" in verdict.reason
    assert verdict.cells
    for cell in verdict.cells:
        assert "/n2/" in cell.cell
        assert "n2: cannot write its outputs" in cell.reason
        assert "found" not in cell.reason


@cases(
    "stderr, exit_code",
    ("something went wrong\n", "1:0"),  # whose part failed is not said
    (STDERR, "0:9"),  # ended from outside: who knows what of n1's was cut off
    (STDERR.replace(" n2: task 1", " n[1-2]: tasks 0-1"), "1:0"),
)
def test_a_good_node_is_not_taken_on_trust(recorded_run, shakedown, stderr, exit_code):
    """Catches: outputs of a failed job counted without knowing that their own task ended well."""
    run = recorded_run("lab_healthy")
    fail(run, stderr, exit_code)
    verdict = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    of_n1 = [c for c in verdict.cells if c.cell.startswith("config/settings/") and "/n1/" in c.cell]
    assert of_n1 and {c.outcome.value for c in of_n1} == {"INCONCLUSIVE"}
    assert not [c for c in of_n1 if "found" in c.reason], "a passing detail is no cause"


@cases(
    "state, stderr, told",
    (
        "NODE_FAIL",
        "srun: error: Node failure on n2\n",
        "n2: its task: Node failure (job {job} ended NODE_FAIL",
    ),
    ("OUT_OF_MEMORY", "srun: error: n2: task 1: Out Of Memory\n", "n2: its task: Out Of Memory (job {job} "),
    ("FAILED", "srun: error: n2: task 1: Killed\n", "n2: its task: Killed (job {job} ended FAILED"),
    # Slurm itself killed every task, and n2's was the first to go.
    ("TIMEOUT", "srun: error: n2: task 1: Terminated\n", "job {job} ended TIMEOUT, not COMPLETED"),
)
def test_what_slurm_says_leads_before_a_cut_output(recorded_run, shakedown, state, stderr, told):
    """Catches: "output ends before its end -- run it again" of a job whose node died."""
    run = recorded_run("lab_healthy")
    folder = run / "raw/collective.mpi_allreduce.a1"
    with edited(folder / "job.json") as record:
        record |= {"state": state, "exit_code": "1:0", "problem": None}
        job = record["job"]
    with edited(folder / "outputs.jsonl") as output:
        output["exit_code"] = 1
        file = folder / output["file"]
    file.write_text(file.read_text()[:300])
    (folder / "rfm_job.err").write_text(stderr)
    mine = [cell for cell in collected(shakedown, run).cells if "/mpi_allreduce/" in cell.cell]
    told = told.format(job=job)
    assert mine and not [cell.reason for cell in mine if told not in cell.reason]


def test_outputs_of_the_failed_task_do_not_count(recorded_run, shakedown):
    """Catches: what a task wrote before it failed, judged as complete."""
    run = recorded_run("lab_healthy")
    fail(run, STDERR, left=True)
    cells = [c for c in collected(shakedown, run).cells if c.cell.startswith("config/settings/")]
    assert cells and all("/n2/" in c.cell and "Read-only file system" in c.reason for c in cells)


@cases(
    "text, told",
    ("srun: error: n2: task 1: Killed\n", {"n2": "n2: its task: Killed"}),
    (
        "Traceback (most recent call last):\n  File ...\nOSError: no room\n"
        "srun: error: n2: task 1: Exited with exit code 1\n",
        {"n2": "n2: OSError: no room"},
    ),
    # Two failed: nobody knows whose words these are.
    (
        "OSError: no room\nsrun: error: n[1-2]: tasks 0-1: Exited with exit code 1\n",
        {n: f"{n}: its task: Exited with exit code 1" for n in ("n1", "n2")},
    ),
    ("srun: error: Node failure on n2\n", {"n2": "n2: its task: Node failure"}),
    # What a container's start says is no reason.
    ("pyxis: imported\nsrun: error: n2: task 1: Out Of Memory\n", {"n2": "n2: its task: Out Of Memory"}),
    ("srun: error: n9: task 1: Killed\n", {}),
    ("n2: task 1: Killed\n", {}),
)
def test_words_are_of_the_node_that_said_them(tmp_path, text, told):
    """Catches: one node's message told of another."""
    (tmp_path / "rfm_job.err").write_text(text)
    assert failed_tasks(tmp_path, ("n1", "n2")) == told


@pytest.mark.parametrize(("program", "arguments"), [(counters, ["before"]), (settings_job, [])])
def test_a_program_that_cannot_write_says_so_in_one_line(program, arguments, tmp_path, monkeypatch, capsys):
    """Catches: a traceback of one of many tasks, from which nobody sees whose it is."""
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    (tmp_path / "spec.json").write_text(json.dumps({"targets": {"n2": {"fab0": "rail0"}}}))
    # A folder in the way of every file that would be written: root may write anywhere else.
    for name in ("settings.n2.fab0.json", "counters.n2.before.json"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(settings_job, "SOCKET", str(tmp_path / "no.sock"))
    assert program.main([*arguments, str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"n2: cannot write its outputs to {tmp_path}: Is a directory"


# As srun printed them in the lab when n2 lost its shared folder, and when its clock was set 400 s ahead, each
# in the middle of a job.
NO_SHARE = """\
slurmstepd-n2: error: execve(): /shared/shakedown-code/venv/bin/python: No such file or directory
srun: error: n2: task 1: Exited with exit code 2
"""
CLOCK = """\
srun: error: Node failure on n2
srun: error: Munge decode failed: Rewound credential
srun: auth/munge: _print_cred: ENCODED: Thu Nov 26 14:25:56 2026
srun: auth/munge: _print_cred: DECODED: Thu Nov 26 14:19:16 2026
srun: error: Check for out of sync clocks
srun: error: slurm_unpack_received_msg: [[n2]:39572] auth_g_verify: MESSAGE_TASK_EXIT has authentication error: Unspecified error
srun: error: slurm_unpack_received_msg: [[n2]:39572] Protocol authentication error
"""  # noqa: E501


@cases(
    "stderr, why",
    (NO_SHARE, ": n2: slurmstepd-n2: error: execve(): /shared/shakedown-code/venv/bin/python: No such file"),
    (CLOCK, ": n2: its task: munge refused its end (Rewound credential): likely its clock"),
    (
        CLOCK.replace("Rewound", "Invalid"),
        ": n2: its task: munge refused its end (Invalid credential): likely another munge.key",
    ),
    ("", ""),
)
def test_counters_that_were_never_read_say_why(recorded_run, shakedown, stderr, why):
    """Catches: a file called lost that was never there, and a cause that only the job's own errors tell."""
    run = recorded_run("lab_healthy")
    folder = run / "raw/fabric.ib_write_bw.a1"
    (folder / "counters.n2.after.json").unlink()
    (folder / "rfm_job.err").write_text(stderr)
    record = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps(record | {"files": note_contents(folder)}))
    verdict = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    said = f"the NICs' counters of n2 could not be read after the job{why}"
    assert all("/n2/" in cell.cell and said in cell.reason for cell in verdict.cells)
    assert not [cell for cell in verdict.cells if "is missing" in cell.reason]
