"""The view model: what is shown, what is summed up, and what is honestly said to be left out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import CREATED, SIZES, Faults, judged, make_plan

from shakedown.records.base import Better, Outcome, Stage
from shakedown.records.plan import Expectation, NotCovered, Plan, StageTime
from shakedown.records.results import Component, Measurement, RunProblem, Snapshot
from shakedown.records.verdict import CellVerdict
from shakedown.report import heatmaps, html, tables, text
from shakedown.report import html as markdown
from shakedown.report import tables as evidence
from shakedown.report.findings import find, suspects
from shakedown.report.source import ReportSource, Start, margin
from shakedown.report.sweeps import size_sweeps
from tests.kit.cases import cases

PAIR_CELL = "fabric/ib_write_bw/bandwidth/n1,n2/rail0/{}/qps=4,size_bytes=65536"


@pytest.fixture(scope="module")
def small() -> Plan:
    """A plan of six nodes and two rails."""
    return make_plan(6, 2)


def test_findings_follow_the_verdict_and_say_how_many_cells_share_them(small: Plan) -> None:
    """Catches findings in another order than the verdict's, and cells counted twice or lost."""
    source = judged(
        small, Faults(slow_rail=("n3", "rail1"), counter=("n5", "out_of_sequence", 7), busy_node="n2")
    )
    found, left_out = find(source)
    assert left_out == 0
    assert sum(f.count for f in found) == len(source.verdict.cells)
    severities = [("FAIL", "INCONCLUSIVE", "NOT-RUN").index(f.worst.outcome) for f in found]
    assert severities == sorted(severities)
    slow = next(f for f in found if f.item.metric == "bandwidth")
    assert "n3" in slow.where
    assert "rail1" in slow.where
    assert (slow.count, len(slow.others) + slow.others_left_out) == (10, 9)
    assert slow.worst.raw


def test_findings_left_out_are_counted(small: Plan) -> None:
    """Catches a cut list that looks complete."""
    source = judged(small, Faults(nothing=True))
    every, _ = find(source)
    some, left_out = find(source, most=2)
    assert len(some) == 2
    assert left_out == len(every) - 2


def test_partners_of_a_bad_nic_are_not_accused(small: Plan) -> None:
    """Catches blame for every node that a slow NIC was measured against."""
    source = judged(small, Faults(slow_rail=("n3", "rail1"), busy_node="n3"))
    accused = suspects(source)
    assert [s.name for s in accused] == ["n3 · rail1"]
    # 10 pair cells failed; the read-back and 3 counters passed; the busy node's own test decided nothing.
    assert (accused[0].bad, accused[0].judged) == (10, 14)


def test_two_ends_of_one_bad_pair_are_named_together(small: Plan) -> None:
    """Catches a choice, by name or by luck, between two ends that the cells cannot tell apart."""
    accused = suspects(judged(small, Faults(bad_cells=(PAIR_CELL.format("forward"),))))
    assert [s.name for s in accused] == ["n1 · rail0 or n2 · rail0"]


def test_a_bad_leaf_is_one_suspect(small: Plan) -> None:
    """Catches six accused NICs where one rail is bad as a whole."""
    cells = [
        c
        for item in small.items
        if item.metric == "bandwidth"
        for c, _, rail, _ in item.cells()
        if rail == "rail1"
    ]
    accused = suspects(judged(small, Faults(bad_cells=tuple(cells))))
    assert [s.name for s in accused] == ["rail1, all nodes"]


def test_busy_nodes_and_collectives_accuse_nobody(small: Plan) -> None:
    """Catches good hardware blamed for another user's job, or all of it for one slow collective."""
    assert suspects(judged(small, Faults(busy_node="n2", slow_collective=True, killed_job=True))) == ()


def test_of_two_nodes_neither_is_accused_but_their_rail() -> None:
    """Catches one of two nodes blamed for a link that has two ends."""
    accused = suspects(judged(make_plan(2, 2), Faults(slow_rail=("n2", "rail1"))))
    assert [s.name for s in accused] == ["rail1, all nodes"]


