"""What a run of a million cells costs: bytes of memory for each, and of verdict.json; and loses nothing."""

import json
import tracemalloc

import pytest

from shakedown.collect.run import _held_against
from shakedown.judge.verdict import judge, judge_cells
from shakedown.records import verdict as records
from shakedown.records.base import Outcome, Stage
from shakedown.records.plan import CellPlaces
from shakedown.records.verdict import Verdict, verdict_says, verdict_to_json
from shakedown.records.wording import where
from shakedown.report.source import Passing
from shakedown.run.folder import write_lines
from tests.kit.cases import cases
from tests.kit.records import item, measured, measurement, plan, reference

BOUND = reference(id="bw", value=400.0, tolerance=0.05)
RAILS, WAYS = ("rail0", "rail1"), ("forward", "reverse")


def mesh(**nodes):
    """The item of all pairs of some nodes, on two rails and both ways."""
    return item(nodes=nodes, rails=RAILS, directions=WAYS, params={"size_bytes": 65536}, reference="bw")


def results(of, value=lambda number: 390.0, **changes):
    """Yield a result of each cell of an item."""
    for number, (_, nodes, rail, direction) in enumerate(of.cells()):
        yield measured(of, nodes, value(number), rail=rail, direction=direction, **changes)


def plan_of(*items):
    """A plan of items of pairs."""
    nodes = tuple(sorted({node for one in items for pair in one.nodes for node in pair}))
    return plan(*items, nodes=nodes, rails=RAILS, references=[BOUND])


GROUPS = ({"all_pairs_of": ["n1", "n2", "n3", "n4"]}, {"pairs_across": [["n1", "n3"], ["n2", "n4"]]})


@cases("groups", *GROUPS)
def test_a_cell_asked_for_by_its_place_is_the_one_of_the_plan(groups):
    """Catches a value under another cell's name: places, names, values and outcomes must be in one order."""
    of = mesh(**groups)
    values = [300.0 + number if number % 3 else None for number in range(len(of))]
    lines = [m for m in results(of, lambda number: values[number]) if m.value is not None]
    (block,) = judge_cells(plan_of(of), reversed(lines)).items
    cells = block.cells
    assert [cell.cell for cell in cells] == [cell for cell, *_ in of.cells()]
    assert list(cells) == [cells[i] for i in range(len(cells))] == cells[:]
    assert cells.values() == [cell.value for cell in cells] == values
    assert cells.outcomes() == [cell.outcome for cell in cells]
    assert dict(cells.unlike()) == {i: c for i, c in enumerate(cells) if c.rule != "within"}
    assert {Outcome.PASS, Outcome.FAIL, Outcome.NOT_RUN} >= set(cells.outcomes())
    places = CellPlaces([item(nodes=[["n9"]], reference="bw"), of])
    assert [places.named(cell) for cell, *_ in of.cells()] == [(1, i) for i in range(len(of))]
    assert places.named("fabric/ib_write_bw/bandwidth/n9/-/-/-") == (0, 0)
    assert places.named("fabric/ib_write_bw/bandwidth/n2,n1/rail0/forward/size_bytes=65536") is None


