"""ReFrame by hand: nothing exported but the run, from a checkout and from an installed package."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from installed import ROOT, UV, done
from reframe_slurm import fake_slurm

from tests.kit.files import edited

pytestmark = pytest.mark.slow

# The recorded run's jobs, as ReFrame lists them.
LISTED = ["node.gpu_node", "collective.nccl0.one-process.1x.gpu1"]
H2D = "host_to_device_memcpy_ce.bandwidth.gpu1.-.-.gpu-0"


def environment(folder: Path, *more: str | Path) -> Path:
    """Return ReFrame's program in an environment with the locked packages, and more."""
    made = done([UV, "venv", "--quiet", "--no-config", "--no-project", folder])
    assert made.returncode == 0, made.stderr
    pip = [UV, "pip", "install", "--quiet", "--no-config", "--no-deps", f"--python={folder / 'bin/python'}"]
    for what in (["--require-hashes", f"--requirement={ROOT / 'requirements/head.txt'}"], more):
        installed = done([*pip, *what]) if what else None
        assert installed is None or installed.returncode == 0, installed.stderr
    return folder / "bin" / "reframe"


@pytest.fixture(scope="session")
def plain(tmp_path_factory) -> Path:
    """ReFrame and the packages that shakedown needs, without shakedown."""
    return environment(tmp_path_factory.mktemp("plain") / "venv")


@pytest.fixture(scope="session")
def with_wheel(tmp_path_factory, wheel) -> Path:
    """The same with shakedown installed."""
    return environment(tmp_path_factory.mktemp("with-wheel") / "venv", wheel)


@pytest.fixture
def run(recorded_run, tmp_path) -> Path:
    """A run that is planned and not measured, of a host that was recorded."""
    folder = tmp_path / "run"
    folder.mkdir()
    recorded = recorded_run("h200x4_nccl_healthy")
    for name in ("plan.json", "jobs.json"):
        shutil.copy(recorded / name, folder)
    (tmp_path / "recorded").symlink_to(recorded)
    return folder


def reframe(program: Path, checks: Path, cwd: Path, *words: str, **variables: object):
    """Run `reframe -C CHECKS/settings.py -c CHECKS ...` with these variables alone."""
    argv = [program, "-C", checks / "settings.py", "-c", checks, "--nocolor", *words]
    return done(argv, cwd=cwd, env={"HOME": str(cwd)} | {name: str(v) for name, v in variables.items()})


@pytest.fixture(params=["checkout", "installed"])
def at(request, tmp_path) -> tuple[Path, Path]:
    """ReFrame's program, and where the checks lie."""
    if request.param == "checkout":
        return request.getfixturevalue("plain"), ROOT / "reframe_tests"
    program = request.getfixturevalue("with_wheel")
    code = "import reframe_tests as r; print(*r.__path__)"  # as docs/how-to/reframe.md has it
    found = done([program.with_name("python"), "-c", code], cwd=tmp_path)
    return program, Path(found.stdout.strip())


def test_checks_are_listed_with_nothing_exported_but_the_run(at, run, tmp_path):
    """Catches: checks that ReFrame cannot import and leaves out, with 0 checks and exit status 0."""
    listed = reframe(*at, tmp_path, "--list", SHAKEDOWN_RUN=run)
    assert listed.returncode == 0, listed.stderr
    assert re.findall(r"^- Check %planned=(\S+)", listed.stdout, re.MULTILINE) == LISTED
    assert "WARNING" not in listed.stdout + listed.stderr
    one = reframe(*at, tmp_path, "--list", "--tag=^node$", SHAKEDOWN_RUN=run)
    assert re.findall(r"^- Check %planned=(\S+)", one.stdout, re.MULTILINE) == LISTED[:1]
    # The command as users type it, in the folder that holds the checks.
    typed = [at[0], "-C", "reframe_tests/settings.py", "-c", "reframe_tests", "-l", "--nocolor"]
    said = done(typed, cwd=at[1].parent, env={"HOME": str(tmp_path), "SHAKEDOWN_RUN": str(run)})
    assert "Found 2 check(s)" in said.stdout and said.returncode == 0


