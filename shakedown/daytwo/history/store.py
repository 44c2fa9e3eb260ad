"""The history as a folder of Parquet files: the values that a run adds, and how months are merged."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ValidationError

from shakedown.judge.cells import SEVERITY
from shakedown.judge.verdict import Judged
from shakedown.records.base import Better, Document, Name, Outcome, Stage, params_text, to_json
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput, loads, read_bytes
from shakedown.records.results import Snapshot
from shakedown.records.verdict import CellVerdict
from shakedown.records.writing import lock_file, settle, write_aside

WHOLE_JOB = "*"  # a value over more nodes than a pair belongs to none of them. No node can have this name.
# A run whose own times differ by more than this from the time of its plan was made while a clock jumped.
_BEFORE_PLAN = timedelta(hours=1)
_LONGEST_RUN = timedelta(days=7)
_AHEAD = timedelta(hours=1)


_Cell = tuple[str, CellVerdict]  # the partner of a pair, else an empty name


@dataclass(frozen=True, slots=True)
class NodeValue:
    """One node's value of one metric in one run, over its partners."""

    node: str
    metric: str  # stage/test/metric/rail/send or receive/parameters
    unit: str
    better: Better
    value: float | None  # None: planned and not measured, or not usable
    cells: int
    outcome: Outcome  # the worst of its cells
    reference: str


def node_values(judged: Judged) -> list[NodeValue]:
    """Return a run's values per node and metric, sorted.

    The metric names the node's own end of a pair, `send` or `receive`, so that a NIC that is slow one way
    only is not averaged with its good way. `over_partners` keeps one bad partner out.
    """
    found: dict[tuple[str, str], list[_Cell]] = {}
    about: dict[str, tuple[str, Better, str]] = {}
    for block in judged.items:
        item = block.item
        if item.stage is Stage.CONFIG or item.metric.startswith("counter."):
            continue
        params = params_text(item.params)
        start = f"{item.stage}/{item.test}/{item.metric}"
        for (_, nodes, rail, direction), verdict in zip(item.cells(), block.cells, strict=True):
            for node, role in _roles(nodes, direction):
                tail = params if node != WHOLE_JOB else f"{params},nodes={len(nodes)}"
                metric = f"{start}/{rail or '-'}/{role}/{tail}"
                about[metric] = (item.unit, item.better, item.reference)
                partner = next((n for n in nodes if n != node), "") if len(nodes) == 2 else ""
                found.setdefault((node, metric), []).append((partner, verdict))
    return [_value(node, metric, cells, about[metric]) for (node, metric), cells in sorted(found.items())]


def _roles(nodes: Sequence[str], direction: str | None) -> Iterator[tuple[str, str]]:
    if len(nodes) > 2:
        yield WHOLE_JOB, "-"
    elif len(nodes) == 2 and direction in ("forward", "reverse"):
        first, second = ("send", "receive") if direction == "forward" else ("receive", "send")
        yield nodes[0], first
        yield nodes[1], second
    else:
        for node in nodes:
            yield node, direction or "-"


def over_partners(values: Mapping[str, Sequence[float]], better: Better) -> float:
    """Return a node's value from what it measured with each partner: the median, of two partners the better.

    In a group of three with one sick node each innocent one has a good and a bad partner. A node that is sick
    itself is slow with both.
    """
    middles = [median(of) for of in values.values()]
    if len(middles) == 2:
        return max(middles) if better is Better.HIGHER else min(middles)
    return median(middles)


def _value(node: str, metric: str, cells: Sequence[_Cell], about: tuple[str, Better, str]) -> NodeValue:
    usable: dict[str, list[float]] = {}
    for partner, v in cells:
        if v.outcome not in (Outcome.PASS, Outcome.FAIL) or v.rule == "impossible":
            continue
        if v.value is not None and math.isfinite(v.value):
            usable.setdefault(partner, []).append(v.value)
    worst = max((v.outcome for _, v in cells), key=lambda o: SEVERITY[o])
    unit, better, reference = about
    value = over_partners(usable, better) if usable else None
    return NodeValue(node, metric, unit, better, value, sum(map(len, usable.values())), worst, reference)


