"""Questions to a history: one node over time, one metric of all nodes, and what changed where."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shakedown.daytwo.compare.run_folders import Change, PartKey, part_differences
from shakedown.daytwo.history.store import HOSTS, STATES, VALUES, HistoryStore, codes, sort_rows
from shakedown.records.base import Better, Outcome

Floats = NDArray[np.float64]
Row = TypeVar("Row")


@dataclass(frozen=True)
class NodeSeries:
    """One metric of one node, in time. Nights without a usable value are NaN."""

    node: str
    metric: str
    unit: str
    better: Better
    times: NDArray[np.datetime64]
    runs: tuple[str, ...]
    values: Floats
    outcomes: tuple[str, ...]


@dataclass(frozen=True)
class FleetSeries:
    """One metric of all nodes: nodes x runs, the runs in time."""

    metric: str
    unit: str
    better: Better
    nodes: tuple[str, ...]
    times: NDArray[np.datetime64]
    values: Floats


@dataclass(frozen=True)
class Event:
    """A change of a host's parts, seen first by one run."""

    since: np.datetime64  # the last run that saw the old state
    until: np.datetime64  # the first run that saw the new one
    run: str
    change: Change

    def __str__(self) -> str:
        return str(self.change)


def node_series(
    store: HistoryStore, node: str, *, metric: str = "", since: datetime | None = None
) -> list[NodeSeries]:
    """Return a node's series, by metric. `metric` is a part of its name, `since` the first time wanted."""
    wanted = pc.field("node") == node
    if since is not None:
        wanted &= pc.field("time") >= pa.scalar(since, VALUES.field("time").type)
    table = _read(store, "nodes", VALUES, "node", wanted)
    groups: dict[str, list[dict[str, object]]] = defaultdict(list)
    for row in sort_rows(table, ("time", "run")).to_pylist():
        if metric in str(row["metric"]):
            groups[str(row["metric"])].append(row)
    return [
        _series(node, name, _one_unit(store, name, rows, lambda row: (str(row["unit"]), str(row["better"]))))
        for name, rows in sorted(groups.items())
    ]


def _one_unit(
    store: HistoryStore, metric: str, rows: list[Row], unit_of: Callable[[Row], tuple[str, str]]
) -> list[Row]:
    """Return the rows, in time, that are in the last one's unit; what is left out is a problem of the store.

    A number in another unit, or of which less is better now, is no earlier value of the same.
    """
    last = unit_of(rows[-1])
    kept = [row for row in rows if unit_of(row) == last]
    if len(kept) < len(rows):
        others = sorted({unit_of(row) for row in rows} - {last})
        was = ", ".join(f"{unit} ({better} is better)" for unit, better in others)
        problem = (
            f"{metric} was in {was} and is in {last[0]} ({last[1]} is better): what was before is left out"
        )
        if problem not in store.problems:
            store.problems.append(problem)
    return kept


def _series(node: str, metric: str, rows: list[dict[str, object]]) -> NodeSeries:
    values = [np.nan if r["value"] is None else float(str(r["value"])) for r in rows]
    return NodeSeries(
        node,
        metric,
        str(rows[-1]["unit"]),
        Better(str(rows[-1]["better"])),
        np.array([_stamp(r["time"]) for r in rows], dtype="datetime64[s]"),
        tuple(str(r["run"]) for r in rows),
        np.array(values, dtype=np.float64),
        tuple(str(r["outcome"]) for r in rows),
    )


def _stamp(time: object) -> str:
    assert isinstance(time, datetime)
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def metrics(store: HistoryStore) -> list[str]:
    """Return the names of all metrics."""
    return sorted({name for entry in store.entries.values() for name in entry.metrics})