def test_an_optional_cell_makes_no_stage_fail(small: Plan) -> None:
    """Catches a run that passes with a stage that is shown as failed, and a miss that is not shown at all."""
    optional = small.items[1].model_copy(update={"metric": "device_to_host", "required": False})
    plan = small.model_copy(update={"items": (*small.items, optional)})
    slow = next(cell for cell, *_ in optional.cells())
    model = html.build(judged(plan, Faults(bad_cells=(slow,))))
    assert model.verdict.outcome is Outcome.PASS
    assert [s.outcome for s in model.stages] == [Outcome.PASS] * 5
    assert [(f.item.metric, f.required) for f in model.findings] == [("device_to_host", False)]


def test_a_small_run_lists_every_cell_once(small: Plan) -> None:
    """Catches cells lost between the passed and the others."""
    source = judged(small, Faults(slow_rail=("n3", "rail1"), busy_node="n2"))
    rows, left_out, every = tables.cell_rows(source)
    assert (left_out, every) == (0, True)
    assert len(rows) == sum(len(item) for item in small.items)
    passed = [row.found.outcome is Outcome.PASS for row in rows]
    assert passed == sorted(passed)


def test_a_large_run_lists_the_bad_cells_and_counts_the_rest(monkeypatch, small):
    """Catches an over-long list cut without a word."""
    monkeypatch.setattr(tables, "ALL_CELLS", 10)
    monkeypatch.setattr(tables, "MOST_CELLS", 4)
    source = judged(small, Faults(slow_rail=("n3", "rail1")))
    rows, left_out, every = tables.cell_rows(source)
    assert (len(rows), left_out, every) == (4, 6, False)
    assert all(row.found.outcome is Outcome.FAIL for row in rows)


def test_samples_are_those_of_the_attempt_that_was_judged(small: Plan) -> None:
    """Catches the spread of a first attempt shown beside the value of a second."""
    cell = PAIR_CELL.format("forward")
    source = judged(small, Faults())
    first = next(m for m in source.measurements if m.cell == cell)
    again = first.model_copy(update={"attempt": 2, "value": 200.0, "samples": (150.0, 200.0, 250.0)})
    retried = ReportSource(
        small, [*source.measurements, again], source.counters, None, source.judged, source.verdict
    )
    verdict = CellVerdict(cell=cell, outcome=Outcome.FAIL, rule="gate", reason="slow", value=200.0)
    row = tables.cell_row(retried, verdict)
    assert (row.samples, row.spread) == (3, "±25 %")


def test_families_show_the_size_that_stands_worst(small: Plan) -> None:
    """Catches a sweep summed up by a size that passes while another fails."""
    cell = f"collective/all_reduce/busbw/{','.join(small.nodes)}/-/-/size_bytes={SIZES[9]}"
    source = judged(small, Faults(bad_cells=(cell,)))
    rows = tables.family_rows(source, tables.group_rows(source))
    busbw = next(r for r in rows if r.tightest.item.metric == "busbw")
    assert (busbw.outcome, busbw.items, busbw.outcomes[Outcome.PASS]) == (
        Outcome.FAIL,
        len(SIZES),
        len(SIZES) - 1,
    )
    assert busbw.tightest.params == f"size {text.size(SIZES[9])}"
    assert sum(r.planned for r in rows) == sum(len(item) for item in small.items)


def test_percent_is_never_rounded_up_to_a_whole() -> None:
    """Catches 99.97 % coverage printed as 100.0 %."""
    assert text.percent(163_999, 164_000) == "99.9 %"
    assert text.percent(164_000, 164_000) == "100.0 %"
    assert text.percent(1, 0) == "–"


@cases(
    "value, shown",
    (195.9612, "196.0"),
    (27.4, "27.40"),
    (0, "0"),
    (-0.5, "-0.5000"),
    (1841, "1,841"),
    (0.000312, "0.000312"),
    (39083.4, "39,083"),
    (math.inf, "inf"),
    (None, "–"),
)
def test_numbers(value: float | None, shown: str) -> None:
    """Catches digits lost or invented."""
    assert text.number(value) == shown


