"""From measurements to blame: what is missing is counted, and what no hardware did accuses none."""

import json
import math
import time

import numpy as np
import pytest

from shakedown.benchmarks.perftest.mesh.schedule import LESS_LOAD
from shakedown.judge.localise.matrices import routes_of
from shakedown.judge.localise.model import Element
from shakedown.judge.localise.pair_results import PairResults, PlannedPairs
from shakedown.judge.localise.suspects import causes_and_suspects, in_the_way
from shakedown.records.results import RunProblem
from tests.kit import records
from tests.kit.cases import cases

NODES = tuple(f"n{i}" for i in range(1, 6))
PAIRS = tuple((a, b) for i, a in enumerate(NODES) for b in NODES[i + 1 :])
TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_bw2")


def measurement(pair, rail, direction, value, *, test=TESTS[0], attempt=1, problem=None):
    """One result of a pair; a problem is (kind, message)."""
    return records.measurement(
        test=test,
        value=value,
        nodes=pair,
        rail=rail,
        direction=direction,
        attempt=attempt,
        problem=RunProblem(kind=problem[0], message=problem[1]) if problem else None,
    )


def item(pairs=PAIRS, rails=("rail0", "rail1"), test=TESTS[0]):
    """A planned block of both directions."""
    return records.item(test=test, nodes=pairs, rails=rails, directions=("forward", "reverse"), reference="x")


def mesh(change=lambda pair, rail, direction, value: (value, None), rails=("rail0", "rail1"), seed=1):
    """A mesh of five nodes and four tests; `change` gives value and problem of each result."""
    rng = np.random.default_rng(seed)
    pairs = PairResults(PlannedPairs(item(rails=rails, test=test) for test in TESTS))
    for test in TESTS:
        for pair in PAIRS:
            for rail in rails:
                for direction in ("forward", "reverse"):
                    base = 100 * math.exp(0.01 * rng.standard_normal()) * (0.6 if ">" in rail else 1)
                    value, problem = change(pair, rail, direction, base)
                    pairs.add(measurement(pair, rail, direction, value, test=test, problem=problem))
    return pairs


def causes(pairs):
    """Return (blamed elements, suspects)."""
    found, _ = causes_and_suspects(pairs, None, ())
    return [c.element for c in found if c.blamed], [c for c in found if not c.blamed]


@cases(
    "kind, message",
    ("missing-tool", "n2 has no working ib_write_bw"),
    ("environment", "ib_write_bw of two versions in {a} and {b}: 6.12 and 6.20"),
    ("environment", "port 18515 of n2 is in use"),
    ("setup", "server on n2 does not listen: could not bind"),
    ("environment", "n2 lost: no answer for 20 s"),
    ("parse", "ib_write_bw.{a},{b}.txt: an MTU of 1024 bytes, 4096 were ordered"),
)
def test_what_is_no_fault_of_the_hardware_is_said_and_blames_nobody(kind, message):
    """Catches: a node drained as bad hardware, because its perftest is missing or of another version."""

    def spoil(pair, _rail, _direction, value):
        said = message.format(a=pair[0], b=pair[1])
        return (None, (kind, said)) if "n2" in pair else (value, None)

    pairs = mesh(spoil)
    blamed, suspects = causes(pairs)
    assert blamed == [] and [c.element.node for c in suspects] == ["n2"]
    assert pairs.missing == 4 * 4 * 4 and pairs.measured == 4 * (40 - 16)
    assert message.format(a="n1", b="n2") in suspects[0].evidence and "64 results" in suspects[0].evidence[-1]


@pytest.mark.parametrize("odd", ["n1", "n3", "n5"])
def test_the_node_with_another_mtu_is_found_wherever_its_name_stands(odd):
    """Catches: partners suspected one by one, as the message begins with a file's name with both nodes."""

    def spoil(pair, rail, direction, value):
        name = f"ib_write_bw.{','.join(pair)}.{rail}.{direction}.txt"
        said = f"{name}: this test ran with an RDMA MTU of 1024 bytes, 4096 were ordered"
        return (None, ("parse", said)) if odd in pair else (value, None)

    _, suspects = causes(mesh(spoil))
    assert [c.element.node for c in suspects] == [odd]


