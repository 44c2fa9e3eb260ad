"""Whether a perftest server that waits for RDMA-CM (-R) is ready: it opens no TCP port.

`rdma resource show cm_id` lists it (iproute2, res-cmid.c: `state LISTEN ... src-addr 0.0.0.0:18600`). Where
that tool is missing or shows no listener, a server counts as ready a while after it has opened the RDMA-CM
device: what it does after that takes microseconds. Standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

_DEVICE = "/dev/infiniband/rdma_cm"
_SETTLED_S = 1.0
_TOOL_S = 5.0
_EVERY_S = 0.25  # a look at the tool takes a process


class CmListener:
    """Watches one server until it listens."""

    def __init__(self) -> None:
        self._opened: float | None = None
        self._looked = -_EVERY_S

    def listens(self, port: int, pid: int | None, proc: Path = Path("/proc")) -> bool:
        """Return whether a server listens on a port of RDMA-CM; `pid` None: a container hides it."""
        now = time.monotonic()
        if now - self._looked >= _EVERY_S:
            self._looked = now
            if port in listening_by_cm(_resources()):
                return True
        if self._opened is None and (pid is None or _has_open(pid, proc)):
            self._opened = now
        return self._opened is not None and now - self._opened >= _SETTLED_S


def listening_by_cm(text: str) -> set[int]:
    """Return the ports on which something listens, from what `rdma resource show cm_id` prints."""
    lines = (line for line in text.splitlines() if re.search(r"\bstate LISTEN\b", line))
    return {int(found[1]) for line in lines if (found := re.search(r"\bsrc-addr \S+:(\d{1,5})\b", line))}


def _resources() -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            ["rdma", "resource", "show", "cm_id"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TOOL_S,
            check=False,
            env={"PATH": path, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout[: 1 << 20].decode(errors="replace")


def _has_open(pid: int, proc: Path) -> bool:
    try:
        return any(str(fd.readlink()) == _DEVICE for fd in (proc / str(pid) / "fd").iterdir())
    except OSError:
        return False
