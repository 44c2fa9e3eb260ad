"""Damage to a run folder: what a killed writer, a bad disk or a person who wants another verdict does."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

# Values that no writer writes, each refused or survived by something that once was not.
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    -1e308,
    5e-324,
    10**19,
    10**400,
    "",
    "x" * 5000,
    "../../../etc/passwd",
    "/dev/zero",
    "a\nb",
    "\x1b[2J",
    "\ud800",
    "n1",
    "NaN",
    "9999-12-31T23:59:59+14:00",
    "0001-01-01T00:00:00+14:00",
    [],
    {},
    [[]],
    {"": 0},
)
ODD_TEXTS = (b"", b"\0" * 64, b"\xff\xfe\x00garbage", b"{", b"[" * 100_000, b'{"a":' * 3_000, b"{}\n")
ODD_TEXTS += (b"null\n", b'{"schema": 1}\n', b"9" * 10_000, b"n1 " * 5_000)
KINDS = ("cut", "flip", "odd", "value", "drop-key", "other", "delete", "folder", "link", "fifo", "line")
KINDS += ("twice",)


@dataclass(frozen=True)
class Damage:
    """One change: its kind, the file by its place among all, and numbers that the kind makes use of."""

    kind: str
    file: int
    at: int
    what: int


damages = st.lists(
    st.builds(
        Damage,
        kind=st.sampled_from(KINDS),
        file=st.integers(0, 999),
        at=st.integers(0, 100_000),
        what=st.integers(0, 999),
    ),
    min_size=1,
    max_size=3,
)


def files_of(folder: Path) -> list[Path]:
    """Every plain file of a folder, in a fixed order."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def damage(folder: Path, change: Damage) -> str:
    """Make a change, and say which. Files are replaced: they may be links to the original."""
    files = files_of(folder)
    if not files:
        return "nothing is left"
    path = files[change.file % len(files)]
    content = path.read_bytes()
    said = f"{change.kind} {path.relative_to(folder)}"
    if change.kind in ("delete", "folder", "link", "fifo"):
        path.unlink()
        if change.kind == "folder":
            path.mkdir()
        elif change.kind == "link":
            path.symlink_to(files[change.what % len(files)] if change.what % 2 else "/etc/hostname")
        elif change.kind == "fifo":
            os.mkfifo(path)
        return said
    if change.kind == "twice":
        shutil.copyfile(path, path.with_name(f"{change.what}.{path.name}"[:200]))
        return said
    replace(path, changed(content, change, files))
    return said


def replace(path: Path, content: bytes) -> None:
    """Write a file of that name anew."""
    path.unlink()
    path.write_bytes(content)


def changed(content: bytes, change: Damage, files: list[Path]) -> bytes:
    """Return a file's content, damaged."""
    at = change.at % (len(content) + 1)
    if change.kind == "cut":
        return content[:at]
    if change.kind == "flip" and content:
        at %= len(content)
        return content[:at] + bytes([content[at] ^ (1 << change.what % 8)]) + content[at + 1 :]
    if change.kind == "other":
        return files[change.what % len(files)].read_bytes()
    if change.kind == "line":
        lines = content.split(b"\n")
        lines.insert(change.at % len(lines), ODD_TEXTS[change.what % len(ODD_TEXTS)])
        return b"\n".join(lines)
    if change.kind in ("value", "drop-key"):
        return in_json(content, change)
    return ODD_TEXTS[change.what % len(ODD_TEXTS)]


def in_json(content: bytes, change: Damage) -> bytes:
    """Change one value of a document, or of one line of JSON lines, or lose a key."""
    lines = content.split(b"\n")
    for whole in (True, False):
        number = 0 if whole else change.at % len(lines)
        try:
            document = json.loads(content if whole else lines[number])
        except ValueError:
            continue
        places = list(_places(document, ()))
        if not places:
            return content
        *above, key = places[change.at % len(places)]
        holder = document
        for part in above:
            holder = holder[part]
        if change.kind == "drop-key":
            del holder[key]
        else:
            holder[key] = ODD_VALUES[change.what % len(ODD_VALUES)]
        written = json.dumps(document, indent=1 if whole else None).encode()
        if whole:
            return written + b"\n"
        lines[number] = written
        return b"\n".join(lines)
    return content


def _places(value: Any, at: tuple[Any, ...]) -> Any:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield (*at, key)
        yield from _places(value[key], (*at, key))