def test_a_job_that_failed_for_a_third_node_suspects_only_that():
    """Catches: innocent pairs suspected, because the allocation was refused for a node that had died."""
    problem = ("environment", "Slurm cannot use n3: it is down and does not respond")
    _, suspects = causes(mesh(lambda *_: (None, problem)))
    assert [c.element.node for c in suspects] == ["n3"]


def test_a_number_without_its_neighbours_load_suspects_nobody():
    """Catches: a good node suspected, because the other rail of a pair failed at the same time."""

    def spoil(pair, rail, _direction, value):
        if pair != ("n1", "n2"):
            return value, None
        if rail == "rail0":
            return None, ("other", "exit status 1: retry exceeded")
        return None, ("environment", f"{LESS_LOAD}: rail0 failed: retry exceeded")

    pairs = mesh(spoil)
    blamed, suspects = causes(pairs)
    assert blamed == [] and not in_the_way(pairs) and pairs.missing == 16
    assert not any(c.element.rail == "rail1" for c in suspects)


def test_what_all_nodes_have_is_told_once():
    """Catches: a verdict that takes minutes, and hundreds of suspects, where all have the same problem."""
    names = [f"n{i}" for i in range(250)]
    everyone = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    pairs = PairResults()
    for pair in everyone:
        pairs.add(measurement(pair, "rail0", "forward", None, problem=("parse", "a.txt: MTU of 1024 bytes")))
    begin = time.process_time()
    [cause] = in_the_way(pairs)
    assert time.process_time() - begin < 3
    assert str(cause.element) == "fabric" and f"{len(everyone)} results" in cause.evidence[-1]


def test_two_versions_among_two_nodes_suspect_both():
    """Catches: of two nodes that differ the one with the lower name taken for the odd one."""
    pairs = PairResults()
    problem = ("environment", "ib_write_bw of two versions in n1 and n2: 6.12 and 6.20")
    pairs.add(measurement(("n1", "n2"), "rail0", "forward", None, problem=problem))
    _, suspects = causes(pairs)
    assert [str(r) for c in suspects for r in (c.element, *c.rivals)] == ["node n1", "node n2"]


@cases(
    "kind, message",
    ("setup", "n4 rail1: RDMA device mlx5_1 does not exist"),
    ("other", "exit status 1: Failed status 12: retry exceeded"),
)
def test_what_may_be_the_hardware_counts_against_it(kind, message):
    """Catches: a NIC that is gone excused with the tools that are missing, or every failed measurement."""

    def spoil(pair, rail, _direction, value):
        return (None, (kind, message)) if "n4" in pair and rail == "rail1" else (value, None)

    blamed, _ = causes(mesh(spoil))
    assert blamed == [Element("nic", node="n4", rail="rail1")]


def test_what_a_second_start_measured_is_not_missing():
    """Catches: a node still suspect that was lost in the first attempt and measured well in the second."""
    pairs = mesh()
    lost = ("environment", "n2 lost: no answer for 20 s")
    for attempt, value, problem in ((2, None, lost), (3, 100.0, None), (1, None, lost)):
        pairs.add(measurement(("n1", "n2"), "rail0", "forward", value, attempt=attempt, problem=problem))
    assert causes(pairs) == ([], []) and pairs.missing == 0


CROSSED = ("rail0", "rail1", "rail0>rail1", "rail1>rail0")


def test_traffic_across_rails_is_compared_with_its_like():
    """Catches: a healthy fabric blamed, because traffic across the spine is slower than on the leaf."""
    for seed in range(5):
        assert causes(mesh(rails=CROSSED, seed=seed)) == ([], [])


