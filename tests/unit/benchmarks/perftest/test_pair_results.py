"""From measurements to blame, and the commands mesh, simulate and localise from files to exit status."""

import json
import math
import time

import numpy as np
import pytest

from shakedown.benchmarks.perftest.mesh.schedule import LESS_LOAD, pack_rounds
from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.judge.judged import judge_folder
from shakedown.judge.localise.matrices import read_pairs, routes_of
from shakedown.judge.localise.model import Element, Route
from shakedown.judge.localise.pair_results import PairResults, PlannedPairs
from shakedown.judge.localise.suspects import (
    MATCHINGS,
    causes_and_suspects,
    confirming_pairs,
    first_pairs,
    in_the_way,
    suspected_nodes,
    suspects,
)
from shakedown.records.results import RunProblem
from shakedown.run.folder import Run
from shakedown.simulate.fabric import FaultKind, Shape, build_fabric, draw_fault, measure
from tests.kit import records
from tests.kit.cases import cases
from tests.unit.benchmarks.perftest.local_mesh import spec_data

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
def test_what_is_bad_for_one_span_of_time_is_a_suspect_with_its_reason(told):
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
    assert not [c for c in causes if c.blamed]
    assert causes[0].element.node == "n03"
    assert any("one span of time" in line for line in causes[0].evidence) is told


def test_a_healthy_simulated_run_passes_and_nobody_is_at_fault(shakedown, tmp_path):
    """Catches: simulated files that a real run's readers refuse, or that cannot pass."""
    run = tmp_path / "healthy"
    assert shakedown("simulate", run, "--nodes", 12, "--rails", 2, "--pod", 4)[0] == 0
    verdict = judge_folder(run, simulated=True)
    assert (verdict.outcome.value, verdict.coverage.complete, verdict.unplanned) == ("PASS", True, ())
    assert shakedown("localise", run)[0] == 0


def test_the_same_seed_gives_the_same_bytes(shakedown, tmp_path):
    """Catches: a rehearsal that cannot be repeated."""
    for name in ("a/run", "b/run"):
        shakedown(
            "simulate", tmp_path / name, "--nodes", 9, "--rails", 1, "--fault", "flapping:20%", "--seed", 7
        )
    files = {f.name: f.read_bytes() for f in (tmp_path / "a/run").iterdir() if f.is_file()}
    assert len(files) == 6
    assert files == {f.name: f.read_bytes() for f in (tmp_path / "b/run").iterdir() if f.is_file()}


def test_planted_faults_go_from_files_to_the_named_parts(shakedown, tmp_path):
    """Catches: cabling, paths or counters lost on the way through the files."""
    run = tmp_path / "faulty"
    words = ["--nodes", 24, "--rails", 2, "--pod", 6, "--fault", "lossy-cable:4%", "--fault", "uplink:6%"]
    _, said, _ = shakedown("simulate", run, *words)
    status, out, _ = shakedown("localise", run, "--json")
    causes = {c["kind"]: c for c in json.loads(out)["causes"] if c["blamed"]}
    assert status == 1 and set(causes) == {"cable", "uplink"}
    for cause in causes.values():
        place = (
            " ".join(cause[k] for k in ("node", "rail") if cause[k]) or f"{cause['leaf']} {cause['spine']}"
        )
        assert place in said
    assert any("rx_crc_errors_phy" in line for line in causes["cable"]["evidence"])
    assert judge_folder(run, simulated=True).outcome.value == "FAIL"


def test_files_hold_what_was_simulated(shakedown, tmp_path):
    """Catches: forward and reverse, or source and sink, swapped between the files and the matrix."""
    run = tmp_path / "r"
    shakedown("simulate", run, "--nodes", 10, "--rails", 2, "--pod", 5, "--fault", "nic-tx:30%", "--seed", 3)
    rng = np.random.default_rng(3)
    shape = Shape(10, 2, pod=5, dips=0.0)
    fabric = build_fabric(shape, rng)
    sim = measure(shape, fabric, [draw_fault(FaultKind.NIC_TX, 0.3, shape, fabric, rng)], rng)
    [route] = routes_of(read_pairs(Run(run, simulated=True)), Run(run, simulated=True))
    [matrix], read = route.matrices, route.fabric
    np.testing.assert_allclose(matrix.values, sim.matrix.values, atol=0.006)
    assert [read.leaves[i] for i in read.leaf.ravel()] == [fabric.leaves[i] for i in fabric.leaf.ravel()]
    known = fabric.spine >= 0
    assert ((read.spine >= 0) == known).all()
    assert [read.spines[i] for i in read.spine[known]] == [fabric.spines[i] for i in fabric.spine[known]]


@cases(
    "words",
    ("--nodes", 1),
    ("--nodes", 5000),
    ("--rails", 9),
    ("--fault", "gremlins"),
    ("--fault", "nic-tx:0"),
    ("--fault", "nic-tx:many"),
    ("--nodes", 4, "--fault", "spine"),
)
def test_an_impossible_fabric_is_refused_in_one_line(shakedown, tmp_path, words):
    """Catches: a traceback, or a fabric that is not what was asked for."""
    status, out, err = shakedown("simulate", tmp_path / "x", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "x").exists()


