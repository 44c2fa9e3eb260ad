"""Seconds, memory and disk of a history: `bench_history.py [NODES [NIGHTS]] [--folder DIR]`.

A made-up fleet of NODES x NIGHTS x 20 metrics, written as merged months and a last month of single runs, then
asked for one node's year and for the change points of one metric over all nodes, each in its own process.
The full size is 10,000 x 365 (73 million rows, about 1 GB of disk).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from shakedown.daytwo.history.ingest import MERGED
from shakedown.daytwo.history.store import (
    HOSTS,
    STATES,
    VALUES,
    HistoryStore,
    LedgerRun,
    Month,
    sort_rows,
    table_of,
    write_parquet,
)
from shakedown.records.base import Better, Outcome, to_json
from shakedown.records.writing import write_aside

METRICS = 20
START = datetime(2025, 11, 1, 2, tzinfo=UTC)
ONE_NODE_S, FLEET_S = 2.0, 30.0


def metric_name(i: int) -> str:
    """A metric as the history calls it."""
    return f"fabric/ib_write_bw/bandwidth/rail{i % 8}/{'send' if i < 8 else 'receive'}/size_bytes={1 << i}"


def night_table(nodes: list[str], night: int, rng: np.random.Generator) -> pa.Table:
    """One night of all nodes and metrics; node 3 loses 2 % on metric 5 from night 200 on."""
    n = len(nodes)
    values = 390 * (1 + 0.003 * rng.standard_normal((METRICS, n)))
    if night >= 200:
        values[5, 3] *= 0.98

    def coded(indices: np.ndarray, names: list[str]) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(names))

    zero = np.zeros(n * METRICS, dtype=np.int32)
    at = int((START + timedelta(days=night)).timestamp())
    return pa.Table.from_arrays(
        [
            pa.array(np.full(n * METRICS, 1000 * at)).cast(VALUES.field("time").type),
            coded(zero, [f"r{night:04}"]),
            coded(np.tile(np.arange(n), METRICS), nodes),
            coded(np.repeat(np.arange(METRICS), n), [metric_name(i) for i in range(METRICS)]),
            coded(zero, ["Gb/s"]),
            coded(zero, [Better.HIGHER.value]),
            pa.array(values.ravel()),
            pa.array(np.full(n * METRICS, 3), pa.int32()),
            coded(zero, [Outcome.PASS.value]),
            coded(zero, ["rate"]),
        ],
        schema=VALUES,
    )


def build(root: Path, nodes: list[str], nights: int) -> None:
    """Write the store; the runs of a month are merged as `shakedown history compact` does."""
    store = HistoryStore.create(root, "bench")
    rng = np.random.default_rng(1)
    months: dict[str, list[int]] = {}
    for night in range(nights):
        months.setdefault((START + timedelta(days=night)).strftime("%Y-%m"), []).append(night)
    for number, (month, members) in enumerate(months.items()):
        tables = [night_table(nodes, night, rng) for night in members]
        hosts = [_hosts(nodes, night) for night in members]
        if number < len(months) - 1:
            merged = sort_rows(pa.concat_tables(tables).unify_dictionaries(), MERGED["values"][1])
            write_parquet(store.layout.month(month, 1, "values.parquet"), merged)
            again = sort_rows(merged, MERGED["nodes"][1])
            write_parquet(store.layout.month(month, 1, "nodes.parquet"), again)
            whole = sort_rows(pa.concat_tables(hosts).unify_dictionaries(), MERGED["hosts"][1])
            write_parquet(store.layout.month(month, 1, "hosts.parquet"), whole)
            record = Month(
                month=month, number=1, runs=tuple(f"r{n:04}" for n in members), rows=merged.num_rows
            )
            write_aside(store.layout.month(month, 1, "json"), to_json(record))
        for night, table, host in zip(members, tables, hosts, strict=True):
            run = f"r{night:04}"
            if number == len(months) - 1:
                write_parquet(store.layout.file("values", run), sort_rows(table, ("node", "metric")))
                write_parquet(store.layout.file("hosts", run), host)
            at = (START + timedelta(days=night)).isoformat()
            entry = LedgerRun(
                run=run,
                system="bench",
                created=at,
                time=at,
                content=run,
                rows=table.num_rows,
                nodes=len(nodes),
                metrics=tuple(metric_name(i) for i in range(METRICS)),
            )
            write_aside(store.layout.ledger(run), to_json(entry))
    parts = [(f"d{i}", "nic", "fab0", "firmware", f"22.{i}") for i in range(2)]
    write_parquet(store.layout.file("states", "r0000"), table_of(parts, STATES))


def _hosts(nodes: list[str], night: int) -> pa.Table:
    at = START + timedelta(days=night)
    rows = [(at, f"r{night:04}", n, "d1" if night >= 200 and i < 5 else "d0") for i, n in enumerate(nodes)]
    return table_of(rows, HOSTS)


def ask(*arguments: str) -> tuple[int, float, float, float, str]:
    """Run the command; return (status, CPU seconds, wall seconds, peak MiB, output)."""
    with tempfile.TemporaryFile("w+") as out:
        started = time.perf_counter()
        command = [sys.executable, "-m", "shakedown", "history", *arguments]
        actions = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1)]
        child = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
        _, status, usage = os.wait4(child, 0)
        wall = time.perf_counter() - started
        out.seek(0)
        text = out.read()
    return (
        os.waitstatus_to_exitcode(status),
        usage.ru_utime + usage.ru_stime,
        wall,
        usage.ru_maxrss / 1024,
        text,
    )


def main() -> None:
    """Print a table; exit status 1 if an answer is late or wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("nodes", nargs="?", type=int, default=500)
    parser.add_argument("nights", nargs="?", type=int, default=365)
    parser.add_argument("--folder", type=Path, help="where the store is made (default: a temporary folder)")
    options = parser.parse_args()
    nodes = [f"node{i:05d}" for i in range(options.nodes)]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        root = Path(name) / "history"
        started = time.perf_counter()
        # In a process of its own: a child's peak memory counts what its parent had when it was started.
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0
        else:
            build(root, nodes, options.nights)
            os._exit(0)
        size = sum(f.stat().st_size for f in root.rglob("*") if f.is_file())
        rows = options.nodes * options.nights * METRICS
        print(
            f"{rows:,} rows, {size / 1e6:.0f} MB, written in {time.perf_counter() - started:.0f} s",
            flush=True,
        )
        good = True
        show, every = ("show", "--store", str(root), "--json"), ("fleet", "--store", str(root), "--json")
        for what, limit, step, arguments in (
            ("a healthy node's year", ONE_NODE_S, False, (*show, "--node", "node00007")),
            ("a year with a step", ONE_NODE_S, True, (*show, "--node", "node00003")),
            ("one metric, all nodes", FLEET_S, True, (*every, "--metric", metric_name(5))),
        ):
            status, cpu, wall, peak, text = ask(*arguments)
            found = [c["node"] for c in json.loads(text)["changes"]]
            print(f"{what:22} CPU {cpu:6.2f} s, wall {wall:6.2f} s, {peak:5.0f} MiB, {len(found)} findings")
            good &= ("node00003" in found) == step and min(cpu, wall) <= limit and status in (0, 1)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
