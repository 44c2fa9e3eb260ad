"""`shakedown report` on folders: exit status, what is written, what is refused."""

import hashlib
import math
import re
import subprocess
from pathlib import Path

import pytest
from synthetic_run import Faults, make_plan, trainer_log, write

from shakedown.commands.verdict import report
from shakedown.report import write as edge
from shakedown.report.seal import SUMS
from shakedown.run import folder as runs
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.run import python

WRITTEN = {"report.html", "junit.xml", "metrics.prom", "report.md", "verdict.json"}


def command(folder: Path, output: Path | None = None) -> int:
    """The command within this process; `cli.py` turns what it raises into a line and status 2."""
    return int(report(folder, output))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@cases(
    "faults, status",
    (Faults(), 0),
    (Faults(slow_rail=("n3", "rail1")), 1),
    (Faults(killed_job=True), 3),
    (Faults(nothing=True), 3),
)
def test_exit_status_is_the_verdicts(tmp_path: Path, faults: Faults, status: int) -> None:
    """Catches a report of a failed run that a script takes for success."""
    folder = write(tmp_path / "run", make_plan(4, 2), faults)
    before = set(contents(folder))
    assert command(folder) == status
    assert set(contents(folder)) - before == WRITTEN


def test_output_leaves_the_run_folder_alone_and_links_back_to_it(tmp_path: Path) -> None:
    """Catches a sealed bundle changed by looking at it, and raw links that lead nowhere."""
    folder = write(tmp_path / "runs/a", make_plan(4, 2), Faults(slow_rail=("n3", "rail1")))
    before = contents(folder)
    elsewhere = tmp_path / "out" / "page.html"
    elsewhere.parent.mkdir()
    assert command(folder, elsewhere) == 1
    assert contents(folder) == before
    page = elsewhere.read_text()
    start = page.index('href="./../runs/a/raw/') + len('href="./')
    linked = elsewhere.parent / page[start : page.index('"', start)]
    assert linked.resolve().is_file()


def test_a_verdict_that_the_files_do_not_give_is_refused(tmp_path: Path) -> None:
    """Catches a PASS written into verdict.json by hand and reported as one."""
    folder = write(tmp_path / "run", make_plan(4, 2), Faults(slow_rail=("n3", "rail1")))
    passed = write(tmp_path / "good", make_plan(4, 2), Faults())
    edge.report(passed)
    (folder / "verdict.json").write_bytes((passed / "verdict.json").read_bytes())
    before = contents(folder)
    refused(r"verdict\.json", command, folder)
    assert contents(folder) == before


