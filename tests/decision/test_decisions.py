"""Every folder here is a case: what the command must say of a run as it could lie on disk.

`expected.json` names the fault that the case catches; build.py makes the run. All go through the entry point
of the command. Each is judged a second time with its lines in reverse order, and must come out the same to
the byte.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shakedown.records.plan import Plan
from shakedown.records.verdict import Verdict
from tests.decision.build import write_case
from tests.decision.case_folder import CASES as CASES_MADE

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
def test_case(name, decision_runs, shakedown, monkeypatch, tmp_path):
    """Catches the fault that `expected.json` names."""
    expected = json.loads((HERE / name / "expected.json").read_text())
    run = decision_runs / name / "run"
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
def test_table_is_plain_and_leads_with_the_reason(name, decision_runs, shakedown):
    """Catches a table that hides the reason, or lets text from a cluster drive the terminal."""
    expected = json.loads((HERE / name / "expected.json").read_text())
    status, out, err = shakedown("verdict", str(decision_runs / name / "run"))
    assert status == expected["exit"]
    text = out or err
    assert text.replace("\n", "").isprintable()
    if status != 2:
        first = out.splitlines()[0]
        assert first.startswith(expected["outcome"] + "  ")
        assert expected["reason"] in first


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_cases_are_of_the_profiles_as_shipped(name, decision_runs):
    """Catches a reference that was added to a profile, or changed, since its case was made.

    What the systems' own inventories plan is in test_systems.py.
    """
    expected = json.loads((HERE / name / "expected.json").read_text())["references"]
    plan = Plan.model_validate_json((decision_runs / name / "run" / "plan.json").read_bytes())
    # A published value, the gate, and what the hardware can do at best.
    found = {
        key: [one.value, round(one.gate, 4), None if one.ceiling is None else round(one.ceiling, 4)]
        for key, one in plan.references.items()
    }
    assert found == expected


@pytest.mark.slow
def test_one_case_is_written_for_a_person_to_look_at(tmp_path, decision_runs):
    """Catches: a case that cannot be looked at, or that is another one than the tests judge."""
    words = [sys.executable, str(HERE / "build.py"), "killed_in_a_line"]
    target = tmp_path / "run"
    subprocess.run([*words, str(target)], check=True, timeout=60, cwd=tmp_path)
    made = {file.name: file.read_bytes() for file in target.iterdir()}
    judged = decision_runs / "killed_in_a_line" / "run"
    assert made == {file.name: file.read_bytes() for file in judged.iterdir()}
    assert not made["results.jsonl"].endswith(b"\n")
    again = subprocess.run([*words, str(target)], capture_output=True, text=True, check=False, timeout=60)
    assert again.returncode == 2 and "exists" in again.stderr


def test_what_no_record_expresses_replaces_what_is_made(tmp_path):
    """Catches: a stored input that is left out, so that the case is another one than its folder says."""
    write_case("killed_in_a_line", tmp_path / "run")
    stored = HERE / "killed_in_a_line" / "results.jsonl"
    assert (tmp_path / "run" / stored.name).read_bytes() == stored.read_bytes()
    whole = CASES_MADE["killed_in_a_line"]().inputs()[stored.name]
    assert whole.startswith(stored.read_text()) and len(whole) > stored.stat().st_size


def test_every_bug_and_every_signature_has_a_case():
    """Catches a case folder that is lost, or skipped because it has no expectation."""
    bugs = {name[:5] for name in CASES if name.startswith("bug")}
    assert bugs == {f"bug{n:02d}" for n in range(1, 16)}
    assert len([n for n in CASES if n.startswith("sign_")]) >= 7
    assert len(HEALTHY) == 4
    assert set(CASES_MADE) == set(CASES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status"), [("healthy_primergy_cdi", 0), ("counters", 1), ("missing_rail", 3)]
)
def test_installed_command(name, status, decision_runs):
    """Catches an entry point that loses the exit status on its way to the shell."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "shakedown", "verdict", str(decision_runs / name / "run")],
        capture_output=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == status, done.stderr.decode()