@pytest.mark.parametrize(("way", "ends"), [("rx", 1), ("tx", 0)])
def test_a_nic_is_named_by_what_it_does_on_its_rail_and_across(way, ends):
    """Catches: one bad NIC reported as several, or that of the wrong rail, where crossings are measured."""

    def spoil(pair, rail, direction, value):
        source_and_sink = pair if direction == "forward" else pair[::-1]
        own = (rail.split(">") * 2)[:2][ends] if ">" in rail else rail
        return (value * (0.3 if source_and_sink[ends] == "n3" and own == "rail1" else 1), None)

    blamed, _ = causes(mesh(spoil, rails=CROSSED))
    assert blamed == [Element("nic", node="n3", rail="rail1", direction=way)]


def test_pairs_that_nobody_planned_are_left_out():
    """Catches: a few megabytes of foreign results that take gigabytes, or count for missing ones."""
    pairs = mesh()
    for i in range(20_000):
        pairs.add(measurement((f"x{i}", f"y{i}"), "rail0", "forward", 1.0))
    pairs.add(measurement(("n1", "n2"), "rail7", "forward", 1.0))
    [route] = routes_of(pairs, None)
    assert route.matrices[0].nodes == NODES and route.matrices[0].rails == ("rail0", "rail1")
    assert pairs.measured == 160


def test_the_exit_status_says_that_results_are_missing(shakedown, tmp_path):
    """Catches: a run of which half was never measured that exits 0, or one without values that crashes."""
    run = tmp_path / "r"
    shakedown("simulate", run, "--nodes", 20, "--rails", 1)
    lines = (run / "results.jsonl").read_text().splitlines()
    nulls = [json.dumps(json.loads(line) | {"value": None}) for line in lines]
    for kept, missing in ((lines, 0), (lines[: len(lines) // 2], 190), (nulls, 380)):
        (run / "results.jsonl").write_text("".join(f"{line}\n" for line in kept))
        for option in ((), ("--json",)):
            status, out, error = shakedown("localise", run, *option)
            assert status == (3 if missing else 0), error + out
            said = f'"missing": {missing},' if option else f"{missing} missing"
            assert said in out and "Traceback" not in error


def test_damaged_counters_are_no_health(shakedown, tmp_path):
    """Catches: exit status 0 for a run of which a file is cut off, asked before it was read."""
    run = tmp_path / "r"
    shakedown("simulate", run, "--nodes", 20, "--rails", 1)
    whole = (run / "counters.jsonl").read_bytes()
    assert shakedown("localise", run)[0] == 0
    (run / "counters.jsonl").write_bytes(whole[:-40])
    assert shakedown("localise", run)[0] == 3


@cases("told", True, False)
def test_what_is_bad_for_one_span_of_time_is_blamed_only_where_no_time_is_told(told):
    """Catches: a receiver drained for a neighbour's job; a second attempt's time taken for the first's."""
    nodes = tuple(f"n{i:02}" for i in range(16))
    rng = np.random.default_rng(2)
    pairs = PairResults()
    for rail in ("rail0", "rail1"):
        for i, one in enumerate(nodes):
            for j, other in enumerate(nodes[i + 1 :], i + 1):
                minute = (i + j) % 15 if j < 15 else 2 * i % 15
                for direction, sink in (("forward", j), ("reverse", i)):
                    bad = sink == 3 and 4 <= minute < 9
                    for attempt in (1, 2) if bad else (1,):
                        value = float(390 * (0.8 if bad else 1) * (1 + 0.003 * rng.standard_normal()))
                        m = measurement((one, other), rail, direction, value, attempt=attempt)
                        at = f"2026-11-28T10:{59 if attempt == 2 else minute:02}:00Z" if told else "soon"
                        pairs.add(m.model_copy(update={"started": at}))
    causes, _ = causes_and_suspects(pairs, None, [])
    assert {c.element.node for c in causes if c.blamed} == (set() if told else {"n03"})
    assert causes[0].element.node == "n03"
    assert any("one span of time" in line for line in causes[0].evidence) is told
