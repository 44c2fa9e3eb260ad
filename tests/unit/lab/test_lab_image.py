"""The image recipe and the boot files: an image that should have been rebuilt tests yesterday's system."""

import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab import bootfiles, host, image
from lab.errors import LabError
from lab.image import Recipe, read_recipe
from tests.kit.cases import cases
from tests.kit.run import ran

RECIPE = Recipe("trixie", ("a", "b"), (("etc/x", 0o644, b"x"),), (("10.sh", "true"),), boot="init")


@cases(
    "change",
    lambda r: replace(r, suite="forky"),
    lambda r: replace(r, packages=("a", "b", "c")),
    lambda r: replace(r, files=(("etc/x", 0o644, b"y"),)),
    lambda r: replace(r, files=(("etc/x", 0o755, b"x"),)),
    lambda r: replace(r, files=(("etc/y", 0o644, b"x"),)),
    lambda r: replace(r, hooks=(("10.sh", "false"),)),
    lambda r: replace(r, hooks=(("20.sh", "true"),)),
    lambda r: replace(r, version=r.version + 1),
    lambda r: replace(r, boot="other"),
)
def test_every_input_changes_the_hash(change: Callable[[Recipe], Recipe]) -> None:
    """Catches an input left out of the hash: a changed hook or package would use the old image."""
    assert change(RECIPE).digest() != RECIPE.digest()


def test_the_order_of_packages_does_not_change_the_hash() -> None:
    """Catches a rebuild, a minute long, for a sorted list."""
    assert replace(RECIPE, packages=("b", "a")).digest() == RECIPE.digest()


def test_the_recipe_holds_every_file_and_hook_of_the_guest_folder(tmp_path: Path) -> None:
    """Catches an added file that never reaches the guest, or a script that loses its execute bit."""
    (tmp_path / "packages.txt").write_text("# head\none\n\ntwo\n")
    script = tmp_path / "files" / "usr" / "local" / "sbin" / "tool"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    (tmp_path / "files" / "etc").mkdir()
    (tmp_path / "files" / "etc" / "conf").write_text("x")
    (tmp_path / "hooks").mkdir()
    for name in ("20-b.sh", "10-a.sh"):
        (tmp_path / "hooks" / name).write_text(name)
    found = read_recipe(tmp_path)
    assert found.packages == ("one", "two")
    assert [(n, m) for n, m, _ in found.files] == [("etc/conf", 0o644), ("usr/local/sbin/tool", 0o755)]
    assert [n for n, _ in found.hooks] == ["10-a.sh", "20-b.sh"]


def test_the_committed_recipe_is_complete() -> None:
    """Catches an identity unit or a package list lost in a move of folders."""
    found = read_recipe()
    assert {"usr/local/sbin/shakedown-identity", "usr/local/sbin/shakedown-clock"} <= {
        n for n, mode, _ in found.files if mode == 0o755
    }
    assert {"linux-image-amd64", "slurmctld", "perftest", "lldpd"} <= set(found.packages)
    assert not {"gcc", "linux-headers-amd64"} & set(found.packages)


def test_modules_are_loaded_after_what_they_need() -> None:
    """Catches an initrd that inserts ext4 before jbd2: no guest would boot."""
    dep = bootfiles.parse_modules_dep(
        "kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/fs/mbcache.ko.xz\n"
        "kernel/fs/jbd2/jbd2.ko.xz: kernel/lib/crc16.ko.xz\n"
        "kernel/fs/mbcache.ko.xz:\nkernel/lib/crc16.ko.xz:\n"
        "kernel/drivers/block/virtio_blk.ko.xz:\nkernel/unrelated.ko.xz:\n"
    )
    order = [p.rpartition("/")[2] for p in bootfiles.module_order(dep, ["virtio_pci", "virtio_blk", "ext4"])]
    assert order == ["virtio_blk.ko.xz", "crc16.ko.xz", "jbd2.ko.xz", "mbcache.ko.xz", "ext4.ko.xz"]


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not installed")
def test_the_archive_is_one_that_cpio_reads(tmp_path: Path) -> None:
    """Catches a wrong header or padding, with which the kernel panics without an init."""
    data = bootfiles.cpio([("init", b"#!/bin/sh\n", 0o755), ("bin/odd", b"12345", 0o644)])
    listed = (
        subprocess.run(["cpio", "-t"], input=data, capture_output=True, check=True).stdout.decode().split()
    )
    assert listed == ["dev", "dev/console", "init", "bin", "bin/odd"]
    ran("cpio", "-id", "init", "bin/odd", input=data, cwd=tmp_path, check=True)
    assert (tmp_path / "bin" / "odd").read_bytes() == b"12345"
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755