@cases(
    "size_bytes, shown",
    (8, "8 B"),
    (48, "48 B"),
    (65536, "64 KiB"),
    (1536, "1.5 KiB"),
    (17179869184, "16 GiB"),
    (4_000_000, "4 MB"),
    (4_000_000_000, "4 GB"),
    (1_000_001, "1,000,001 B"),
)
def test_sizes_are_exact(size_bytes: int, shown: str) -> None:
    """Catches two sizes printed alike, and a size in a unit that nobody chose."""
    assert text.size(size_bytes) == shown


@cases(
    "value, gate, better, stands",
    (50, 100, Better.HIGHER, 0.5),
    (50, 100, Better.LOWER, 2.0),
    (200, 100, Better.LOWER, 0.5),
    (0, 0, Better.LOWER, 1.0),
    (3, 0, Better.LOWER, 0.0),
)
def test_margin(value: float, gate: float, better: Better, stands: float) -> None:
    """Catches a latency or an error counter coloured the wrong way round."""
    assert margin(value, gate, better) == stands


@pytest.mark.parametrize(("direction", "ends"), [("forward", ("n1", "n2")), ("reverse", ("n2", "n1"))])
def test_map_has_data_flowing_from_row_to_column(small: Plan, direction: str, ends: tuple[str, str]) -> None:
    """Catches a transposed map, which would send the technician to the wrong end."""
    source = judged(small, Faults(bad_cells=(PAIR_CELL.format(direction),)))
    maps, _ = heatmaps.heat_maps(source)
    first = maps[0]  # the map with a failure comes first
    assert first.title.startswith("ib_write_bw bandwidth · rail0")
    bad = [
        (first.rows[r], first.columns[c]) for r, c in np.argwhere(first.levels >= heatmaps.FAILED).tolist()
    ]
    assert bad == [ends]
    assert [(first.rows[m.row], first.columns[m.column]) for m in first.marks] == bad
    assert first.outcomes[Outcome.FAIL] == 1
    assert first.outcomes[Outcome.PASS] == 29
    assert first.texts[first.rows.index(ends[0]), first.columns.index(ends[1])] == "50"


def test_levels_order_cells_from_best_to_worst(small: Plan) -> None:
    """Catches a level that would let a passed cell hide a failed one when the map is shrunk."""
    reference = small.references["write-bw"]

    def cell(outcome: Outcome, value: float | None, rule: str = "gate") -> CellVerdict:
        return CellVerdict(cell="c", outcome=outcome, rule=rule, reason="r", value=value)

    ordered = [
        cell(Outcome.PASS, 392.0),
        cell(Outcome.PASS, 383.2),
        cell(Outcome.NOT_RUN, None),
        cell(Outcome.INCONCLUSIVE, 390.0),
        cell(Outcome.FAIL, 380.0),
        cell(Outcome.FAIL, 196.0),
        cell(Outcome.FAIL, 0.0),
        cell(Outcome.FAIL, 401.0, "impossible"),
    ]
    levels = heatmaps.levels_of(ordered, reference).tolist()
    assert levels == sorted(levels)
    assert len(set(levels)) == len(levels)
    assert min(levels) > 0


