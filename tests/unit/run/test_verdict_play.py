"""The playbook's last play: what counts as a verdict, and what is a breakdown of its program."""

import sys
from pathlib import Path

import pytest

from tests.kit.run import run_playbook

CHECKOUT = Path(__file__).resolve().parents[3]
# Ends with 1 in `verdict` or in `report`, as Python does when it cannot even import what it needs.
BREAKS = """#!/bin/sh
[ "$1" = "$BREAKS" ] && { echo "ModuleNotFoundError" >&2; exit 1; }
case "$1" in
  verdict) echo "FAIL  a cell"; echo "{}" > "$2/verdict.json"; exit 1;;
  report) echo "FAIL  a cell"; touch "$2/report.html"; exit 1;;
esac
"""


@pytest.mark.slow
@pytest.mark.parametrize(("breaks", "task"), [("verdict", "Judge"), ("report", "Write the report"), ("", "")])
def test_a_breakdown_is_no_verdict(tmp_path, breaks, task):
    """Catches: exit status 1 of a program that broke down taken for FAIL, with an old report beside it."""
    run = tmp_path / "run"
    run.mkdir()
    for name in ("verdict.json", "report.html"):
        (run / name).write_text("PASS, of an earlier call")
    program = tmp_path / "shakedown"
    program.write_text(BREAKS)
    program.chmod(0o755)
    done = run_playbook(
        "-i",
        "localhost,",
        "-c",
        "local",
        "playbooks/parts/verdict.yml",
        "-e",
        f"run_folder={run}",
        "-e",
        f"verdict_command={program}",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        BREAKS=breaks,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    last = done.stdout[: done.stdout.index("fatal: ")].rpartition("TASK [")[2].partition("]")[0]
    assert last == (task or "The verdict"), done.stdout
    assert not any("PASS" in path.read_text() for path in run.iterdir())
