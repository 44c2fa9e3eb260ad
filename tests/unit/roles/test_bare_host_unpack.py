"""Packages unpacked beside what a host has."""

import shutil
import subprocess
from pathlib import Path

import pytest

UNPACK = Path(__file__).resolve().parents[3] / "roles" / "bare_host" / "files" / "unpack"

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb")


def package(folder: Path, name: str, files: dict[str, str]) -> None:
    """Build a package of these files."""
    tree = folder / "tree" / name
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: d\n"
    )
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    (folder / "debs").mkdir(exist_ok=True)
    subprocess.run(["dpkg-deb", "--build", tree, folder / "debs" / f"{name}.deb"], check=True)


def unpack(folder: Path) -> list[str]:
    """Unpack all packages into FOLDER/host."""
    for name in ("host", "notes"):
        (folder / name).mkdir(exist_ok=True)
    argv = ["sh", UNPACK, folder / "debs", folder / "notes", folder / "host"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_package_that_ends_as_a_mixture_is_named(tmp_path):
    """Catches: half a PMIx of one version beside the host's own of another, of which nobody is told."""
    package(tmp_path, "libpmix2", {"usr/lib/libpmix.so.2": "version 4", "usr/lib/pmix/part.so": "version 4"})
    package(tmp_path, "munge", {"usr/sbin/munged": "m", "etc/munge.conf": "same"})
    for path, text in {"usr/lib/libpmix.so.2": "version 5!", "etc/munge.conf": "same"}.items():
        (tmp_path / "host" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "host" / path).write_text(text)
    assert unpack(tmp_path) == [
        "unpacked libpmix2.deb",
        "mixed libpmix2.deb: 1 of its files are there in another version and stay",
        "unpacked munge.deb",
    ]
    assert (tmp_path / "host/usr/lib/libpmix.so.2").read_text() == "version 5!"
    assert (tmp_path / "host/usr/lib/pmix/part.so").read_text() == "version 4"
    assert unpack(tmp_path) == []  # what is unpacked stays
