"""What root of a node, or another user, does to a run on the share once its nodes have signed."""

# ruff: noqa: D103  (what is done says its name)

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from generator.forgeries import source
from ordered import World, reseal
from test_forgeries import LATENCY

from shakedown.records import writing
from shakedown.records.reading import BadInput
from shakedown.run.folder import MOST_BYTES, MOST_FILES, OF_CONTROLLER, RAW
from shakedown.run.lock import RunLock
from shakedown.run.share import Share
from tests.kit.key import NEEDS_SSH_KEYGEN

pytestmark = [pytest.mark.slow, NEEDS_SSH_KEYGEN]
CHECKOUT = Path(__file__).parents[3]
FETCH = yaml.safe_load((CHECKOUT / "playbooks/parts/verdict.yml").read_text())[0]


def removed(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


def other(path: Path) -> None:
    """Of another job, or something of its own."""
    source = path.parents[1] / Path(LATENCY).name / path.name
    path.write_bytes(source.read_bytes() if source.exists() else b'{"schema": 1}\n')


def linked(path: Path) -> None:
    removed(path)
    path.symlink_to("/etc/passwd")


def piped(path: Path) -> None:
    removed(path)
    os.mkfifo(path)


def folder(path: Path) -> None:
    removed(path)
    path.mkdir()
    (path / "inner").write_text("1\n")


def huge(path: Path) -> None:
    """A terabyte that takes no room on the share."""
    with path.open("ab") as file:
        file.truncate(1 << 40)


def nested(path: Path) -> None:
    path.write_bytes(b"[" * 1_000_000)


def twice(path: Path) -> None:
    text = path.read_text().rstrip()
    path.write_text(text[:-1] + ', "schema": 1}\n')


ACTIONS: dict[str, Callable[[Path], None]] = {
    f.__name__: f for f in (removed, emptied, cut, longer, other, linked, piped, folder, huge, nested, twice)
}
SHARE = source().on_the_share
FORGERIES = {f"{place}, {action}": words for place, of in SHARE.items() for action, words in of.done.items()}


def fetched(share: Path, raw: Path) -> None:
    """Bring home what lies on the share, with the playbook's own words."""
    assert tuple(FETCH["vars"]["verdict_own"]) == OF_CONTROLLER
    assert FETCH["vars"]["verdict_most_files"] == MOST_FILES
    assert FETCH["vars"]["verdict_most_bytes"] == MOST_BYTES
    (sync,) = (task for task in FETCH["tasks"] if "ansible.posix.synchronize" in task)
    options = [
        o for o in sync["vars"]["verdict_rsync"].split("'") if o.startswith("--") and o != "--exclude=/"
    ]
    options += [f"--exclude=/{name}" for name in OF_CONTROLLER]
    foreign = [path.name for own in OF_CONTROLLER for path in share.glob(own)]
    subprocess.run(
        ["rsync", "--recursive", "--delete", "--delay-updates", *options, f"{share}/", f"{raw}/"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    if foreign:
        (raw / "foreign.txt").write_text("\n".join(foreign))


def outcome(w: World, act: Callable[[Path], None]) -> str:
    """Return what the customer is told of what was done on the share; empty: nothing, and nothing is new."""
    files = ("results.jsonl", "counters.jsonl", "verdict.json")
    before = [(w.run / name).read_bytes() for name in files]
    share = w.run.parent / "share"
    shutil.copytree(w.run / RAW, share / RAW, ignore=shutil.ignore_patterns(*OF_CONTROLLER))
    for path in (w.run / RAW).iterdir():
        if not any(path.match(own) for own in OF_CONTROLLER):
            removed(path)  # nothing was fetched before
    act(share)
    fetched(share / RAW, w.run / RAW)
    try:
        reseal(w.run, w.vendor)
        found = w.verify()
    except BadInput as refused:
        return f"refused: {refused}"
    after = [(w.run / name).read_bytes() for name in files]
    if found.authentic and found.outcome == "PASS":
        assert after == before
        return ""
    return "\n".join(map(str, found.findings)) or json.loads(after[2])["reason"]


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_is_done_on_the_share_is_named_or_harmless(world, forgery):
    """Catches: a share on which root of a node makes another verdict, ends its reading, or fills a disk."""
    place, _, action = forgery.rpartition(", ")
    told = outcome(world, lambda share: ACTIONS[action](share / SHARE[place].path))
    assert FORGERIES[forgery] in told if FORGERIES[forgery] else told == "", told[:600]


# What root of another node does beside n1's outputs before n1 signs, and what n1 says; nothing: it signs.
BEFORE_SIGNING: dict[str, str] = {
    "puts a pipe in a job's folder before its nodes sign, nodes.txt": "nodes.txt is not a plain file",
    "puts a link in a job's folder before its nodes sign, nodes.txt": "Too many levels of symbolic links",
    "puts a pipe in a job's folder before its nodes sign, outputs.n2.jsonl": "",
    "grows a file to a terabyte before its nodes sign, outputs.n2.jsonl": "",
    "grows a file to a terabyte before its nodes sign, another.n1.txt": "",
    "puts a pipe in a job's folder before its nodes sign, another.n1.txt": "",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("forgery", BEFORE_SIGNING)
def test_a_node_signs_what_it_can_read(world, forgery, capsys):
    """Catches: a job's last step that waits for ever, or ends for want of memory, and nothing is signed."""
    name, end = Path(LATENCY).name, world.jobs()[-1][2]
    what, _, place = forgery.rpartition(", ")
    act = piped if "pipe" in what else linked if "link" in what else huge
    act(world.run / LATENCY / place)
    world.sign("n1", name, end)
    assert BEFORE_SIGNING[forgery] in capsys.readouterr().err
    signed = json.loads((world.run / LATENCY / "signed.n1.json").read_text())
    assert "outputs.n1.jsonl" in signed["files"] and "another.n1.txt" not in signed["files"]


NOBODY = 54_321
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another user")
# What another user tries on a run that the submit host made; `{}` is the run's folder.
OF_A_USER = source().by_another_user


def run_on_a_share(place: Path) -> tuple[Path, Share]:
    """Return a run as the submit host makes it, whatever the umask of who runs it."""
    before = os.umask(0)
    try:
        (place / "run").mkdir(mode=0o755)
        share, job = Share(place / "run"), place / "run/raw/job.a1"
        share.make_folder(job)
        for name in ("out.n1.txt", "outputs.n1.jsonl"):
            share.write(job / name, b"1\n")
        share.write(job / "session.secret", b"x", 0o600)
        share.append(place / "run/raw/chain.jsonl", lambda _: b"{}")
        share.write(place / "run/plan.json", b"{}")
    finally:
        os.umask(before)
    return place / "run", share


@pytest.fixture
def open_place():
    """A folder that every user may enter, as a share is."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def contents(run: Path) -> dict[str, bytes]:
    """Return all that a run holds."""
    return {str(path): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@AS_ROOT
@pytest.mark.parametrize("forgery", OF_A_USER)
def test_another_user_changes_nothing_on_the_share(open_place, forgery):
    """Catches: files or folders that the jobs' group, or everybody, may write, as by a umask of 0 or 002."""
    run, _ = run_on_a_share(open_place)
    before = contents(run)
    words = forgery.replace("{}", str(run))
    done = subprocess.run(
        ["sh", "-c", words], user=NOBODY, group=0, extra_groups=[], capture_output=True, check=False
    )
    assert done.returncode != 0 and b"ermi" in done.stderr, (words, done.stderr)
    assert contents(run) == before


# Where a site's share lets everybody write: another user puts a file or folder of its own there.
OF_ANOTHER: dict[str, str] = {
    "puts an output there, raw/job.a1/out.n1.txt": "refused",
    "puts a chain there, raw/chain.jsonl": "refused",
    "puts a job's folder there, raw/job.a1": "refused",
    "puts the folder of all jobs there, raw": "refused",
}


def listed(raw: Path) -> list[str]:
    """Return what the playbook asks of the share before it fetches anything."""
    (task,) = (t for t in FETCH["tasks"] if "ansible.builtin.shell" in t)
    done = subprocess.run(
        ["sh", "-c", task["ansible.builtin.shell"]["cmd"]],
        env={"PATH": os.environ["PATH"], "RAW": str(raw), "MOST": "100"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_what_takes_no_room_on_the_share_fills_no_controller(tmp_path):
    """Catches: sparse files: thousands cost nothing to make, and each has 256 MiB when it is fetched."""
    raw, home = tmp_path / "share/job.a1", tmp_path / "home"
    raw.mkdir(parents=True)
    for name, size in {
        "small": 7,
        "pad\n-99999999999 x": 256 << 20,
        "too large to be fetched": 1 << 40,
    }.items():
        (raw / name).touch()
        os.truncate(raw / name, size)
    _, size, largest, *others = listed(raw.parent)
    assert int(size) == (256 << 20) + 7 and largest.startswith("job.a1/pad") and not others
    (refusal,) = (t["ansible.builtin.assert"] for t in FETCH["tasks"] if "ansible.builtin.assert" in t)
    assert "verdict_listed.stdout_lines[1] | int <= verdict_most_bytes" in refusal["that"]
    home.mkdir()
    fetched(raw.parent, home)
    assert sum(path.stat().st_blocks for path in home.rglob("*")) * 512 < 1 << 20


@AS_ROOT
@pytest.mark.parametrize("forgery", OF_ANOTHER)
def test_what_another_user_owns_is_not_opened(open_place, forgery):
    """Catches: words of a job, its nodes, or a chain that a user put there who is not the jobs'."""
    run, share = run_on_a_share(open_place)
    theirs = run / forgery.rpartition(", ")[2]
    os.chown(theirs, NOBODY, NOBODY)
    out, chain = run / "raw/job.a1/out.n1.txt", run / "raw/chain.jsonl"
    uses = [lambda: share.read(out), lambda: share.copy(out, run / "copied")]
    if theirs == chain:
        uses = [lambda: share.append(chain, lambda _: b"x")]
    elif theirs.is_dir():
        uses += [lambda: share.write(out, b"x"), lambda: share.names(out.parent), lambda: share.remove(out)]
    before = contents(run)
    for use in uses:
        with pytest.raises(OSError, match=f"belongs to user {NOBODY}"):
            use()
    assert contents(run) == before
    # The playbook lists it, or what lies in it and is not its owner's, so that the verdict names it.
    count, _, _, *found = listed(run / RAW)
    inside = sorted(str(path.relative_to(run / RAW)) for path in (run / RAW).rglob("*"))
    assert int(count) == 1 + len(inside)
    assert found == (inside if theirs == run / RAW else [str(theirs.relative_to(run / RAW))])


# How the shared folder is before a run: what a user did there first, and what the playbooks say.
FIRST: dict[str, str] = {
    "makes the shared folder first, shakedown": "shakedown belongs to user 54321",
    "makes the folder of runs first, shakedown/runs": "runs belongs to user 54321",
    "makes the programs' folder first, shakedown/venv": "venv belongs to user 54321",
    "finds the shared folder open to everybody, shakedown": "shakedown may be changed by everybody",
    "finds the folder above it open to everybody, .": "may be changed by everybody",
    "finds the folder above it open and sticky, as /tmp": "",
}


@AS_ROOT
@pytest.mark.parametrize("forgery", FIRST)
def test_a_shared_folder_that_is_anothers_is_refused(open_place, forgery):
    """Catches: a run and its programs in a folder whose owner can put others in their place."""
    for name in ("shakedown/runs", "shakedown/venv/bin"):
        (open_place / name).mkdir(parents=True)
    what, _, place = forgery.rpartition(", ")
    if "first" in what:
        os.chown(open_place / place, NOBODY, NOBODY)
    elif "sticky" in what:
        open_place.chmod(0o1777)
    else:
        (open_place / place).chmod(0o777)
    ask, _ = yaml.safe_load((CHECKOUT / "roles/reframe/tasks/whose.yml").read_text())
    home = str(open_place / "shakedown")
    done = subprocess.run(
        ["sh", "-c", ask["ansible.builtin.shell"]["cmd"]],
        env={"PATH": os.environ["PATH"], "RUNS_IN": home, "CODE_IN": home},
        capture_output=True,
        text=True,
        check=True,
    )
    assert FIRST[forgery] in done.stdout and bool(FIRST[forgery]) == bool(done.stdout)


def test_the_playbooks_ask_before_they_start_anything_there():
    """Catches: the folder's programs started, or replaced, before anybody asked whose it is."""
    tasks = yaml.safe_load((CHECKOUT / "roles/reframe/tasks/main.yml").read_text())
    assert tasks[0]["ansible.builtin.include_tasks"] == "whose.yml"
    plays = yaml.safe_load((CHECKOUT / "playbooks/acceptance.yml").read_text())
    (tasks,) = (p["tasks"] for p in plays if p["name"] == "Bring the plan to the submit host")
    asks = [task.get("ansible.builtin.include_role", {}).get("tasks_from") for task in tasks].index("whose")
    assert not any("venv/bin/python" in str(task) or "block" in task for task in tasks[:asks])


# What a user opens, whom everybody may read, and keeps locked.
LOCKED: dict[str, str] = {
    "keeps a lock on a journal, raw/job.a1/outputs.n1.jsonl": "",
    "keeps a lock on the chain, raw/chain.jsonl": "",
    "keeps a lock on what is there to be locked, .run.lock.mutex": "",
}
HOLD = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, 1); print(flush=True); time.sleep(60)"


@AS_ROOT
@pytest.mark.parametrize("forgery", LOCKED)
def test_another_users_lock_keeps_nobody(open_place, forgery, monkeypatch):
    """Catches: a run that hangs at its first line, or never gives the submit host back."""
    monkeypatch.setattr(writing, "_LONGEST_LOCK_S", 0.1)
    run, share = run_on_a_share(open_place)
    held, lock = run / forgery.rpartition(", ")[2], RunLock(run)
    os.close(os.open(run / ".run.lock.mutex", os.O_CREAT, 0o644))  # of an earlier release
    with lock.mutex():
        pass
    argv = ["python3", "-c", HOLD, str(held)]
    with subprocess.Popen(argv, user=NOBODY, group=0, extra_groups=[], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() or held.name == ".run.lock.mutex"
            with lock.mutex():
                writing.append_line(run / "raw/job.a1/outputs.n1.jsonl", b"2")
                share.append(run / "raw/chain.jsonl", lambda lines: b"%d" % len(lines))
        finally:
            other.kill()
    assert (run / "raw/job.a1/outputs.n1.jsonl").read_bytes() == b"1\n2\n"
    assert (run / "raw/chain.jsonl").read_bytes() == b"{}\n1\n"
