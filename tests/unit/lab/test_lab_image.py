"""The image recipe and the boot files, and what a machine that was used for weeks hides of set-up's gaps."""

import ast
import io
import os
import re
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab import bare, bootfiles, host, image
from lab.errors import LabError
from lab.image import Recipe, read_recipe
from lab.paths import CHECKOUT, runtime_root
from lab.spaces.cluster import SpaceLab
from tests.kit.archive import unpack
from tests.kit.cases import cases
from tests.kit.run import python, ran

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


def test_no_disk_space_is_said_before_anything_is_built(monkeypatch, tmp_path):
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


def test_prune_keeps_the_present_image_and_those_of_running_labs(monkeypatch, tmp_path):
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


# What came after 3.11.0, Debian 12's 3.11.2 in mind; mypy knows no third number, and reads no tests.
KEYWORDS = {"extractall": {"filter"}, "extract": {"filter"}, "unpack_archive": {"filter"}}
KEYWORDS |= {"rmtree": {"onexc"}, "NamedTemporaryFile": {"delete_on_close"}}
KEYWORDS |= {"glob": {"case_sensitive", "recurse_symlinks"}, "rglob": {"case_sensitive", "recurse_symlinks"}}
KEYWORDS |= {"match": {"case_sensitive"}, "relative_to": {"walk_up"}, "add_argument": {"deprecated"}}
KEYWORDS |= {"getaddresses": {"strict"}, "parseaddr": {"strict"}, "connect": {"autocommit"}}
FILTERS = (
    "data_filter tar_filter fully_trusted_filter FilterError"
    " OutsideDestinationError LinkOutsideDestinationError"
)
NAMES = {"tarfile": set(FILTERS.split()), "itertools": {"batched"}, "math": {"sumprod", "fma"}}
NAMES |= {"typing": {"override", "TypeAliasType", "ReadOnly", "TypeIs", "NoDefault", "get_protocol_members"}}
NAMES |= {"collections.abc": {"Buffer"}, "warnings": {"deprecated"}, "copy": {"replace"}}
NAMES |= {"random": {"binomialvariate"}, "os": {"unshare", "setns", "process_cpu_count", "listdrives"}}
NAMES |= {"calendar": {"Month", "Day"}, "statistics": {"kde", "kde_random"}, "queue": {"ShutDown"}}
NAMES |= {"sys": {"monitoring", "activate_stack_trampoline"}, "types": {"get_original_bases"}}
NAMES |= {"pathlib": {"UnsupportedOperation"}, "asyncio": {"eager_task_factory", "QueueShutDown"}}
METHODS = {"is_junction", "with_segments", "full_match", "from_uri", "copy_into", "move_into"}
FOLDERS = ("shakedown", "lab", "reframe_tests", "workloads", "roles", "collection", "docs", "inventories")
FOLDERS += ("tests", "research")
ONE_PLACE = "tests/kit/archive.py"


def too_new(text: str) -> list[str]:
    """What of a module's text Python 3.11.0 has not."""
    found = []
    for node in ast.walk(ast.parse(text, feature_version=(3, 11))):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            found += [f"{name}({k.arg}=)" for k in node.keywords if k.arg in KEYWORDS.get(name, ())]
        if isinstance(node, ast.ImportFrom):
            found += [
                f"{node.module}.{a.name}" for a in node.names if a.name in NAMES.get(node.module or "", ())
            ]
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            found += [f"{owner}.{node.attr}"] if node.attr in METHODS | NAMES.get(owner, set()) else []
    return found


def sources() -> list[Path]:
    """Every Python file of the checkout."""
    return [path for folder in FOLDERS for path in sorted((CHECKOUT / folder).rglob("*.py"))]


def test_nothing_is_newer_than_debian_12s_python() -> None:
    """Catches: what Python 3.11.7 has and Debian 12's 3.11.2 lacks, as `extractall(filter=)`: 183 tests."""
    found = {str(path): new for path in sources() if (new := too_new(path.read_text(encoding="utf-8")))}
    assert found == {}


@cases(
    "line, said",
    ('tar.extractall(folder, filter="data")', ["extractall(filter=)"]),
    ("from itertools import batched", ["itertools.batched"]),
    ("tarfile.data_filter", ["tarfile.data_filter"]),
    ("shutil.rmtree(a, onexc=b)", ["rmtree(onexc=)"]),
    ("Path(a).full_match(b)", ["Path(a).full_match"]),
    ("frame.filter(a, filter=b)", []),
)
def test_what_is_newer_is_seen(line: str, said: list[str]) -> None:
    """Catches: the list above read wrongly, so that nothing is ever found."""
    assert too_new(line) == said


def test_archives_are_unpacked_in_one_place() -> None:
    """Catches: another `extractall`, safe or not as the Python of the day has it."""
    own = {ONE_PLACE, Path(__file__).relative_to(CHECKOUT).as_posix()}
    found = {
        path.relative_to(CHECKOUT).as_posix()
        for path in sources()
        if re.search(r"\bextractall\(|\bunpack_archive\(", path.read_text(encoding="utf-8"))
    }
    assert found - own == set() and ONE_PLACE in found


