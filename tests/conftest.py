"""What tests of every folder use."""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shakedown.commands import cli
from tests.kit.archive import unpack

# Programs of the other environments, which tests start with this interpreter.
WORKLOADS = Path(__file__).parents[1] / "workloads"
RUNS = Path(__file__).parent / "runs"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WORKLOADS), os.environ.get("PYTHONPATH")]))


def pytest_sessionstart() -> None:
    """Do not look for garbage among modules and tests that are still being read."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was read out of every later search: 400,000 objects that live to the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def shakedown(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """A runner of the command line in this process: (exit status, standard output, standard error)."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["shakedown", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture(scope="session")
def decision_runs(tmp_path_factory) -> Path:
    """The made inputs of every decision case, as `CASE/run`: to be read or copied, never changed."""
    from tests.decision.build import write_all

    folder = tmp_path_factory.mktemp("decision")
    write_all(folder)
    return folder


@pytest.fixture
def recorded_run(tmp_path_factory) -> Callable[[str], Path]:
    """An unpacker of runs: a name of `tests/runs` gives a run folder of that name, the test's own."""

    def run_folder(name: str) -> Path:
        folder = tmp_path_factory.mktemp("recorded") / name
        unpack(RUNS / name / "run.tar.xz", folder)
        return folder

    return run_folder
