"""Runs that were really made: their raw files must give the same verdict for ever, and a report.

One folder a run: `plan.json`, `jobs.json`, `inventory.json`, `raw/` as they were on the day, and
`expected.json`, written by hand: what it is, where it was made, the verdict and what it must say: `failed`,
the cells that failed, required or not, and `says`, words that some cell's reason must hold.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

RUNS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))


@pytest.mark.parametrize("made", RUNS, ids=lambda path: path.name)
def test_raw_files_give_the_verdict_of_the_day(made, tmp_path, shakedown):
    """Catches: a reader, rule or report that no longer understands what real tools wrote."""
    expected = json.loads((made / "expected.json").read_text())
    run = Path(shutil.copytree(made, tmp_path / made.name))
    (run / "expected.json").unlink()
    status, _, error = shakedown("collect", run)
    assert status == 0, error
    status, printed, error = shakedown("verdict", run, "--json", "--write")
    assert status == expected["exit"], error
    verdict = json.loads(printed)
    assert verdict["outcome"] == expected["outcome"]
    assert verdict["outcomes"] == expected["outcomes"]
    failed = sorted(cell["cell"] for cell in verdict["cells"] if cell["outcome"] == "FAIL")
    assert failed == expected["failed"]
    for words in expected.get("says", []):
        assert any(words in cell["reason"] for cell in verdict["cells"]), words
    status, _, error = shakedown("report", run)
    assert status == expected["exit"], error
    assert (run / "report.html").stat().st_size > 10_000
