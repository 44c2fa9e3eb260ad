"""The record of a program that failed."""

import json
import sys

from shakedown.onnode.output import kept


def test_a_failure_is_told_in_whole_lines(tmp_path):
    """Catches: a reason that begins in the middle of a word of a log's noise."""
    noise = "".join(f"[n1:{number:05d}] select: component ucx selected\\n" for number in range(60))
    said = f"import sys; sys.stderr.write('{noise}srun: First task exited 8s ago'); sys.exit(3)"
    assert kept(tmp_path, "mpi", "one", ["n1"], [sys.executable, "-c", said]) == 3
    record = json.loads((tmp_path / "outputs.jsonl").read_text())
    how, _, tail = record["problem"]["message"].partition("exit status 3: ")
    assert how
    lines = tail.splitlines()
    assert len(lines) > 5
    assert all(line.startswith(("[n1:000", "srun: ")) for line in lines), lines


def test_a_line_that_is_too_long_is_told_by_its_end(tmp_path):
    """Catches: a failure without a word because its only line did not fit."""
    said = "import sys; sys.stderr.write('x' * 900 + ' the end'); sys.exit(1)"
    assert kept(tmp_path, "mpi", "one", ["n1"], [sys.executable, "-c", said]) == 1
    message = json.loads((tmp_path / "outputs.jsonl").read_text())["problem"]["message"]
    assert message.endswith("xx the end")
