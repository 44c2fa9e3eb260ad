"""Where a lab keeps its files, and the names that keep two labs on one machine apart.

Sockets, state and locks live in the *run folder*, private to the user and short enough for a unix socket
path; disks and logs in the *disk folder*, because snapshots grow to gigabytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

CHECKOUT = Path(__file__).resolve().parent.parent
# sizeof(sockaddr_un.sun_path) on Linux, unix(7); the last byte is the terminating zero.
UNIX_PATH_MAX = 108
# The longest name put under a run folder, plus what ssh appends to a control socket while it binds it.
_LONGEST_SOCKET = "spine0.console" + 17 * "x"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")


def check_name(name: str) -> str:
    """A lab's name, or :class:`LabError`: it becomes part of paths."""
    if not _NAME.fullmatch(name):
        raise LabError(
            f"{name!r} is no name for a lab",
            fix="use 1 to 24 of a-z, 0-9 and '-', beginning with a letter or digit",
        )
    return name


def default_name(checkout: Path = CHECKOUT) -> str:
    """$SHAKEDOWN_LAB, or a name made from the checkout's path so that two checkouts never share a lab."""
    chosen = os.environ.get("SHAKEDOWN_LAB")
    if chosen:
        return check_name(chosen)
    digest = hashlib.sha256(os.fsencode(checkout)).hexdigest()[:6]
    stem = re.sub(r"[^a-z0-9]+", "-", checkout.name.lower()).strip("-")[:16].strip("-")
    return check_name(f"{stem}-{digest}" if stem else digest)


def runtime_root() -> Path:
    """The folder that holds the run folders of this user's labs."""
    base = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"  # noqa: S108  # LabPaths.create() checks the owner
    return Path(base) / f"shakedown-{os.getuid()}"


def cache_root() -> Path:
    """The folder of images and of what was found out about this machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shakedown"


def _disk_root() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "shakedown" / "labs"


@dataclass(frozen=True)
class LabPaths:
    """Every file of one lab."""

    name: str
    run: Path
    disks: Path

    @property
    def state(self) -> Path:
        """What runs: state.py."""
        return self.run / "state.json"

    @property
    def lock(self) -> Path:
        """Held by the command that changes the lab."""
        return self.run / "lock"

    @property
    def known_hosts(self) -> Path:
        """The guests' host key on their forwarded ports."""
        return self.run / "known_hosts"

    def socket(self, stem: str) -> Path:
        """A unix socket in the run folder."""
        return self.run / stem

    def overlay(self, machine: str) -> Path:
        """What the machine writes, and its snapshots."""
        return self.disks / f"{machine}.qcow2"

    def console_log(self, machine: str) -> Path:
        """What the machine printed on its console."""
        return self.disks / f"{machine}.console.log"

    def qemu_log(self, machine: str) -> Path:
        """What its QEMU had to say."""
        return self.disks / f"{machine}.qemu.log"

    def create(self) -> None:
        """Make both folders, private to this user; refuse one that belongs to another user."""
        for folder in (self.run.parent, self.run, self.disks):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise LabError(f"{folder} belongs to another user", fix="remove it or set XDG_RUNTIME_DIR")
            if stat.S_IMODE(found.st_mode) & 0o077 and folder != self.disks:
                folder.chmod(0o700)


def lab_paths(name: str) -> LabPaths:
    """The paths of the lab ``name``; :class:`LabError` when its socket paths would be too long."""
    run = runtime_root() / check_name(name)
    if len(os.fsencode(run / _LONGEST_SOCKET)) >= UNIX_PATH_MAX:
        raise LabError(
            f"{run} is too long for unix sockets (limit {UNIX_PATH_MAX - 1} bytes)",
            fix="set XDG_RUNTIME_DIR to a shorter path or choose a shorter --name",
        )
    return LabPaths(name, run, _disk_root() / name)
