"""Work a folder with fio: write, write with checksums, read, compare, and at random. Standard library only.

    srun --ntasks-per-node=1 python -m shakedown.benchmarks.storage.job FOLDER

FOLDER/spec.json is the order (output.py). All nodes begin each step together, by the time since srun
started them; of a shared folder each node then has a turn alone. The files lie in a folder that is made for
them and goes with them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shakedown.onnode.health import SHARED
from shakedown.onnode.journal import Clock, Journal, job, watched
from shakedown.onnode.software import Ready, enter
from shakedown.records.reading import ExitStatus

CHECK = "check"  # not timed: all that was written is read back and compared
_LAY = "lay"  # not timed: writes what is read later
_START_S, _BETWEEN_S = 10.0, 6.0  # until the last task has started; to begin and end a fio
_MOUNTS = Path("/proc/self/mountinfo")
_MEMORY = Path("/proc/meminfo")
_TOLD_TO_END = 128  # fio's exit status after SIGTERM

Problem = dict[str, str]


def options(order: Mapping[str, Any], access: str) -> dict[str, str]:
    """Return the options of fio that make a measurement what was ordered; its output tells them again."""
    whole = access in (_LAY, CHECK)
    found = {
        "rw": "write" if whole else access,
        "bs": "4k" if access.startswith("rand") else "1m",
        "size": f"{order['size_mib']}m",
        "numjobs": str(order["processes"]),
        "iodepth": str(order["depth"]),
        "ioengine": "libaio",
        "direct": str(int(order["direct"])),
    }
    return found | ({"verify": "crc32c"} if whole else {"runtime": str(order["seconds"])})


def bytes_a_node(order: Mapping[str, Any]) -> int:
    """Return what the files of one node hold."""
    return int(order["processes"]) * int(order["size_mib"]) << 20


def steps(order: Mapping[str, Any]) -> list[tuple[float, str, str, str]]:
    """Return every step: seconds after the start at which it begins, access, clients, node (empty: all)."""
    asked, found, at = order["accesses"], list[tuple[float, str, str, str]](), _START_S
    timed = order["seconds"] + _BETWEEN_S
    for access in ("write", _LAY, "read", CHECK, "randread", "randwrite"):
        if access in asked or access in (_LAY, CHECK):
            found.append((at, access, "all", ""))
            at += order["fill_s"] + _BETWEEN_S if access in (_LAY, CHECK) else timed
    for node in order["turns"]:
        for access in (one for one in ("write", "read") if one in asked):
            found.append((at, access, "one", node))
            at += timed
    return found


def lasts_s(order: Mapping[str, Any]) -> float:
    """Return how long the whole takes at most."""
    begin, access, *_ = steps(order)[-1]
    return begin + _BETWEEN_S + float(order["fill_s"] if access == CHECK else order["seconds"])


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Measure this node."""
    began, node, good = time.monotonic(), os.environ["SLURMD_NODENAME"], True
    journal, ready = Journal(folder, node), enter(folder, "fio", more=[Path(spec["path"])])
    problem = ready.problem or obstacle(spec, node)
    # On SIGTERM too the files go: Slurm's time limit must not leave them on somebody's file system.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with _own_folder(Path(spec["path"]), problem) as (place, cannot):
        problem = problem or cannot
        for at, access, clients, whose in steps(spec):
            if whose not in ("", node):
                continue
            out = folder / f"storage.{node}.{clients}.{access}.json"
            late = time.monotonic() - began - at
            if problem is None and late > _BETWEEN_S:
                words = f"the step before {access} ended {late:.0f} s too late: more fill_s, or less size_mib"
                problem = {"kind": "setup", "message": f"{node}: {words}"}
            time.sleep(max(0.0, -late) if problem is None else 0.0)
            clock, code, why = Clock(), None, problem
            if problem is None and place is not None:
                code, why = _fio(ready, place, spec, access, out)
                # What was not written cannot be read; and Slurm, which ends the job, is about to kill it.
                if access == _LAY or code == _TOLD_TO_END:
                    problem = why
            else:
                out.write_bytes(b"")
            good &= why is None
            if access != _LAY:
                about = {"path": spec["name"], "access": access, "clients": clients}
                journal.add("fio", "storage", out.name, [node], clock, code, why, params=about)
    return ExitStatus.PASS if good else ExitStatus.INCOMPLETE


