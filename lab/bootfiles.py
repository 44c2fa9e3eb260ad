"""Kernel and initial RAM disk for direct boot: an uncompressed ELF ``vmlinux`` and a busybox initrd.

An ELF kernel skips the guest's own decompression and firmware, the largest part of a boot under emulation.
"""

from __future__ import annotations

import io
import lzma
import re
import struct
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

# What the initrd needs to find the root disk; network drivers too, so that every interface is there before
# the identity unit looks for it.  ext4 asks for crc32c by a name that modules.dep does not know.
INITRD_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "crc32c_generic", "ext4")

# The compressed payload of a bzImage, by magic number (Documentation/arch/x86/boot.rst, payload_offset;
# scripts/extract-vmlinux in the kernel tree searches the same way).
_PAYLOADS: tuple[tuple[bytes, tuple[str, ...]], ...] = (
    (b"\x28\xb5\x2f\xfd", ("zstd", "-dcq")),
    (b"\xfd7zXZ\x00", ("xz", "-dcq", "--single-stream")),
    (b"\x1f\x8b\x08", ("gzip", "-dcq")),
)
_ELF = b"\x7fELF"

_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /dev /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module; done
tries=0
until [ -b /dev/vda ] || [ $tries -ge 50 ]; do /bin/busybox sleep 0.1; tries=$((tries + 1)); done
/bin/busybox mount -t ext4 -o rw,noatime,noinit_itable /dev/vda /root || {
    echo "initrd: cannot mount the root disk"; /bin/busybox poweroff -f; }
/bin/busybox umount /proc
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /usr/lib/systemd/systemd
"""

_PROBE_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /dev
/bin/busybox mount -t devtmpfs dev /dev
echo {marker} > /dev/ttyS0
/bin/busybox poweroff -f
"""

# What of this module decides about the image's contents.
RECIPE = "\n".join((_INIT, _PROBE_INIT, *INITRD_MODULES))


@dataclass(frozen=True)
class KernelFiles:
    """What direct boot needs of the root file system: the release, the bzImage and the initrd's modules."""

    release: str
    vmlinuz: bytes
    modules: tuple[tuple[str, bytes], ...]


def extract_vmlinux(bzimage: bytes) -> bytes:
    """The ELF kernel inside a bzImage.  Raises :class:`LabError` when there is none."""
    for magic, command in _PAYLOADS:
        start = bzimage.find(magic)
        while start >= 0:
            # Trailing bytes after the stream make the tools complain, so the exit status says nothing.
            done = subprocess.run(command, input=bzimage[start:], capture_output=True, check=False)
            if done.stdout.startswith(_ELF):
                return done.stdout
            start = bzimage.find(magic, start + 1)
    raise LabError(
        "the guest kernel holds no ELF image in a known compression", fix="install zstd and xz-utils"
    )


def module_order(dependencies: Mapping[str, Iterable[str]], wanted: Iterable[str]) -> list[str]:
    """Paths of modules in an order in which each finds its dependencies loaded.

    ``dependencies`` is modules.dep: path to the paths it needs.  A wanted name that is absent is built into
    the kernel and left out.
    """
    by_name = {_module_name(path): path for path in dependencies}
    order: list[str] = []

    def visit(path: str) -> None:
        if path in order:
            return
        for needed in dependencies.get(path, ()):
            visit(needed)
        order.append(path)

    for name in wanted:
        if name in by_name:
            visit(by_name[name])
    return order


def _module_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].partition(".ko")[0].replace("-", "_")


def parse_modules_dep(text: str) -> dict[str, list[str]]:
    """modules.dep as a mapping; see modules.dep(5)."""
    table: dict[str, list[str]] = {}
    for line in text.splitlines():
        path, colon, needs = line.partition(":")
        if colon:
            table[path.strip()] = needs.split()
    return table


def read_kernel(rootfs: Path) -> KernelFiles:
    """Find the newest kernel in a root file system's tar archive, with the modules that the initrd loads."""
    with tarfile.open(rootfs) as tar:
        members = {member.name.removeprefix("./"): member for member in tar.getmembers()}

        def content(name: str) -> bytes:
            handle = tar.extractfile(members[name])
            if handle is None:
                raise LabError(f"{name} in the guest image is not a file", fix="build the image again")
            return handle.read()

        releases = [m[1] for name in members if (m := re.fullmatch(r"boot/vmlinuz-(.+)", name))]
        if not releases:
            raise LabError("the guest image has no kernel", fix="check linux-image-amd64 in the package list")
        release = max(releases, key=_version_key)
        top = f"usr/lib/modules/{release}"
        dep = parse_modules_dep(content(f"{top}/modules.dep").decode())
        modules = []
        for path in module_order(dep, INITRD_MODULES):
            data = content(f"{top}/{path}")
            if path.endswith(".xz"):
                data = lzma.decompress(data)
            modules.append((_module_name(path) + ".ko", data))
        return KernelFiles(release, content(f"boot/vmlinuz-{release}"), tuple(modules))


def _version_key(release: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"[.+-]", release)]


def needs_interpreter(program: bytes) -> bool:
    """Whether a 64-bit ELF program asks for a dynamic loader (a PT_INTERP header, elf(5)), which no initrd
    of ours has."""
    table, size, count = struct.unpack_from("<Q", program, 32)[0], *struct.unpack_from("<HH", program, 54)
    return any(struct.unpack_from("<I", program, table + i * size)[0] == 3 for i in range(count))


def boot_initrd(busybox: bytes, modules: Iterable[tuple[str, bytes]]) -> bytes:
    """The lab's initrd: load the modules, mount /dev/vda, hand over to systemd."""
    modules = list(modules)
    files = [("bin/busybox", busybox, 0o755), ("init", _INIT.encode(), 0o755)]
    files += [(f"modules/{name}", data, 0o644) for name, data in modules]
    files.append(("modules/order", "\n".join(name for name, _ in modules).encode(), 0o644))
    return cpio(files)


def probe_initrd(busybox: bytes, marker: str) -> bytes:
    """An initrd that only prints ``marker`` on the serial console and powers off."""
    init = _PROBE_INIT.format(marker=marker).encode()
    return cpio([("bin/busybox", busybox, 0o755), ("init", init, 0o755)])


def cpio(files: Iterable[tuple[str, bytes, int]]) -> bytes:
    """A 'newc' archive (Documentation/driver-api/early-userspace/buffer-format.rst), with parent folders and
    the console device that the kernel opens for init."""
    out = io.BytesIO()
    inode = 0

    def entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        nonlocal inode
        inode += 1
        encoded = name.encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        out.write(b"\0" * (-out.tell() % 4))
        out.write(data)
        out.write(b"\0" * (-out.tell() % 4))

    folders: set[str] = set()
    entry("dev", 0o040755)
    entry("dev/console", 0o020600, device=(5, 1))
    for name, data, mode in files:
        folder = name.rpartition("/")[0]
        if folder and folder not in folders:
            folders.add(folder)
            entry(folder, 0o040755)
        entry(name, 0o100000 | mode, data)
    entry("TRAILER!!!", 0)
    return out.getvalue()