def test_bad_input_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    """Catches a page written out of half a run."""
    folder = write(tmp_path / "run", make_plan(4, 2))
    lines = (folder / "results.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = b'{"schema": 1, "value": "fast"}\n'
    (folder / "results.jsonl").write_bytes(b"".join(lines))
    before = contents(folder)
    done = python("-m", "shakedown", "report", folder)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "results.jsonl:4:" in done.stderr
    assert contents(folder) == before


def test_a_run_cut_off_in_a_line_is_reported_as_such(tmp_path: Path) -> None:
    """Catches a killed run that is lost, or that passes."""
    folder = write(tmp_path / "run", make_plan(4, 2))
    whole = (folder / "results.jsonl").read_bytes()
    (folder / "results.jsonl").write_bytes(whole[: len(whole) - 40])
    assert command(folder) == 3
    assert "Problems of the run itself" in (folder / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("figures_drawn_anew")
def test_a_sealed_run_is_written_again_only_to_the_byte(tmp_path: Path) -> None:
    """Catches a seal broken by a second report."""
    folder = write(tmp_path / "run", make_plan(4, 2))
    edge.report(folder)
    (folder / SUMS).write_text("sealed\n")
    edge.report(folder)
    (folder / "report.md").write_text("tampered")
    refused("sealed", edge.report, folder)
    assert (folder / "report.md").read_text() == "tampered"


def test_the_checksum_is_what_coreutils_compute(tmp_path: Path) -> None:
    """Catches a checksum in the signature block that nobody can recompute with the command beside it."""
    folder = write(tmp_path / "run", make_plan(4, 2))
    edge.report(folder)
    sums = subprocess.run(["sha256sum", *edge.EVIDENCE], cwd=folder, capture_output=True, check=True).stdout
    expected = hashlib.sha256(sums).hexdigest()
    page = (folder / "report.html").read_text()
    assert expected == edge.checksum(folder).sha256
    assert expected in page
    assert f"sha256sum {' '.join(edge.EVIDENCE)} | sha256sum" in page


def test_raw_output_is_embedded_and_linked(tmp_path: Path) -> None:
    """Catches a failure whose evidence is not one click away."""
    folder = write(
        tmp_path / "run", make_plan(4, 2), Faults(slow_rail=("n3", "rail1")), raw="65536 448000 196.11 <b>&\n"
    )
    edge.report(folder)
    page = (folder / "report.html").read_text()
    assert "65536 448000 196.11 &lt;b&gt;&amp;" in page
    assert 'href="./raw/1002/ib_write_bw.txt"' in page
    assert (folder / "raw/1002/ib_write_bw.txt").is_file()


def test_raw_output_behind_a_link_is_refused(tmp_path: Path) -> None:
    """Catches /etc/shadow embedded into a page that is passed on."""
    folder = write(tmp_path / "run", make_plan(4, 2), Faults(slow_rail=("n3", "rail1")))
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    path = folder / "raw/1002/ib_write_bw.txt"
    path.unlink()
    path.symlink_to(secret)
    refused("symbolic link", command, folder)
    assert not (folder / "report.html").exists()


def test_missing_counters_and_inventory_are_said(tmp_path: Path) -> None:
    """Catches a page that breaks, or is silent, where files are absent."""
    folder = write(tmp_path / "run", make_plan(4, 2))
    (folder / runs.COUNTERS).unlink()
    (folder / runs.INVENTORY).unlink()
    assert command(folder) == 3
    page = (folder / "report.html").read_text()
    assert "No counters were recorded." in page
    assert "No inventory was recorded with this run." in page
    assert f"sha256sum {runs.PLAN} {runs.RESULTS} {runs.VERDICT} | sha256sum" in page


def test_the_loss_is_read_from_the_trainers_log_gaps_included(tmp_path: Path) -> None:
    """Catches a loss curve that hides a step that was not finite, or mixes ranks."""
    folder = write(tmp_path / "run", make_plan(4, 2))
    (series,) = edge.read(folder).losses
    assert len(series.x) == 400
    assert [step for step, loss in zip(series.x, series.y, strict=True) if math.isnan(loss)] == [3.0]
    assert series.y[-1] == pytest.approx(1.005)
    edge.report(folder)
    page = (folder / "report.html").read_text()
    assert "tiny, lora, bf16, ddp" in page
    assert "1.005 at step 400" in page


def test_a_damaged_trainer_log_is_no_curve_and_no_crash(tmp_path: Path) -> None:
    """Catches a report that fails because of one raw file."""
    folder = write(tmp_path / "run", make_plan(4, 2))
    log = next(folder.glob("raw/*/lora.txt"))
    log.write_bytes(b"\xff\x00 not a log")
    assert edge.read(folder).losses == ()
    log.write_text(trainer_log(20)[:-300])
    (series,) = edge.read(folder).losses
    assert 15 < len(series.x) < 20


def test_what_others_said_into_outputs_changes_nothing_and_is_shown_once(recorded_run, shakedown) -> None:
    """Catches: a mesh lost for a library's word about a NIC of another machine; the word lost."""
    run, said = recorded_run("lab_healthy"), "libibverbs: Warning: couldn't load driver 'libvmw-rdmav34.so'"
    outputs = [p for p in run.rglob("*.txt") if "#bytes" in p.read_text(errors="replace")]
    for path in outputs:
        path.write_text(f"{said}\n{path.read_text()}")
    assert shakedown("collect", run)[0] == shakedown("verdict", run, "--write")[0] == 0
    assert shakedown("report", run)[0] == 0
    page = (run / "report.html").read_text()
    assert len(re.findall(r"libvmw-rdmav34\.so&#39; \(\d\d outputs\)", page)) == 1, len(outputs)
