"""Numbers, lists and names in words; names of files. Standard library only: compute nodes use this."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

NOT_REQUIRED = " (not required)"  # ends the reason of a cell that decides nothing


_RULER = re.compile(r"([-=*#_~])\1{5,}")
# Where a text may be cut, best first. " / " joins lines of a tool.
_STOPS = (("; ", ". ", " / "), (": ",), (", ",), (" ",))


def clipped(text: str, most: int) -> str:
    """Return text on one line, of at most so many characters, cut at the end of a clause if it can be."""
    text = " ".join(_RULER.sub("", printable(text)).split())
    if len(text) <= most:
        return text
    kept = text[: max(0, most - 3)]
    for stops in _STOPS:
        if (end := max(map(kept.rfind, stops))) >= len(kept) // 2:
            return kept[:end].rstrip(" ,;:./") + "..."
    return kept + "..."


def those(names: Sequence[str], noun: str) -> str:
    """Write `n1`, `n1 and n2`, `n1, n2 and n3`, `n1..n8 (8 nodes)`."""
    if len(names) > 3:
        return f"{names[0]}..{names[-1]} ({count(len(names), noun)})"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def number(value: float, unit: str = "") -> str:
    """Write a number for a person: counts plain, rates and others with about four digits."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if value == int(value) and size < 1e15 and ("/" not in unit or size < 10):
        return str(int(value))
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 10 else f"{value:.3g}"


def ended(job: str | None, state: str) -> str:
    """Say of a job, by Slurm's number where it has one, that it did not complete."""
    return f"{f'job {job}' if job else 'its job'} ended {state}, not COMPLETED"


def printable(text: str) -> str:
    """Replace what could drive a terminal: units, parameters and messages come from outside."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def where(cell: str) -> str:
    """Name a cell for a person: `n1 -> n2 rail3 ib_write_bw bandwidth size_bytes=65536`."""
    _, test, metric, nodes, rail, direction, tail = cell.split("/", 6)
    names = nodes.split(",")
    if len(names) == 2 and direction in ("forward", "reverse"):
        who = " -> ".join(names if direction == "forward" else reversed(names))
        direction = "-"
    elif len(names) > 3:
        who = f"{names[0]}..{names[-1]} ({len(names)} nodes)"
    else:
        who = nodes
    parts = (who, rail, direction, test, metric, tail.replace(",", " "))
    return printable(" ".join(p for p in parts if p != "-"))


def apart(value: float, other: float, unit: str = "") -> str:
    """Write a number so that it differs in print from another that it differs from."""
    text = number(value, unit)
    for digits in range(1, 13):
        if value == other or float(text) != float(number(other, unit)):
            break
        if f"{value:.{digits}f}" != f"{other:.{digits}f}":
            return f"{value:.{digits}f}"
    return text


def size(size_bytes: float) -> str:
    """Return a message size exactly, in the unit that it was chosen in (65536 -> 64 KiB, 4000000 -> 4 MB)."""
    binary = ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"))
    for power, unit in binary:
        if size_bytes >= 2**power and size_bytes % 2**power == 0 and size_bytes < 1024 * 2**power:
            return f"{size_bytes / 2**power:g} {unit}"
    for power, unit in ((9, "GB"), (6, "MB")):
        if size_bytes >= 10**power and size_bytes % 10**power == 0:
            return f"{size_bytes / 10**power:g} {unit}"
    for power, unit in binary:
        if size_bytes >= 2**power and size_bytes % 2 ** (power - 2) == 0:
            return f"{size_bytes / 2**power:g} {unit}"
    return f"{size_bytes:,.0f} B"


def count(many: int, noun: str) -> str:
    """Write `1 cell`, `2 cells`."""
    return f"{many} {noun}" if many == 1 else f"{many} {noun}s"


# What file systems take (NAME_MAX of Linux, in bytes; our names are ASCII). The note of a mesh about a cell
# across rails names a node three times and two rails, so nothing less is enough.
LONGEST_FILE_NAME = 255
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.,+=-]*"  # a whole name, without anchors


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return the key that sorts n2 before n10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(p), p) if p.isdigit() and p.isascii() else (1, 0, p) for p in parts)
