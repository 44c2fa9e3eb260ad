"""What a driver leaves in the output folder, safe against a crash at any moment, and what its journals say.

Also which cells are measured again, as a node sees its own results."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shakedown.benchmarks.perftest.mesh.perftest import Perftest
from shakedown.benchmarks.perftest.mesh.schedule import (
    Pair,
    Slot,
    cell_params,
    client_and_server,
    is_measured,
    nic_rail,
    record_key,
    slots_of,
    source_and_sink,
)
from shakedown.benchmarks.perftest.mesh.spec import RemeasureRule, Spec
from shakedown.onnode.journal import now, of_order
from shakedown.onnode.noted import note, note_line
from shakedown.records.reading import BadInput, complete_lines, holds_something, loads, read_plain
from shakedown.records.wording import FILE_NAME
from shakedown.records.writing import append_line, unused
from shakedown.statistics.robust import CellTally, Samples

_JOURNAL_FIX = "remove it, or start in an empty folder"
Event = dict[str, Any]


@dataclass(frozen=True)
class Start:
    """One start of a node's driver.

    Attributes:
        file, line: where the journal says so.
        time: RFC 3339, UTC, of the node's own clock.
        spec_sha256: digest of the specification that it was started with; empty: not said.
        versions: test -> version of perftest, for those that the node had.
    """

    file: Path
    line: int
    time: str
    spec_sha256: str
    versions: Mapping[str, str]


def journal_path(folder: Path, node: str) -> Path:
    """Return where a node's driver keeps its journal."""
    return folder / f"journal.{node}.jsonl"


def events(path: Path) -> Iterator[tuple[int, Event]]:
    """Yield (line number, event) of a journal; none if there is no such file.

    Raises BadInput: it is no plain file, or a finished line is no event. Half a last line is what a node
    leaves that died while it wrote.
    """
    for number, line in complete_lines(read_plain(path, _JOURNAL_FIX) or b""):
        try:
            entry = loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
            raise BadInput("not a journal line", fix=_JOURNAL_FIX, file=path, line=number)
        yield number, entry


def starts(path: Path) -> list[Start]:
    """Return all starts of a node's driver, in order; raises BadInput as `events` does."""
    return [start_in(path, number, entry) for number, entry in events(path) if entry["event"] == "start"]


def gids_taken(folder: Path, node: str) -> dict[str, set[int]]:
    """Return rail -> the indices of the GIDs that a node's driver gave its tests, one of each start.

    Nothing where there is no journal or it cannot be read: the GIDs in the outputs still tell the addresses.
    """
    found: dict[str, set[int]] = {}
    with suppress(BadInput):
        for _, entry in events(journal_path(folder, node)):
            gids = entry.get("gid_index") if entry["event"] == "start" else None
            for rail, index in (gids if isinstance(gids, dict) else {}).items():
                if type(index) is int:
                    found.setdefault(rail, set()).add(index)
    return found


def start_in(path: Path, number: int, entry: Event) -> Start:
    """Return the start that a line of a journal speaks of."""
    versions = entry.get("perftest")
    said = versions.items() if isinstance(versions, dict) else ()
    return Start(
        file=path,
        line=number,
        time=str(entry.get("time", "")),
        spec_sha256=str(entry.get("spec_sha256", "")),
        versions={test: version for test, version in said if isinstance(version, str)},
    )


def start_of(found: Sequence[Start], started: str) -> Start:
    """Return in which start, of at least one, something was begun, by one node's clock."""
    return next((start for start in reversed(found) if start.time <= started), found[0])


def refuse_other_specification(found: Sequence[Start], digest: str) -> None:
    """Refuse what was started with another specification: its results are of something else.

    Raises BadInput: naming the journal's line.
    """
    for start in found:
        if start.spec_sha256 != digest:
            raise BadInput(
                f"started with another specification (sha256 {start.spec_sha256[:12] or 'not said'}, "
                f"not {digest[:12]})",
                fix="give that specification, or a folder of its own for each",
                file=start.file,
                line=start.line,
            )


def refuse_other_version(start: Start, test: str, version: str | None) -> None:
    """Refuse what was measured by another perftest than this version; None: not known, and no difference.

    Raises BadInput: naming the journal's line.
    """
    earlier = start.versions.get(test)
    if earlier is not None and version is not None and earlier != version:
        raise BadInput(
            f"{test} {earlier} has measured here, and {version} is another: their results are not comparable",
            fix=f"install one version on all nodes, and start in an empty folder unless it is {earlier}",
            file=start.file,
            line=start.line,
        )


# Every node writes files of its own, because appends of several hosts to one file interleave on NFS:
#
# * ``outputs.<node>.jsonl``  one OutputRecord a measurement; read them all with ``outputs.*.jsonl``
# * ``journal.<node>.jsonl``  start, rounds, dropped nodes, end, each with the facts that readers check
# * ``<test>.<a>,<b>.<rail>...txt``  perftest's own output

Record = dict[str, Any]
_FIX = "start in an empty folder"


