"""Folders made to cost time and memory, or to lead elsewhere: each ends soon, in a verdict or one line."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shakedown.collect.run import collect
from shakedown.judge.judged import judge_folder
from shakedown.records.plan import MOST_CELLS
from shakedown.run.nic_counters import JobFolder
from tests.kit.key import make_key
from tests.kit.refusal import refused
from tests.kit.run import python

MOST_CPU_S, MOST_MIB = 10, 1024
READ = "raw/fabric.ib_read_bw.a1"
_MEASURE = """
import os, sys
child = os.fork()
if child == 0:
    os.execv(sys.executable, [sys.executable, "-m", "shakedown", *sys.argv[1:]])
_, status, used = os.wait4(child, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, os.waitstatus_to_exitcode(status))
"""


def costs(*words: object) -> tuple[int, str]:
    """Run a command; return its exit status and its standard error. It must be cheap, whatever it says."""
    done = python("-c", _MEASURE, *words, check=True)
    cpu_s, mib, status = done.stdout.splitlines()[-1].split()
    assert float(cpu_s) <= MOST_CPU_S, f"{cpu_s} s"
    assert int(mib) <= MOST_MIB, f"{mib} MiB"
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return int(status), done.stderr


@pytest.fixture
def lab(recorded_run) -> Path:
    """A healthy run of the lab."""
    return recorded_run("lab_healthy")


def plan_of(nodes: int, rails: int, directions: int) -> dict[str, object]:
    """A plan whose cells are the product of these."""
    reference = {"id": "r", "value": 1.0, "tolerance": 0.1, "unit": "u", "better": "higher"}
    item = {"stage": "fabric", "test": "t", "metric": "m", "unit": "u", "better": "higher", "reference": "r"}
    return {
        "schema": 1,
        "run": "x",
        "system": "s",
        "created": "2026-01-01T00:00:00Z",
        "nodes": ["n1"],
        "references": {"r": {**reference, "kind": "vendor", "source": "s"}},
        "items": [
            {
                **item,
                "nodes": [[f"n{i}"] for i in range(nodes)],
                "rails": [f"r{i}" for i in range(rails)],
                "directions": [f"d{i}" for i in range(directions)],
            }
        ],
    }


@pytest.mark.slow
def test_a_small_plan_of_a_billion_cells_is_refused(tmp_path):
    """Catches: 36 kB that take all memory of the machine that judges them."""
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(1000, 1000, 1000)))
    status, error = costs("verdict", tmp_path)
    assert status == 2
    assert "1000000000 cells" in error
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(MOST_CELLS // 100, 10, 10)))
    assert costs("verdict", tmp_path)[0] == 3


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["raw", ""])
def test_three_thousand_nested_folders(lab, inside):
    """Catches: RecursionError, or a path that no system call takes."""
    here = os.open(lab / inside, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        status, error = costs("collect", lab)
    finally:  # pytest itself cannot remove them
        subprocess.run(["rm", "-rf", lab / inside / "d"], check=True)
    assert status == (0 if inside else 2)
    if not inside:
        assert "folders deep" in error


@pytest.mark.slow
@pytest.mark.parametrize("size", [8 << 30, 300 << 20, 60 << 20])
def test_a_core_file_costs_no_cell(lab, size):
    """Catches: a 300 MB core file, or a sparse one of 8 GiB, that voids the run or fills the memory."""
    with (lab / READ / "core.4711").open("wb") as core:
        core.truncate(size)
    assert costs("collect", lab)[0] == 0
    assert judge_folder(lab).outcome == "PASS"


@pytest.mark.slow
def test_a_journal_of_garbage_costs_its_job(lab):
    """Catches: 60 MB on one line of a journal, read for minutes."""
    path = lab / READ / "outputs.n1.jsonl"
    path.write_bytes(path.read_bytes() + b"x" * (60 << 20) + b"\n")
    assert costs("collect", lab)[0] == 0
    verdict = judge_folder(lab)
    assert verdict.outcome == "PASS" or all("/ib_read_bw/" in cell.cell for cell in verdict.cells)


@pytest.mark.slow
def test_numbers_at_the_end_of_what_a_float_holds(lab):
    """Catches: an overflow in the verdict's or a chart's arithmetic."""
    collect(lab)
    lines = [json.loads(line) for line in (lab / "results.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line["value"] = (1e308, -1e308, 5e-324)[number % 3] if line["value"] is not None else None
    (lab / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.rmtree(lab / "raw")
    (lab / "raw").mkdir()
    for line in lines:
        if not line["raw"]:
            continue
        (lab / line["raw"]).parent.mkdir(parents=True, exist_ok=True)
        (lab / line["raw"]).write_text("")
    (lab / "jobs.json").unlink()
    for command in ("verdict", "report"):
        assert costs(command, lab)[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SHA256SUMS.sig", "raw/core"])
def test_a_large_file_of_a_bundle(lab, tmp_path, shakedown, name):
    """Catches: a minute for a signature of 200 MB, or for the checksum of a sparse file of 8 GiB."""
    key = make_key(tmp_path, "key")
    assert shakedown("collect", lab)[0] == 0
    assert shakedown("verdict", lab, "--write")[0] == 0
    assert shakedown("seal", lab, "--key", key)[0] == 0
    with (lab / name).open("wb") as file:
        file.truncate(200 << 20 if name.endswith("sig") else 8 << 30)
    if name == "raw/core":
        with (lab / "SHA256SUMS").open("a") as sums:
            sums.write(f"{'0' * 64}  {name}\n")
    status, error = costs("verify", lab)
    assert status == 2
    assert "is larger than" in error


@pytest.mark.parametrize("what", ["link", "fifo", "odd name"])
def test_what_is_no_file_below_raw_is_named_and_passed_over(lab, shakedown, what):
    """Catches: one link among a job's files that voids the run of all jobs."""
    path = lab / READ / ("left\nover" if what == "odd name" else "left")
    if what == "link":
        path.symlink_to("/etc/hostname")
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("")
    status, out, _ = shakedown("collect", lab)
    assert status == 0
    assert "not read, and its cells have no value: " in out
    assert judge_folder(lab).outcome == "PASS"


