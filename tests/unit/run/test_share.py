"""The one door to a run's folder on a share that others write to."""

import errno
import importlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shakedown.evidence.attest import manifest
from shakedown.evidence.job_folder import note_contents
from shakedown.onnode.journal import Clock, Journal
from shakedown.records import writing
from shakedown.records.reading import read_bytes
from shakedown.records.writing import append_line, aside_of
from shakedown.run import chain
from shakedown.run import folder as run_folder
from shakedown.run.share import Share

CHECKOUT = Path(__file__).parents[3]
# What the submit host's user runs on the share.
ON_THE_SHARE = ("reframe_tests/guard.py", "shakedown/run/chain.py", "shakedown/slurm/stage.py")
_OTHER_DOORS = re.compile(
    r"\.open\(\"|write_aside|write_text|write_bytes|read_text|read_bytes|shutil|\.mkdir\(|\.unlink\(|os\.open"
)


@pytest.fixture
def run(tmp_path):
    """A run on a share; beside it the files of the submit host's user."""
    for folder in ("run/raw/job.a1", "home"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home/key").write_text("PRIVATE")
    return tmp_path / "run"


def test_nobody_else_opens_there():
    """Catches: a new line that opens a file of the share as if nobody else wrote there."""
    for name in ON_THE_SHARE:
        found = _OTHER_DOORS.findall((CHECKOUT / name).read_text())
        assert not found, (name, found)


@pytest.mark.parametrize("place", ["raw/job.a1/file", "raw/job.a1", "raw"])
def test_no_part_of_a_path_is_a_link(run, place):
    """Catches: a node's root that reads, writes or makes files of the submit host by a link on the share."""
    share, file, home = Share(run), run / "raw/job.a1/file", run.parent / "home"
    (run / "raw/job.a1").rmdir()
    if place == "raw":
        (run / "raw").rmdir()
    elif place.endswith("file"):
        (run / "raw/job.a1").mkdir()
    target = {"raw/job.a1/file": home / "key", "raw/job.a1": home, "raw": home}[place]
    (run / place).symlink_to(target)
    (home / "job.a1").mkdir()
    for folder in (home, home / "job.a1"):
        (folder / "file").write_text("PRIVATE")
    before = {path: path.read_text() for path in home.rglob("*") if path.is_file()}
    for use in (
        lambda: share.read(file),
        lambda: share.append(file, lambda _: b"line"),
        lambda: share.copy(file, run / "copied"),
    ):
        with pytest.raises(OSError):
            use()
    if place.endswith("file"):
        share.write(file, b"ours")  # the link is replaced
        assert not file.is_symlink() and file.read_bytes() == b"ours"
    else:
        for use in (
            lambda: share.write(file, b"x"),
            lambda: share.remove(file),
            lambda: share.names(file.parent),
        ):
            with pytest.raises(OSError):
                use()
        with pytest.raises(OSError):
            share.make_folder(run / "raw/job.a1/new")
    assert {path: path.read_text() for path in home.rglob("*") if path.is_file()} == before
    assert not (run / "copied").exists()


def test_no_pipe_and_nothing_outside(run):
    """Catches: ReFrame that waits for ever at a pipe, and a name that leaves the run."""
    os.mkfifo(run / "raw/job.a1/pipe")
    with pytest.raises(OSError, match="not a plain file"):
        Share(run).read(run / "raw/job.a1/pipe")
    for path in (run / "../home/key", run.parent / "home/key"):
        with pytest.raises(ValueError, match=r"leaves the run|not in the subpath"):
            Share(run).read(path)


def test_a_line_is_appended_whole_or_not_at_all(run, monkeypatch):
    """Catches: a full disk or a power cut that leaves half a line, to which the next one is glued."""
    file = run / "raw/chain.jsonl"
    file.write_bytes(b'{"n": 1}\n{"n": 2')  # a power cut
    Share(run).append(file, lambda lines: b'{"n": %d}' % (len(lines) + 1))
    assert file.read_bytes() == b'{"n": 1}\n{"n": 2}\n'
    real = os.fsync

    def full(_file) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Share(run).append(file, lambda _: b"x" * 10_000)
    monkeypatch.setattr(os, "fsync", real)
    assert file.read_bytes() == b'{"n": 1}\n{"n": 2}\n'
    for name in ("a.a1", "b.a1"):
        Share(run).make_folder(run / "raw" / name)
        (run / "raw" / name / "job.json").write_text("{}")
        chain.add(run / "raw", name, "0" * 64, "JobId=1\n")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [json.loads(line["line"])["number"] for line in lines[2:]] == [3, 4]


def test_what_a_writer_left_is_in_no_other_ones_way(run, monkeypatch):
    """Catches: a process number that comes again, on another host or in a container, and cannot write."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    share, file = Share(run), run / "raw/job.a1/job.json"
    for name in {aside_of("job.json") for _ in range(9)} | {".job.json.7.new"}:
        (file.parent / name).write_bytes(b"half")
    share.write(file, b"whole")
    assert file.read_bytes() == b"whole"
    monkeypatch.setattr(run_folder, "_lives", lambda pid: pid != 7)
    assert len(list(run_folder.leftovers(run))) == 10


def test_no_line_is_lost_on_a_share_without_locks(run, monkeypatch):
    """Catches: a line written over another one's; files that the jobs' group may write."""
    file, before = run / "raw/job.a1/outputs.jsonl", os.umask(0)
    monkeypatch.setattr(writing, "lock", lambda _: None)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: append_line(file, b"%d" % n), range(400)))
    finally:
        os.umask(before)
    assert sorted(map(int, file.read_bytes().split())) == list(range(400))
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("stale", "read"), [(2, True), (3, False)])
def test_what_another_host_replaces_on_nfs_is_read_again(run, monkeypatch, stale, read):
    """Catches: a job whose end is not recorded, as a node wrote its file again while it was read (ESTALE)."""
    file, real, left = run / "raw/job.a1/file", os.fstat, [stale]
    file.write_bytes(b"new")

    def fstat(descriptor: int) -> os.stat_result:
        if left[0] and real(descriptor).st_ino == file.stat().st_ino:
            left[0] -= 1
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", fstat)
    if read:
        assert Share(run).read(file) == b"new"
    else:
        with pytest.raises(OSError, match="Stale"):
            Share(run).read(file)


def test_a_write_that_is_short_is_gone_on_with(run, monkeypatch):
    """Catches: half a line in the chain, which NFS may write and call a success."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: real(file, content[:3], at))
    Share(run).append(run / "raw/chain.jsonl", lambda _: b'{"line": "0123456789"}')
    append_line(run / "raw/outputs.jsonl", b"0123456789")
    assert (run / "raw/chain.jsonl").read_bytes() == b'{"line": "0123456789"}\n'
    assert (run / "raw/outputs.jsonl").read_bytes() == b"0123456789\n"


def test_a_file_that_nfs_keeps_for_who_has_it_open_is_no_output(run):
    """Catches: `.nfs...` of a removed file in a job's list or a node's: gone tomorrow, and the run spoilt."""
    job = run / "raw/job.a1"
    for name in (".nfs00000000000a1b2c", "out.n1.txt"):
        (job / name).write_text("1\n")
    note_contents(job)
    assert json.loads((job / "files.json").read_text()).keys() == {"out.n1.txt"}
    assert manifest(job, "n1", ["n1"], first=True)["files"].keys() == {"out.n1.txt"}


def test_two_writers_leave_each_line_whole(run):
    """Catches: two ReFrames, or two tasks of a node, of whose lines one is lost or cut."""
    chain, journal, each = run / "raw/chain.jsonl", run / "raw/outputs.n1.jsonl", 40
    children = []
    for writer in range(2):
        if not (child := os.fork()):
            for n in range(each):
                Share(run).append(chain, lambda lines, who=writer: b"%d %d" % (len(lines), who))
                append_line(journal, b"%d %d " % (n, writer) + b"x" * 5000)
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert [int(line.split()[0]) for line in chain.read_text().splitlines()] == list(range(2 * each))
    lines = journal.read_text().splitlines()
    assert len(lines) == 2 * each and {len(line.split()[2]) for line in lines} == {5000}


@pytest.fixture
def guard(monkeypatch):
    """The guard without ReFrame, of which it asks nothing here."""
    same = lambda *_, **__: lambda method: method  # noqa: E731
    said = {
        "RegressionTestPlugin": object,
        "run_after": same,
        "run_before": same,
        "sanity_function": lambda f: f,
    }
    errors = dict.fromkeys(("PerformanceError", "SanityError", "SkipTestError"), Exception)
    for name in (
        "",
        ".core.runtime",
        ".utility.sanity",
        ".core.builtins",
        ".core.exceptions",
        ".core",
        ".utility",
    ):
        module = types.ModuleType(f"reframe{name}")
        vars(module).update(said | errors | {"runtime": None, "sanity": None})
        monkeypatch.setitem(sys.modules, f"reframe{name}", module)
    monkeypatch.delitem(sys.modules, "reframe_tests.guard", raising=False)
    yield importlib.import_module("reframe_tests.guard")
    sys.modules.pop("reframe_tests.guard")


def test_the_guard_copies_no_file_of_the_submit_host(run, recorded_run, guard, monkeypatch):
    """Catches: a job's words put into the user's authorized_keys, and a private key put onto the share."""
    g = guard
    made, home = recorded_run("lab_healthy"), run.parent / "home"
    for name in ("plan.json", "jobs.json"):
        (run / name).write_bytes((made / name).read_bytes())
    monkeypatch.setenv("SHAKEDOWN_RUN", str(run))
    spec = next(iter(g.jobs_of(run).values()))
    out, stage = run / "raw" / f"{spec.name}.a1", run / "reframe/stage/x"
    for folder in (out, stage):
        folder.mkdir(parents=True)
    (stage / "job.out").write_text("ssh-ed25519 AAAA attacker\n")
    (out / "job.out").symlink_to(home / "authorized_keys")
    (stage / "job.err").symlink_to(home / "key")
    (out / "nodes.txt").write_text("\n".join(spec.nodes))
    state = types.SimpleNamespace(
        state="COMPLETED", job="7", exit_code="0:0", started="2026-11-20T13:29:44Z", duration_s=5.0
    )
    for name, answer in (("how_it_ended", (state, None)), ("flaw", None), ("patience_of", None)):
        monkeypatch.setattr(g, name, lambda *_, answer=answer, **__: answer)
    job = types.SimpleNamespace(jobid="7", stdout="job.out", stderr="job.err", script_filename="job.sh")
    check = types.SimpleNamespace(spec=spec, out=out, job=job, stagedir=str(stage), attempt=1)
    check.plan = lambda: g.plan_of(run)
    check.about = lambda: g.Guard.about(check)
    check.record = lambda record: g.Guard.record(check, record)
    assert g.Guard._record_end(check) is None
    assert not (home / "authorized_keys").exists() and not (out / "job.err").exists()
    assert (out / "job.out").read_text().startswith("ssh-ed25519") and not (out / "job.out").is_symlink()
    assert json.loads((out / "job.json").read_text())["state"] == "COMPLETED"


LEASE = """
import fcntl, os, signal, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
def give_back(*_):
    time.sleep(0.3)
    fcntl.fcntl(file, 1024, fcntl.F_UNLCK)
signal.signal(signal.SIGIO, give_back)
fcntl.fcntl(file, 1024, fcntl.F_WRLCK)  # F_SETLEASE
print("held", flush=True)
time.sleep(30)
"""


def test_a_file_that_an_nfs_server_has_lent_is_waited_for(tmp_path):
    """Catches: a healthy run whose check ends in EAGAIN, as another node still had its file.

    An NFS server lends a file to the client that writes it, and takes a lease on it meanwhile.
    """
    path = tmp_path / "outputs.n1.jsonl"
    for read in (read_bytes, Share(tmp_path).read):
        path.write_bytes(b"{}\n")
        with subprocess.Popen([sys.executable, "-c", LEASE, str(path)], stdout=subprocess.PIPE) as holder:
            try:
                assert holder.stdout.readline() == b"held\n"
                assert read(path) == b"{}\n"
            finally:
                holder.kill()


@pytest.mark.parametrize("room", [0, 40])
def test_a_disk_that_fills_costs_the_line_that_did_not_fit_alone(tmp_path, room):
    """Catches: half a record of a journal, to which the next one is glued: a measurement that was made
    and written is lost as well."""
    journal = Journal(tmp_path, "n1")
    journal.add("t", "t", "first.txt", ["n1"], Clock(), 0, None)
    size = journal.path.stat().st_size
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, limits[1]))
        with pytest.raises(OSError, match="too large"):
            journal.add("t", "t", "lost.txt", ["n1"], Clock(), 0, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert journal.path.stat().st_size == size
    with journal.path.open("ab") as file:  # a power cut
        file.write(b'{"file": "x' * 20_000)
    journal.add("t", "t", "last.txt", ["n1"], Clock(), 0, None)
    assert [json.loads(line)["file"] for line in journal.path.read_text().splitlines()] == [
        "first.txt",
        "last.txt",
    ]


# Appends of no lines that count: a tool's output, what was set aside, a trainer's log by rank,
# and notes, of which half a one must be seen.
OTHER_APPENDS = {
    "shakedown/benchmarks/lora/job.py",
    "shakedown/benchmarks/nccl/job.py",
    "shakedown/daytwo/mend.py",
    "shakedown/onnode/noted.py",
    "workloads/loadgen_harness/watch.py",
    "workloads/lora_trainer/log.py",
}
# Renames that replace nothing, a checkpoint of many GB, results written line by line, and Parquet's writer.
OTHER_RENAMES = {
    "shakedown/daytwo/history/ingest.py",
    "shakedown/daytwo/history/store.py",
    "shakedown/daytwo/mend.py",
    "shakedown/discover/folder.py",
    "shakedown/onnode/health.py",
    "shakedown/run/folder.py",
    "shakedown/simulate/run.py",
    "workloads/loadgen_harness/journal.py",
    "workloads/lora_trainer/checkpoint.py",
}


@pytest.mark.parametrize(
    ("pattern", "known"),
    [
        (r"\.open\(\"a|O_APPEND", OTHER_APPENDS),
        (r"(?:aside|path|held|\.pt)\.(?:replace|rename)\((?!\")|os\.rename", OTHER_RENAMES),
    ],
    ids=["append", "write aside"],
)
def test_there_is_one_door_for_what_is_written_whole(pattern, known):
    """Catches: another way to append a line or to write a file aside, which forgets short writes or fsync."""
    own = {"shakedown/run/share.py", "shakedown/records/writing.py"}
    found = {
        name
        for folder in ("shakedown", "reframe_tests", "workloads")
        for path in (CHECKOUT / folder).rglob("*.py")
        if re.search(pattern, path.read_text()) and (name := str(path.relative_to(CHECKOUT))) not in own
    }
    assert found == known
