"""State and processes of a lab, and what a person hears while it works: every 20 seconds, which job it is."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import processes, progress, state
from lab.acceptance import BIN, CHECKOUT
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


def test_a_long_step_gives_signs_of_life(monkeypatch, capsys):
    """Catches: minutes without a word, in which a person takes the program for hung."""
    monkeypatch.setattr(progress, "EVERY_S", 0.3)
    steps = progress.Steps()
    with steps.step("boot"):
        time.sleep(0.5)
        steps.doing("configure: Install packages")
        time.sleep(0.8)
        steps.more = lambda: "job 7 of 21, fabric.ib_write_bw, 40 s"
        time.sleep(0.5)
    said = capsys.readouterr().out
    assert "boot, 0 s" in said and "Install packages, 0 s" in said
    assert "job 7 of 21, fabric.ib_write_bw, 40 s" in said
    time.sleep(0.7)
    assert capsys.readouterr().out == ""
    assert progress.Steps().more is None and steps.timings[0][0] == "boot"


@cases(
    "answer, words",
    ("6\nfabric.ib_write_bw 0:40\n", "job 7 of 21, fabric.ib_write_bw, 40 s"),
    ("0\nnode.stream.n1 1:02:03\nnode.stream.n2 5\n", "job 1 of 21, node.stream.n1, 3723 s, and 1 beside it"),
    ("3\ncollective.nccl 1-00:00:10\n", "job 4 of 21, collective.nccl, 86410 s"),
    ("21\n", "21 of 21 jobs have ended, none runs now"),
    ("ssh: timed out\n", ""),
    ("", ""),
)
def test_which_job_runs(tmp_path, answer, words):
    """Catches: another job's name or number, days read as seconds, a traceback where nothing answers."""
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [{}] * 21}))
    assert progress.JobsNow(tmp_path, lambda _: answer, "/shared/runs/r")() == words


def test_a_lab_that_does_not_answer_costs_no_run(tmp_path):
    """Catches: a look at the jobs that ends the acceptance, or that needs a plan that is not there yet."""

    def away(_: str) -> str:
        raise LabError("head does not answer")

    assert progress.JobsNow(tmp_path, away, "/r")() == ""
    (tmp_path / "jobs.json").write_text('{"jobs": []}')
    assert progress.JobsNow(tmp_path, away, "/r")() == ""


def test_a_host_that_is_too_slow_is_said_to_be():
    """Catches: jobs that ran into their limits on a busy host, told as if the lab were at fault."""
    assert (
        progress.busy_host(269, 734) == "planned 4 min 29 s, took 12 min 14 s: this host is busy or too slow"
    )
    assert progress.busy_host(269, 390) == ""


@pytest.mark.slow
def test_ansible_names_a_long_task_again_and_prints_a_verdict_as_one(tmp_path):
    """Catches: a stage of an hour without a word; FAILED! and an assertion where a verdict is meant."""
    book = tmp_path / "book.yml"
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    tasks = [
        {"name": "Run ReFrame", "ansible.builtin.command": {"argv": ["sleep", "25"]}},
        {
            "name": "The verdict",
            "ansible.builtin.assert": {"that": False, "fail_msg": "INCONCLUSIVE  2 of 9"},
        },
    ]
    book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": here, "tasks": tasks}]))
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", "localhost,", book],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "... Run ReFrame: 2" in done.stdout, done.stdout
    assert "INCONCLUSIVE  2 of 9" in done.stdout and "FAILED!" not in done.stdout + done.stderr
    assert done.returncode == 2


def test_a_shell_command_of_set_up_gives_signs_of_life(tmp_path):
    """Catches: packages that install for six minutes behind one line; a status that is lost on the way."""
    script = (CHECKOUT / "lab/setup.sh").read_text()
    begin = script.index("patiently() {")
    function = script[begin : script.index("\n}\n", begin) + 3].replace("% 15", "% 1")
    log = Path(tmp_path) / "log"
    play = f"{function}\npatiently 'installing packages' {log} sh -c 'echo Unpacking x; sleep 2; exit 7'"
    done = subprocess.run(["sh", "-c", play], capture_output=True, text=True, check=False)
    assert done.returncode == 7 and "setup: installing packages, 1 s: Unpacking x" in done.stdout
