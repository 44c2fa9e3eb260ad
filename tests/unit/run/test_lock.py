"""The run lock of a submit host, and the processes that it names."""

import os
import subprocess
import sys
import time

import pytest

from shakedown.records.reading import BadInput
from shakedown.run.lock import (
    Holder,
    RunLock,
    argv_of,
    boot,
    end,
    host,
    playbook_state,
    start_ticks,
    with_argument,
)
from tests.kit.cases import cases
from tests.kit.files import script
from tests.kit.refusal import refused


def holder(**other) -> Holder:
    """This process as a holder, with what a test changes."""
    me = os.getpid()
    values = {"run": "r1", "host": host(), "boot": boot(), "pid": me, "start_ticks": start_ticks(me)}
    more = {"user": "alice", "since": "2026-11-23T10:00:00Z", "ticket": "t1"}
    return Holder.model_validate({"schema": 1} | values | more | other)


# Two of these race for the lock of the folder that they are given.
RACER = """
import sys, time
from pathlib import Path
from shakedown.records.reading import BadInput
from shakedown.run.lock import Holder, RunLock
home, ticket, at = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
lock = RunLock(home)
mine = Holder(run=ticket, host="h", boot="b", pid=1, start_ticks=1, user="u", since="s", ticket=ticket)
time.sleep(max(0, at - time.time()))
try:
    with lock.mutex():
        if lock.holder() is None:
            time.sleep(0.1)
            lock.take(mine, over=None)
            print("took")
except BadInput as error:
    print(error)
"""


@pytest.mark.slow
def test_of_two_starts_at_once_one_gets_it(tmp_path):
    """Catches: two runs that both found the host free and measure into each other."""
    at = time.time() + 2
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, tmp_path, f"t{i}", str(at)], stdout=subprocess.PIPE, text=True
        )
        for i in range(2)
    ]
    said = [racer.communicate()[0].strip() for racer in racers]
    assert said.count("took") == 1, said
    assert RunLock(tmp_path).holder().ticket == f"t{said.index('took')}"


def test_a_lock_is_never_taken_twice_as_free(tmp_path):
    """Catches: a lock written over one that came past the mutex, on a file system without flock."""
    lock = RunLock(tmp_path)
    lock.take(holder(), over=None)
    refused("was taken at this moment", lock.take, holder(ticket="t2"), over=None)
    assert lock.holder().ticket == "t1"
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]


def test_a_lock_that_is_being_taken_is_waited_for_briefly(tmp_path, monkeypatch):
    """Catches: two starts that both take a dead run's place; a start that hangs while another ends jobs."""
    monkeypatch.setattr("shakedown.run.lock._EVERY_S", 0.01)
    one, other = RunLock(tmp_path), RunLock(tmp_path)
    with one.mutex(), pytest.raises(BadInput, match="another start is taking it"), other.mutex():
        pass
    with RunLock(tmp_path).mutex():
        pass


def test_only_its_holder_gives_it_back(tmp_path):
    """Catches: a run that was ended and taken over, whose end frees the host under the next one."""
    lock = RunLock(tmp_path)
    lock.take(holder(), over=None)
    lock.take(holder(run="r2", ticket="t2"), over=holder())
    assert not lock.release("t1")
    assert lock.holder().run == "r2"
    assert lock.release("t2")
    assert lock.holder() is None
    assert not lock.release("t2")


@cases(
    "content",
    "",
    "{",
    "[]",
    '{"schema": 1, "run": "../x"}',
    '{"schema": 1, "pid": -1}',
    "\x00" * 100,
    "[" * 100_000,
    None,
)
def test_a_file_that_is_no_lock_is_refused(tmp_path, content):
    """Catches: a hostile or half-written lock that is followed, overwritten, or raises a traceback."""
    file = tmp_path / "run.lock"
    if content is None:
        file.symlink_to("/etc/passwd")
    else:
        file.write_text(content)
    refused("is no lock of a run", RunLock(tmp_path).holder)
    assert file.is_symlink() == (content is None)