class NodeFiles:
    """The files of one node.

    Args:
        folder: where they lie.
        node: the node's name.
        tool: whose outputs the records say that these are.
        test_of: the test of a record, by the one that perftest ran.

    Raises BadInput: the folder cannot be written, or holds a line of an earlier start that is not a record,
    or a file of this node that is no plain one.
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
        # How long outputs took that were set aside, for want of a clock: all of this start's rounds together.
        self.set_aside_s = 0.0
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

        Raises BadInput: naming the journal's line.
        """
        found = starts(self._journal)
        # A node that is new to the folder reads one other's journal; reading all would cost nodes squared.
        others = [] if found else sorted(self.folder.glob("journal.*.jsonl"))
        refuse_other_specification(found or next((s for s in map(starts, others) if s), []), digest)
        if self._earlier and not found:
            raise BadInput(
                "has results, but no journal says which specification they belong to",
                fix=_FIX,
                file=self._outputs,
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
    line = json.dumps(entry, separators=(",", ":")).encode()
    append_line(path, line)
    note_line(path, line + b"\n")


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


# Only perftest's own table is read here, and only to choose what to measure again: the verdict reads the same
# files with the whole parser, and decides. Standard library only.

# perftest's column of a metric (linux-rdma/perftest, perftest_parameters.h, RESULT_FMT_G, RESULT_FMT_LAT).
_COLUMNS = {"bandwidth": "BW average", "latency_typical": "t_typical", "latency_p99": "99% percentile"}
_MOST_BYTES = 1 << 20
Place = tuple[int, str]  # slot index, rail


class Again:
    """What one node knows of the cells that it measured as client, and how often its NICs were in doubt."""

    def __init__(self, spec: Spec, rule: RemeasureRule, store: NodeFiles, node: str) -> None:
        self._spec, self._rule, self._store, self._node = spec, rule, store, node
        self._until = time.monotonic() + rule.within_s
        self._doubted: dict[str, set[tuple[Pair, Place]]] = defaultdict(set)

    def due(self, pair: Pair) -> list[Place]:
        """Return the cells of a pair, measured by this node, that must be measured again."""
        found: list[Place] = []
        for slot in slots_of(self._spec):
            if client_and_server(slot.operation.test, pair, slot.direction)[0] == self._node:
                found += [(slot.index, rail) for rail in slot.rails if self._is_due(pair, slot, rail)]
        return found

    def full(self) -> list[str]:
        """Return the NICs, with direction, in doubt so often that measuring again excuses nothing."""
        if time.monotonic() > self._until:  # the job's time limit would take what was measured with it
            return [f"{rail} {way}" for rail in self._spec.nodes[self._node].rails for way in ("tx", "rx")]
        return sorted(nic for nic, cells in self._doubted.items() if len(cells) >= self._rule.most_per_nic)

    def agreed(self, pair: Pair, due: Iterable[Place], full: Mapping[str, Iterable[str]]) -> list[Slot]:
        """Return the slots that both ends measure again; `full`: of each end, what it said itself.

        Both ends come to the same answer from the same two messages.
        """
        slots, wanted = slots_of(self._spec), set()
        for index, rail in sorted(set(due)):
            if not 0 <= index < len(slots) or rail not in slots[index].rails:
                continue
            nics = {node: _nic(node, pair, slots[index], rail) for node in pair}
            if not any(nics[node] in full.get(node, ()) for node in pair):
                self._doubted[nics[self._node]].add((pair, (index, rail)))
                wanted.add(index)
        return [slots[index] for index in sorted(wanted)]

    def _is_due(self, pair: Pair, slot: Slot, rail: str) -> bool:
        limits = self._rule.limits_of(slot.operation.key, slot.rails_at_once, rail, pair)
        files = self._store.started(pair, slot, rail)
        if not limits or not files or len(files) > self._rule.at_most:
            return False
        values, outside = 0, 0
        for file in files:
            numbers = _numbers(self._store.folder / file, limits) if file else None
            if numbers is not None:
                values += 1
                outside += any(
                    number < limits[metric] if metric == "bandwidth" else number > limits[metric]
                    for metric, number in numbers.items()
                )
        return CellTally(len(files), values, outside).says(self._rule.again) is Samples.OPEN


def _nic(node: str, pair: Pair, slot: Slot, rail: str) -> str:
    source, _ = source_and_sink(pair, slot.direction)
    return f"{nic_rail(node, pair, slot.direction, rail)} {'tx' if node == source else 'rx'}"


def _numbers(file: Path, metrics: Iterable[str]) -> dict[str, float] | None:
    """Return the metrics in perftest's table; None if one is not there or is no number."""
    try:
        with file.open("rb") as raw:
            lines = raw.read(_MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return None
    heads = [i for i, line in enumerate(lines) if line.lstrip().startswith("#bytes")]
    if not heads or heads[-1] + 1 >= len(lines):
        return None
    names = re.split(r"\s{2,}|\t", lines[heads[-1]].replace("#iterations", "  #iterations  ").strip())
    words = lines[heads[-1] + 1].split()
    found: dict[str, float] = {}
    for metric in metrics:
        place = next((i for i, name in enumerate(names) if name.startswith(_COLUMNS[metric])), len(words))
        with contextlib.suppress(ValueError, IndexError):
            found[metric] = float(words[place])
        if not math.isfinite(found.get(metric, math.nan)):
            return None
    return found
