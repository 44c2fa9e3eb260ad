"""The runs that are damaged, one of them ordered, and the command line as its user calls it."""

import contextlib
import io
import os
import resource
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest

from shakedown.commands import cli
from tests.kit.archive import unpack
from tests.kit.key import make_key, make_signers
from tests.unit.evidence.ordered import make_world

RUNS = Path(__file__).parents[1] / "runs"
# One of each kind: fabric, NCCL, inference with its GPU paths, LoRA.
NAMES = ("lab_healthy", "h200x4_nccl_healthy", "h200_int8_short", "h200x2_lora", "h200x4_interconnect")
# What a customer ordered and its nodes signed.
ORDERED = "20261120T132502Z"
LONGEST_CPU_S = 10.0
LARGEST_MEMORY_KIB = 1 << 20


def call(*words: object) -> tuple[int, str, str]:
    """Run a command line in this process: (exit status, standard output, standard error)."""
    out, err = io.StringIO(), io.StringIO()
    status = 0
    began = _cpu_s()
    with (
        mock.patch.object(sys, "argv", ["shakedown", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    took = _cpu_s() - began
    assert took <= LONGEST_CPU_S, f"{words[0]} took {took:.1f} s"
    # The most that this process ever had, commands before this one included.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert most <= LARGEST_MEMORY_KIB, f"{words[0]}: {most} KiB of memory"
    return status, out.getvalue(), err.getvalue()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Recorded runs by name, collected, judged, reported and sealed."""
    root = tmp_path_factory.mktemp("originals")
    key = make_key(root, "key")
    make_signers(root / "signers", {"tester": key})
    found = {}
    for name in NAMES:
        folder = root / name
        unpack(RUNS / name / "run.tar.xz", folder)
        found[name] = folder
        assert call("collect", folder)[0] == 0
        call("verdict", folder, "--write")
        call("report", folder)
        assert call("seal", folder, "--redact", "--key", key)[0] == 0, name
    found[ORDERED] = ordered_run(root / "ordered")
    return found


def ordered_run(root: Path) -> Path:
    """Return the folder of a run with an order; the order and those who may sign lie beside it."""
    root.mkdir()
    run = root / ORDERED
    unpack(RUNS / "lab_healthy/run.tar.xz", run)
    with pytest.MonkeyPatch.context() as patch:
        make_world(root, run, patch)
    return run


def linked_copy(folder: Path, to: Path) -> Path:
    """Copy a run folder without copying a byte: what changes a file here replaces it."""
    shutil.copytree(folder, to, copy_function=os.link)
    return to