def _fio(
    ready: Ready, place: Path, spec: dict[str, Any], access: str, out: Path
) -> tuple[int | None, Problem | None]:
    said = options(spec, access)
    words = [f"--{key}={value}" for key, value in said.items()]
    if access == _LAY:
        words += ["--do_verify=0", "--end_fsync=1", "--verify_state_save=0"]
    elif access == CHECK:
        words += ["--verify_only=1", "--verify_state_save=0"]
    else:
        words += ["--time_based=1", "--ramp_time=2", *(["--end_fsync=1"] if "write" in access else [])]
    # One file for each process, the same in every step; nothing of it stays in memory.
    words += [
        f"--directory={place}",
        "--filename_format=data.$jobnum",
        "--invalidate=1",
        "--group_reporting=1",
    ]
    words += ["--output-format=json", "--percentile_list=50:99", "--eta=never", "--fallocate=none"]
    limit_s = spec["fill_s"] if "verify" in said else spec["seconds"] + 4 * _BETWEEN_S
    command = [*ready.prefix, ready.program or "fio", f"--name={access}", *words]
    code, why = watched(command, out, out.with_suffix(".err"), timeout_s=limit_s)
    if why is not None and access == CHECK and _error_of(out) == errno.EILSEQ:
        return code, None  # a result, and the worst one
    return code, why


def _error_of(out: Path) -> object:
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        text = out.read_text(encoding="utf-8", errors="replace")
        return json.loads(text[text.index("{") :])["jobs"][0]["error"]
    return None


def obstacle(spec: Mapping[str, Any], node: str) -> Problem | None:
    """Return why the folder cannot be measured: another file system than wanted, too little space."""
    path = Path(spec["path"])
    try:
        kind, source = filesystem(path)
        room = os.statvfs(path)
    except OSError as error:
        return _setup(f"{node}: {path}: {error.strerror}")
    wanted = spec["filesystem"]
    if wanted not in (None, kind) or (wanted is None and spec["shared"] and not SHARED.fullmatch(kind)):
        due = wanted or "a file system of other machines (storage.filesystem names another kind)"
        return _setup(f"{node}: {path} is on {kind} of {source}, wanted {due}: is it mounted?")
    # Of a shared one, every node takes its part.
    needed = bytes_a_node(spec) * (len(spec["turns"]) or 1)
    if (free := room.f_bavail * room.f_frsize) < 1.1 * needed:
        return _setup(f"{node}: {path} has {free / 1e9:.3g} GB free, {1.1 * needed / 1e9:.3g} GB are needed")
    if not spec["direct"]:
        memory = int(_MEMORY.read_text(encoding="ascii").split(maxsplit=2)[1]) << 10
        if bytes_a_node(spec) < 2 * memory:
            least = -(-2 * memory // (spec["processes"] << 20))
            return _setup(
                f"{node}: its memory can hold the files: without direct, size_mib of {least} or more"
            )
    return None


def filesystem(path: Path, mounts: Path = _MOUNTS) -> tuple[str, str]:
    """Return type and source of the mount that a folder lies on (proc_pid_mountinfo(5)). Raises OSError."""
    # Looking into it lets an automounter mount it. The last of the longest names lies over all others.
    next(path.iterdir(), None)
    where, best = path.resolve(strict=True), (-1, "", "")
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields.split()[4])
        if where.is_relative_to(point) and len(point) >= best[0]:
            kind, source = rest.split()[:2]
            best = len(point), kind, source
    return best[1], best[2]


def _setup(message: str) -> Problem:
    return {"kind": "setup", "message": message}


@contextlib.contextmanager
def _own_folder(parent: Path, problem: Problem | None) -> Iterator[tuple[Path | None, Problem | None]]:
    """Make a folder that nobody else has, and take it away with what fio made in it."""
    if problem is not None:
        yield None, None
        return
    job_id = os.environ.get("SLURM_JOB_ID", "0")
    try:
        place = Path(tempfile.mkdtemp(prefix=f"shakedown-storage.{job_id}.", dir=parent))
    except OSError as error:
        yield (
            None,
            _setup(f"{os.environ['SLURMD_NODENAME']}: no folder can be made in {parent}: {error.strerror}"),
        )
        return
    try:
        yield place, None
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
