"""What a driver leaves in the output folder, written so that a crash at any moment loses no finished line.

Every node writes files of its own, because appends of several hosts to one file interleave on NFS:

* ``outputs.<node>.jsonl``  one OutputRecord a measurement; read them all with ``outputs.*.jsonl``
* ``journal.<node>.jsonl``  start, rounds, dropped nodes, end, each with what a reader wants to prove
* ``<test>.<a>,<b>.<rail>...txt``  perftest's own output
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shakedown.core.mesh import Pair, Slot, cell_params, is_measured, record_key
from shakedown.errors import BadInput
from shakedown.jobs.journal import now
from shakedown.mesh.perftest import Run

Record = dict[str, Any]


class Store:
    """The files of one node.

    Raises:
        BadInput: the folder cannot be written, or holds a line of an earlier start that is not a record.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self.folder, self.node = folder, node
        self._outputs = folder / f"outputs.{node}.jsonl"
        self._journal = folder / f"journal.{node}.jsonl"
        # Of the pairs that this node has already measured: cell -> (attempts made, measured).
        self._done: dict[tuple[object, ...], tuple[int, bool]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in (self._outputs, self._journal):
                _mend(path)
            lines = self._outputs.read_bytes().splitlines() if self._outputs.exists() else []
        except OSError as error:
            raise BadInput(
                f"cannot write here: {error.strerror}", fix="choose another folder", file=folder
            ) from error
        for number, line in enumerate(lines, start=1):
            try:
                self._note(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise BadInput(
                    "not an output record", fix="start in an empty folder", file=self._outputs, line=number
                ) from error

    def journal(self, event: str, **details: object) -> None:
        """Append one event."""
        _append(self._journal, {"event": event, "time": now(), "node": self.node, **details})

    def attempts(self, pair: Pair, slot: Slot, rail: str) -> int:
        """Return how often this node has started a client for a cell."""
        return self._done.get(_key(pair, slot, rail), (0, False))[0]

    def measured(self, pair: Pair, slot: Slot, rail: str) -> bool:
        """Return whether this node has measured a cell in an earlier start."""
        return self._done.get(_key(pair, slot, rail), (0, False))[1]

    def stem(self, pair: Pair, slot: Slot, rail: str, attempt: int) -> Path:
        """Return the path of a cell's files, without ending."""
        op = slot.operation
        parts = [op.test, ",".join(pair), rail.replace(">", "+"), slot.direction, str(op.size_bytes)]
        parts += [f"q{op.qps}"] if op.qps != 1 else []
        parts += [slot.rails_at_once, *([f"a{attempt}"] if attempt != 1 else [])]
        return self.folder / ".".join(parts)

    def record_run(
        self, pair: Pair, slot: Slot, rail: str, attempt: int, run: Run, problem: Record | None
    ) -> None:
        """Append the record of a client that ran."""
        self._record(
            pair, slot, rail, attempt, run.output.name, run.exit_code, run.started, run.duration_s, problem
        )

    def record_unmeasured(
        self, pair: Pair, slot: Slot, rail: str, attempt: int, kind: str, message: str
    ) -> None:
        """Append the record of a cell whose client was never started, with the reason."""
        note = Path(f"{self.stem(pair, slot, rail, attempt)}.{self.node}.note.txt")
        note.write_text(message + "\n")
        problem = {"kind": kind, "message": message[:2000]}
        self._record(pair, slot, rail, attempt, note.name, None, now(), 0.0, problem)

    def _record(
        self,
        pair: Pair,
        slot: Slot,
        rail: str,
        attempt: int,
        file: str,
        exit_code: int | None,
        started: str,
        duration_s: float,
        problem: Record | None,
    ) -> None:
        record: Record = {
            "schema": 1,
            "tool": "perftest",
            "test": slot.operation.test,
            "file": file,
            "nodes": list(pair),
            "rail": rail,
            "direction": slot.direction,
            "params": cell_params(slot.operation, slot.rails_at_once),
            "attempt": attempt,
            "exit_code": exit_code,
            "started": started,
            "duration_s": round(duration_s, 3),
            "problem": problem,
        }
        _append(self._outputs, record)
        self._note(record)

    def _note(self, record: Mapping[str, Any]) -> None:
        # A cell that was never started has not used up an attempt.
        problem = record.get("problem") or {}
        ran = record.get("exit_code") is not None or problem.get("kind") == "killed"
        attempts, measured = self._done.get(record_key(record), (0, False))
        attempts = max(attempts, int(record["attempt"])) if ran else attempts
        self._done[record_key(record)] = (attempts, measured or is_measured(record))


def _key(pair: Pair, slot: Slot, rail: str) -> tuple[object, ...]:
    params = cell_params(slot.operation, slot.rails_at_once)
    return record_key(
        {
            "test": slot.operation.test,
            "nodes": pair,
            "rail": rail,
            "direction": slot.direction,
            "params": params,
        }
    )


def _append(path: Path, entry: Mapping[str, object]) -> None:
    with path.open("ab") as sink:
        sink.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        sink.flush()
        os.fsync(sink.fileno())


def _mend(path: Path) -> None:
    """Cut off a last line that a crash left unfinished."""
    with path.open("ab+") as file:
        file.seek(0)
        whole = file.read()
        file.truncate(whole.rfind(b"\n") + 1)
