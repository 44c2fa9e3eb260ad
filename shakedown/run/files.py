"""The files of a run folder, and what must not be in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from shakedown.records.errors import BadInput
from shakedown.records.reading import read_bytes
from shakedown.run.folder import COUNTERS, INVENTORY, RAW, RESULTS, write_aside
from shakedown.run.redact import redact

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"


def run_files(folder: Path) -> Iterator[str]:
    """Yield every file of a bundle, sorted. Raises BadInput for links, special files and odd names."""
    found = []
    for root, directories, names in os.walk(folder):
        directories.sort()
        for name in (*directories, *names):
            path = Path(root) / name
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if not relative.isprintable() or "\\" in relative:
                raise BadInput(f"file name {relative!r} cannot be sealed", fix="rename it", file=folder)
            if stat.S_ISREG(mode):
                found.append(relative)
            elif not stat.S_ISDIR(mode):
                raise BadInput("is a link or special file", fix="copy it or remove it", file=path)
    yield from sorted(set(found) - {SUMS, SIGNATURE})


def redact_folder(folder: Path) -> list[str]:
    """Redact every raw output and record of a run in place; return the files that changed."""
    changed = []
    for name, content, clean in redacted_files(folder):
        if content != clean:
            write_aside(folder / name, clean)
            changed.append(name)
    return changed


def redacted_files(folder: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (file, content, redacted content) of what tools and jobs wrote."""
    for name in run_files(folder):
        if name.startswith(f"{RAW}/") or name in (RESULTS, COUNTERS, INVENTORY):
            content = read_bytes(folder / name)
            text = content.decode("utf-8", "surrogateescape")
            yield name, content, redact(text).encode("utf-8", "surrogateescape")