def test_a_linked_job_folder_costs_its_cells(lab, tmp_path, shakedown):
    """Catches: a job's outputs that lie elsewhere and change later, or a run voided for one link."""
    shutil.move(lab / READ, tmp_path / "elsewhere")
    (lab / READ).symlink_to(tmp_path / "elsewhere")
    assert shakedown("collect", lab)[0] == 0
    verdict = judge_folder(lab)
    assert verdict.outcome == "INCONCLUSIVE"
    assert {cell.cell.split("/")[1] for cell in verdict.cells} == {"ib_read_bw"}
    assert any("is a link" in cell.reason for cell in verdict.cells)


def test_sweeps_does_not_follow_a_linked_job_folder(recorded_run, tmp_path, shakedown):
    """Catches: another run's sweep shown as this one's."""
    run = recorded_run("h200x4_nccl_healthy")
    (job,) = run.glob("raw/collective.nccl0*")
    shutil.move(job, tmp_path / "elsewhere")
    job.symlink_to(tmp_path / "elsewhere")
    status, _, error = shakedown("sweeps", f"A={run}", f"B={run}")
    assert status == 2
    assert "is reached by a link" in error


def test_a_reader_stays_in_its_job_folder(tmp_path):
    """Catches: `gpus=../../..` of a journal, which names a file outside the run."""
    (tmp_path / "job" / "gpu.g..").mkdir(parents=True)
    (tmp_path / "secret.csv").write_text("secret")
    refused("is no name of a file in here", JobFolder(tmp_path / "job").text, "gpu.g../../../secret.csv")


def test_a_reader_that_falls_over_an_output_costs_its_cells(lab, monkeypatch, shakedown):
    """Catches: an error in one parser that takes the verdict on all other jobs along."""
    from shakedown.benchmarks.perftest import metrics

    def fall_over(*_: object) -> None:
        raise IndexError("of an unforeseen line")

    monkeypatch.setattr(metrics, "_rows", fall_over)
    assert shakedown("collect", lab)[0] == 0
    verdict = judge_folder(lab)
    assert verdict.outcome == "INCONCLUSIVE"
    fallen = [cell for cell in verdict.cells if "its reader fell over it, IndexError" in cell.reason]
    assert fallen
    assert not any("/mpi_" in cell.cell for cell in verdict.cells)


@pytest.mark.parametrize("file", ["store.json", "ledger/x.json"])
def test_deep_json_in_a_store(tmp_path, shakedown, file):
    """Catches: RecursionError from a store that somebody handed over."""
    for folder in ("ledger", "values", "hosts", "states", "months"):
        (tmp_path / folder).mkdir()
    (tmp_path / "store.json").write_text('{"schema": 1, "system": "s"}')
    (tmp_path / file).write_text("[" * 100_000)
    status, _, error = shakedown("history", "show", "--store", tmp_path)
    assert "internal error" not in error
    assert status in (2, 3)
