#!/usr/bin/env python3
"""Lines and files of Python per room, beside those of an earlier commit (`make lines SINCE=COMMIT`).

What a person must open and read is a budget: each change says what it added, and what it took away.
Blank lines and comments count, links do not.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import PurePosixPath

# The rooms of these are counted one by one; of everything else, the top folder is.
_BY_ROOM = ("shakedown", "tests")


def _git(*words: str, given: str | None = None) -> str:
    return subprocess.run(["git", *words], input=given, capture_output=True, text=True, check=True).stdout


def room(path: str) -> str:
    """Return the folder that a file is counted under."""
    parts = PurePosixPath(path).parts
    return "/".join(parts[: 2 if parts[0] in _BY_ROOM and len(parts) > 2 else 1])


def count(commit: str) -> tuple[Counter[str], Counter[str]]:
    """Return lines and files of Python per room of a commit."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    entries = [line.split("\t") for line in _git("ls-tree", "-r", commit).splitlines()]
    sources = [
        (about.split()[2], path) for about, path in entries if path.endswith(".py") and about[:6] != "120000"
    ]
    for blob, path in sources:
        lines[room(path)] += _git("cat-file", "blob", blob).count("\n")
        files[room(path)] += 1
    return lines, files


def main(since: str) -> int:
    """Print the table; exit status 2 if there is nothing to compare with."""
    try:
        base = since or _git("describe", "--tags", "--abbrev=0", "HEAD^").strip()
        (old_lines, old_files), (lines, files) = count(base), count("HEAD")
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:]
        print(f"lines: {' '.join(reason)} -- name a commit: make lines SINCE=COMMIT", file=sys.stderr)
        return 2
    print(f"{'room':32}{'lines':>8}{'since ' + base[:12]:>20}{'files':>8}{'':>8}")
    rooms = {*lines, *old_lines}
    for name in [*sorted(rooms - {*_BY_ROOM}), *_BY_ROOM, "all"]:
        inside = [r for r in rooms if name in ("all", r) or r.startswith(f"{name}/")]
        now, then, many, before = (sum(c[r] for r in inside) for c in (lines, old_lines, files, old_files))
        print(f"{name:32}{now:8,}{now - then:+20,}{many:8,}{many - before:+8,}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
