"""`make test-bare`: the fast tests and the wheel's on a machine that has nothing but Debian, git and make.

A machine that has been used for weeks has what set-up forgot to install, and another Python than Debian's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import host
from lab.errors import LabError
from lab.paths import CHECKOUT, cache_root

SUITES = ("bookworm", "trixie")
# What a person installs by hand before the clone; set-up installs the rest.
PACKAGES = ("git", "make")
_SPACE_BYTES = 8_000_000_000  # Debian's packages 3 GB, .venv 1 GB, their downloads, tests' own folders
# How this host reaches package indexes: variables, and files that hold no more than that.
_VARIABLES = re.compile(
    r"(PIP|UV)_\w+|(SSL|CURL_CA|REQUESTS_CA)_\w+|GIT_SSL_\w+|(https?|no|all|ftp)_proxy", re.IGNORECASE
)
_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/uv", "/usr/local/share/ca-certificates")
_HOME_FILES = (".config/pip", ".pip", ".config/uv", ".netrc")
_APT_OPTION = re.compile(r"Acquire::(https?|Check-[\w-]+|Retries|ForceIPv\d)\b.*;$")
# What runs inside. Both are wanted, also where the first fails.
_TESTS = (
    "cd /root/shakedown && begin=$(date +%s)",
    "make test-unit; unit=$?",
    'echo "test-bare: make test-unit ended with $unit after $(($(date +%s) - begin)) s"; begin=$(date +%s)',
    ".venv/bin/python -m pytest tests/packaging; wheel=$?",
    'echo "test-bare: tests/packaging ended with $wheel after $(($(date +%s) - begin)) s"',
    "[ $unit -eq 0 ] && [ $wheel -eq 0 ]",
)
# In namespaces of its own: mounts and processes end with it, and it sees no process of this host.
_INSIDE = """\
set -eu
work=$1 tests=$2; shift 2
mkdir "$work/root"
tar -x -f "$work/root.tar" -C "$work/root" --numeric-owner --exclude='./dev/*'
rm "$work/root.tar"
cp -R "$work/carried/." "$work/root/"
cp -R "$work/clone" "$work/root/root/shakedown"
mount --make-rprivate /
mount --rbind /dev "$work/root/dev"
mount --rbind /sys "$work/root/sys"
mount -t proc proc "$work/root/proc"
mount -t tmpfs tmpfs "$work/root/run"
printf '#!/bin/sh\\nexit 101\\n' >"$work/root/usr/sbin/policy-rc.d"
chmod +x "$work/root/usr/sbin/policy-rc.d"
exec env -i "$@" chroot "$work/root" sh -c "$tests"
"""


def main(suites: Sequence[str]) -> int:
    """Test each suite; 0 when all passed."""
    ends = {}
    for suite in suites or SUITES:
        begin = time.monotonic()
        ends[suite] = test(suite), time.monotonic() - begin
    for suite, (passed, seconds) in ends.items():
        print(f"test-bare: Debian {suite}: {'passed' if passed else 'FAILED'}, {seconds:.0f} s", flush=True)
    return 0 if all(passed for passed, _seconds in ends.values()) else 1


def test(suite: str) -> bool:
    """Make a bare root of the suite, put a clone of HEAD in, run the tests there; whether they passed.

    Raises:
        LabError: a program, disk space or the package index is missing.
    """
    rootless = os.geteuid() != 0
    host.require(("mmdebstrap", "tar", "unshare", *(("newuidmap",) if rootless else ())))
    parent = cache_root() / "bare"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    host.require_space(parent, _SPACE_BYTES, "a bare machine")
    work = Path(tempfile.mkdtemp(prefix=f"{suite}.", dir=parent))
    work.chmod(0o755)
    enter = ["--user", "--map-root-user", "--map-auto"] if rootless else []
    try:
        begin = time.monotonic()
        _make_root(suite, work, rootless=rootless)
        host.run(
            ["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(work / "clone")], "git clone"
        )
        environment = carry(os.environ, work / "carried")
        print(f"test-bare: a bare Debian {suite}, made in {time.monotonic() - begin:.0f} s", flush=True)
        argv = [host.program("unshare"), *enter, "--mount", "--pid", "--fork", "--kill-child", "--"]
        argv += ["/bin/sh", "-c", _INSIDE, "sh", str(work), "\n".join(_TESTS)]
        argv += [f"{name}={value}" for name, value in environment.items()]
        return subprocess.run(argv, check=False, stdin=subprocess.DEVNULL).returncode == 0
    finally:
        # Its files belong to this user's subordinate ids.
        subprocess.run([host.program("unshare"), *enter, "rm", "-rf", str(work)], check=False)


def _make_root(suite: str, work: Path, *, rootless: bool) -> None:
    argv = ["mmdebstrap", f"--mode={'unshare' if rootless else 'root'}", "--variant=minbase"]
    argv += [f"--include={','.join(PACKAGES)}", *(f"--aptopt={line}" for line in _apt_options())]
    argv += [suite, str(work / "root.tar")]
    sources = "\n\n".join(apt_sources(Path("/etc/apt"), suite))
    if mirror := os.environ.get("SHAKEDOWN_DEBIAN_MIRROR"):
        argv.append(mirror)
    elif sources:
        (work / "debian.sources").write_text(sources + "\n")
        argv.append(str(work / "debian.sources"))
    host.run(argv, f"a root of Debian {suite}")


def apt_sources(folder: Path, suite: str, about: Path = Path("/etc/os-release")) -> list[str]:
    """This host's sources of Debian itself, of ``suite`` instead of its own; none where it is not Debian."""
    release = dict(line.split("=", 1) for line in about.read_text().splitlines() if line.count("=") == 1)
    own = release.get("VERSION_CODENAME", "")
    if release.get("ID") != "debian" or not own:
        return []
    whole = re.compile(rf"(?<![\w-]){own}(?![\w])")
    stanzas = []
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            lines = [line for line in stanza.splitlines() if line.strip() and not line.startswith("#")]
            if any(line.startswith("Suites:") and whole.search(line) for line in lines):
                stanzas.append("\n".join(whole.sub(suite, line) for line in lines))
    for path in [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else []:
            found = re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)", line)
            if found and whole.match(found[2]):
                named = whole.sub(suite, found[2])
                stanzas.append(f"Types: deb\nURIs: {found[1]}\nSuites: {named}\nComponents: {found[3]}")
    return stanzas


def _apt_options() -> list[str]:
    """How this host's apt reaches its index: proxies and the like."""
    if shutil.which("apt-config") is None:
        return []
    dump = host.run(["apt-config", "dump"], "apt-config").stdout
    return [line for line in dump.splitlines() if _APT_OPTION.match(line) and '""' not in line]


def carry(environment: Mapping[str, str], into: Path) -> dict[str, str]:
    """Copy how this host reaches package indexes to ``into``; return the variables for the inside."""
    carried = {
        name: value
        for name, value in environment.items()
        if _VARIABLES.fullmatch(name) and name not in ("UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON")
    }
    named = [word for value in carried.values() for word in value.split() if word.startswith("/")]
    home = Path(environment.get("HOME", "/root"))
    into.mkdir()
    pairs = [(Path(path), Path(path)) for path in (*_FILES, *named)]
    pairs += [(home / name, Path("/root") / name) for name in _HOME_FILES]
    for source, target in pairs:
        place = into / target.relative_to("/")
        if place.exists() or not source.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, ignore_dangling_symlinks=True)
        else:
            shutil.copy(source, place)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": "/root", **carried}


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LabError as error:
        print(f"test-bare: {error}", file=sys.stderr)
        sys.exit(2)