def fleet(
    store: HistoryStore, metric: str, *, since: datetime | None = None, outcome: Outcome | None = None
) -> FleetSeries | None:
    """Return one metric of all nodes, with that outcome only if one is given; None if there is no value."""
    wanted = pc.field("metric") == metric
    if since is not None:
        wanted &= pc.field("time") >= pa.scalar(since, VALUES.field("time").type)
    if outcome is not None:
        wanted &= pc.field("outcome") == outcome.value
    columns = ["time", "run", "node", "metric", "unit", "better", "value", "outcome"]
    table = _read(store, "values", VALUES, "metric", wanted, columns)
    if table.num_rows == 0:
        return None
    table = _of_last_unit(store, metric, table)
    nodes, row = codes(table["node"])
    seconds = table["time"].cast(pa.int64()).to_numpy() // 1000
    runs, run = codes(table["run"])
    # Runs in time; two at the same moment keep the order of their names.
    first = np.full(len(runs), np.iinfo(np.int64).max)
    np.minimum.at(first, run, seconds)
    order = np.lexsort((np.arange(len(runs)), first))
    column = np.empty(len(runs), dtype=np.int64)
    column[order] = np.arange(len(runs))
    values = np.full((len(nodes), len(runs)), np.nan)
    values[row, column[run]] = table["value"].to_numpy(zero_copy_only=False)
    return FleetSeries(
        metric,
        str(table["unit"][0].as_py()),
        Better(table["better"][0].as_py()),
        tuple(nodes),
        first[order].astype("datetime64[s]"),
        values,
    )


def _of_last_unit(store: HistoryStore, metric: str, table: pa.Table) -> pa.Table:
    """Return the rows of one metric that are in the last run's unit."""
    if len(pc.unique(table["unit"])) == 1 and len(pc.unique(table["better"])) == 1:
        return table
    times, units, betters = (table[name].to_pylist() for name in ("time", "unit", "better"))
    order = sorted(range(table.num_rows), key=lambda place: times[place])
    kept = _one_unit(store, metric, order, lambda place: (units[place], betters[place]))
    return table.take(pa.array(sorted(kept)))


def events(store: HistoryStore, hosts: set[str] | None = None) -> list[Event]:
    """Return what changed on hosts (all if None), in time, from one run that saw them to the next."""
    wanted = None if hosts is None else pc.field("host").isin(sorted(hosts))
    table = _read(store, "hosts", HOSTS, "host", wanted)
    if table.num_rows == 0:
        return []
    table = sort_rows(table, ("host", "time", "run"))
    names, host = codes(table["host"])
    digests, digest = codes(table["digest"])
    differs = np.flatnonzero((host[1:] == host[:-1]) & (digest[1:] != digest[:-1])) + 1
    if not len(differs):
        return []
    times = (table["time"].cast(pa.int64()).to_numpy() // 1000).astype("datetime64[s]")
    runs = table["run"]
    needed = {digests[digest[i]] for i in differs} | {digests[digest[i - 1]] for i in differs}
    states = _states(store, needed)
    found = []
    for i in differs.tolist():
        old, new = states.get(digests[digest[i - 1]]), states.get(digests[digest[i]])
        if old is None or new is None:
            continue  # the file that held the state cannot be read; `problems` names it
        name = names[host[i]]
        for change in sorted(part_differences(_named(name, old), _named(name, new))):
            found.append(Event(times[i - 1], times[i], str(runs[i].as_py()), change))
    return sorted(found, key=lambda e: (e.until, e.change))


def _named(host: str, parts: dict[tuple[str, str], dict[str, str]]) -> dict[PartKey, dict[str, str]]:
    return {(host, kind, name): attributes for (kind, name), attributes in parts.items()}


def _states(store: HistoryStore, digests: set[str]) -> dict[str, dict[tuple[str, str], dict[str, str]]]:
    found: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
    wanted = pc.field("digest").isin(sorted(digests))
    for path in sorted((store.layout.root / "states").glob("*.parquet")):
        for row in store.read(path, STATES, (path.stem,), filters=wanted, plain=("digest",)).to_pylist():
            parts = found.setdefault(row["digest"], {})
            attributes = parts.setdefault((row["kind"], row["name"]), {})
            if row["attribute"]:
                attributes[row["attribute"]] = row["value"]
    return found


def _read(
    store: HistoryStore,
    kind: str,
    schema: pa.Schema,
    by: str,
    wanted: pc.Expression | None,
    columns: list[str] | None = None,
) -> pa.Table:
    """Return the rows of all files of a kind that are wanted; `by` is the text column that decides."""
    tables = [
        store.read(path, schema, runs, columns=columns, filters=wanted, plain=(by,))
        for path, runs in store.files(kind)
    ]
    return pa.concat_tables(tables).unify_dictionaries() if tables else schema.empty_table()