def test_a_fleet_outlier_above_the_gate_is_drawn_as_failed(small: Plan) -> None:
    """Catches a cell that failed as an outlier drawn in the colours of the passed ones."""
    outlier = CellVerdict(cell="c", outcome=Outcome.FAIL, rule="outlier", reason="r", value=384.0)
    assert heatmaps.levels_of([outlier], small.references["write-bw"])[0] >= heatmaps.FAILED


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1500), st.integers(1, 1500), st.data())
def test_shrinking_a_map_loses_no_failure(rows: int, columns: int, data: st.DataObject) -> None:
    """Catches one failed cell averaged or sampled away among a million."""
    row, column = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    levels = np.ones((rows, columns), dtype=np.uint8)
    levels[row, column] = heatmaps.FAILED
    block, shown = heatmaps.shrink(levels)
    assert max(shown.shape) <= heatmaps.MOST_PIXELS
    assert shown[row // block[0], column // block[1]] == heatmaps.FAILED
    assert (shown == heatmaps.FAILED).sum() == 1


def test_a_missing_point_is_a_gap_in_the_curve(small: Plan) -> None:
    """Catches a line drawn through a size that was never measured."""
    source = judged(small)
    gone = [
        m for m in source.measurements if not (m.metric == "busbw" and m.params["size_bytes"] == SIZES[5])
    ]
    cut = _rejudged(source, gone)
    chart = next(c for c in size_sweeps(cut)[0] if "busbw" in c.title)
    measured = next(c for c in chart.curves if c.role == "measured")
    assert [math.isnan(y) for y in measured.y] == [size == SIZES[5] for size in SIZES]
    assert [row[1] for row in chart.rows].count("–") == 1


def test_sweeps_draw_reference_gate_and_ceiling_per_size(small: Plan) -> None:
    """Catches limits of one size drawn over all."""
    charts, left_out = size_sweeps(judged(small))
    assert left_out == 0
    chart = next(c for c in charts if "busbw" in c.title)
    curves = {c.role: c for c in chart.curves}
    assert curves["reference"].x == tuple(float(s) for s in SIZES)
    for size, value, gate in zip(SIZES, curves["reference"].y, curves["gate"].y, strict=True):
        assert value == small.references[f"busbw-{size}"].value
        assert gate == pytest.approx(0.95 * value)
    assert set(curves["ceiling"].y) == {392.1}


def test_counters_that_broke_a_rule_come_first_and_still_ones_are_counted(small: Plan) -> None:
    """Catches a lost packet below a thousand traffic counters."""
    source = judged(small, Faults(counter=("n5", "out_of_sequence", 7)))
    moved = source.counters[0].model_copy(update={"counter": "tx_bytes", "after": 10**12})
    more = ReportSource(
        small, source.measurements, [moved, *source.counters], None, source.judged, source.verdict
    )
    rows, left_out, still = evidence.counter_rows(more)
    assert [(r.outcome, r.found.device, r.found.delta) for r in rows] == [
        (Outcome.FAIL, "n5", 7),
        (None, moved.device, 10**12 - 12),
    ]
    assert (left_out, still) == (0, len(source.counters) - 1)


def test_inventory_puts_the_odd_firmware_first_and_serials_aside(small: Plan) -> None:
    """Catches one node of another firmware lost among its fellows, or all of them told apart by serial."""
    components = tuple(
        Component(
            host=f"n{i}",
            kind="nic",
            name="mlx5_0",
            attributes={"firmware": "28.39" if i != 7 else "28.36", "serial": f"MT{i:05d}"},
        )
        for i in range(1, 31)
    )
    source = judged(small)
    inventory = Snapshot(schema=1, run=small.run, taken=CREATED, components=components)
    rows, aside, _ = evidence.inventory_rows(
        ReportSource(small, (), (), inventory, source.judged, source.verdict)
    )
    assert (rows[0].count, rows[0].hosts, rows[0].attributes) == (1, "n7", "firmware 28.36")
    assert rows[1].count == 29
    assert aside == ("nic serial",)


def test_overhead_is_the_time_in_which_nothing_was_measured() -> None:
    """Catches parallel measurements counted twice, which would hide the overhead."""

    def at(start: str, seconds: float | None) -> Start:
        return Stage.FABRIC, start, seconds

    found = html.timing(
        [
            at("2026-11-20T09:00:00Z", 60),
            at("2026-11-20T09:00:30Z", 60),
            at("2026-11-20T11:02:00+01:00", 60),
            at("2026-11-20T09:05:00", 60),  # no time zone: cannot be placed
            at("never", 60),
            at("2026-11-20T09:00:00Z", None),
        ]
    )
    assert found is not None
    assert (found.wall_s, found.busy_s, found.overhead_s) == (3780.0, 150.0, 3630.0)
    assert html.timing([at("never", 1)]) is None


def test_what_was_not_planned_and_what_is_wrong_with_the_run_is_shown(small: Plan) -> None:
    """Catches results that were set aside in silence."""
    stray = next(iter(judged(small).measurements)).model_copy(
        update={"test": "stray", "problem": RunProblem(kind="other", message="m")}
    )
    model = html.build(judged(small, Faults(extra=[stray])))
    assert len(model.verdict.unplanned) == 1
    assert "stray" in model.verdict.unplanned[0]


def _rejudged(source: ReportSource, measurements: list[Measurement]) -> ReportSource:
    from shakedown.judge.verdict import judge_cells, summarise

    cells = judge_cells(source.plan, measurements, source.counters)
    return ReportSource(
        source.plan, measurements, source.counters, None, cells, summarise(source.plan, cells)
    )


def expecting(stage: Stage) -> StageTime:
    """Expect an hour at most of a stage, half of it if all goes well."""
    return StageTime(
        stage=stage,
        jobs=2,
        at_once=1,
        expected_s=1800,
        limit_s=3600,
        expected_node_s=7200,
        limit_node_s=14400,
    )


def test_the_report_puts_the_expectation_beside_what_it_took() -> None:
    """Catches: an expectation that only the plan knows, a stage's time taken from another stage."""
    plan = make_plan(4, 2)
    before = html.build(judged(plan))
    assert (before.times, before.plan.not_covered) == ((), ())
    left_out = NotCovered(what="uplinks <b>", why="not read", cells=672, key="leaf_ports")
    plan = plan.model_copy(
        update={
            "expectation": Expectation(stages=(expecting(Stage.FABRIC), expecting(Stage.CONFIG)), max_jobs=8),
            "not_covered": (left_out,),
        }
    )
    source = judged(plan)
    source = replace(source, measurements=[m for m in source.measurements if m.stage is not Stage.CONFIG])
    shown = html.build(source)
    fabric, config = shown.times
    starts = sorted(m.started for m in source.measurements if m.stage is Stage.FABRIC and m.started)
    assert fabric.took_s is not None
    assert fabric.took_s > 0
    assert len(starts) > 1
    assert config.took_s is None  # nothing of it was measured
    assert (fabric.expected_s, fabric.limit_s, fabric.node_hours) == (1800, 3600, 2.0)
    text = markdown.render_markdown(shown)
    assert "| fabric | 30 min 00 s | 1 h 00 min | 2.0 | " in text
    assert "| config | 30 min 00 s | 1 h 00 min | 2.0 | – |" in text
    page = html.render_html(shown, {})
    assert "uplinks &lt;b&gt; (672 cells): not read" in page
    assert "Expected 1 h 00 min, measured for" in page


def test_the_worst_cells_are_ringed_and_not_the_first(monkeypatch, small: Plan) -> None:
    """Catches: rings around the first rows of a map in which much fails, and none around its worst cell."""
    monkeypatch.setattr(heatmaps, "MOST_MARKS", 1)
    source = judged(small)
    low = {("n1", "n2"): 0.9, ("n3", "n4"): 0.1}

    def slowed(m: Measurement) -> Measurement:
        share = low.get(m.nodes, 1.0) if m.test == "ib_write_bw" and m.metric == "bandwidth" else 1.0
        return m if share == 1.0 else m.model_copy(update={"value": (m.value or 0) * share, "samples": ()})

    found, _ = heatmaps.heat_maps(_rejudged(source, [slowed(m) for m in source.measurements]))
    marked = [one for one in found if one.marks and "bandwidth" in one.title]
    assert marked
    assert all(
        (one.rows[one.marks[0].row], one.columns[one.marks[0].column]) in (("n3", "n4"), ("n4", "n3"))
        for one in marked
    )
