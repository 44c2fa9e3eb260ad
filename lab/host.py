"""What the lab needs of the machine it runs on: programs, disk space, and its own way of running them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab.errors import LabError

# Program to the Debian package that holds it.
PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "busybox": "busybox-static",
    "zstd": "zstd",
    "xz": "xz-utils",
    "tar": "tar",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "newuidmap": "uidmap",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "pivot_root": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "tc": "iproute2",
}
RUN_PROGRAMS = ("qemu-system-x86_64", "qemu-img", "ssh")
BUILD_PROGRAMS = ("mmdebstrap", "mke2fs", "busybox", "zstd", "xz", "tar", "ssh-keygen")
ROOTLESS_PROGRAMS = ("newuidmap", "unshare")
# Debian leaves the sbin folders out of an ordinary user's path.
_SEARCH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))


def program(name: str) -> str:
    """The full path of a program; :class:`LabError` names its package when it is missing."""
    found = shutil.which(name, path=_SEARCH)
    if found is None:
        raise LabError(f"{name} is not installed", fix=f"apt-get install {PACKAGES.get(name, name)}")
    return found


def require(names: Iterable[str]) -> None:
    """All of ``names`` are installed, or one :class:`LabError` with every missing package."""
    missing = [name for name in names if shutil.which(name, path=_SEARCH) is None]
    if missing:
        packages = sorted({PACKAGES.get(name, name) for name in missing})
        raise LabError(f"missing {', '.join(missing)}", fix=f"apt-get install {' '.join(packages)}")


def require_space(folder: Path, needed_bytes: int, purpose: str) -> None:
    """``needed_bytes`` are free where ``folder`` is or will be, or :class:`LabError`."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise LabError(
            f"{purpose} needs {needed_bytes / 1e9:.1f} GB in {folder}, {free / 1e9:.1f} GB are free",
            fix="free some space or point XDG_CACHE_HOME and XDG_STATE_HOME to a larger disk",
        )


def run(argv: Sequence[str], what: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; :class:`LabError` with its last line when it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [program(argv[0]), *argv[1:]],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise LabError(f"{what} failed: {lines[-1]}")
    return done
