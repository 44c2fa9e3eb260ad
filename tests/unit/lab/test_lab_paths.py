"""Names and paths: labs of two users or checkouts must not meet, and unix sockets have short names."""

import os
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.paths import UNIX_PATH_MAX, default_name, lab_paths
from lab.qemu import sockets
from lab.topology import MAX_NODES, Topology


def test_two_checkouts_of_one_name_get_different_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a name taken from the folder alone: 'down' in one checkout would end the other's lab."""
    monkeypatch.delenv("SHAKEDOWN_LAB", raising=False)
    first, second = default_name(Path("/home/a/shakedown")), default_name(Path("/home/b/shakedown"))
    assert first != second
    assert default_name(Path("/home/a/shakedown")) == first
    assert first.startswith("shakedown-")


@pytest.mark.parametrize("folder", ["/", "/x/Über Größe, v2", "/x/" + "y" * 200, "/x/---"])
def test_any_checkout_folder_gives_a_usable_name(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches odd folder names, which would become odd paths and QEMU options."""
    monkeypatch.delenv("SHAKEDOWN_LAB", raising=False)
    assert lab_paths(default_name(Path(folder))).run.name == default_name(Path(folder))


@pytest.mark.parametrize("name", ["../x", "a/b", "", "A", "a b", "-a", "a" * 25, "a\n"])
def test_a_name_that_is_no_single_plain_folder_is_refused(name: str) -> None:
    """Catches a name that escapes the run folder: 'down' removes files there."""
    with pytest.raises(LabError, match="no name for a lab"):
        lab_paths(name)


def test_every_socket_path_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a socket name longer than the one that the length check assumes."""
    base = Path("/" + "r" * 200)
    for length in range(10, 110):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base)[:length])
        try:
            paths = lab_paths("a" * 24)
        except LabError as error:
            assert "XDG_RUNTIME_DIR" in str(error)
            break
        names = [*sockets(Topology(MAX_NODES)), "cm-65535root." + "x" * 16]
        assert max(len(os.fsencode(paths.socket(name))) for name in names) < UNIX_PATH_MAX
    else:
        pytest.fail("no folder was ever too long")


def test_a_run_folder_made_by_somebody_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    """Catches a folder under /tmp prepared by another user, who would then own the lab's sockets."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(short_path / "state"))
    paths = lab_paths("a")
    paths.run.parent.mkdir()
    elsewhere = short_path / "elsewhere"
    elsewhere.mkdir()
    paths.run.symlink_to(elsewhere)
    with pytest.raises(LabError, match="belongs to another user"):
        paths.create()


def test_folders_are_private(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    """Catches a run folder that others may enter: the QEMU monitors in it take any command."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(short_path / "state"))
    paths = lab_paths("a")
    paths.run.parent.mkdir(mode=0o755)
    paths.create()
    for folder in (paths.run.parent, paths.run, paths.disks):
        assert folder.stat().st_mode & 0o077 == 0
