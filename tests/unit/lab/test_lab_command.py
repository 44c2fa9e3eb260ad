"""The command ``python -m lab``: bad input ends in one line and status 2, and leaves nothing behind."""

import os
import subprocess
from pathlib import Path

from lab.image import Image
from lab.paths import CHECKOUT, LabPaths
from lab.remote import common_options, ssh_argv, tail
from tests.kit.cases import cases
from tests.kit.run import python, ran


def lab(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with folders of its own."""
    return python(
        "-m",
        "lab",
        *arguments,
        cwd=CHECKOUT,
        env={
            **os.environ,
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "s"),
            "XDG_CACHE_HOME": str(folder / "c"),
            "SHAKEDOWN_LAB": "unit",
            **environment,
        },
    )


@cases(
    "arguments, said",
    (["ssh", "n1", "true"], "not up"),
    (["save", "clean"], "not up"),
    (["fault", "loss", "n1", "rail0", "--percent", "2"], "not up"),
    (["up", "--name", "../etc"], "no name for a lab"),
    (["up", "--nodes", "0"], "1 to 8 compute nodes"),
    (["up", "--site", "mine"], "there is no site 'mine'; use one of own, foreign, fabric"),
    (["image", "--site", "mine"], "there is no site 'mine'"),
    (["up", "--site", "foreign", "--nodes", "3"], "the foreign site has 2 compute nodes"),
    (["up", "--site", "fabric", "--nodes", "3"], "the fabric site has 2 compute nodes"),
    (["acceptance", "--site", "foreign"], "site 'foreign' is not for the playbooks"),
    (["console", "../../etc/passwd"], "no console"),
)
def test_bad_input_is_one_line_and_status_2(short_path: Path, arguments: list[str], said: str) -> None:
    """Catches tracebacks, a status that a script takes for success, and a file name from outside."""
    done = lab(short_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_status_and_down_without_a_lab_succeed(short_path: Path) -> None:
    """Catches a cleanup script that stops at a lab which is already down."""
    assert lab(short_path, "status").returncode == 0
    assert lab(short_path, "down").returncode == 0
    assert '"up": false' in lab(short_path, "status", "--json").stdout


def test_missing_qemu_is_said_with_its_package(short_path: Path) -> None:
    """Catches a failure deep inside the start, after folders and disks were made."""
    done = python(
        "-c",
        "import lab.host as h; h._SEARCH = ''; import lab.cli as c; c.main()",
        "up",
        cwd=CHECKOUT,
        env={**os.environ, "XDG_RUNTIME_DIR": str(short_path), "XDG_STATE_HOME": str(short_path / "s")},
    )
    assert done.returncode == 2
    assert "apt-get install openssh-client qemu-system-x86 qemu-utils" in done.stderr
    assert not (short_path / "s").exists()


def test_words_of_a_command_reach_the_guest_as_they_are() -> None:
    """Catches a second reading by the guest's shell: blanks and '$' in an argument would be taken apart."""
    paths = LabPaths("x", Path("/r"), Path("/d"))
    argv = ssh_argv(paths, Image(Path("/i")), 2222, ["echo", "a b", "$HOME", "'"])
    assert ran("sh", "-c", f"printf '%s|' {argv[-1]}", check=True).stdout == ("echo|a b|$HOME|'|")


def test_host_keys_are_checked_strictly() -> None:
    """Catches an option that would let any machine on the port be taken for the guest."""
    options = common_options(LabPaths("x", Path("/r"), Path("/d")))
    assert "StrictHostKeyChecking=yes" in options
    assert "GlobalKnownHostsFile=/dev/null" in options


def test_a_consoles_escape_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """Catches a guest that clears the screen or renames the window of whoever reads its log."""
    log = tmp_path / "log"
    log.write_bytes(b"one\r\n\x1b[2J\x1b[1;31mtwo\x1b[0m\x1b[!p\r\n\x1b]0;title\x07three\r\n\n\xff\n")
    assert tail(log, 3) == "two\nthree\n\ufffd"
    assert tail(tmp_path / "none") == ""