def elf(*header_types: int) -> bytes:
    """A 64-bit ELF header followed by program headers of these types."""
    start = bytearray(64)
    start[:4] = b"\x7fELF"
    struct.pack_into("<Q", start, 32, 64)
    struct.pack_into("<HH", start, 54, 56, len(header_types))
    return bytes(start) + b"".join(struct.pack("<I", kind) + bytes(52) for kind in header_types)


def test_a_dynamically_linked_busybox_is_noticed() -> None:
    """Catches an initrd whose only program cannot run, seen as a panic in every guest."""
    assert bootfiles.needs_interpreter(elf(1, 3))
    assert not bootfiles.needs_interpreter(elf(1, 2))


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_the_kernel_is_found_behind_a_false_start() -> None:
    """Catches taking the first magic number for the payload: setup code may contain it by chance."""
    vmlinux = b"\x7fELF" + bytes(5000)
    packed = subprocess.run(["zstd", "-qc"], input=vmlinux, capture_output=True, check=True).stdout
    bzimage = b"setup" + b"\x28\xb5\x2f\xfd" + b"chance" + packed + b"signature after the payload"
    assert bootfiles.extract_vmlinux(bzimage) == vmlinux
    with pytest.raises(LabError, match="ELF"):
        bootfiles.extract_vmlinux(b"nothing in here")


def test_no_disk_space_is_said_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Catches a build that dies after a minute, half-written, on a full disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(host, "require", lambda names: None)
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(LabError, match=r"needs 4\.0 GB .* 0\.0 GB are free"):
        image.ensure_image()
    assert [p.name for p in (tmp_path / "cache" / "shakedown" / "images").iterdir() if p.is_dir()] == []


@cases(
    "line",
    "W: Failed to fetch http://mirror/debian/dists/trixie/InRelease  Could not resolve 'mirror'",
    "Err:1 http://mirror/debian trixie InRelease  Could not connect to mirror:80 (10.0.0.1).",
)
def test_an_unreachable_registry_is_named_as_such(line: str) -> None:
    """Catches 'mmdebstrap failed with status 100', which tells the reader nothing to mend."""
    error = image._explain(["I: running apt-get update...", line, "E: apt-get update failed"], 25)
    assert "package registry cannot be reached" in str(error)
    assert "SHAKEDOWN_DEBIAN_MIRROR" in str(error)
    other = image._explain(["I: x", "E: Unable to locate package foo"], 25)
    assert "Unable to locate package foo" in str(other)
    assert "cannot be reached" not in str(other)


def test_all_missing_programs_are_named_at_once_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a user who installs one package, tries again, and learns of the next."""
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(LabError, match="apt-get install mmdebstrap qemu-system-x86") as caught:
        host.require(["qemu-system-x86_64", "mmdebstrap"])
    assert caught.value.exit_status == 2


def test_a_foreign_site_has_what_the_lab_has_and_more() -> None:
    """Catches a lab that is rebuilt for a package of the foreign site, or a foreign site without its own."""
    own, foreign = read_recipe(), read_recipe(*image.SITES["foreign"])
    assert set(own.packages) < set(foreign.packages)
    more = {"slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server", "lmod"}
    assert set(foreign.packages) - set(own.packages) == more
    assert foreign.hooks[: len(own.hooks)] == own.hooks
    assert foreign.digest() != own.digest()


def test_prune_keeps_the_present_image_and_those_of_running_labs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Catches a running lab whose disk is removed under it, and a cache that grows by 1 GB per change."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = tmp_path / "shakedown" / "images"
    names = (read_recipe().digest(), read_recipe(*image.SITES["foreign"]).digest(), "0" * 16, "1" * 16)
    present, foreign, used, old = (store / name for name in names)
    for folder in (present, foreign, used, old):
        folder.mkdir(parents=True)
        (folder / "base.raw").write_bytes(b"x")
    assert image.prune({used}) == [old]
    assert sorted(p.name for p in store.iterdir()) == sorted([present.name, foreign.name, used.name])
