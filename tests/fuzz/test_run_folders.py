"""Any damage to a run folder ends in a verdict or in one line and exit status 2, never in a traceback.

`make test-fuzz` damages for ten minutes; FUZZ_SECONDS says otherwise. Hypothesis keeps what it found in
tests/fuzz/found, and tries that first the next time.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from conftest import NAMES, ORDERED, call, linked_copy
from damage import Damage, damage, damages
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

SECONDS = float(os.environ.get("FUZZ_SECONDS", "20"))
# Five minutes are what another test has. A batch that has begun is ended.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 900)]
FOUND = DirectoryBasedExampleDatabase(Path(__file__).with_name("found"))
BATCH = settings(
    max_examples=5, deadline=None, database=FOUND, print_blob=True, suppress_health_check=list(HealthCheck)
)


def held(*words: object) -> int:
    """Call a command; whatever it was given, its answer is one that a person or a playbook understands."""
    status, out, err = call(*words)
    said = f"{' '.join(map(str, words))}: {status}\n{out[-2000:]}\n{err[-2000:]}"
    assert "internal error" not in err, said
    assert "Traceback" not in err, said
    assert status in (0, 1, 2, 3), said
    if status == 2:
        assert err.count("\n") == 1, said
    elif words[0] in ("verdict", "report") and status == 1:
        assert out.startswith("FAIL"), said
    return status


def every_command(run: Path, original: Path, store: Path) -> None:
    """What people do with a run folder that they were given."""
    signers, order = original.parent / "signers", original.parent / "order.json"
    held("verify", run, "--signers", signers)
    if order.exists():
        held("verify", run, "--signers", signers, "--order", order)
    shutil.rmtree(store, ignore_errors=True)
    for name in ("SHA256SUMS", "SHA256SUMS.sig"):
        if not (run / name).is_dir():
            (run / name).unlink(missing_ok=True)
    held("verdict", run)
    held("collect", run)
    held("verdict", run, "--write")
    held("report", run)
    held("sweeps", f"A={run}", f"B={run}")
    held("history", "ingest", "--store", store, run)
    held("history", "show", "--store", store)
    held("compare", original, run)
    held("interconnect", run)
    held("mend", run)


def batch(originals: dict[str, Path], number: int, most: int) -> None:
    """Damage so many copies of the recorded runs, each in its own way."""

    @seed(number)
    @settings(BATCH, max_examples=most)
    @given(name=st.sampled_from((*NAMES, ORDERED)), changes=damages)
    def damaged(name: str, changes: list[Damage]) -> None:
        with tempfile.TemporaryDirectory() as place:
            run = linked_copy(originals[name], Path(place) / name)
            for change in changes:
                damage(run, change)
            every_command(run, originals[name], Path(place) / "store")

    damaged()


def test_any_damage_is_said_in_one_line(originals):
    """Catches: a traceback, or FAIL for a folder that could not be read, by whatever was done to it."""
    until = time.monotonic() + SECONDS
    number = int(os.environ.get("FUZZ_SEED", "0")) or time.time_ns() % 10**9
    tried = 0
    while time.monotonic() < until:
        print(f"seed {number}")
        batch(originals, number, BATCH.max_examples)
        tried += BATCH.max_examples
        print(f"{tried} damaged folders", flush=True)
        number += 1
