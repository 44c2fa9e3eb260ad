"""Runs that were really made: their raw files must give the same verdict for ever, and a report.

One folder a run: `run.tar.xz` with `plan.json`, `jobs.json`, `inventory.json`, `raw/` as they were on the day
(`pack.py` makes it), and `expected.json`, written by hand: what it is, where it was made, the verdict and
what it must say: `failed`, the cells that failed, required or not, and `says`, words that some cell's reason
must hold.
"""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest
from pack import pack

# One of each kind, quick to read: `make test-unit` has these, `make test` all.
QUICK = {
    "h100x2_killed_rank",
    "h100x2_nccl_versions",
    "h100x2_one_rail",
    "h200_int8_short",
    "h200_rate_5",
    "h200_shared_slow_port",
    "h200x2_lora_slow_rank",
    "h200x2_nodes_rail_down",
    "h200x4_interconnect",
    "h200x4_nccl_missing",
    "lab_healthy",
}
RUNS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))


@pytest.mark.parametrize(
    "made", [pytest.param(p, id=p.name, marks=[] if p.name in QUICK else [pytest.mark.slow]) for p in RUNS]
)
def test_raw_files_give_the_verdict_of_the_day(made, recorded_run, shakedown):
    """Catches: a reader, rule or report that no longer understands what real tools wrote."""
    expected = json.loads((made / "expected.json").read_text())
    run = recorded_run(made.name)
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


def test_an_archive_is_the_same_whoever_packs_it(recorded_run, tmp_path):
    """Catches: an archive with a machine's times, owners or order of files, or with what was made later."""
    run = recorded_run("lab_healthy")
    digests = []
    for number in range(2):
        archive = tmp_path / f"{number}" / "run.tar.xz"
        pack(run, archive)
        digests.append(hashlib.sha256(archive.read_bytes()).hexdigest())
        for path in run.rglob("*"):  # another day, and judged since
            os.utime(path, (number, number))
        (run / "verdict.json").write_text("{}")
    assert digests[0] == digests[1]
    with tarfile.open(tmp_path / "0" / "run.tar.xz") as tar, tarfile.open(RUNS[-1] / "run.tar.xz") as kept:
        for members in (tar.getmembers(), kept.getmembers()):
            names = [member.name for member in members]
            assert names == sorted(names) and {name.split("/")[0] for name in names} <= {
                "inventory.json",
                "jobs.json",
                "plan.json",
                "raw",
            }
            assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {
                (0, 0, 0, "", "", 0o644)
            }
