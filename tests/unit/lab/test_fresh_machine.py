"""What a machine that was used for weeks hides: newer Pythons, other labs, packages that set-up forgot."""

import ast
import io
import os
import re
import tarfile
from pathlib import Path

import pytest

from lab import bare
from lab.errors import LabError
from lab.paths import CHECKOUT, runtime_root
from lab.spaces.cluster import SpaceLab
from tests.kit.archive import unpack
from tests.kit.cases import cases
from tests.kit.run import python

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
    assert found - own == set()
    assert ONE_PLACE in found


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
    assert not runtime_root().exists()
    assert runtime_root().parent != Path("/tmp")


@pytest.mark.parametrize("more", [[], ["--site", "fabric"], ["--gpus", "0"]])
def test_arguments_are_judged_before_the_machine(more: list[str]) -> None:
    """Catches: "install qemu" for a number of nodes that no machine could have."""
    code = "import lab.host as h; h._SEARCH = ''; import lab.cli as c; c.main()"
    done = python("-c", code, "up", "--nodes", "0", *more, cwd=CHECKOUT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "compute nodes" in done.stderr


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
