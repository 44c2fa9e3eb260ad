"""What a driver leaves in the output folder, written so that a crash at any moment loses no finished line.

Every node writes files of its own, because appends of several hosts to one file interleave on NFS:

* ``outputs.<node>.jsonl``  one OutputRecord a measurement; read them all with ``outputs.*.jsonl``
* ``journal.<node>.jsonl``  start, rounds, dropped nodes, end, each with the facts that readers check
* ``<test>.<a>,<b>.<rail>...txt``  perftest's own output
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shakedown.benchmarks.perftest.mesh.journals import (
    journal_path,
    refuse_other_specification,
    refuse_other_version,
    start_of,
    starts,
)
from shakedown.benchmarks.perftest.mesh.perftest import Perftest
from shakedown.benchmarks.perftest.mesh.schedule import Pair, Slot, cell_params, is_measured, record_key
from shakedown.onnode.journal import now, of_order
from shakedown.onnode.noted import note, note_line
from shakedown.records.errors import BadInput
from shakedown.records.names import FILE_NAME
from shakedown.records.untrusted import complete_lines, holds_something, loads, read_plain, unused

Record = dict[str, Any]
_FIX = "start in an empty folder"


class NodeFiles:
    """The files of one node.

    Args:
        folder: where they lie.
        node: the node's name.
        tool: whose outputs the records say that these are.
        test_of: the test of a record, by the one that perftest ran.

    Raises:
        BadInput: the folder cannot be written, or holds a line of an earlier start that is not a record, or a
            file of this node that is no plain one.
    """

    def __init__(
        self, folder: Path, node: str, *, tool: str = "perftest", test_of: Callable[[str], str] = str
    ) -> None:
        self.folder, self.node, self._tool, self._test_of = folder, node, tool, test_of
        self._outputs = folder / f"outputs.{node}.jsonl"
        self._journal = journal_path(folder, node)
        # Of the pairs that this node has already measured: cell -> (attempts made, measured).
        self._done: dict[tuple[object, ...], tuple[int, bool]] = {}
        # Outputs of the clients that were started, in order; empty: spoiled, so it has no value.
        self._started: dict[tuple[object, ...], list[str]] = {}
        # (test, when it was started) of what an earlier start has measured.
        self._earlier: list[tuple[str, str]] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            content = _mend(self._outputs)
            _mend(self._journal)
        except OSError as error:
            raise BadInput(
                f"cannot write here: {error.strerror}", fix="choose another folder", file=folder
            ) from error
        for number, line in complete_lines(content):
            try:
                record = _record_of(loads(line))
            except ValueError as error:
                raise BadInput(
                    f"not an output record: {error}", fix=_FIX, file=self._outputs, line=number
                ) from error
            # A result whose file is gone does not count as measured, but its attempt was made all the same.
            self._note(record, there=holds_something(folder / record["file"]))
            if is_measured(record):
                self._earlier.append((record["test"], record["started"]))

    def refuse_other_start(self, digest: str, versions: Mapping[str, str | None]) -> None:
        """Refuse a folder of another specification, or of results of another perftest.

        Args:
            digest: of the specification of this start.
            versions: test -> version of perftest on this node; None: it is missing, so it measures nothing.

        Raises:
            BadInput: naming the journal's line.
        """
        found = starts(self._journal)
        # A node that is new to the folder reads one other's journal; reading all would cost nodes squared.
        others = [] if found else sorted(self.folder.glob("journal.*.jsonl"))
        refuse_other_specification(found or next((s for s in map(starts, others) if s), []), digest)
        if self._earlier and not found:
            raise BadInput(
                "has results, but no journal says of which specification", fix=_FIX, file=self._outputs
            )
        for test, started in self._earlier:
            refuse_other_version(start_of(found, started), test, versions.get(test))

    def journal(self, event: str, **details: object) -> None:
        """Append one event."""
        _append(self._journal, {"event": event, "time": now(), "node": self.node, **details})

    def attempts(self, pair: Pair, slot: Slot, rail: str) -> int:
        """Return how often this node has started a client for a cell."""
        return self._done.get(self._key(pair, slot, rail), (0, False))[0]

    def measured(self, pair: Pair, slot: Slot, rail: str) -> bool:
        """Return whether this node has measured a cell in an earlier start."""
        return self._done.get(self._key(pair, slot, rail), (0, False))[1]

    def started(self, pair: Pair, slot: Slot, rail: str) -> list[str]:
        """Return the output of each client that this node started for a cell; empty text: it has no value."""
        return self._started.get(self._key(pair, slot, rail), [])

    def stem(self, pair: Pair, slot: Slot, rail: str, attempt: int) -> Path:
        """Return the path of a cell's files, without ending."""
        op = slot.operation
        parts = [op.test, ",".join(pair), rail.replace(">", "+"), slot.direction, str(op.size_bytes)]
        parts += [f"q{op.qps}"] if op.qps != 1 else []
        parts += [op.memory] if op.memory else []
        parts += [slot.rails_at_once, *([f"a{attempt}"] if attempt != 1 else [])]
        return self.folder / ".".join(parts)

    def record_run(
        self, pair: Pair, slot: Slot, rail: str, attempt: int, run: Perftest, problem: Record | None
    ) -> None:
        """Append the record of a client that ran."""
        self._record(
            pair, slot, rail, attempt, run.output.name, run.exit_code, run.started, run.duration_s, problem
        )

    def record_unmeasured(
        self, pair: Pair, slot: Slot, rail: str, attempt: int, kind: str, message: str
    ) -> None:
        """Append the record of a cell whose client was never started, with the reason."""
        note = unused(Path(f"{self.stem(pair, slot, rail, attempt)}.{self.node}.note.txt"))
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
            "tool": self._tool,
            "test": self._test_of(slot.operation.test),
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
            **of_order(),
        }
        note(self.folder, file)
        _append(self._outputs, record)
        self._note(record, there=True)

    def _note(self, record: Mapping[str, Any], *, there: bool) -> None:
        # A cell that was never started has not used up an attempt.
        problem = record.get("problem") or {}
        ran = record.get("exit_code") is not None or problem.get("kind") == "killed"
        attempts, measured = self._done.get(record_key(record), (0, False))
        if ran:
            good = there and is_measured(record)
            self._started.setdefault(record_key(record), []).append(record["file"] if good else "")
        if ran and record["attempt"] >= attempts:
            # The last attempt decides: what was measured once and then failed is not settled.
            attempts, measured = record["attempt"], there and is_measured(record)
        self._done[record_key(record)] = (attempts, measured)

    def _key(self, pair: Pair, slot: Slot, rail: str) -> tuple[object, ...]:
        return record_key(
            {
                "test": self._test_of(slot.operation.test),
                "nodes": pair,
                "rail": rail,
                "direction": slot.direction,
                "params": cell_params(slot.operation, slot.rails_at_once),
            }
        )