@pytest.mark.parametrize("named", ["no-run", "run"])
def test_what_is_no_run_is_an_error(named, plain, run, tmp_path):
    """Catches: a mistyped run, of which ReFrame says PASSED 0/0 and exits 0; a relative one that it loses."""
    (tmp_path / "no-run").mkdir()
    path = tmp_path / named if named == "no-run" else Path(named)
    ended = reframe(plain, ROOT / "reframe_tests", tmp_path, "--run", SHAKEDOWN_RUN=path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1 and str(path) in ended.stderr


def test_without_the_variable_or_our_settings_it_ends_in_a_line(plain, run, tmp_path):
    """Catches: ReFrame that lists no check and exits 0 where -C was forgotten, or one of no run without the
    variable, whose start is a traceback."""
    for words in (["--list"], ["--run"]):
        ended = reframe(plain, ROOT / "reframe_tests", tmp_path, *words)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("SHAKEDOWN_RUN is not set -- export") and ended.stderr.count("\n") == 1
        forgotten = [plain, "-c", ROOT / "reframe_tests", "--nocolor", *words]
        ended = done(forgotten, cwd=tmp_path, env={"HOME": str(tmp_path), "SHAKEDOWN_RUN": str(run)})
        assert ended.returncode == 2
        assert "this check needs settings of its own, and others are in use -- add -C /" in ended.stderr


def test_a_missing_package_is_an_error(plain, run, tmp_path):
    """Catches: an environment without what shakedown needs, where ReFrame lists 0 checks and exits 0."""
    bare = tmp_path / "bare"
    shutil.copytree(plain.parents[1], bare, symlinks=True)
    shutil.rmtree(next(bare.glob("lib/python*/site-packages/pydantic")))
    argv = [bare / "bin/python", bare / "bin/reframe", "-C", ROOT / "reframe_tests/settings.py", "--list"]
    ended = done(argv, cwd=tmp_path, env={"HOME": str(tmp_path), "SHAKEDOWN_RUN": str(run)})
    assert ended.returncode == 2
    said = ended.stdout + ended.stderr
    assert "pydantic" in said and "requirements/head.txt" in said


def test_values_stand_beside_their_references(at, run, tmp_path):
    """Catches: figures that only Shakedown sees: no reference in ReFrame's output, no line in its perflog."""
    slurm = fake_slurm(tmp_path, tmp_path / "recorded")
    ended = reframe(
        *at, tmp_path, "--mode=ci", "--tag=^node$", "--run", SHAKEDOWN_RUN=run, PATH=f"{slurm}:/usr/bin:/bin"
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    line = rf"^P: {re.escape(H2D)}: (\S+) GB/s \(r:55.5, l:(\S+), u:None\)$"
    measured = re.search(line, ended.stdout, re.MULTILINE)
    assert measured and float(measured[1]) == 55.3607 and float(measured[2]) == pytest.approx(-0.03)
    assert re.search(rf"{re.escape(H2D)} +│ GB/s +│ +55.3607 │ pass", ended.stdout)
    (perflog,) = (run / "reframe/perflogs").rglob("*.log")
    head, *lines = perflog.read_text().splitlines()
    rows = [dict(zip(head.split("|"), line.split("|"), strict=True)) for line in lines]
    cells = {row["perf_var"]: row for row in rows}
    assert len(cells) == len(rows) == 34
    assert (cells[H2D]["perf_value"], cells[H2D]["perf_ref"], cells[H2D]["planned"]) == (
        "55.3607",
        "55.5",
        "node.gpu_node",
    )
    assert (run / "reframe/junit.xml").is_file()
    # What ReFrame wrote lies in the run.
    there = {"run", "recorded", "slurm-bin", "slurm-jobs", ".reframe"}
    assert {path.name for path in tmp_path.iterdir()} <= there


def test_a_value_below_its_reference_fails_in_reframe(plain, run, tmp_path):
    """Catches: references that ReFrame shows and does not hold a value to."""
    with edited(run / "plan.json") as plan:
        plan["references"]["h200x4-h2d"]["value"] = 60.0
    slurm = fake_slurm(tmp_path, tmp_path / "recorded")
    checks = ROOT / "reframe_tests"
    path = f"{slurm}:/usr/bin:/bin"
    ended = reframe(plain, checks, tmp_path, "--mode=ci", "-t", "^node$", "-r", SHAKEDOWN_RUN=run, PATH=path)
    assert ended.returncode == 1
    assert re.search(rf"{re.escape(H2D)} +│ GB/s +│ +55.3607 │ fail", ended.stdout)
    assert re.search(rf"{re.escape(H2D)}=55.3607 GB/s, expected 60.0 \(l=58.\d+, u=inf\)", ended.stdout)


def test_a_slurmctld_that_restarts_costs_no_job(plain, run, tmp_path):
    """Catches: a job's first step that gives up at once while slurmctld is away, and a good job with it."""
    slurm = fake_slurm(tmp_path, tmp_path / "recorded")
    words, path = ("--mode=ci", "--tag=^node$", "--run"), f"{slurm}:/usr/bin:/bin"
    checks = ROOT / "reframe_tests"
    goes = {"SHAKEDOWN_RUN": run, "PATH": path, "SLURMCTLD_GOES": 1}
    ended = reframe(plain, checks, tmp_path, *words, **goes)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = (run / "raw/node.gpu_node.a1/rfm_job.err").read_text()
    assert said.count("waiting for Slurm (slurm_load_jobs error: Unable to contact slurm controller") == 1


def test_a_site_is_found_beside_the_run(plain, run, tmp_path):
    """Catches: site.json that must be exported although it lies where the playbooks put it."""
    site = {"system": "mine", "hostnames": [".*"], "partition": "gpus", "scheduler": "squeue"}
    site |= {"launcher": "srun", "access": ["--partition=gpus"], "features": ["roce"], "max_jobs": 1}
    home = tmp_path / "home/runs"
    shutil.copytree(run, home / "r1")
    (home.parent / "site.json").write_text(json.dumps(site))
    listed = reframe(plain, ROOT / "reframe_tests", tmp_path, "--list", SHAKEDOWN_RUN=home / "r1")
    assert "selected system:   'mine'" in listed.stdout
    (home.parent / "site.json").write_text("{")
    ended = reframe(plain, ROOT / "reframe_tests", tmp_path, "--list", SHAKEDOWN_RUN=home / "r1")
    assert ended.returncode != 0 and str(home.parent / "site.json") in ended.stdout + ended.stderr


def test_reframe_is_the_locked_one(plain):
    """Catches: an environment of these tests that the playbooks would not make."""
    said = subprocess.run([plain, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("4.10.4")


def test_a_job_of_an_order_bears_it_and_is_chained(plain, run, tmp_path):
    """Catches: an order that the jobs never hear of, so that nothing they leave is of it."""
    nonce = "5" * 64
    plan = json.loads((run / "plan.json").read_text())
    order = {"schema": 1, "run": plan["run"], "system": plan["system"], "nonce": nonce, "plan": "0" * 64}
    order |= {"jobs": "0" * 64, "not_before": "2026-01-01T00:00:00Z", "not_after": "2026-01-02T00:00:00Z"}
    order |= {
        "user": os.getuid(),
        "nodes": {"gpu1": {"host_keys": [f"SHA256:{'a' * 43}"]}},
        "tests": [],
        "references": {},
    }
    (run / "order.json").write_text(json.dumps(order))
    digest = hashlib.sha256((run / "order.json").read_bytes()).hexdigest()
    slurm, checks = fake_slurm(tmp_path, tmp_path / "recorded"), ROOT / "reframe_tests"
    path = f"{slurm}:/usr/bin:/bin"
    ended = reframe(plain, checks, tmp_path, "--mode=ci", "-t", "^node$", "-r", SHAKEDOWN_RUN=run, PATH=path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    job = run / "raw/node.gpu_node.a1"
    signed = json.loads((job / "signed.gpu1.json").read_text())
    assert (signed["order"], signed["nonce"], signed["job"]) == (digest, nonce, "1")
    assert {"outputs.gpu1.jsonl", "spec.json", "nodes.txt"} <= signed["files"].keys()
    for file, found in signed["files"].items():
        assert hashlib.sha256((job / file).read_bytes()).hexdigest() == found
    assert "its outputs are not signed" in (job / "rfm_job.err").read_text()  # no service on this host
    (line,) = (run / "raw/chain.jsonl").read_text().splitlines()
    chained = json.loads(json.loads(line)["line"])
    assert (chained["folder"], chained["order"]) == ("node.gpu_node.a1", digest)
    assert hashlib.sha256((job / "job.json").read_bytes()).hexdigest() == chained["job"]
    listed = (job / "files.json").read_bytes()
    assert json.loads((job / "job.json").read_text())["files"] == hashlib.sha256(listed).hexdigest()
    assert json.loads(listed).keys() == signed["files"].keys() | {"rfm_job.err"}
    assert json.loads(listed).items() >= signed["files"].items()
    assert "JobId=1 JobState=COMPLETED" in (job / "slurm.txt").read_text()
    assert not (job / "session.secret").exists()