@pytest.mark.parametrize("name", ["/tmp/outside", "../outside", "a/../../outside", "link"])
def test_an_archive_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    """Catches: a file written outside the folder, or a link that leads there."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member, io.BytesIO())
    with pytest.raises(ValueError, match="no file or folder below it"):
        unpack(tmp_path / "a.tar", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_unpacked_files_belong_to_who_unpacks(tmp_path: Path) -> None:
    """Catches: root's copies of another user's files, or files that nobody may read."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("folder/file")
        member.uid, member.gid, member.uname, member.mode, member.size = 4711, 4711, "nobody", 0o4222, 2
        tar.addfile(member, io.BytesIO(b"ab"))
    found = unpack(tmp_path / "a.tar", tmp_path / "to") / "folder/file"
    assert (found.read_bytes(), found.stat().st_uid) == (b"ab", os.getuid())
    assert found.stat().st_mode & 0o7777 == 0o644


def test_no_lab_of_this_machine_is_seen() -> None:
    """Catches: tests that pass or fail by what lab is up beside them."""
    assert "SHAKEDOWN_LAB" not in os.environ
    assert not runtime_root().exists() and runtime_root().parent != Path("/tmp")


@pytest.mark.parametrize("more", [[], ["--site", "fabric"], ["--gpus", "0"]])
def test_arguments_are_judged_before_the_machine(more: list[str]) -> None:
    """Catches: "install qemu" for a number of nodes that no machine could have."""
    code = "import lab.host as h; h._SEARCH = ''; import lab.cli as c; c.main()"
    done = python("-c", code, "up", "--nodes", "0", *more, cwd=CHECKOUT)
    assert (done.returncode, done.stdout) == (2, "") and "compute nodes" in done.stderr


def test_the_number_of_nodes_is_judged_before_the_user(monkeypatch) -> None:
    """Catches: "only root can" where root could not either."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="1 to 8 compute nodes"):
        SpaceLab.up(9, "0", "unit")


def test_set_up_brings_the_compiler_that_tests_call() -> None:
    """Catches: tests of STREAM that fail, and one that is skipped, where no compiler happens to be there."""
    proofs = dict(
        line.split()
        for line in (CHECKOUT / "lab/host-packages.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert proofs["cc"] == "gcc"
    assert proofs["/usr/include/stdio.h"] == "libc6-dev"  # which gcc only recommends


def test_the_hosts_sources_are_carried_for_another_suite(tmp_path: Path, monkeypatch) -> None:
    """Catches: a bare machine that asks another registry than its host, or has the host's other packages."""
    folder = tmp_path / "apt"
    (folder / "sources.list.d").mkdir(parents=True)
    (folder / "sources.list.d/debian.sources").write_text(
        "# a note\nTypes: deb\nURIs: http://mirror.test/debian\nSuites: old old-updates\nComponents: main\n\n"
        "Types: deb\nURIs: http://mirror.test/security\nSuites: old-security\nComponents: main\n"
    )
    (folder / "sources.list.d/other.sources").write_text(
        "Types: deb\nURIs: http://x.test\nSuites: nodistro\n"
    )
    (folder / "sources.list").write_text(
        "deb [signed-by=/a b=c] http://mirror.test/debian old main contrib\n"
        "deb http://cloud.test/apt cloud-old main\ndeb-src http://mirror.test/debian old main\n"
    )
    release = tmp_path / "os-release"
    release.write_text("ID=debian\nVERSION_CODENAME=old\n")
    found = bare.apt_sources(folder, "new", release)
    assert [re.findall("Suites: (.*)", stanza) for stanza in found] == [
        ["new new-updates"],
        ["new-security"],
        ["new"],
    ]
    assert "Components: main contrib" in found[2]
    release.write_text("ID=ubuntu\nVERSION_CODENAME=old\n")
    assert bare.apt_sources(folder, "new", release) == []


def test_settings_of_package_indexes_are_carried_and_nothing_else(tmp_path: Path) -> None:
    """Catches: a bare machine without the proxy or the certificate of its host, or with its secrets."""
    (tmp_path / "home/.config/pip").mkdir(parents=True)
    (tmp_path / "home/.config/pip/pip.conf").write_text("[global]\n")
    (tmp_path / "ca.pem").write_text("certificate")
    (tmp_path / "wheels").mkdir()
    wanted = {
        "PIP_CERT": f"{tmp_path}/ca.pem",
        "PIP_FIND_LINKS": f"{tmp_path}/wheels",
        "https_proxy": "http://p",
    }
    given = {"HOME": f"{tmp_path}/home", "TOKEN": "secret", "PYTHONPATH": "/x", "UV_PYTHON": "3.13", **wanted}
    found = bare.carry(given, tmp_path / "carried")
    assert {name: value for name, value in found.items() if name not in ("PATH", "HOME")} == wanted
    assert (tmp_path / f"carried{tmp_path}/ca.pem").read_text() == "certificate"
    assert (tmp_path / f"carried{tmp_path}/wheels").is_dir()
    assert (tmp_path / "carried/root/.config/pip/pip.conf").exists()
