"""Taking runs into a history, and merging months of them. What is refused is said and stays where it is."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shakedown.collect.run import hold_against_raw
from shakedown.collect.twice import own_digests
from shakedown.daytwo.history.store import (
    HOSTS,
    STATES,
    VALUES,
    HistoryStore,
    LedgerRun,
    Month,
    clock_problem,
    content_digest,
    host_states,
    node_values,
    sort_rows,
    table_of,
    values_table,
    write_parquet,
)
from shakedown.evidence.job_folder import journal
from shakedown.judge.judged import judge_run
from shakedown.records.base import to_json
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import BadInput
from shakedown.records.results import Snapshot
from shakedown.records.wording import count
from shakedown.records.writing import write_aside
from shakedown.report.seal import changed_since
from shakedown.run.folder import Run, job_folders

# Of how many outputs an entry keeps the digest: the least ones, which two copies of any run have in common.
OUTPUTS_KEPT = 32
SETTLED = timedelta(days=35)  # months are merged once no run of theirs is likely to come any more
# What a month merges, and by what it is sorted. Values lie there twice: a question about one metric and one
# about one node each read a few neighbouring row groups, and not the whole month.
MERGED = {
    "values": (VALUES, ("metric", "node", "time")),
    "nodes": (VALUES, ("node", "metric", "time")),
    "hosts": (HOSTS, ("host", "time")),
}


def ingest(store: Path, folder: Path, *, now: datetime, at: datetime | None = None) -> str:
    """Take one run in; return what was done, in words.

    Args:
        store: the history's folder, made if it is not there.
        folder: the run's folder.
        now: the present time.
        at: when the run was made, if its own clock was wrong.

    Raises BadInput: the run is another cluster's, not as it was sealed, a copy of one that is there, without
    values or with other ones than its raw files give, or its clock jumped; or the disk is full. Nothing is
    changed then.
    """
    if changed := changed_since(folder):
        raise BadInput(changed, fix="take in the run as it was sealed", file=folder)
    with no_cycle_search():
        run = Run(folder)
        notice = hold_against_raw(run)
        started: list[str] = []
        judged = judge_run(run, lambda m: started.append(m.started) if m.started else None)
        values = node_values(judged.cells)
        inventory = run.inventory
    if run.problems:
        raise BadInput(run.problems[0], fix="shakedown collect RUN reads it again", file=folder)
    if not values:
        raise BadInput("measures no metric of a node", fix="ingest runs with measurements", file=folder)
    if at is None and (flaw := clock_problem(run.plan, started, now)):
        raise BadInput(flaw, fix="say when it was with --at TIME", file=folder)
    opened = HistoryStore.create(store, run.plan.system)
    if run.plan.system != opened.system:
        raise BadInput(
            f"is a run of {run.plan.system!r}, the history is of {opened.system!r}",
            fix="give each cluster a history of its own",
            file=folder,
        )
    jobs = [job for job in job_folders(folder) if not job.is_symlink()]
    seen = {digest[:32] for job in jobs for _, digest in own_digests(job, journal(job, []))}
    outputs = tuple(sorted(seen)[:OUTPUTS_KEPT])
    with opened.locked():
        content = content_digest(values, started)
        again = _known(opened, run.plan.run, content, folder)
        _refuse_renamed(opened, run.plan.run, outputs, folder)
        if again:
            return again
        time = at or datetime.fromisoformat(run.plan.created)
        entry = LedgerRun(
            run=run.plan.run,
            system=opened.system,
            created=run.plan.created,
            time=time.isoformat(),
            content=content,
            outputs=outputs,
            rows=len(values),
            nodes=len({v.node for v in values}),
            metrics=tuple(sorted({v.metric for v in values})),
            others=tuple(sorted({c.host for c in inventory.components} - set(run.plan.nodes)))
            if inventory
            else (),
        )
        hosts, states = _inventory_tables(opened, inventory, entry.run, time)
        opened.add(entry, values_table(values, entry.run, time), hosts, states)
    taken = f"{entry.run}: {count(entry.rows, 'value')} of {count(entry.nodes, 'node')}"
    return f"{taken}; {notice}" if notice else taken


def _known(store: HistoryStore, run: str, content: str, folder: Path) -> str:
    """Return what to say of a run that is there already; empty if it is new or must be written again."""
    same = next((e for e in store.entries.values() if e.content == content), None)
    if same is not None and same.run != run:
        raise BadInput(f"is a copy of run {same.run}", fix="leave it out", file=folder)
    mine = store.entries.get(run)
    if mine is None or not store.readable(run):
        if mine is not None and (month := store.month_of(run)):
            _forget_month(store, month)
        return ""
    if mine.content == content and not store.sound(store.layout.file("states", run)):
        return ""
    if mine.content != content:
        raise BadInput(
            f"another run {run} is in the history, with other values",
            fix="give runs names of their own",
            file=folder,
        )
    return f"{run}: is there already"


def _refuse_renamed(store: HistoryStore, run: str, outputs: tuple[str, ...], folder: Path) -> None:
    """Raise BadInput for a run that has most of its raw outputs from another, whatever its name and date."""
    for entry in store.entries.values():
        shared = len(set(outputs) & set(entry.outputs))
        if entry.run != run and shared * 2 > min(len(outputs), len(entry.outputs)):
            raise BadInput(
                f"has the raw outputs of run {entry.run} ({shared} of the {len(outputs)} that were compared)",
                fix="leave it out: it is that run under another name or date",
                file=folder,
            )


def _forget_month(store: HistoryStore, month: Month) -> Path:
    """Give up a month's file that cannot be read, so that its runs can be taken in again; return it."""
    held = store.layout.month(month.month, month.number, "json")
    held.rename(held.with_suffix(".lost"))
    del store.months[month.month]
    return held


