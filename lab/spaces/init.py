"""Process 1 of one namespace machine: builds its file system, takes its GPUs, then reaps what it is left.

    unshare --net --uts --ipc --mount --pid --fork python3 lab/spaces/init.py SPEC.json

Standard library only: it runs in the host's file system first.  The root is an overlay over the host's,
written to memory, so nothing that happens in the machine stays on the host.  It ends on SIGTERM, and all its
processes with it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

# Mounted anew, or not wanted: what they show is the host's.
_NOT_FILES = frozenset(
    (
        *("proc", "sysfs", "devtmpfs", "devpts", "tmpfs", "mqueue", "cgroup", "cgroup2", "securityfs"),
        *("debugfs", "tracefs", "bpf", "pstore", "configfs", "binfmt_misc", "autofs", "fusectl"),
        *("hugetlbfs", "rpc_pipefs", "nsfs", "ramfs", "efivarfs"),
    )
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse")
# The NVIDIA driver's devices that all GPUs share; /dev/nvidia<minor> is one GPU.
_GPU_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
_PARAMS = Path("/proc/driver/nvidia/params")


def main(argv: list[str]) -> NoReturn:
    """Become the machine of the specification."""
    spec = json.loads(Path(argv[1]).read_bytes())
    root = build(spec)
    socket.sethostname(spec["name"])
    _enter(root)
    # The mark lies in the shared folder, the only one that both sides see from here on.
    Path(spec["shared_at"], f".up.{spec['name']}").write_text("up\n")
    _reap()


def build(spec: dict[str, Any]) -> Path:
    """Mount the machine's file system and return its root."""
    scratch = Path(spec["scratch"])
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", scratch)
    upper, work, root = (scratch / name for name in ("upper", "work", "root"))
    for folder in (upper, work, root):
        folder.mkdir()
    if spec["layer"]:
        tar = ["tar", "--extract", "--xattrs", "--xattrs-include=*", "-f", spec["layer"], "-C", str(upper)]
        subprocess.run(tar, check=True, stdin=subprocess.DEVNULL)
    # The host's other file systems lie under the overlay as empty folders.
    others = _file_systems(scratch)
    _mount("-t", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", "overlay", root)
    for place in others:
        target = root / place.lstrip("/")
        if target.is_dir():
            _mount("--bind", place, target)
    _devices(root, spec["gpus"])
    for place, mode in (("run", "755"), ("tmp", "1777")):
        _mount("-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", root / place)
    (root / "run/lock").mkdir()
    if spec["mps"]:  # where CUDA looks for it when nothing else is said
        (root / "tmp/nvidia-mps").symlink_to(spec["mps"])
    if spec["layer"]:
        # The layer was made without the host's other file systems, where a driver's libraries may lie.
        subprocess.run(["chroot", str(root), "ldconfig"], check=True, stdin=subprocess.DEVNULL)
    _mount("-t", "sysfs", "sysfs", root / "sys")
    _mount("-t", "proc", "proc", root / "proc")
    _keep_gpus(root, scratch)
    shared = root / spec["shared_at"].lstrip("/")
    shared.mkdir(parents=True, exist_ok=True)
    _mount("--bind", spec["shared"], shared)
    (root / "etc/hosts").unlink(missing_ok=True)
    (root / "etc/hosts").write_text(spec["hosts"])
    # No machine reaches a name server; asking the host's would cost seconds a question.
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").touch()
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/hostname").write_text(f"{spec['name']}\n")
    return root


def _file_systems(scratch: Path) -> list[str]:
    """Where the host has further file systems with files, as proc(5) lists them."""
    places = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        place = before.split()[4].encode().decode("unicode_escape")
        if (
            after.split()[0] not in _NOT_FILES
            and place != "/"
            and not place.startswith(("/dev/", f"{scratch}"))
        ):
            places.append(place)
    return places


def _devices(root: Path, gpus: list[int]) -> None:
    dev = root / "dev"
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", dev)
    mine = (*_DEVICES, *(_GPU_DEVICES if gpus else ()), *(f"nvidia{minor}" for minor in gpus))
    for name in mine:
        _take_device(Path("/dev", name), dev / name)
    for folder, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666"),
        ("shm", "tmpfs", "mode=1777"),
    ):
        (dev / folder).mkdir()
        _mount("-t", kind, "-o", options, kind, dev / folder)
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0")):
        (dev / name).symlink_to(target)
    for number, name in enumerate(("stdout", "stderr"), start=1):
        (dev / name).symlink_to(f"/proc/self/fd/{number}")


def _take_device(source: Path, target: Path) -> None:
    """Make the same device, or folder of devices; none where the host has none."""
    try:
        found = source.stat()
    except OSError:
        return
    if stat.S_ISDIR(found.st_mode):
        target.mkdir()
        for inner in source.iterdir():
            _take_device(inner, target / inner.name)
    elif stat.S_ISCHR(found.st_mode):
        os.mknod(target, found.st_mode, found.st_rdev)
        target.chmod(stat.S_IMODE(found.st_mode))


def _keep_gpus(root: Path, scratch: Path) -> None:
    """Keep the driver's libraries from making the devices of the other GPUs by themselves.

    They do as root, unless the driver's parameters say ModifyDeviceFiles: 0, which NVIDIA's container runtime
    mounts too. A node without GPUs would get all of them so.
    """
    if not _PARAMS.exists():
        return
    text = _PARAMS.read_text()
    own = scratch / "nvidia-params"
    own.write_text(text.replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0"))
    _mount("--bind", own, root / str(_PARAMS).lstrip("/"))


def _enter(root: Path) -> None:
    """Make ``root`` the root and let go of the host's."""
    old = root / "mnt"
    subprocess.run(["pivot_root", str(root), str(old)], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/mnt"], check=True)


def _reap() -> NoReturn:
    """Collect what ends in the machine, until told to end."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:  # nothing runs here now
            time.sleep(0.2)


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv)
