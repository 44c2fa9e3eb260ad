"""The guests' shared disk image, built from Debian packages and cached by the hash of all that goes in."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import bootfiles, host
from lab.errors import LabError
from lab.paths import cache_root

SUITE = "trixie"
# Raise it when this module changes what it makes of the same inputs.
RECIPE_VERSION = 1
PROBE_MARKER = "SHAKEDOWN-GUEST-RUNS"
DISK_SIZE = "8G"  # sparse; the guests see it as their disk
_BUILD_SPACE_BYTES = 4_000_000_000  # archive 0.8 GB, tree 0.8 GB, image 1.2 GB and room to spare
_LAB = Path(__file__).resolve().parent
_GUEST = _LAB / "guest"
# What is in the guests of each site: its folders, the later ones added to the first.
SITES: Mapping[str, tuple[Path, ...]] = {
    "own": (_GUEST,),
    "foreign": (_GUEST, _LAB / "foreign" / "guest"),
    "fabric": (_GUEST, _LAB / "fabric" / "guest"),
}
_UNREACHABLE = re.compile(
    r"could not resolve|failed to fetch|could not connect|cannot initiate the connection|connection timed out"
    r"|unable to connect|temporary failure resolving|network is unreachable",
    re.IGNORECASE,
)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what is in the image."""

    suite: str
    packages: tuple[str, ...]
    files: tuple[tuple[str, int, bytes], ...]
    hooks: tuple[tuple[str, str], ...]
    version: int = RECIPE_VERSION
    boot: str = ""

    def digest(self) -> str:
        """Sixteen hex digits that change with any input."""
        h = hashlib.sha256()
        for part in (
            str(self.version),
            self.suite,
            self.boot,
            *(f"package {name}" for name in sorted(self.packages)),
            *(f"file {n} {mode:o} {hashlib.sha256(data).hexdigest()}" for n, mode, data in self.files),
            *(f"hook {n} {hashlib.sha256(text.encode()).hexdigest()}" for n, text in self.hooks),
        ):
            h.update(part.encode() + b"\0")
        return h.hexdigest()[:16]


@dataclass(frozen=True)
class Image:
    """A finished image in the cache."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The raw ext4 file system under every machine's overlay."""
        return self.folder / "base.raw"

    @property
    def kernel(self) -> Path:
        """An ELF kernel for direct boot."""
        return self.folder / "vmlinux"

    @property
    def initrd(self) -> Path:
        """Loads the disk's driver and hands over."""
        return self.folder / "initrd"

    @property
    def probe_initrd(self) -> Path:
        """Prints PROBE_MARKER and powers off, to see whether an accelerator really runs a guest."""
        return self.folder / "probe.initrd"

    @property
    def key(self) -> Path:
        """The private SSH key that root accepts."""
        return self.folder / "id_ed25519"

    def host_key(self) -> str:
        """The guests' SSH host key, as known_hosts wants it."""
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        return f"{kind} {key}"


def read_recipe(*guests: Path) -> Recipe:
    """The recipe as it lies in ``lab/guest``: packages.txt, files/ (copied in) and hooks/ (run in order).

    Of several folders each adds to those before it.
    """
    guests = guests or SITES["own"]
    packages = tuple(
        line.strip()
        for guest in guests
        for line in (guest / "packages.txt").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    )
    files = tuple(
        (str(path.relative_to(top)), 0o755 if os.access(path, os.X_OK) else 0o644, path.read_bytes())
        for top in (guest / "files" for guest in guests)
        for path in sorted(top.rglob("*"))
        if path.is_file()
    )
    hooks = tuple(
        (path.name, path.read_text()) for guest in guests for path in sorted((guest / "hooks").glob("*.sh"))
    )
    return Recipe(SUITE, packages, files, hooks, boot=bootfiles.RECIPE)


def ensure_image(progress: Progress = lambda _line: None, site: str = "own") -> Image:
    """The image for the present recipe of a site, built when the cache lacks it.

    Raises :class:`LabError` when packages, disk space or the package registry are missing.
    """
    recipe = read_recipe(*SITES[site])
    store = cache_root() / "images"
    image = Image(store / recipe.digest())
    if image.folder.is_dir():
        return image
    host.require(
        host.BUILD_PROGRAMS if os.geteuid() == 0 else (*host.BUILD_PROGRAMS, *host.ROOTLESS_PROGRAMS)
    )
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _exclusive(store / f".lock-{image.folder.name}", progress):
        if image.folder.is_dir():  # another build finished it meanwhile
            return image
        host.require_space(store, _BUILD_SPACE_BYTES, "building the guest image")
        part = store / f".{image.folder.name}.part"
        _remove_tree(part)
        part.mkdir(mode=0o700)
        try:
            _build(recipe, part, progress)
            part.rename(image.folder)
        finally:
            _remove_tree(part)
    return image