def peak_of(act):
    """Return how many bytes were allocated at once while something ran."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_judging_takes_few_bytes_a_cell():
    """Catches the cells held as records, 1.7 kB each: 14 GB for the full mesh of 1,024 nodes."""
    of = mesh(all_pairs_of=[f"n{i}" for i in range(80)])
    whole = plan_of(of)
    passing = Passing()

    def lines():
        for m in results(of):
            passing.add(m)
            yield m

    assert peak_of(lambda: judge_cells(whole, lines())) < 150 * len(of)
    assert (passing.kept, passing.repeated) == ([], {})


def test_the_report_keeps_what_it_shows_of_a_measurement():
    """Catches repeats of a cell, or a test with drawings of its own, that go by unseen."""
    passing = Passing(drawn=("copy",))
    once = measurement(
        nodes=("n1", "n2"), value=1.0, samples=(1.0,), raw="raw/a/b", started="t", duration_s=2
    )
    again = once.model_copy(update={"attempt": 2})
    repeated = once.model_copy(update={"samples": (1.0, 2.0)})
    elsewhere = once.model_copy(update={"stage": Stage.APPLICATION})
    drawn = once.model_copy(update={"test": "copy", "raw": "raw/a/c"})
    for m in (once, again, repeated, elsewhere, drawn):
        passing.add(m)
    assert passing.kept == [elsewhere, drawn]
    assert passing.repeated == {once.cell: [(2, 1.0, (1.0,)), (1, 1.0, (1.0, 2.0))]}
    assert passing.raw == {"raw/a/b": "ib_write_bw", "raw/a/c": "copy"}
    assert (Stage.FABRIC, "t", 2.0) in passing.starts


def test_results_are_written_and_held_against_line_by_line(tmp_path):
    """Catches a file of results in memory as a whole, or refused where it is larger than a document."""
    of, path = mesh(all_pairs_of=[f"n{i}" for i in range(60)]), tmp_path / "results.jsonl"
    assert peak_of(lambda: write_lines(path, results(of))) < path.stat().st_size / 5
    lines = path.read_bytes().splitlines(keepends=True)
    assert peak_of(lambda: _held_against(path, lines)) < path.stat().st_size / 5
    assert not _held_against(path, lines)[0]
    assert _held_against(path, [*lines[:3], b"{}\n", *lines[4:-1]])[0] == 2
    assert _held_against(path, [*lines[:3], b"{}\n", *lines[4:]])[1].startswith("line 4 says ")
    assert _held_against(path, lines[:-1]) == (1, f"{len(lines)} lines, recomputed {len(lines) - 1}")


@pytest.fixture
def failed(monkeypatch):
    """A verdict on a mesh in which all failed or was not measured, of which two cells are in full."""
    monkeypatch.setattr(records, "_IN_FULL", 2)
    of = mesh(all_pairs_of=["n1", "n2", "n3", "n4", "n5"])
    spoiled = list(results(of, lambda number: 200.0 + number))[1:]
    spoiled[4] = spoiled[4].model_copy(update={"detail": "the cable of leaf7"})
    spoiled[9] = spoiled[9].model_copy(update={"state": "NODE_FAIL", "job": "11", "value": None})
    spoiled[13] = spoiled[13].model_copy(update={"state": "NODE_FAIL", "job": "12", "value": None})
    return judge(plan_of(of), spoiled)


def test_what_many_failed_cells_share_is_said_once(failed):
    """Catches a cell, its value, or the words of its reason that get lost where the list is long."""
    content = verdict_to_json(failed)
    said = json.loads(content)
    assert len(said["cells"]) == 2
    assert Verdict.model_validate_json(content).cells == failed.cells[:2]
    found = {}
    for block in said["more_cells"]:
        same = (block["outcome"], block["rule"], block["gate"], block["ceiling"])
        for nodes, value in block["values"].items():
            found[block["cell"].replace("*", nodes)] = (*same, value, block["reason"])
    assert len(found) == len(failed.cells) - 2
    for cell in failed.cells[2:]:
        *same, reason = found[cell.cell]
        assert same == [cell.outcome, cell.rule, cell.gate, cell.ceiling, cell.value]
        own = cell.reason.removeprefix(f"{where(cell.cell)}: ")
        without_numbers = [records._NUMBER.sub("", text) for text in (own, reason)]
        assert (reason == own) if cell.value is None else (without_numbers[0] == without_numbers[1])
    jobs = {reason for *_, reason in found.values() if "NODE_FAIL" in reason}
    assert len(jobs) == 2 and any("leaf7" in reason for *_, reason in found.values())


def test_a_verdict_written_before_is_the_same_verdict(failed, monkeypatch):
    """Catches a file of an earlier release called forged, and a forged one taken for such a file."""
    now = verdict_to_json(failed)
    monkeypatch.setattr(records, "_IN_FULL", 1000)
    before = verdict_to_json(failed)
    assert b"more_cells" not in before and b"more_cells" in now
    monkeypatch.setattr(records, "_IN_FULL", 2)
    assert verdict_says(now, failed) and verdict_says(before, failed)
    for content in (now, before):
        assert not verdict_says(content.replace(b"201.0", b"391.0"), failed)
