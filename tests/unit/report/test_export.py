"""A run as a table: each planned cell once, in stable columns, and nothing that a spreadsheet would run."""

import csv
import io
import json

import pyarrow.parquet as pq

from shakedown.commands.verdict import export
from shakedown.report import machines
from shakedown.report.machines import COLUMNS, as_csv

FIRST = (  # as the first version had them: others' programs read them by name
    *("run", "system", "created", "simulated", "cell", "stage", "test", "metric", "nodes", "rail"),
    *("direction", "params", "required", "outcome", "rule", "value", "unit", "better", "gate", "ceiling"),
    *("reference", "kind", "source", "reason", "raw"),
)


def test_every_planned_cell_is_a_row_with_the_outcome_that_the_verdict_has(
    shakedown, decision_runs, tmp_path
):
    """Catches: a cell lost or doubled, a value as text, two files of one run that differ."""
    run = decision_runs / "counters" / "run"
    status, out, _ = shakedown(
        "export", run, "--csv", tmp_path / "a.csv", "--parquet", tmp_path / "a.parquet"
    )
    assert (status, out) == (0, f"{tmp_path / 'a.csv'}\n{tmp_path / 'a.parquet'}\n")
    with (tmp_path / "a.csv").open(newline="") as file:
        told = list(csv.DictReader(file))
    table = pq.read_table(tmp_path / "a.parquet")
    kept = table.to_pylist()
    assert tuple(table.column_names) == tuple(told[0]) == COLUMNS
    assert COLUMNS[: len(FIRST)] == FIRST
    assert len({row["cell"] for row in kept}) == len(kept) == len(told)
    for row, text in zip(kept, told, strict=True):
        assert [row["cell"], row["outcome"], row["reason"]] == [text["cell"], text["outcome"], text["reason"]]
        assert row["value"] == (float(text["value"]) if text["value"] else None)
        assert row["required"] is (text["required"] == "true") and row["simulated"] is False
    said = json.loads(shakedown("verdict", run, "--json")[1])
    bad = {cell["cell"]: cell["outcome"] for cell in said["cells"]}
    assert bad == {row["cell"]: row["outcome"] for row in kept if row["outcome"] != "PASS"}


def test_a_text_that_begins_like_a_formula_is_harmless_and_a_number_stays_one():
    """Catches: `=HYPERLINK(...)` in a tool's message that runs where the table is opened (CSV injection)."""
    row = dict.fromkeys(COLUMNS) | {"value": -1.5, "simulated": True}
    for begin in ("=", "+", "-", "@", "\t", "\r", "\n"):
        written = as_csv(iter([row | {"reason": f"{begin}cmd|' /C calc'!A0", "source": "a=b"}]))
        content = b"".join(written).decode()
        (read,) = csv.DictReader(content.splitlines(keepends=True))
        assert read["reason"][:2] == f"'{begin}" and read["source"] == "a=b"
        assert (read["value"], read["simulated"], read["raw"]) == ("-1.5", "true", "")


def test_a_table_is_written_some_rows_at_a_time(monkeypatch):
    """Catches: a million rows in memory at once; a head, or a row, that is lost between two parts."""
    monkeypatch.setattr(machines, "_AT_A_TIME", 3)
    row = dict.fromkeys(COLUMNS) | {"value": 1.5, "simulated": True, "required": True}
    rows = [row | {"cell": f"c{i}"} for i in range(10)]
    parts = list(as_csv(iter(rows)))
    assert max(part.count(b"\r\n") for part in parts) == 3
    assert [r["cell"] for r in csv.DictReader(b"".join(parts).decode().splitlines())] == [
        r["cell"] for r in rows
    ]
    read = pq.ParquetFile(io.BytesIO(b"".join(machines.as_parquet(iter(rows)))))
    assert read.num_row_groups == 4 and read.read().to_pylist() == rows


def test_the_help_names_the_columns_and_a_call_without_a_file_is_refused(shakedown, decision_runs):
    """Catches: a column that no page names; a command that does nothing and says so by no word."""
    listed = " ".join((export.__doc__ or "").split()).partition("renamed: ")[2].partition(". ")[0]
    assert tuple(listed.split(", ")) == COLUMNS
    status, _, err = shakedown("export", decision_runs / "counters" / "run")
    assert (status, err) == (2, "shakedown: nothing to write -- give --csv FILE or --parquet FILE\n")
