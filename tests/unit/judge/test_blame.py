"""What the mesh says is at fault, in verdict and report; it explains and decides nothing."""

import json
import random
import shutil
import subprocess
import sys

import pytest

from shakedown.commands.localise import document
from shakedown.judge.judged import CausesOfRun, judge_folder
from shakedown.judge.localise.pair_results import PairResults
from shakedown.report.write import report
from shakedown.run.folder import Run, to_json
from tests.kit.run import python


@pytest.fixture
def slow(decision_runs):
    """A run of which one receiver is slow."""
    return decision_runs / "mesh_slow_receiver/run"


def test_the_report_shows_cause_evidence_and_proposal(tmp_path, slow):
    """Catches a localisation that nobody reads, because it is in no report."""
    run = tmp_path / "run"
    shutil.copytree(slow, run)
    assert "the mesh's results blame n3's NIC on rail1, receiving" in report(run).reason
    for name in ("report.html", "report.md"):
        page = (run / name).read_text()
        for words in ("What the mesh says is at fault", "nic n3 rail1 rx", "drain n3 and look at its nic"):
            assert words in page, (name, words)
        assert "5 partners" in page
    assert json.loads((run / "verdict.json").read_text())["causes"][0]["element"] == "nic n3 rail1 rx"


def test_a_healthy_run_names_nobody(tmp_path, decision_runs):
    """Catches a heading about faults over an empty list."""
    run = tmp_path / "run"
    shutil.copytree(decision_runs / "healthy_pt_r7615_bcm57508/run", run)
    report(run)
    assert "is at fault" not in (run / "report.html").read_text()
    assert judge_folder(run).causes == ()


@pytest.mark.slow
def test_the_command_says_the_same_as_the_verdict(slow):
    """Catches two answers to one question."""
    done = python("-m", "shakedown", "localise", slow, "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["causes"]
    told = judge_folder(slow).causes
    assert [(c["element"], c["proposal"]) for c in found] == [(c.element, c.proposal) for c in told]
    assert document("r", [], [], PairResults(), [])["causes"] == []


def test_two_nodes_blame_nobody_and_cost_no_numpy(decision_runs):
    """Catches a diagnosis of two nodes, which nobody can make, and every verdict made slow by it."""
    code = (
        "import sys; from pathlib import Path; from shakedown.judge.judged import judge_folder;"
        f"v = judge_folder(Path({str(decision_runs / 'sign_mtu_1024/run')!r}));"
        "print(v.causes, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "() False"


def test_whatever_is_missing_or_doubled_a_verdict_comes_out(tmp_path, slow):
    """Catches a diagnosis that breaks the verdict: meshes with holes, doubled lines, zeros and lost nodes."""
    chooser = random.Random(5)
    lines = (slow / "results.jsonl").read_text().splitlines()
    for number in range(20):
        run = tmp_path / str(number)
        shutil.copytree(slow, run)
        kept = []
        for line in chooser.sample(lines, chooser.randint(1, len(lines))):
            record = json.loads(line)
            change = chooser.random()
            if change < 0.2:
                record["value"] = chooser.choice([None, 0.0, -1.0, 1e-300, 1e300, record["value"] / 7])
            elif change < 0.3:
                who = chooser.choice(record["nodes"])
                message = chooser.choice([f"{who} lost: gone", f"{who} {record['rail']}: no device"])
                kind = chooser.choice(["environment", "setup", "killed"])
                record |= {"value": None, "problem": {"kind": kind, "message": message}}
            elif change < 0.35:
                kept.append(json.dumps(record | {"value": 100.0}))
            kept.append(json.dumps(record))
        (run / "results.jsonl").write_text("".join(f"{line}\n" for line in kept))
        first = to_json(judge_folder(run))
        (run / "results.jsonl").write_text("".join(f"{line}\n" for line in reversed(kept)))
        assert to_json(judge_folder(run)) == first, number


def test_a_run_without_mesh_is_only_passed_on(decision_runs):
    """Catches a watcher that swallows measurements."""
    run = Run(decision_runs / "counters/run")
    causes = CausesOfRun(run.plan)
    assert len(list(causes.measurements(run.measurements()))) == len(list(run.measurements())) > 0
    assert len(list(causes.counters(run.counters()))) == len(list(run.counters())) > 0
    assert causes.causes(run) == ()
