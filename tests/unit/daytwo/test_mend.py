"""One command mends what a crash, a full disk or a bad disk left, and throws nothing away."""

import json
import os
from pathlib import Path

import pytest

from shakedown.daytwo.draining import _entries
from shakedown.daytwo.history.ingest import compact
from shakedown.daytwo.history.report import fleet_history
from shakedown.run.folder import leftovers
from tests.kit.refusal import refused
from tests.unit.daytwo.fleet import Night, names

NODES = names(8)
LINE = {"time": "2026-11-20T02:00:00Z", "node": "n1", "action": "drain", "reason": "slow", "step": "done"}


def flip(path: Path) -> None:
    """Change one bit of a file, as a bad disk does; its end, where the schema is, stays whole."""
    content = bytearray(path.read_bytes())
    content[len(content) // 8] ^= 1
    path.write_bytes(content)


@pytest.fixture
def store(tmp_path, shakedown) -> Path:
    """A history of three nights."""
    for night in range(3):
        run = Night(f"night{night:03}", nodes=NODES, night=night)
        words = ("history", "ingest", "--store", tmp_path / "history", run.write(tmp_path / run.run))
        assert shakedown(*words, "--at", f"2026-03-0{night + 1}T00:00:00Z")[0] == 0
    return tmp_path / "history"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["values", "hosts"])
def test_a_flipped_bit_in_the_store(store, tmp_path, shakedown, kind):
    """Catches: `show` that says "ingest again", and `ingest` that says "is there already"."""
    flip(store / kind / "night001.parquet")
    before = fleet_history(store).problems
    assert any("ingest again night001" in problem for problem in before)
    status, out, _ = shakedown("mend", store, "--runs", tmp_path)
    assert status == 0 and "taken in again: night001" in out
    assert fleet_history(store).problems == []
    assert any(store.rglob("*.broken")), "what was there is kept"
    assert shakedown("mend", store)[1] == f"nothing to mend in {store}\n"


@pytest.mark.slow
def test_ingest_itself_takes_a_damaged_run_in_again(store, tmp_path, shakedown):
    """Catches: a file whose end alone is looked at."""
    flip(store / "values" / "night001.parquet")
    words = ("history", "ingest", "--store", store, tmp_path / "night001", "--at", "2026-03-02T00:00:00Z")
    assert "is there already" not in shakedown(*words)[1]
    assert fleet_history(store).problems == []


@pytest.mark.slow
def test_a_damaged_month(store, tmp_path, shakedown):
    """Catches: the runs of a merged month that are gone when its file is."""
    from datetime import UTC, datetime

    compact(store, now=datetime(2026, 8, 1, tzinfo=UTC))
    flip(store / "months" / "2026-03.1.values.parquet")
    status, out, _ = shakedown("mend", store)
    assert status == 3 and out.count("must be taken in again") == 3
    for night in range(3):
        run = tmp_path / f"night{night:03}"
        at = f"2026-03-0{night + 1}T00:00:00Z"
        assert shakedown("history", "ingest", "--store", store, run, "--at", at)[0] == 0
    assert fleet_history(store).problems == []


def test_a_drain_log_cut_by_a_full_disk(tmp_path, shakedown):
    """Catches: nights that stop because somebody must remove half a line by hand."""
    log = tmp_path / "drain.jsonl"
    good = json.dumps(LINE)
    log.write_text(f"{good}\n{good[:40]}{good}\n{good}\n{good[:20]}")
    refused("run shakedown mend", _entries, log)
    status, out, _ = shakedown("mend", log)
    assert status == 0 and "line 2 of drain.jsonl" in out and "line 4 of drain.jsonl" in out
    assert [entry["node"] for entry in _entries(log)] == ["n1", "n1"]
    assert (tmp_path / "drain.jsonl.broken").read_text() == f"{good[:40]}{good}\n{good[:20]}\n"
    assert shakedown("mend", log)[1] == f"nothing to mend in {log}\n"


def test_what_was_never_finished_is_not_sealed(tmp_path, recorded_run, shakedown):
    """Catches: half a file of a killed process, sealed with the run as if it were evidence."""
    run = recorded_run("lab_healthy")
    half = run / "raw" / ".verdict.json.4194304.new"  # above the largest process id (proc(5), pid_max)
    half.write_text('{"outc')
    mine = run / f".mine.{os.getpid()}.new"
    mine.write_text("of a process that lives")
    assert list(leftovers(run)) == [half]
    status, out, _ = shakedown("mend", run)
    assert status == 0 and "removed raw/.verdict.json.4194304.new: 6 bytes" in out
    assert not half.exists() and mine.exists()
    half.write_text('{"outc')
    (run / "SHA256SUMS").write_text("")
    assert shakedown("mend", run)[0] == 2 and half.exists(), "a sealed run does not change"


def test_what_cannot_be_mended_is_refused(tmp_path, shakedown):
    """Catches: a folder of somebody else's that is cleaned up."""
    (tmp_path / ".x.4194304.new").write_text("x")
    status, _, err = shakedown("mend", tmp_path)
    assert status == 2 and "is nothing that can be mended" in err and (tmp_path / ".x.4194304.new").exists()
