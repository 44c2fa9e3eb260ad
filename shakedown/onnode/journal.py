"""Run one command under a watchdog and note, at the moment it ends, which cells its output measures."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shakedown.onnode.noted import note, note_line
from shakedown.records.writing import append_line

NONCE = "SHAKEDOWN_NONCE"  # the environment variable that jobs of an order have
_GRACE_S = 10.0  # between SIGTERM, on which srun ends its own step, and SIGKILL


def now() -> str:
    """Return the time as records have it: RFC 3339, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def job(main: Callable[[Path, dict[str, Any]], int]) -> Callable[[Sequence[str]], int]:
    """Make a program from what it does with a job's folder, its one argument, and the `spec.json` in that."""

    def program(words: Sequence[str]) -> int:
        if len(words) != 1:
            print(f"usage: python -m {main.__globals__['__spec__'].name} FOLDER", file=sys.stderr)
            return 2
        folder = Path(words[0])
        return main(folder, json.loads((folder / "spec.json").read_bytes()))

    return program


def ran(
    words: Sequence[str], timeout_s: float, stderr: int = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[str] | None:
    """Run a program that reads nothing; None: it cannot run, or has no end in time."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, **variables},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def watched(
    command: list[str],
    out: Path,
    err: Path,
    *,
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    standing: Callable[[], str] | None = None,
) -> tuple[int | None, dict[str, str] | None]:
    """Run a command in its own process group and end that group, and nothing else, when time is up.

    Returns its exit status (None: ended by a signal or by us) and the problem, None after a clean end.
    `standing` is asked what stands still when time is up, while all of it is still there.
    """
    name = Path(command[0]).name
    try:
        with out.open("wb") as stdout, err.open("wb") as stderr:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                env={**os.environ, **(variables or {})},
            )
    except OSError as error:
        return None, {"kind": "missing-tool", "message": f"{command[0]}: {error.strerror}"}
    # Slurm ends a job with SIGTERM to this process: pass it on, and still write the record.
    before = signal.signal(signal.SIGTERM, lambda *_: _end(child, signal.SIGTERM))
    try:
        code = child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        where = f": {standing()}" if standing else ""
        _end(child, signal.SIGTERM)
        try:
            child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            _end(child, signal.SIGKILL)
            child.wait()
        last = " ".join(out.read_text(encoding="utf-8", errors="replace")[-200:].split())
        message = f"{name}: hung, no end within {timeout_s:g} s{where}; "
        message += f"the watchdog ended this run only; last: {last!r}"
        return None, {"kind": "killed", "message": message}
    finally:
        signal.signal(signal.SIGTERM, before)
    if code == 0:
        return 0, None
    words = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in (err, out))
    if (known := cause(words)) is None and (task := first_killed(words)):
        known = {"kind": "killed", "message": f"{name}: {task}"}
    return (code if code > 0 else None), known or failure(name, code, words)


def failure(program: str, code: int, words: str, said: str = "") -> dict[str, str]:
    """Return how a program ended, and why, by its own words and what its libraries `said` elsewhere."""
    how = f"exit status {code}" if code > 0 else f"signal {-code}"
    parts = (Path(program).name, how, said, _telling(words.strip()))
    told = ": ".join(part for part in parts if part)
    return {"kind": "killed" if code < 0 else "other", "message": told}


# What says nothing of the cause: Open MPI on its layers, as we ask it to, Python on its way to an error, and
# what Slurm says of a step that it ends because of it.
_CHATTER = re.compile(
    r"\[[^]]+\] (?:mca: base: |select|selected )|Traceback|  File |    |-{70,}\Z"
    r"|srun: (?:cluster configuration lacks|First task exited|StepId=|launch/slurm: |Job step aborted)"
    r"|srun: error: \S+ tasks? [0-9,-]+: (?:Killed|Term)|slurmstepd\S* error: \*\*\* STEP "
)


def _telling(text: str) -> str:
    """Return the first and the last lines that tell of a cause: whole ones, 250 characters of each."""
    lines = [line for line in text.splitlines() if line.strip() and not _CHATTER.match(line)]
    told = "\n".join(lines or text.splitlines())
    if len(told) <= 500:
        return told
    first, end = told[:250].rpartition("\n")[0] or told[:250], told[-250:]
    return f"{first}\n...\n{end.partition(chr(10))[2] or end}"


# Words of a failed program, and what they mean. The first that is found is the cause.
CAUSES = (
    ("error while loading shared libraries", "missing-tool", "a shared library is missing"),
    ("command not found", "missing-tool", "a program is missing"),
    ("No such file or directory", "missing-tool", "a file is missing"),
    ("driver version is insufficient", "environment", "the driver is too old for NCCL's CUDA"),
    ("system not yet initialized", "environment", "the fabric manager of the NVSwitches does not run"),
    ("uncorrectable ECC error", "environment", "an uncorrectable ECC error of a GPU"),
    ("out of memory", "environment", "too little GPU memory is free"),
    ("no CUDA-capable device", "environment", "no GPU can be used"),
    ("invalid device ordinal", "environment", "fewer GPUs than planned"),
    ("Invalid number of GPUs", "environment", "fewer GPUs than planned"),
    ("symbol lookup error", "environment", "a library is of another version than the program was built for"),
    # mpirun, 4.1 to 6.0; what it says of it stands in the lines up to the frame's end.
    ("not enough slots available", "environment", "mpirun found fewer places than ranks"),
    ("more processes than the ppr", "environment", "mpirun found fewer places than ranks"),
    ("orte_init failed", "environment", "mpirun does not work with this Slurm, or outside of a job"),
    ("unrecognized option", "environment", "the program is of a release that does not know an option"),
    ("unknown option", "environment", "the program is of a release that does not know an option"),
    ("unable to launch the specified application", "missing-tool", "mpirun cannot start the program"),
)
_FRAME = "-" * 70  # Open MPI's, of 74


def cause(words: str) -> dict[str, str] | None:
    """Return the known cause of a failure from what the program printed."""
    lines, frame = words.splitlines(), -9
    for number, line in enumerate(lines):
        frame = number if line.startswith(_FRAME) else frame
        for mark, kind, meaning in CAUSES:
            if mark in line:
                more = lines[number:] if number - frame < 4 else [line]
                said = " ".join(" ".join(x for x in more if not x.startswith(_FRAME)).split())
                return {"kind": kind, "message": f"{meaning}: {said[:300]}"}
    return None


# What srun says of a task that ended badly, and of its ending the other tasks after that.
_TASK = re.compile(r"srun: error: (?P<node>\S+): (?P<tasks>tasks? [\d,-]+): (?P<how>.+)$")
_OTHERS = re.compile(r"srun: .*_step_signal: Terminating|slurmstepd\S*: error: \*\*\* STEP .* CANCELLED")
_NO_SIGNAL = ("Exited with exit code", "Terminated")


def first_killed(words: str) -> str | None:
    """Return which task of a step a signal ended first, and on which node; None if none did.

    The first task that srun names decides: it ends the others by signals of its own.
    """
    for line in words.splitlines():
        if _OTHERS.match(line):
            return None
        if found := _TASK.match(line):
            if found["how"].startswith(_NO_SIGNAL):
                return None
            return f"{found['tasks']} on {found['node']} ended by a signal: {found['how'][:60]}"
    return None


def _end(child: subprocess.Popen[bytes], how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, how)


def of_order() -> dict[str, str]:
    """Return what a record bears of the order that its job is run under; nothing without one."""
    nonce = os.environ.get(NONCE)
    return {"nonce": nonce} if nonce else {}


class Clock:
    """When something began, and how long it took."""

    def __init__(self) -> None:
        self.started, self._begin = now(), time.monotonic()

    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._begin


class Journal:
    """The journal of one job's outputs, or of one node's."""

    def __init__(self, folder: Path, node: str | None = None) -> None:
        self.path = folder / ("outputs.jsonl" if node is None else f"outputs.{node}.jsonl")

    def add(
        self,
        tool: str,
        test: str,
        file: str,
        nodes: list[str],
        clock: Clock,
        exit_code: int | None,
        problem: dict[str, str] | None,
        *,
        params: Mapping[str, Any] | None = None,
        rail: str | None = None,
        direction: str | None = None,
        also: Iterable[str] = (),
    ) -> None:
        """Write one record; it is on disk when this returns. Its outputs are complete: they are noted.

        `clock`: since when it was measured. `also`: further outputs that belong to the record, beside `file`.
        """
        note(self.path.parent, file, *also)
        record = {
            "schema": 1,
            "tool": tool,
            "test": test,
            "file": file,
            "nodes": nodes,
            "rail": rail,
            "direction": direction,
            "params": dict(params or {}),
            "exit_code": exit_code,
            "started": clock.started,
            "duration_s": round(clock.seconds(), 3),
            "problem": problem,
            **of_order(),
        }
        line = json.dumps(record).encode()
        append_line(self.path, line)
        note_line(self.path, line + b"\n")
