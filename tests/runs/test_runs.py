"""Runs that were really made: their raw files must give the same verdict for ever, and a report.

One folder a run: `plan.json`, `jobs.json`, `inventory.json`, `raw/` as they were on the day, and
`expected.json`, written by hand: what it is, where it was made, the verdict and what it must say: `failed`,
the cells that failed, required or not, and `says`, words that some cell's reason must hold.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUNS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))


def shakedown(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a person does."""
    argv = [sys.executable, "-m", "shakedown", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("made", RUNS, ids=lambda path: path.name)
def test_raw_files_give_the_verdict_of_the_day(made, tmp_path):
    """Catches: a reader, rule or report that no longer understands what real tools wrote."""
    expected = json.loads((made / "expected.json").read_text())
    run = Path(shutil.copytree(made, tmp_path / made.name))
    (run / "expected.json").unlink()
    collected = shakedown("collect", run)
    assert collected.returncode == 0, collected.stderr
    judged = shakedown("verdict", run, "--json", "--write")
    assert judged.returncode == expected["exit"], judged.stderr
    verdict = json.loads(judged.stdout)
    assert verdict["outcome"] == expected["outcome"]
    assert verdict["outcomes"] == expected["outcomes"]
    failed = sorted(cell["cell"] for cell in verdict["cells"] if cell["outcome"] == "FAIL")
    assert failed == expected["failed"]
    for words in expected.get("says", []):
        assert any(words in cell["reason"] for cell in verdict["cells"]), words
    reported = shakedown("report", run)
    assert reported.returncode == expected["exit"], reported.stderr
    assert (run / "report.html").stat().st_size > 10_000
