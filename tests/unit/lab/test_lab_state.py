"""State and processes: a recycled process id must never be ended, a half-written state never be read."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import processes, state
from lab.errors import LabError
from lab.processes import Process
from tests.kit.cases import cases

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[str]]:
    """A program that runs until it is ended."""
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


def start_time(pid: int) -> int:
    """Field 22 of proc(5) /proc/pid/stat."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_recycled_process_id_is_neither_alive_nor_ended(sleeper: subprocess.Popen[str]) -> None:
    """Catches 'down' ending whatever program got the id of a QEMU that ended long ago."""
    recycled = Process(sleeper.pid, start_time(sleeper.pid) - 1)
    assert not recycled.alive()
    assert processes.end([recycled], patience_s=0.2) == []
    assert sleeper.poll() is None


def test_the_recorded_process_is_alive_and_is_ended(sleeper: subprocess.Popen[str]) -> None:
    """Catches a start time read from the wrong field, with which no process would ever be ended."""
    own = Process(sleeper.pid, start_time(sleeper.pid))
    assert own.alive()
    assert own.rss_bytes() > 1_000_000
    assert processes.end([own]) == []
    assert not own.alive()


def test_a_zombie_is_not_alive() -> None:
    """Catches 'down' waiting for ever where process 1 reaps nothing."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        process = Process(child.pid, start_time(child.pid))
        deadline = time.monotonic() + 20
        while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not process.alive()
        assert processes.end([process], patience_s=0.2) == []


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    """Catches a hung emulator that survives 'down'."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    deaf = f"import signal, time; {ignore}; print('up', flush=True); time.sleep(60)"
    log = tmp_path / "log"
    process = processes.start([sys.executable, "-c", deaf], log)
    while "up" not in log.read_text():
        time.sleep(0.01)
    assert processes.end([process], patience_s=0.3) == []
    assert not process.alive()


def test_a_command_name_with_blanks_and_parentheses_does_not_shift_the_fields(tmp_path: Path) -> None:
    """Catches a /proc parser that splits at blanks: the start time would be read from another field."""
    folder = tmp_path / "7"
    folder.mkdir()
    fields = ["S", *["0"] * 18, "4711", "0"]
    (folder / "stat").write_text(f"7 (a) S 1 (b c)) {' '.join(fields)}\n")
    assert Process(7, 4711).alive(tmp_path)
    assert not Process(7, 0).alive(tmp_path)


def example() -> state.State:
    """A state with something in every field."""
    return state.State(
        name="x",
        nodes=2,
        image="/images/abc",
        accelerator="tcg",
        hub=Process(10, 100),
        guests={"head": state.Guest(Process(11, 101), 2201)},
        faults={"n1 rail0": "loss 2 %"},
        snapshots={"clean": {}, "lossy": {"n1 rail0": "loss 2 %"}},
        ready=True,
    )


def test_state_survives_writing_and_reading(tmp_path: Path) -> None:
    """Catches a field that is written but not read: a lab would forget its faults or snapshots."""
    path = tmp_path / "state.json"
    example().save(path)
    assert state.load(path) == example()
    assert [p.pid for p in example().processes()] == [11, 10]


def test_a_failed_write_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a write in place: a full disk would leave a lab that nobody can stop."""
    path = tmp_path / "state.json"
    example().save(path)

    def full(self: Path, text: str) -> int:
        with self.open("w") as handle:
            handle.write(text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        example().save(path)
    assert state.load(path) == example()


@cases("damage", "", "[]", "{", json.dumps({"schema": 99}), json.dumps({"schema": 1, "name": "x"}))
def test_a_state_that_is_none_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    """Catches a traceback, or a silent 'the lab is down' while its QEMUs run."""
    path = tmp_path / "state.json"
    path.write_text(damage)
    with pytest.raises(LabError) as caught:
        state.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_state_is_no_lab(tmp_path: Path) -> None:
    """Catches an error where there simply is no lab."""
    assert state.load(tmp_path / "state.json") is None
    assert list(tmp_path.iterdir()) == []
