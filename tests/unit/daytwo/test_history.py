"""The history: what is taken in, what is refused, and what it shows."""

import json
import resource
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from shakedown.collect.run import collect
from shakedown.commands import cli
from shakedown.daytwo.history.alarms_and_steps import SeriesLabel, findings
from shakedown.daytwo.history.ingest import compact, ingest
from shakedown.daytwo.history.query import fleet, node_series
from shakedown.daytwo.history.report import fleet_history, fleet_page, node_history, page
from shakedown.daytwo.history.store import HistoryStore, over_partners
from shakedown.daytwo.mend import mend
from shakedown.records.base import Better
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.run import python
from tests.unit.daytwo.fleet import START, Night, names

pytestmark = pytest.mark.slow  # months of runs

NODES = names(8)
NIGHTS = 45
STEP_NIGHT = 40
NOW = START + timedelta(days=400)
WRITE = "fabric/ib_write_bw/bandwidth/-/-/size_bytes=65536"


def slow_n3(metric: str, node: str) -> float:
    """2 % less on one metric of one node."""
    return 0.98 if (metric, node) == ("write", "n3") else 1.0


def fill(root: Path, store: Path, nights: range, **options: object) -> None:
    """Take in one run a night; from STEP_NIGHT on n3 has new firmware and is slow."""
    for night in nights:
        late = night >= STEP_NIGHT
        planted = {"factor": slow_n3, "firmware": {"n3": "22.2"}} if late else {}
        if night >= 10:
            planted["kernel"] = {"n3": "6.2.0"}  # long before: no cause of what comes later
        run = Night(f"night{night:03}", nodes=NODES, night=night, **{**planted, **options})
        ingest(store, run.write(root / run.run), now=NOW)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store of 45 nights whose node n3 lost 2 % with its new firmware in the 41st."""
    root = tmp_path_factory.mktemp("runs")
    fill(root, root / "history", range(NIGHTS))
    return root / "history"


def test_a_step_is_alarmed_and_named_with_the_firmware(filled):
    """Catches: a slow degradation that passes every gate, and a cause that nobody sees beside it."""
    found = fleet_history(filled)
    standing = [f for f in found.findings if f.standing]
    assert [(f.node, f.metric) for f in standing] == [("n3", WRITE)]
    assert standing[0].time[:10] <= (START + timedelta(days=STEP_NIGHT + 1)).strftime("%Y-%m-%d")
    steps = [f for f in found.findings if f.kind == "step"]
    assert [(f.node, f.time[:10]) for f in steps] == [
        ("n3", (START + timedelta(days=STEP_NIGHT)).strftime("%Y-%m-%d"))
    ]
    for finding in (*standing, *steps):
        assert finding.shift == pytest.approx(-0.02, abs=0.006)
        assert finding.coincides == ("n3 nic fab0 firmware: 22.1 -> 22.2",)


def test_one_node_has_all_metrics_and_its_own_inventory(filled):
    """Catches: another node's values or changes shown as one's own."""
    shown = node_history(filled, "n3")
    assert len(shown.series) == 3
    assert all(len(s.values) == NIGHTS for s in shown.series)
    assert [str(e) for e in shown.events] == [
        "n3 node kernel: 6.1.0 -> 6.2.0",
        "n3 nic fab0 firmware: 22.1 -> 22.2",
    ]
    assert node_history(filled, "n4").events == []
    assert node_history(filled, "n4").findings == []


def test_merged_months_answer_as_before(tmp_path):
    """Catches: values lost, doubled or put out of order when months are merged, and merged again."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(40))
    before = fleet(HistoryStore(store), WRITE)
    assert compact(store, now=START + timedelta(days=80)) == ["2026-03: 31 runs merged, 744 rows"]
    after = fleet(HistoryStore(store), WRITE)
    assert (after.nodes, after.times.tolist()) == (before.nodes, before.times.tolist())
    assert after.values.tolist() == before.values.tolist()
    assert compact(store, now=START + timedelta(days=80)) == []
    # A run that comes late belongs to a month that is merged already.
    late = Night("late", nodes=NODES, created="2026-03-09T12:00:00Z").write(tmp_path / "late")
    ingest(store, late, now=NOW)
    assert compact(store, now=START + timedelta(days=80)) == ["2026-03: 32 runs merged, 768 rows"]
    assert len(list((store / "months").glob("2026-03.*"))) == 4
    assert fleet(HistoryStore(store), WRITE).values.shape == (8, 41)


