"""Every folder here is a case: a run as it could lie on disk, and what the command must say of it.

`expected.json` names the fault that the case catches. All go through the entry point of the command; each is
judged a second time with its lines in reverse order, and must come out the same to the byte.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cases_systems  # noqa: F401  (registers the healthy systems)
import pytest
from case_folder import CASES as CASES_MADE

from shakedown.records.plan import Plan
from shakedown.records.verdict import Verdict

HERE = Path(__file__).parent
CASES = sorted(p.parent.name for p in HERE.glob("*/expected.json"))
HEALTHY = [name for name in CASES if name.startswith("healthy_")]


def reversed_copy(run: Path, target: Path) -> Path:
    """Copy a run with the lines of its results and counters in reverse order."""
    shutil.copytree(run, target)
    for name in ("results.jsonl", "counters.jsonl"):
        if (target / name).exists():
            lines = (target / name).read_text().splitlines(keepends=True)
            (target / name).write_text("".join(reversed(lines)))
    return target


@pytest.mark.parametrize("name", CASES)
def test_case(name, shakedown, monkeypatch, tmp_path):
    """Catches the fault that `expected.json` names."""
    expected = json.loads((HERE / name / "expected.json").read_text())
    run = HERE / name / "run"
    monkeypatch.chdir(tmp_path)
    status, out, err = shakedown("verdict", str(run), "--json")
    assert status == expected["exit"], err or out
    if status == 2:
        assert expected["stderr"] in err
        assert err.count("\n") == 1 and not out
        assert not any(tmp_path.iterdir()), "refused input left something behind"
        return

    verdict = Verdict.model_validate_json(out)
    assert verdict.outcome == expected["outcome"]
    assert expected["reason"] in verdict.reason
    found = {cell.cell: cell for cell in verdict.cells}
    assert found.keys() == expected["cells"].keys()
    for cell, wanted in expected["cells"].items():
        assert (found[cell].outcome, found[cell].rule) == (wanted["outcome"], wanted["rule"]), cell
        assert wanted["reason"] in found[cell].reason
    plan = Plan.model_validate_json((run / "plan.json").read_bytes())
    planned = {cell for item in plan.items for cell, *_ in item.cells()}
    assert set(expected["passed"]) <= planned - found.keys()
    assert list(verdict.unplanned) == expected.get("unplanned", [])
    if "coverage" in expected:
        assert [verdict.coverage.measured, verdict.coverage.planned] == expected["coverage"]

    if not name.startswith("killed_"):  # a file that breaks off cannot be reversed
        other = reversed_copy(run, tmp_path / "reversed")
        assert shakedown("verdict", str(other), "--json")[1] == out


@pytest.mark.parametrize("name", CASES)
def test_table_is_plain_and_leads_with_the_reason(name, shakedown):
    """Catches a table that hides the reason, or lets text from a cluster drive the terminal."""
    expected = json.loads((HERE / name / "expected.json").read_text())
    status, out, err = shakedown("verdict", str(HERE / name / "run"))
    assert status == expected["exit"]
    text = out or err
    assert text.replace("\n", "").isprintable()
    if status != 2:
        first = out.splitlines()[0]
        assert first.startswith(expected["outcome"] + "  ")
        assert expected["reason"] in first


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_cases_are_of_the_profiles_as_shipped(name):
    """Catches a reference that was added to a profile, or changed, since its case was made.

    What the systems' own inventories plan is in test_systems.py.
    """
    (case,) = (made for build in CASES_MADE if (made := build()).name == name)
    for file, text in case.inputs().items():
        assert (HERE / name / "run" / file).read_text() == text, "run python tests/decision/build.py"


def test_every_bug_and_every_signature_has_a_case():
    """Catches a case folder that is lost, or skipped because it has no expectation."""
    bugs = {name[:5] for name in CASES if name.startswith("bug")}
    assert bugs == {f"bug{n:02d}" for n in range(1, 16)}
    assert len([n for n in CASES if n.startswith("sign_")]) >= 7
    assert len(HEALTHY) == 4
    assert {p.parent.name for p in HERE.glob("*/run")} == set(CASES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status"), [("healthy_primergy_cdi", 0), ("counters", 1), ("missing_rail", 3)]
)
def test_installed_command(name, status):
    """Catches an entry point that loses the exit status on its way to the shell."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "shakedown", "verdict", str(HERE / name / "run")],
        capture_output=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == status, done.stderr.decode()
