"""The edge of the command line: version, readers that leave, full disks, and errors of our own."""

import os
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from typer.main import get_command

from shakedown.commands import cli
from shakedown.judge import judged
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.run import python

ROOT = Path(__file__).parents[3]
# Exit status 0, 1, 2 and 3.
RUNS = [("healthy_primergy_cdi", 0), ("counters", 1), ("bug01_missing_threshold", 2), ("missing_rail", 3)]


def started(words: list[str], **streams: int) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    argv = [sys.executable, "-m", "shakedown", *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run(argv, check=False, timeout=60, env=environment, cwd=ROOT, **streams)


def without_reader(words: list[str], *names: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command with streams whose reader has left already."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return started(words, **dict.fromkeys(names, writer))
    finally:
        os.close(writer)


def test_version_is_the_packages(shakedown):
    """Catches: a version written down twice, of which one is forgotten at a release."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert shakedown("--version") == (0, f"shakedown {wanted}\n", "")
    assert f"## [{wanted}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_start_imports_nothing_slow(words):
    """Catches: a start of a second, because a command's module imports NumPy or pydantic at its top."""
    done = python("-X", "importtime", "-m", "shakedown", *words, check=True, cwd=ROOT)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert not imported & {
        "numpy",
        "scipy",
        "matplotlib",
        "pyarrow",
        "pydantic",
        "rich.console",
        "jinja2",
        "yaml",
    }


def test_a_command_made_alone_is_that_of_the_whole_program(shakedown, capsys):
    """Catches: a command or a group that takes or says something else where it is the only one made."""
    whole = get_command(cli.app)
    for name, command in whole.commands.items():
        assert list(cli._program(name).commands) == [name]
        for words in ([name], *([name, inner] for inner in getattr(command, "commands", ()))):
            whole([*words, "--help"], standalone_mode=False, prog_name="shakedown")
            told = capsys.readouterr().out
            assert told.startswith(f"Usage: shakedown {' '.join(words)} ")
            cli._program(name)([*words, "--help"], standalone_mode=False, prog_name="shakedown")
            assert capsys.readouterr().out == told
    assert list(cli._program("--help").commands) == list(whole.commands)
    assert "Did you mean 'verdict'?" in shakedown("verdicts")[2]


def on_a_terminal(words: list[str], **more: str) -> str:
    """Return what the command prints to a terminal."""
    terminal, slave = os.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "COLUMNS": "200", **more}
    argv = [sys.executable, "-m", "shakedown", *words]
    found = b""
    reading = os.fdopen(terminal, "rb", buffering=0)
    with reading as printed, subprocess.Popen(argv, stdout=slave, env=environment, cwd=ROOT):
        os.close(slave)
        with suppress(OSError):  # the end of a terminal
            while more_bytes := printed.read(65536):
                found += more_bytes
    return found.decode()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "colour"), [("counters", "31"), ("healthy_primergy_cdi", "32")])
def test_pass_and_fail_have_colours_on_a_terminal_unless_they_are_not_wanted(name, colour, decision_runs):
    """Catches: a verdict without colour, one that ignores NO_COLOR, codes of colour in a pipe."""
    words = ["verdict", str(decision_runs / name / "run")]
    assert on_a_terminal(words).startswith(f"\x1b[1;{colour}m")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", on_a_terminal(words, NO_COLOR="1"))
    assert b"\x1b" not in started(words).stdout


@pytest.mark.parametrize("words", [("verd",), ("history", "ing"), ("plan", "inventories/lab", "--longest")])
def test_a_shell_completes_commands_and_options(words):
    """Catches: completion that is offered and gives nothing, because each command is made alone."""
    asked = {"_SHAKEDOWN_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(("shakedown", *words))}
    program = "import sys; sys.argv[:] = ['shakedown']; from shakedown.commands.cli import main; main()"
    environment = {"PATH": os.environ["PATH"], **asked, "COMP_CWORD": str(len(words))}
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, check=True)
    wanted = {"verd": "verdict", "ing": "ingest", "--longest": "--longest-job"}[words[-1]]
    assert done.stdout.decode().split() == [wanted]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), RUNS)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_left_changes_no_exit_status(name, status, more, decision_runs):
    """Catches: `shakedown verdict RUN | head -1` that exits with 1, which means FAIL, on a PASS."""
    done = without_reader(["verdict", str(decision_runs / name / "run"), *more], "stdout")
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == (status == 2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), RUNS)
def test_no_reader_of_errors_changes_no_exit_status(name, status, decision_runs):
    """Catches: a complaint that cannot be written and ends in Python's own status."""
    done = without_reader(["verdict", str(decision_runs / name / "run")], "stdout", "stderr")
    assert done.returncode == status