def content_digest(values: Sequence[NodeValue], started: Sequence[str]) -> str:
    """Return what is the same for two copies of one run, whatever they call themselves."""
    digest = hashlib.sha256()
    for v in values:
        digest.update(f"{v.node}\0{v.metric}\0{v.value!r}\n".encode())
    digest.update("\0".join(sorted(set(started))).encode())
    return digest.hexdigest()


def host_states(inventory: Snapshot | None) -> dict[str, tuple[str, list[tuple[str, str, str, str]]]]:
    """Return each host's parts as (kind, name, attribute, value) rows, with their digest."""
    rows: dict[str, list[tuple[str, str, str, str]]] = {}
    for part in inventory.components if inventory else ():
        of_host = rows.setdefault(part.host, [])
        of_host += [(part.kind, part.name, k, v) for k, v in part.attributes.items()]
        if not part.attributes:
            of_host.append((part.kind, part.name, "", ""))
    states = {}
    for host, parts in rows.items():
        parts.sort()
        states[host] = (hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32], parts)
    return states


def clock_problem(plan: Plan, started: Sequence[str], now: datetime) -> str:
    """Say why a run's times cannot be right; empty if they can."""
    created = _moment(plan.created)
    if created is None:
        return f"planned at {plan.created!r}, which is no time"
    if created > now + _AHEAD:
        return f"planned at {plan.created}, which is yet to come"
    for text in started:
        at = _moment(text)
        if at is None:
            return f"a measurement started at {text!r}, which is no time"
        if not created - _BEFORE_PLAN <= at <= created + _LONGEST_RUN:
            return f"planned at {plan.created}, but measured at {text}: a clock jumped"
    return ""