def _build(recipe: Recipe, part: Path, progress: Progress) -> None:
    started = time.monotonic()
    for name, comment in (("id_ed25519", "shakedown-lab"), ("host_key", "shakedown-lab-guest")):
        host.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(part / name)],
            "ssh-keygen",
        )
    progress(f"installing {len(recipe.packages)} packages of Debian {recipe.suite} and what they need")
    (part / "overlay.tar").write_bytes(
        _overlay(
            recipe,
            {
                "etc/ssh/ssh_host_ed25519_key": (0o600, (part / "host_key").read_bytes()),
                "etc/ssh/ssh_host_ed25519_key.pub": (0o644, (part / "host_key.pub").read_bytes()),
                "root/.ssh/authorized_keys": (0o600, (part / "id_ed25519.pub").read_bytes()),
            },
        )
    )
    rootfs = part / "root.tar"
    _mmdebstrap(recipe, part / "overlay.tar", rootfs, part / "build.log", progress)
    progress("kernel and initrd")
    kernel = bootfiles.read_kernel(rootfs)
    (part / "vmlinux").write_bytes(bootfiles.extract_vmlinux(kernel.vmlinuz))
    busybox = _static_busybox()
    (part / "initrd").write_bytes(bootfiles.boot_initrd(busybox, kernel.modules))
    (part / "probe.initrd").write_bytes(bootfiles.probe_initrd(busybox, PROBE_MARKER))
    progress("file system")
    _make_disk(rootfs, part)
    for name in ("root.tar", "overlay.tar", "host_key"):
        (part / name).unlink()
    about = {
        "recipe": recipe.digest(),
        "suite": recipe.suite,
        "kernel": kernel.release,
        "packages": list(recipe.packages),
        "build_s": round(time.monotonic() - started, 1),
    }
    (part / "image.json").write_text(json.dumps(about, indent=2) + "\n")


def _overlay(recipe: Recipe, extra: Mapping[str, tuple[int, bytes]]) -> bytes:
    """The files to copy into the root file system, all owned by root."""
    entries = {name: (mode, data) for name, mode, data in recipe.files} | dict(extra)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        folder = tarfile.TarInfo("root/.ssh")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        tar.addfile(folder)
        for name, (mode, data) in sorted(entries.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _mmdebstrap(recipe: Recipe, overlay: Path, target: Path, log: Path, progress: Progress) -> None:
    argv = [
        host.program("mmdebstrap"),
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=apt",
        f"--include={','.join(recipe.packages)}",
        *(f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in ("man", "doc", "locale", "info", "lintian")),
        f"--customize-hook=tar-in {overlay} /",
        *(f"--customize-hook={text}" for _name, text in recipe.hooks),
        recipe.suite,
        str(target),
    ]
    mirror = os.environ.get("SHAKEDOWN_DEBIAN_MIRROR")
    if mirror:
        argv.append(mirror)
    # INITRD=No: Debian's own initrd takes a minute to make and is never booted.
    environment = {**os.environ, "INITRD": "No", "LC_ALL": "C.UTF-8"}
    lines: list[str] = []
    with (
        log.open("w") as record,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                record.write(line)
                lines.append(line.rstrip())
                if line.startswith("I: ") and line.rstrip().endswith("..."):
                    progress(line[3:].strip().removesuffix("..."))
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise _explain(lines, process.returncode)


def _explain(lines: list[str], status: int) -> LabError:
    """mmdebstrap's failure in one line."""
    for line in lines:
        if _UNREACHABLE.search(line):
            return LabError(
                f"the Debian package registry cannot be reached: {line.strip()}",
                fix="check the network, or set SHAKEDOWN_DEBIAN_MIRROR to a mirror that answers",
            )
    errors = [line for line in lines if line.startswith(("E: ", "dpkg: error", "W: "))] or lines or [""]
    return LabError(
        f"mmdebstrap failed with status {status}: {errors[-1]}",
        fix="see the lines above",
        detail="\n".join(lines[-20:]),
    )


def _make_disk(rootfs: Path, part: Path) -> None:
    """Unpack the archive and make an ext4 image of it, with every file's owner kept.

    An ordinary user does both in one user namespace, where subordinate ids stand for the guest's users.
    """
    tree, disk = part / "tree", part / "base.raw"
    script = (
        'set -eu; mkdir "$1"; tar -x -f "$2" -C "$1" --numeric-owner --exclude="./dev/*"; '
        'mke2fs -q -t ext4 -L shakedown -m 0 -E lazy_itable_init=0,root_owner=0:0 -d "$1" "$3" "$4"; '
        'rm -rf "$1"'
    )
    inner = [host.program("busybox"), "env", f"PATH={os.environ.get('PATH', '')}:/usr/sbin:/sbin"]
    inner += ["/bin/sh", "-c", script, "sh", str(tree), str(rootfs), str(disk), DISK_SIZE]
    if os.geteuid() != 0:
        inner = ["unshare", "--user", "--map-root-user", "--map-auto", "--", *inner]
    host.run(inner, "making the file system")


def _static_busybox() -> bytes:
    data = Path(host.program("busybox")).read_bytes()
    if bootfiles.needs_interpreter(data):
        raise LabError("busybox is not statically linked", fix="apt-get install busybox-static")
    return data


@contextlib.contextmanager
def _exclusive(path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock, saying so when another process builds the same image."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process builds this image; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _remove_tree(folder: Path) -> None:
    """Remove a build folder; one left by an ordinary user's build holds files of subordinate ids."""
    if not folder.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists() and os.geteuid() != 0:
        host.run(
            ["unshare", "--user", "--map-root-user", "--map-auto", "rm", "-rf", str(folder)], "cleaning up"
        )


def prune(in_use: Collection[Path]) -> list[Path]:
    """Remove images that neither a present recipe nor a lab in ``in_use`` needs; returns what is gone."""
    store = cache_root() / "images"
    wanted = {*(store / read_recipe(*folders).digest() for folders in SITES.values()), *in_use}
    gone = [folder for folder in sorted(store.glob("[0-9a-f]*")) if folder.is_dir() and folder not in wanted]
    for folder in gone:
        _remove_tree(folder)
        (store / f".lock-{folder.name}").unlink(missing_ok=True)
    return gone