def test_a_run_is_never_overwritten(shakedown, tmp_path):
    """Catches: a simulated run written over a real one."""
    shakedown("simulate", tmp_path / "r", "--nodes", 4, "--rails", 1)
    assert shakedown("simulate", tmp_path / "r", "--nodes", 4, "--rails", 1)[0] == 2


def test_localise_refuses_a_run_without_pairs_and_a_broken_path(shakedown, tmp_path):
    """Catches: a run with nothing to localise that exits 0 or 2, as if nothing were at fault or planned."""
    run = tmp_path / "r"
    shakedown("simulate", run, "--nodes", 4, "--rails", 1, "--pod", 2)
    with (run / "paths.jsonl").open("a") as file:
        file.write('{"schema":1,"source":"n1"}\n')
    status, _, err = shakedown("localise", run)
    assert status == 2 and "paths.jsonl:9" in err
    (run / "paths.jsonl").unlink()
    (run / "results.jsonl").write_text("")
    status, out, _ = shakedown("localise", run)
    assert status == 3 and "0 results, 12 missing" in out
    plan = (run / "plan.json").read_text().replace('"fabric"', '"collective"')
    (run / "plan.json").write_text(plan)
    status, _, err = shakedown("localise", run)
    assert status == 2 and "no test of a pair" in err


@pytest.fixture
def spec_file(tmp_path):
    """A specification of nine nodes in a file."""
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_data(9, 2)))
    return path


def test_plan_shows_rounds_and_writes_other_pairs(shakedown, spec_file, tmp_path):
    """Catches: a quick or partial mesh that says it measures what it does not."""
    status, out, _ = shakedown("mesh", "plan", spec_file, "--json", "--rounds")
    plan = json.loads(out)
    assert (status, plan["pairs"], plan["rounds"], plan["cells"]) == (0, 36, 9, 36 * 2 * 2)
    assert len(plan["schedule"]) == 9
    quick = tmp_path / "quick.json"
    shakedown("mesh", "plan", spec_file, "--mode", "quick", "--rail", "rail1", "-o", quick)
    spec = parse_spec(json.loads(quick.read_text()))
    assert (len(spec.pairs), spec.rails) == (3 * 4, ("rail1",))
    wanted = tmp_path / "pairs.txt"
    wanted.write_text("# two of them\nn1 n2\nn9,n3  # the other way round\n")
    status, out, _ = shakedown("mesh", "plan", spec_file, "--mode", "pairs", "--pairs", wanted, "--json")
    assert (json.loads(out)["pairs"], json.loads(out)["rounds"]) == (2, 1)
    wanted.write_text("n1 n2\nn3\n")
    status, _, err = shakedown("mesh", "plan", spec_file, "--mode", "pairs", "--pairs", wanted)
    assert status == 2 and "pairs.txt:2" in err


def test_coverage_names_what_is_missing(shakedown, spec_file, tmp_path):
    """Catches: an empty or half-finished mesh called complete."""
    out_folder = tmp_path / "out"
    out_folder.mkdir()
    status, out, _ = shakedown("mesh", "coverage", spec_file, out_folder)
    assert status == 3 and "0/36 pairs, 0/2 rails, 0/2 directions, 0/144 cells" in out
    (out_folder / "outputs.n1.jsonl").write_text("{}\n")
    status, _, err = shakedown("mesh", "coverage", spec_file, out_folder)
    assert status == 2 and "outputs.n1.jsonl:1" in err


def test_quick_finds_a_bad_nic_of_many_in_at_most_five_rounds():
    """Catches: a suspect blamed unconfirmed, or confirmed by partners that are suspect themselves."""
    shape = Shape(256, 1)
    rng = np.random.default_rng(11)
    fabric = build_fabric(shape, rng)
    fault = draw_fault(FaultKind.NIC_TX, 0.03, shape, fabric, rng)
    sim = measure(shape, fabric, [fault], rng)
    names, full = shape.node_names, sim.matrix.values.copy()
    pairs = first_pairs(names, seed=1)
    keep(sim.matrix.values, full, names, pairs)
    suspected = suspected_nodes(suspects([Route((sim.matrix,), fabric)]))
    assert fault.element.node in suspected and len(suspected) < 6
    confirm = confirming_pairs(suspected, names, pairs, seed=1)
    assert not {frozenset(p) for p in confirm} & {frozenset(p) for p in pairs}
    assert all(len(set(p) & set(suspected)) == 1 for p in confirm)
    assert len(pack_rounds(pairs)) == MATCHINGS and len(pack_rounds(confirm)) <= 2
    assert all(sum(s in p for p in confirm) == 2 for s in suspected)


def keep(values, full, names, pairs):
    """Leave only the results of these pairs."""
    index = {name: i for i, name in enumerate(names)}
    values[:] = np.nan
    for a, b in pairs:
        for one, two in ((a, b), (b, a)):
            values[:, index[one], index[two]] = full[:, index[one], index[two]]
