"""Which NCCL a program would load on this node, and whether all nodes of a job have the same one.

NCCL refuses to work with another version of itself, with words that give ranks and no node, or hangs.
Standard library only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_LINKED = re.compile(r"^[ \t]{0,8}libnccl\.so\S{0,40} => (/\S+)", re.MULTILINE)
# In a process of its own: a library that cannot be loaded ends nothing but that.
_ASK = """\
import ctypes, sys
number = ctypes.c_int()
if ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number)):
    sys.exit(1)
print(number.value)
"""
_NAMED = 3  # nodes by name in one message


def loaded_by(program: str) -> dict[str, str] | None:
    """Return path and version of the NCCL that a program or library would load here; None if not known."""
    linked = _LINKED.search(_said(["ldd", program]))
    if linked is None:
        return None
    said = _said([sys.executable, "-c", _ASK, linked[1]]).strip()
    return {"path": linked[1], "version": version(int(said))} if said.isdigit() else None


def version(number: int) -> str:
    """Return a version from NCCL's number of it (nccl.h, NCCL_VERSION_CODE), which changed with 2.9."""
    major = 1000 if number < 10000 else 10000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def differ(looks: Sequence[dict[str, Any]]) -> dict[str, str] | None:
    """Return that nodes have different versions, as a record's problem, or None.

    A node that does not know its version has no say.
    """
    nodes: dict[str, list[str]] = {}
    for seen in looks:
        if library := seen.get("nccl"):
            nodes.setdefault(library["version"], []).append(seen["node"])
    if len(nodes) < 2:
        return None
    # What few have comes first: that is what somebody has to look at.
    few_first = sorted(nodes.items(), key=lambda item: len(item[1]))
    said = [f"NCCL {version} on {_names(mine)}" for version, mine in few_first]
    return {"kind": "environment", "message": f"{', '.join(said)}: give all nodes of a job the same version"}


def _names(nodes: Sequence[str]) -> str:
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
