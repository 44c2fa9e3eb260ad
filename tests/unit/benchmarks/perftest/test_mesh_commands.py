"""The commands mesh, simulate and localise, from files to exit status."""

import json

import numpy as np
import pytest

from shakedown.benchmarks.perftest.mesh.schedule import pack_rounds
from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.judge.judged import judge_folder
from shakedown.judge.localise.matrices import read_pairs, routes_of
from shakedown.judge.localise.model import Route
from shakedown.judge.localise.suspects import (
    MATCHINGS,
    confirming_pairs,
    first_pairs,
    suspected_nodes,
    suspects,
)
from shakedown.run.folder import Run
from shakedown.simulate.fabric import FaultKind, Shape, build_fabric, draw_fault, measure
from tests.kit.cases import cases
from tests.unit.benchmarks.perftest.local_mesh import spec_data


def test_a_healthy_simulated_run_passes_and_nobody_is_at_fault(shakedown, tmp_path):
    """Catches: simulated files that a real run's readers refuse, or that cannot pass."""
    run = tmp_path / "healthy"
    assert shakedown("simulate", run, "--nodes", 12, "--rails", 2, "--pod", 4)[0] == 0
    verdict = judge_folder(run)
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
    assert judge_folder(run).outcome.value == "FAIL"


def test_files_hold_what_was_simulated(shakedown, tmp_path):
    """Catches: forward and reverse, or source and sink, swapped between the files and the matrix."""
    run = tmp_path / "r"
    shakedown("simulate", run, "--nodes", 10, "--rails", 2, "--pod", 5, "--fault", "nic-tx:30%", "--seed", 3)
    rng = np.random.default_rng(3)
    shape = Shape(10, 2, pod=5, dips=0.0)
    fabric = build_fabric(shape, rng)
    sim = measure(shape, fabric, [draw_fault(FaultKind.NIC_TX, 0.3, shape, fabric, rng)], rng)
    [route] = routes_of(read_pairs(Run(run)), Run(run))
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