def test_retention_drops_whole_months_only(tmp_path):
    """Catches: runs dropped that are not old enough, or a dropped month that still answers."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(40))
    done = compact(store, now=START + timedelta(days=100), keep_days=60)
    assert done[0] == "2026-03: 31 runs dropped"
    assert len(HistoryStore(store).entries) == 9
    assert fleet(HistoryStore(store), WRITE).values.shape == (8, 9)


def test_a_merge_that_was_killed_loses_nothing(tmp_path, monkeypatch):
    """Catches: runs deleted before the month that holds them is there."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(31))
    monkeypatch.setattr("shakedown.daytwo.history.ingest.to_json", lambda record: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        compact(store, now=START + timedelta(days=80))
    opened = HistoryStore(store)
    assert fleet(opened, WRITE).values.shape == (8, 31)
    assert opened.problems == []
    monkeypatch.undo()
    assert compact(store, now=START + timedelta(days=80)) == ["2026-03: 31 runs merged, 744 rows"]


def test_the_same_run_twice_counts_once(tmp_path):
    """Catches: a duplicate that doubles a night, under its own name or another."""
    store = tmp_path / "history"
    run = Night("a", nodes=NODES).write(tmp_path / "a")
    ingest(store, run, now=NOW)
    assert ingest(store, run, now=NOW) == "a: is there already"
    copy = tmp_path / "b"
    copy.mkdir()
    for name in ("plan.json", "results.jsonl", "inventory.json"):
        (copy / name).write_text(
            (run / name).read_text().replace('"run":"a"', '"run":"b"').replace('"run": "a"', '"run": "b"')
        )
    with pytest.raises(BadInput, match="is a copy of run a"):
        ingest(store, copy, now=NOW)
    other = Night("a", nodes=NODES, factor=lambda m, n: 0.9).write(tmp_path / "other")
    with pytest.raises(BadInput, match="with other values"):
        ingest(store, other, now=NOW)
    assert len(HistoryStore(store).entries) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_results_are_what_the_raw_files_give(tmp_path, recorded_run, sealed):
    """Catches: results.jsonl edited by hand, of a sealed run too: doubled values in alarms and baselines."""
    run, now = recorded_run("lab_healthy"), datetime(2026, 12, 1, tzinfo=UTC)
    collect(run)
    if sealed:
        (run / "SHA256SUMS").write_text("")
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    for line in lines:
        if line["metric"] == "bandwidth":
            line.update(value=line["value"] * 2, samples=[value * 2 for value in line["samples"]])
    honest = (run / "results.jsonl").read_bytes()
    (run / "results.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(BadInput, match="differs from the raw files"):
        ingest(tmp_path / "history", run, now=now)
    assert not (tmp_path / "history").exists()
    (run / "results.jsonl").write_bytes(honest)
    assert "values of 2 nodes" in ingest(tmp_path / "history", run, now=now)


@cases(
    "options, message",
    ({"system": "other"}, "is a run of 'other', the history is of 'fleet'"),
    ({"created": "2031-01-01T00:00:00Z"}, "yet to come"),
    ({"started": "1970-01-01T00:00:10Z"}, "a clock jumped"),
    ({"created": "tomorrow", "started": "2026-03-01T02:00:00Z"}, "is no time"),
)
def test_what_does_not_belong_is_refused_and_changes_nothing(tmp_path, options, message):
    """Catches: another cluster's run and jumped clocks, which would put a value where it never was."""
    store = tmp_path / "history"
    ingest(store, Night("a", nodes=NODES).write(tmp_path / "a"), now=NOW)
    before = sorted((p, p.stat().st_mtime_ns) for p in store.rglob("*.*") if p.is_file())
    run = Night("b", nodes=NODES, night=1, **options).write(tmp_path / "b")
    with pytest.raises(BadInput, match=message):
        ingest(store, run, now=NOW)
    assert sorted((p, p.stat().st_mtime_ns) for p in store.rglob("*.*") if p.is_file()) == before


def test_a_wrong_clock_can_be_put_right(tmp_path):
    """Catches: a good run lost for good because its clock was wrong."""
    store = tmp_path / "history"
    run = Night("a", nodes=NODES, created="2031-01-01T00:00:00Z").write(tmp_path / "a")
    ingest(store, run, now=NOW, at=datetime(2026, 3, 2, tzinfo=UTC))
    assert str(fleet(HistoryStore(store), WRITE).times[0]) == "2026-03-02T00:00:00"


@pytest.mark.parametrize("cut", ["values", "ledger", "hosts"])
def test_a_file_cut_off_is_reported_and_mended_by_ingesting_again(tmp_path, cut):
    """Catches: a truncated file that crashes every question, or silently makes a night vanish."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(3))
    path = next((store / cut).glob("night001.*"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = fleet_history(store)
    assert any("night001" in problem for problem in found.problems), found.problems
    assert fleet(HistoryStore(store), WRITE).values.shape == (8, 2 if cut != "hosts" else 3)
    if cut != "hosts":
        ingest(store, tmp_path / "night001", now=NOW)
        assert fleet_history(store).problems == []
        assert fleet(HistoryStore(store), WRITE).values.shape == (8, 3)


def test_a_damaged_month_names_its_runs_and_can_be_filled_again(tmp_path):
    """Catches: a month of a year that is gone without anybody being told which runs were in it."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(31))
    compact(store, now=START + timedelta(days=80))
    path = store / "months" / "2026-03.1.values.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    assert "ingest again night000" in fleet_history(store).problems[0]
    for night in range(31):
        ingest(store, tmp_path / f"night{night:03}", now=NOW)
    assert fleet_history(store).problems == []
    assert fleet(HistoryStore(store), WRITE).values.shape == (8, 31)


def test_a_full_disk_adds_nothing_and_says_so(tmp_path):
    """Catches: half a run in the history. The limit on file size stands for the disk."""
    store = tmp_path / "history"
    ingest(store, Night("a", nodes=NODES).write(tmp_path / "a"), now=NOW)
    run = Night("b", nodes=NODES, night=1).write(tmp_path / "b")

    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = python("-m", "shakedown", "history", "ingest", "--store", store, run, preexec_fn=no_room)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written" in done.stderr
    opened = HistoryStore(store)
    assert (list(opened.entries), opened.problems) == (["a"], [])
    assert not list(store.rglob("*.new"))
    assert ingest(store, run, now=NOW).startswith("b: ")


def test_a_run_is_not_taken_in_while_another_is(tmp_path):
    """Catches: two writers at once."""
    store = tmp_path / "history"
    run = Night("a", nodes=NODES).write(tmp_path / "a")
    with HistoryStore.create(store, "fleet").locked(), pytest.raises(BadInput, match="by another process"):
        ingest(store, run, now=NOW)


def test_a_writer_sees_what_another_wrote_after_it_had_opened_the_store(tmp_path):
    """Catches: a copy taken in, or a month merged twice, by a writer that looked before it held the lock."""
    store = tmp_path / "history"
    run = Night("a", nodes=NODES).write(tmp_path / "a")
    early = HistoryStore.create(store, "fleet")
    ingest(store, run, now=NOW)
    assert not early.entries
    with early.locked():
        assert list(early.entries) == ["a"]


@pytest.mark.parametrize("lost", ["ledger/night001.json", "states/night000.parquet"])
def test_a_file_that_is_gone_is_named_and_comes_back(tmp_path, lost):
    """Catches: a night, or all later changes of firmware, that vanish without a word."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(3))
    whole = node_history(store, "n3").series[0].values.tolist()
    (store / lost).unlink()
    run = Path(lost).stem
    assert fleet_history(store).problems == [f"{lost} is missing: ingest again {run}"]
    assert any(line.startswith(f"taken in again: {run}") for line in mend(store, tmp_path))
    assert fleet_history(store).problems == []
    assert node_history(store, "n3").series[0].values.tolist() == whole


def test_the_states_of_a_merged_run_come_back(tmp_path):
    """Catches: states of a merged month that are gone for good, as its runs are called there already."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(31))
    compact(store, now=START + timedelta(days=80))
    (store / "states/night000.parquet").unlink()
    assert ingest(store, tmp_path / "night000", now=NOW).startswith("night000: 24 values")
    assert fleet_history(store).problems == []
    assert fleet(HistoryStore(store), WRITE).values.shape == (8, 31)


def test_pages_need_nothing_else_and_escape_names(filled):
    """Catches: a request, a script, or a name that becomes markup; steps and changes on one axis."""
    shown = node_history(filled, "n3")
    text = page(shown)
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert text.count("n3 nic fab0 firmware: 22.1 -&gt; 22.2") >= 2  # on the axis and in the table
    assert "stroke-dasharray" in text
    everything = fleet_page(filled, fleet_history(filled))
    assert "coincides with n3 nic fab0" in everything
    assert everything.count("<polyline") == 1  # the one series with findings


def run_command(monkeypatch, capsys, *argv: object) -> tuple[int, str, str]:
    """Run a command; return its exit status and what it printed."""
    monkeypatch.setattr(sys, "argv", ["shakedown", *map(str, argv)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out = capsys.readouterr()
    return int(ended.value.code or 0), out.out, out.err


def test_command_takes_in_the_good_runs_and_names_the_refused(tmp_path, monkeypatch, capsys):
    """Catches: one bad run that keeps the others out, or exit status 0 for it."""
    good = Night("a", nodes=NODES).write(tmp_path / "a")
    bad = Night("b", nodes=NODES, system="other").write(tmp_path / "b")
    last = Night("c", nodes=NODES, night=1).write(tmp_path / "c")
    store = tmp_path / "history"
    status, out, err = run_command(
        monkeypatch, capsys, "history", "ingest", "--store", store, good, bad, last
    )
    assert (status, len(out.splitlines()), len(err.splitlines())) == (2, 2, 1)
    assert sorted(HistoryStore(store).entries) == ["a", "c"]


def test_what_a_node_does_every_week_is_not_its_noise():
    """Catches: weeks that the charts could take out and the history does not: two of six were found."""
    count, rng = 60, np.random.default_rng(43)
    phase = rng.random((24, 1))
    week = 0.005 * np.sin(2 * np.pi * (np.arange(count) / 7 + phase))
    values = 390 * (1 + week + 0.003 * rng.standard_normal((24, count)))
    values[:6, -2:] *= 0.975
    times = np.datetime64("2026-03-01T01:00:00") + np.arange(count) * np.timedelta64(86400, "s")
    series = [SeriesLabel(f"n{i}", "write", "Gb/s", Better.HIGHER) for i in range(24)]
    found = [f.node for f in findings(series, times, values, {}) if f.kind == "alarm"]
    assert sorted(found) == [f"n{i}" for i in range(6)]


@cases("sick, found", (False, []), (True, ["n9"]))
def test_a_noisy_week_of_all_nodes_is_no_nodes_alarm(sick, found):
    """Catches: neighbours' jobs that treble every node's spread for a week, alarmed node by node."""
    rng = np.random.default_rng(8)
    noisy = np.repeat(rng.random(28) < 0.125, 7)
    values = 391 * (1 + 0.003 * np.where(noisy, 3, 1) * rng.standard_normal((128, 196)))
    first = int(np.flatnonzero(noisy)[-7])
    if sick:
        values[9, first:] *= 0.9
    series = [SeriesLabel(f"n{i}", "bw", "Gb/s", Better.HIGHER) for i in range(128)]
    times = np.datetime64("2026-01-01T02:00:00") + np.arange(196) * np.timedelta64(1, "D")
    assert [f.node for f in findings(series, times, values, {}) if f.kind != "step"] == found


@cases("start, found", (36, True), (60, False))
def test_nodes_that_take_turns_are_alarmed_too(start, found):
    """Catches: a node at -20 % that a quarter of the nights measure, never alarmed in two months."""
    rng = np.random.default_rng(5)
    values = 391 * (1 + 0.003 * rng.standard_normal((64, 60)))
    values[9, start:] *= 0.8
    values[(np.arange(64)[:, None] + np.arange(60)) % 4 > 0] = np.nan
    series = [SeriesLabel(f"n{i}", "bw", "Gb/s", Better.HIGHER) for i in range(64)]
    times = np.datetime64("2026-01-01T02:00:00") + np.arange(60) * np.timedelta64(1, "D")
    seen = [f.node for f in findings(series, times, values, {}) if f.kind != "step"]
    assert seen == (["n9"] if found else [])


def test_command_exit_status_says_whether_an_alarm_stands(filled, monkeypatch, capsys):
    """Catches: a nightly report that says nothing is wrong while an alarm stands."""
    status, out, _ = run_command(monkeypatch, capsys, "history", "fleet", "--store", filled)
    assert status == 1
    assert out.startswith("1 standing alarm, ")
    status, out, _ = run_command(monkeypatch, capsys, "history", "show", "--store", filled, "--node", "n3")
    assert status == 1
    assert "ALARM: n3 -" in out
    status, out, _ = run_command(
        monkeypatch, capsys, "history", "show", "--store", filled, "--node", "n4", "--json"
    )
    assert (status, json.loads(out)["changes"]) == (0, [])


def test_the_partners_of_a_sick_node_are_not_blamed():
    """Catches: an innocent node of a group of three told at half of the sick one's loss."""
    assert over_partners({"n2": [390.0, 391.0], "n3": [312.0]}, Better.HIGHER) == 390.5
    assert over_partners({"n2": [2.5], "n3": [3.1]}, Better.LOWER) == 2.5
    assert over_partners({"n2": [390.0], "n3": [312.0], "n4": [388.0]}, Better.HIGHER) == 388.0
    assert over_partners({"": [390.0, 388.0]}, Better.HIGHER) == 389.0


def test_what_all_nodes_lost_is_told_once(tmp_path):
    """Catches: eight alarms for one cause, or none because all nodes lost the same."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(36))
    for night in range(36, 42):
        run = Night(
            f"night{night:03}", nodes=NODES, night=night, factor=lambda m, n: 0.97 if m == "write" else 1
        )
        ingest(store, run.write(tmp_path / run.run), now=NOW)
    found = fleet_history(store)
    assert [(f.node, f.metric) for f in found.findings if f.standing] == [("all nodes", WRITE)]
    assert found.findings[0].shift == pytest.approx(-0.03, abs=0.006)
    assert "<b>all nodes</b>" in fleet_page(store, found)


def test_values_of_another_unit_are_no_earlier_values(tmp_path):
    """Catches: a step of a factor of eight, or a level in the middle, where a metric's unit was changed."""
    store = tmp_path / "history"
    fill(tmp_path, store, range(10))
    for night in range(10, 13):
        folder = Night(f"night{night:03}", nodes=NODES, night=night).write(tmp_path / f"night{night:03}")
        for name in ("plan.json", "results.jsonl"):
            text = (folder / name).read_text()
            assert '"Gb/s"' in text
            (folder / name).write_text(text.replace('"Gb/s"', '"GB/s"'))
        ingest(store, folder, now=NOW)
    opened = HistoryStore(store)
    grid = fleet(opened, WRITE)
    assert (grid.unit, grid.values.shape) == ("GB/s", (len(NODES), 3))
    (series,) = node_series(opened, "n1", metric="ib_write_bw")
    assert (series.unit, len(series.values)) == ("GB/s", 3)
    (said,) = {problem for problem in opened.problems if "ib_write_bw" in problem}
    assert "was in Gb/s (higher is better) and is in GB/s (higher is better)" in said