@pytest.mark.parametrize(("key", "value"), [("user", "a\nb"), ("user", "\x1b[2J"), ("pid", 0), ("more", 1)])
def test_a_holder_holds_plain_words(key, value):
    """Catches: terminal escapes of a lock file printed at the next start, and keys that nothing reads."""
    with pytest.raises(ValueError, match=key):
        holder(**{key: value})


def test_a_playbook_that_runs_is_alive():
    """Catches: a run under way taken for one that was broken off."""
    assert playbook_state(holder()) == "alive"


def test_a_number_that_was_used_again_is_another_process():
    """Catches: a dead run kept alive by whatever got its process number."""
    assert playbook_state(holder(start_ticks=1)) == "dead"


def test_a_process_that_has_ended_is_dead():
    """Catches: a run without a playbook that blocks the host for ever; a zombie is no playbook either."""
    child = subprocess.Popen(["sleep", "1000"])
    theirs = holder(pid=child.pid, start_ticks=start_ticks(child.pid))
    assert playbook_state(theirs) == "alive"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie until it is waited for
    assert playbook_state(theirs) == "dead"
    child.wait()
    assert playbook_state(theirs) == "dead"


def test_a_machine_that_was_booted_again_runs_none_of_it():
    """Catches: a controller's reboot that leaves the host locked."""
    _, space = boot().split()
    assert playbook_state(holder(boot=f"00000000-0000-0000-0000-000000000000 {space}")) == "dead"


@cases("other", {"host": "elsewhere:0123456789ab"}, {"boot": boot().split()[0] + " pid:[1]"})
def test_another_controller_cannot_be_seen(other):
    """Catches: a living run of another controller, or of another container, taken for a dead one."""
    assert playbook_state(holder(**other)) == "elsewhere"


def test_a_process_is_found_by_one_whole_argument():
    """Catches: the ReFrame of run `a` found, and ended, as that of run `a.b` or the other way round."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1000)", "--prefix=/x/a.b/reframe"]
    )
    try:
        deadline = time.monotonic() + 30  # until it is started, the child is a copy of this process
        while with_argument("--prefix=/x/a.b/reframe") != [child.pid] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert with_argument("--prefix=/x/a.b/reframe") == [child.pid]
        assert with_argument("--prefix=/x/a") == []
        assert argv_of(child.pid)[-1] == "--prefix=/x/a.b/reframe"
        end([child.pid], patience_s=10)
    finally:
        child.kill()
        child.wait()


def test_what_swallows_the_first_signal_is_killed():
    """Catches: a hung ReFrame that survives the cancelling of its run."""
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(flush=True); time.sleep(99)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    child.stdout.readline()
    end([child.pid], patience_s=0.5)
    assert child.wait() == -9


def test_the_playbook_above_is_the_nearest_one(tmp_path):
    """Catches: firmware day's playbook named as the holder, or a worker that ends with its task."""
    playbook = tmp_path / "ansible-playbook"
    # An outer playbook, an inner one, and a worker of it, which is a copy with the same arguments.
    script(
        playbook,
        f"#!{sys.executable}\n"
        "import os, subprocess, sys\n"
        "if sys.argv[1] == 'outer':\n"
        "    sys.exit(subprocess.run([sys.argv[0], 'inner']).returncode)\n"
        "print(os.getpid(), flush=True)\n"
        "if os.fork() == 0:\n"
        "    code = 'from shakedown.run.lock import playbook_above; print(playbook_above())'\n"
        "    call = ['sh', '-c', 'exec \"$@\"; true', 'x', sys.executable, '-c', code]\n"
        "    sys.exit(subprocess.run(call).returncode)\n"
        "os.wait()\n",
    )
    done = subprocess.run([playbook, "outer"], capture_output=True, text=True, check=True)
    inner, found = done.stdout.split()
    assert found == inner


def test_without_a_playbook_there_is_no_holder():
    """Catches: a holder that names the shell, which outlives or precedes the run."""
    argv = [sys.executable, "-m", "shakedown.run.lock", "mine", "r1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "ansible-playbook" not in done.stderr:  # the tests themselves may be started by one
        pytest.skip("an ansible-playbook started these tests")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