@pytest.mark.parametrize("words", [["--help"], ["verdict", "healthy_primergy_cdi/run"]])
def test_a_full_disk_is_said_once(words, decision_runs):
    """Catches: half a report on a full disk with exit status 0, or with 120 and Python's own words."""
    words = [str(decision_runs / word) if "/" in word else word for word in words]
    with Path("/dev/full").open("w") as full:
        done = started(words, stdout=full.fileno())
    assert (done.returncode, done.stderr) == (2, b"shakedown: No space left on device\n")


def test_ctrl_c_is_an_end_without_a_verdict(tmp_path, decision_runs):
    """Catches: a status that no page names, without a word, or Python's 1, which means FAIL."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import os, signal, sys, time\n"
        # What a shell runs in the background ignores it, and so do its children.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from shakedown.judge import judged\n"
        # The signal need not have been handled when kill returns.
        "judged.judge_run = lambda *_, **__: (os.kill(os.getpid(), signal.SIGINT), time.sleep(60))\n"
        "from shakedown.commands import cli\n"
        f"sys.argv[1:] = ['verdict', {str(decision_runs / 'healthy_primergy_cdi' / 'run')!r}]\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, slow], capture_output=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (2, b"shakedown: interrupted\n", b"")


def test_a_full_disk_behind_errors_changes_no_exit_status():
    """Catches: a complaint that raises, so that Python's exit status 1 says FAIL of a missing folder."""
    with Path("/dev/full").open("w") as full:
        done = started(["verdict", "/nonexistent"], stdout=full.fileno(), stderr=full.fileno())
    assert done.returncode == 2


def test_a_command_that_cannot_be_imported_is_never_a_fail(shakedown, monkeypatch):
    """Catches: commands gathered outside of what turns errors into exit status 2."""

    def broken(_first, **_):
        raise ImportError("half an upgrade")

    monkeypatch.setattr(cli, "_program", broken)
    status, _, err = shakedown("--help")
    assert status == 2 and err.startswith("shakedown: internal error: ImportError: half an upgrade")


@cases("error", KeyError("no\x1b[31m\nsuch"), RecursionError("deep"), ImportError("numpy"))
def test_an_unexpected_error_is_never_a_fail(shakedown, monkeypatch, error, decision_runs):
    """Catches: a bug of ours that ends with Python's exit status 1, which means FAIL."""

    def broken(_run, **_):
        raise error

    monkeypatch.setattr(judged, "judge_run", broken)
    status, out, err = shakedown("verdict", decision_runs / "counters" / "run")
    assert (status, out) == (2, "")
    assert err.startswith(f"shakedown: internal error: {type(error).__name__}: ")
    assert err.endswith(
        " -- report it (CONTRIBUTING.md, Report a bug); the traceback is with SHAKEDOWN_DEBUG=1\n"
    )
    assert err[:-1].isprintable()
    monkeypatch.setenv("SHAKEDOWN_DEBUG", "1")
    status, _, err = shakedown("verdict", decision_runs / "counters" / "run")
    assert status == 2 and "Traceback" in err and "in broken" in err


def test_refused_input_is_no_internal_error(shakedown, monkeypatch, decision_runs):
    """Catches: bad input that is called a bug of ours."""

    def refused(_run, **_):
        raise BadInput("no such thing", fix="make one")

    monkeypatch.setattr(judged, "judge_run", refused)
    run = decision_runs / "counters" / "run"
    assert shakedown("verdict", run) == (2, "", "shakedown: no such thing -- make one\n")