def _record_of(entry: object) -> Record:
    """Return the parsed line as a record whose fields can be relied on; raises ValueError."""
    record = entry if isinstance(entry, dict) else {}
    nodes, params, problem = record.get("nodes"), record.get("params"), record.get("problem")
    attempt, code, file = record.get("attempt"), record.get("exit_code"), record.get("file")
    sound = {
        "test, rail, direction or started": all(
            isinstance(record.get(name), str) for name in ("test", "rail", "direction", "started")
        ),
        "file": isinstance(file, str) and re.fullmatch(FILE_NAME, file),
        "nodes": isinstance(nodes, list) and all(isinstance(node, str) for node in nodes),
        "params": isinstance(params, dict) and all(isinstance(v, int | float | str) for v in params.values()),
        "attempt": type(attempt) is int and attempt >= 1,
        "exit_code": code is None or type(code) is int,
        "problem": problem is None or (isinstance(problem, dict) and isinstance(problem.get("kind"), str)),
    }
    for name, well in sound.items():
        if not well:
            raise ValueError(f"no {name} that can be used")
    return record


def _append(path: Path, entry: Mapping[str, object]) -> None:
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    with path.open("ab") as sink:
        sink.write(line)
        sink.flush()
        os.fsync(sink.fileno())
    note_line(path, line)


def _mend(path: Path) -> bytes:
    """Cut off a last line that a crash left unfinished, and return the rest; raises BadInput, OSError."""
    whole = read_plain(path, _FIX)
    if whole is None:
        path.touch()
        return b""
    end = whole.rfind(b"\n") + 1
    if end < len(whole):
        os.truncate(path, end)
    return whole[:end]