def forget(store: HistoryStore, run: str) -> list[Path]:
    """Set a run's files aside that cannot be read, so that it can be taken in again; return those they were.

    A month's files are set aside with all its runs that have no file of their own any more.
    """
    if month := store.month_of(run):
        return [_forget_month(store, month)]
    paths = [store.layout.file("values", run), store.layout.ledger(run)]
    there = [path for path in paths if path.exists()]
    for path in there:
        path.rename(path.with_name(f"{path.name}.broken"))
    return there


def _inventory_tables(
    store: HistoryStore, inventory: Snapshot | None, run: str, time: datetime
) -> tuple[pa.Table, pa.Table]:
    found = host_states(inventory)
    known: set[str] = set()
    for other in store.entries:
        path = store.layout.file("states", other)
        if path.exists() and other != run:  # its own are written anew
            table = store.read(path, STATES, (other,), columns=["digest"])
            known.update(pc.unique(table["digest"]).to_pylist())
    hosts = [(time, run, host, digest) for host, (digest, _) in sorted(found.items())]
    new = {digest: rows for digest, rows in found.values() if digest not in known}
    states = [(digest, *row) for digest in sorted(new) for row in new[digest]]
    return table_of(hosts, HOSTS), table_of(states, STATES)


def compact(root: Path, *, now: datetime, keep_days: int | None = None) -> list[str]:
    """Merge settled months, and drop those that are older than `keep_days`; return what was done.

    A month is kept as long as any of its days is. The runs' own folders are not touched.
    """
    store = HistoryStore(root)
    done: list[str] = []
    with store.locked():
        months: dict[str, list[str]] = {}
        for entry in store.entries.values():
            months.setdefault(entry.time[:7], []).append(entry.run)
        for month, runs in sorted(months.items()):
            end = (datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC) + timedelta(days=32)).replace(
                day=1
            )
            if keep_days is not None and end < now - timedelta(days=keep_days):
                _drop(store, month, runs)
                done.append(f"{month}: {count(len(runs), 'run')} dropped")
            elif end < now - SETTLED:
                held = store.months.get(month)
                if held is None or set(held.runs) != set(runs):
                    rows = _merge(store, month, sorted(runs, key=lambda r: store.entries[r].time))
                    done.append(f"{month}: {count(len(runs), 'run')} merged, {count(rows, 'row')}")
    return done


def _merge(store: HistoryStore, month: str, runs: list[str]) -> int:
    held = store.months.get(month)
    number = held.number + 1 if held else 1
    rows = {kind: _merge_kind(store, kind, month, number, runs) for kind in MERGED}
    record = Month(month=month, number=number, runs=tuple(runs), rows=rows["values"])
    write_aside(store.layout.month(month, number, "json"), to_json(record))
    # From here on the new files hold; what they replace is only room.
    store.months[month] = record
    for kind in MERGED:
        if held is not None:
            store.layout.month(month, held.number, f"{kind}.parquet").unlink(missing_ok=True)
    for run in runs:
        for kind in ("values", "hosts"):
            store.layout.file(kind, run).unlink(missing_ok=True)
    if held is not None:
        store.layout.month(month, held.number, "json").unlink(missing_ok=True)
    return rows["values"]


def _merge_kind(store: HistoryStore, kind: str, month: str, number: int, runs: list[str]) -> int:
    """Write one file of a month from those of its runs and of the month so far; return its rows."""
    schema, keys = MERGED[kind]
    before = len(store.problems)
    tables = [store.read(path, schema, of) for path, of in store.files(kind) if set(of) <= set(runs)]
    if len(store.problems) > before:
        raise BadInput(store.problems[-1], fix="mend it before months are merged", file=store.layout.root)
    table = sort_rows(pa.concat_tables(tables).unify_dictionaries(), keys)
    path = store.layout.month(month, number, f"{kind}.parquet")
    write_parquet(path, table)
    if pq.ParquetFile(path).metadata.num_rows != table.num_rows:
        raise BadInput("was not written whole", fix="is the disk in order?", file=path)
    return int(table.num_rows)


def _drop(store: HistoryStore, month: str, runs: list[str]) -> None:
    for run in runs:  # ledger first: a run without it is not there
        store.layout.ledger(run).unlink(missing_ok=True)
    for path in store.layout.root.glob(f"months/{month}.*"):
        path.unlink()
    for run in runs:
        for kind in ("values", "hosts"):
            store.layout.file(kind, run).unlink(missing_ok=True)