def _moment(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


#     store.json            the system whose runs these are
#     ledger/RUN.json       written last: a run without it was not taken in
#     values/RUN.parquet    one row per node and metric
#     hosts/RUN.parquet     the digest of each host's parts
#     states/RUN.parquet    the parts behind digests that no earlier run had
#     months/YYYY-MM.N.*    values by metric, values by node, and hosts of a month; the .json is written last
#
# Nothing is ever changed in place, so that a killed process, a full disk or a cut file costs one file, which
# is named and can be taken in again from the run's folder. A store is for one system.

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("ms", tz="UTC")  # Parquet knows no seconds
VALUES = pa.schema(
    [
        ("time", _TIME),
        ("run", _TEXT),
        ("node", _TEXT),
        ("metric", _TEXT),
        ("unit", _TEXT),
        ("better", _TEXT),
        ("value", pa.float64()),
        ("cells", pa.int32()),
        ("outcome", _TEXT),
        ("reference", _TEXT),
    ]
)
HOSTS = pa.schema([("time", _TIME), ("run", _TEXT), ("host", _TEXT), ("digest", _TEXT)])
STATES = pa.schema(
    [("digest", _TEXT), ("kind", _TEXT), ("name", _TEXT), ("attribute", _TEXT), ("value", _TEXT)]
)
# Rows that are read together at least: about one node's share of a month, and no more than a page of memory.
ROW_GROUP = 32_768


class LedgerRun(Document):
    """One run of the ledger."""

    run: Name
    system: Name
    created: str
    time: str  # where on the axis: `created`, or what a person said it was
    content: str  # digest of the values
    # The least digests of the raw outputs (`ingest.OUTPUTS_KEPT`): what a copy shares with its original.
    outputs: tuple[str, ...] = ()
    rows: int
    nodes: int
    metrics: tuple[str, ...]
    others: tuple[Name, ...] = ()  # hosts of the inventory that are no nodes: switches, the submit host


class Month(Document):
    """What a month's file holds."""

    month: str
    number: int
    runs: tuple[Name, ...]
    rows: int


@dataclass(frozen=True)
class Layout:
    """Where things lie."""

    root: Path

    def ledger(self, run: str) -> Path:
        """A run's ledger entry."""
        return self.root / "ledger" / f"{run}.json"

    def file(self, kind: str, run: str) -> Path:
        """A run's file of one kind (values, hosts, states)."""
        return self.root / kind / f"{run}.parquet"

    def month(self, month: str, number: int, ending: str) -> Path:
        """A month's file (values.parquet, hosts.parquet) or what it holds (json)."""
        return self.root / "months" / f"{month}.{number}.{ending}"


class HistoryStore:
    """A history. `problems` says what could not be read; a store with problems answers, but not for all."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.problems: list[str] = []
        path = root / "store.json"
        if not path.is_file():
            raise BadInput(
                "is no history", fix="shakedown history ingest --store FOLDER RUN makes one", file=root
            )
        try:
            self.system = str(loads(read_bytes(path))["system"])
        except (BadInput, ValueError, KeyError, TypeError):
            raise BadInput(
                "cannot be read", fix='write {"schema": 1, "system": "NAME"} again', file=path
            ) from None
        self._load()

    def _load(self) -> None:
        root = self.layout.root
        self.problems = []
        self.entries: dict[str, LedgerRun] = {}
        for file in sorted((root / "ledger").glob("*.json")):
            entry = self._record(file, LedgerRun)
            if isinstance(entry, LedgerRun):
                self.entries[entry.run] = entry
        self.months: dict[str, Month] = {}
        for file in sorted((root / "months").glob("*.json")):
            month = self._record(file, Month)
            # Of two numbers of one month the higher holds the lower's runs: a merge was cut off at the end.
            if isinstance(month, Month) and month.number > self._number(month.month):
                self.months[month.month] = month
        self._tell_what_is_gone()

    def _tell_what_is_gone(self) -> None:
        """Name each run that has lost its ledger entry or the states that later runs build upon."""
        self.gone: list[str] = []
        of_runs = {path.stem for path in (self.layout.root / "values").glob("*.parquet")}
        of_months = {run for month in self.months.values() for run in month.runs}
        for run in sorted((of_runs | of_months) - {*self.entries}):
            self._tell_gone(run, self.layout.ledger(run))  # one that cannot be read is named already
        for run in self.entries:
            self._tell_gone(run, self.layout.file("states", run))

    def _tell_gone(self, run: str, file: Path) -> None:
        if not file.exists():
            self.gone.append(run)
            self.problems.append(f"{file.parent.name}/{file.name} is missing: ingest again {run}")

    @classmethod
    def create(cls, root: Path, system: str) -> HistoryStore:
        """Open a store, made if it is not there."""
        for folder in ("ledger", "values", "hosts", "states", "months"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        if not (root / "store.json").exists():
            write_aside(root / "store.json", (json.dumps({"schema": 1, "system": system}) + "\n").encode())
        return cls(root)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store for writing, as it is now. Raises BadInput if another process holds it."""
        with lock_file(self.layout.root / ".lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BadInput(
                    "is being written by another process", fix="wait for it", file=self.layout.root
                ) from None
            self._load()  # what another process wrote since it was opened
            yield

    def files(self, kind: str) -> list[tuple[Path, tuple[str, ...]]]:
        """Return the files of a kind, each with its runs; a run that a month holds is read there.

        `values` and `nodes` hold the same rows: in months the one lies by metric, the other by node.
        """
        of_a_run = "hosts" if kind == "hosts" else "values"
        merged = {run for month in self.months.values() for run in month.runs}
        files = [
            (self.layout.month(m.month, m.number, f"{kind}.parquet"), m.runs) for m in self.months.values()
        ]
        single = sorted(run for run in self.entries if run not in merged)
        return files + [(self.layout.file(of_a_run, run), (run,)) for run in single]

    def read(
        self,
        path: Path,
        schema: pa.Schema,
        runs: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        filters: pc.Expression | None = None,
        plain: Sequence[str] = (),
    ) -> pa.Table:
        """Read a Parquet file, or nothing and a problem that says what to take in again.

        `plain` names text columns that are filtered on: only of those can row groups be passed over unread.
        """
        fields = [schema.field(name) for name in columns or schema.names]
        coded = [f.name for f in fields if pa.types.is_dictionary(f.type) and f.name not in plain]
        try:
            return pq.read_table(
                path,
                columns=[f.name for f in fields],
                filters=filters,
                read_dictionary=coded,
                page_checksum_verification=True,
            )
        except (OSError, pa.ArrowException) as error:
            which = ", ".join(runs[:5]) + (f" and {len(runs) - 5} more" if len(runs) > 5 else "")
            why = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            problem = f"{path.name} cannot be read ({why}): ingest again {which}"
            if problem not in self.problems:
                self.problems.append(problem)
            return pa.schema(
                [f if f.name not in plain else pa.field(f.name, pa.string()) for f in fields]
            ).empty_table()

    def add(self, entry: LedgerRun, values: pa.Table, hosts: pa.Table, states: pa.Table) -> None:
        """Write a run's files, the ledger last. Raises BadInput if the disk is full; nothing is added."""
        write_parquet(self.layout.file("states", entry.run), states)
        write_parquet(self.layout.file("hosts", entry.run), hosts)
        write_parquet(self.layout.file("values", entry.run), sort_rows(values, ("node", "metric")))
        write_aside(self.layout.ledger(entry.run), to_json(entry))
        self.entries[entry.run] = entry

    def month_of(self, run: str) -> Month | None:
        """Return the month that a run was merged into, if it was."""
        return next((m for m in self.months.values() if run in m.runs), None)

    def readable(self, run: str) -> bool:
        """Whether a run can be read back, from every file that holds something of it: each page of each."""
        month = self.month_of(run)
        if month is None:
            return self.sound(*(self.layout.file(kind, run) for kind in ("values", "hosts", "states")))
        kinds = ("values", "nodes", "hosts")
        return self.sound(*(self.layout.month(month.month, month.number, f"{k}.parquet") for k in kinds))

    def sound(self, *paths: Path) -> bool:
        """Whether each page of these files can be read."""
        try:
            for path in paths:
                pq.read_table(path, page_checksum_verification=True)
        except (OSError, pa.ArrowException):
            return False
        return True

    def _record(self, path: Path, kind: type[LedgerRun] | type[Month]) -> LedgerRun | Month | None:
        try:
            return kind.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            self.problems.append(f"{path.name} cannot be read: ingest {path.stem} again")
            return None

    def _number(self, month: str) -> int:
        return self.months[month].number if month in self.months else 0


def values_table(values: Sequence[NodeValue], run: str, time: datetime) -> pa.Table:
    """Return a run's values as a table in the store's columns."""
    rows = [
        (time, run, v.node, v.metric, v.unit, v.better.value, v.value, v.cells, v.outcome.value, v.reference)
        for v in values
    ]
    return table_of(rows, VALUES)


def table_of(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of a schema."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [
        pa.array(column, type=field.type.value_type).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(column, type=field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def sort_rows(table: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Return a table sorted by some columns, the first one first."""
    keys = []
    for name in reversed(by):  # lexsort: the last is the first
        column = table[name]
        time = pa.types.is_timestamp(column.type)
        keys.append(column.cast(pa.int64()).to_numpy() if time else codes(column)[1])
    return table.take(pa.array(np.lexsort(keys)))


def codes(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """Return the sorted distinct texts of a column, and each row's place among them."""
    array = column.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    names = array.dictionary.to_pylist()
    used = np.unique(array.indices.to_numpy())
    order = sorted(used.tolist(), key=lambda i: names[i])
    place = np.zeros(len(names), dtype=np.int64)
    place[order] = np.arange(len(order))
    return [names[i] for i in order], place[array.indices.to_numpy()]


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a file whole or not at all. Raises BadInput if there is no room for it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        pq.write_table(
            table,
            aside,
            compression="zstd",
            row_group_size=ROW_GROUP,
            write_page_checksum=True,
            store_schema=False,
        )
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(path)
        settle(path.parent)
    except OSError as error:
        raise BadInput(
            f"cannot be written: {error.strerror or error}", fix="make room, then ingest again", file=path
        ) from None
    finally:
        aside.unlink(missing_ok=True)
