"""The Debian packages that every machine needs and the host may lack: installed once, beside the host.

apt-get runs in an overlay over the host's file system; what it wrote becomes an archive in the cache, which
each machine starts from.  A host without a package index has the packages of the folder $SHAKEDOWN_PACKAGES
unpacked there instead, as roles/bare_host does it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from lab import host
from lab.errors import LabError
from lab.image import Progress
from lab.paths import cache_root

# libpmix-dev: Slurm of Debian 12 opens the library by the name that only this package has.
PACKAGES = (
    *("munge", "slurmctld", "slurmd", "slurm-client", "openmpi-bin", "libpmix-dev", "python3-mpi4py"),
    *("python3-numpy", "python3-apt", "ucx-utils", "perftest", "ibverbs-utils", "numactl", "iproute2"),
    *("iputils-ping", "ethtool", "rsync", "hwloc-nox", "fio"),
)
# Raise it when this module changes what it makes of the same packages.
_VERSION = 1
_BUILD = Path(__file__).with_name("build-layer")
# Where roles/bare_host notes what it has unpacked (bare_host_folder).
_NOTES = "/var/lib/shakedown/packages"


def ensure(progress: Progress) -> Path:
    """The archive, made if the cache lacks it."""
    folder = os.environ.get("SHAKEDOWN_PACKAGES")
    words, wanted = _given(Path(folder)) if folder else (PACKAGES, PACKAGES)
    # The host's own packages decide what is missing, so another state of them is another archive.
    installed = Path("/var/lib/dpkg/status").read_bytes() if Path("/var/lib/dpkg/status").exists() else b""
    key = b"\0".join([str(_VERSION).encode(), *(name.encode() for name in wanted), installed])
    archive = cache_root() / "layers" / f"{hashlib.sha256(key).hexdigest()[:16]}.tar"
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    host.require_space(archive.parent, 2_000_000_000, "the packages' archive")
    progress("installing packages beside the host, once")
    aside = archive.with_name(f".{archive.name}.{os.getpid()}")
    argv = [host.program("unshare"), "--mount", "sh", str(_BUILD), str(aside), *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise LabError(
                f"installing packages beside the host failed: {lines[-1]}",
                fix=f"see the .deb files of {folder}"
                if folder
                else "is a package index reachable? Else give a folder of packages in SHAKEDOWN_PACKAGES",
                detail="\n".join(lines[-8:-1]),
            )
        aside.rename(archive)
    finally:
        aside.unlink(missing_ok=True)
    return archive


def _given(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words for build-layer that unpack a folder's packages, and what tells two states of it apart."""
    files = sorted(folder.glob("*.deb"))
    if not files:
        raise LabError(
            f"SHAKEDOWN_PACKAGES: {folder} has no .deb file", fix="name a folder of Debian packages"
        )
    states = [(file.name, file.stat()) for file in files]
    return ("--unpack", str(folder.resolve()), _NOTES), tuple(
        f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states
    )
