"""How files of results may be named, and how names sort. Standard library only: compute nodes use this."""

from __future__ import annotations

import re

# What file systems take (NAME_MAX of Linux, in bytes; our names are ASCII). The note of a mesh about a cell
# across rails names a node three times and two rails, so nothing less is enough.
LONGEST_FILE_NAME = 255
# A whole name, without anchors.
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.,+=-]*"


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return the key that sorts n2 before n10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(p), p) if p.isdigit() and p.isascii() else (1, 0, p) for p in parts)
