"""The noise models: each does what its text says, and none takes nonsense."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from noise_models import NOISE, parse_noise
from shakedown.benchmarks.perftest.mesh.schedule import circle_rounds
from shakedown.records.reading import LARGEST_DOCUMENT
from shakedown.run import folder as runs
from shakedown.run.folder import PLAN, Run
from shakedown.simulate.fabric import Scene, Shape, build_fabric, measure
from shakedown.simulate.run import write_run
from tests.kit.cases import cases
from tests.kit.refusal import refused

SHAPE = Shape(32, 2, pod=8, dips=0.0, spread=0.0)


def rates(*noise, shape=SHAPE, seed=1):
    """Return a healthy fabric measured in some noise."""
    rng = np.random.default_rng(seed)
    return measure(shape, build_fabric(shape, rng), [], rng, parse_noise(noise))


@pytest.mark.parametrize("nodes", [8, 9])
def test_rounds_are_those_of_a_round_robin(nodes):
    """Catches: a node that meets two partners in one round, so that round noise falls on it unevenly."""
    nothing = np.zeros((1, nodes, nodes))
    scene = Scene(8, 4, None, None, nothing, nothing, nothing, nothing, nothing, nothing)
    when, turns = scene.rounds()
    assert turns == len(list(circle_rounds(str(i) for i in range(nodes))))
    for i in range(nodes):
        others = np.delete(when[i], i)
        assert len(set(others)) == nodes - 1 and (when == when.T).all()
        assert set(others) <= set(range(turns))


@pytest.mark.parametrize("name", NOISE)
def test_every_model_changes_the_measurement_and_the_seed_decides_how(name):
    """Catches: a model that does nothing, or that draws from something else than the seed."""
    name = {"bursts": "bursts:share=0.2"}.get(name, name)  # the default hits one NIC in fifty
    one, again = rates(name), rates(name)
    assert np.array_equal(one.matrix.values, again.matrix.values, equal_nan=True)
    assert not np.array_equal(one.matrix.values, rates().matrix.values, equal_nan=True)
    assert np.nanmin(one.matrix.values) > 0
    assert all(
        p.source and p.says and p.low <= p.default <= p.high
        for p in NOISE[name.partition(":")[0]].parameters.values()
    )


def test_steps_classes_and_gaps_are_there():
    """Catches: a step, a share or a loss that is not the one asked for."""
    stepped = rates("quantised:step=2").matrix.values
    assert not (np.nan_to_num(stepped) % 2).any()
    sim = rates("iid:cv=0", "classes:share=50%,loss=10%")
    slow = sim.fabric.classes[0, 0] == 1
    level = sim.matrix.values / np.nanmax(sim.matrix.values)
    assert slow.sum() == 16
    assert np.nanmedian(level[:, slow]) == pytest.approx(0.9) == np.nanmedian(level[:, ~slow][:, :, slow])
    assert np.nanmedian(level[:, ~slow][:, :, ~slow]) == pytest.approx(1)
    assert rates("classes:known=0").fabric.classes is None
    assert rates("missing:share=0.3").matrix.failed.mean() == pytest.approx(0.3, abs=0.03)


def test_flows_share_links_and_leaves_drag():
    """Catches: collisions within a leaf, where no link is shared, or sharing that slows nothing."""
    for name in ("ecmp-static", "ecmp-flow"):
        sim = rates("iid:cv=0", name)
        near = sim.fabric.leaf[:, :, None] == sim.fabric.leaf[:, None, :]
        best = np.nanmax(sim.matrix.values)
        assert np.nanmin(sim.matrix.values[near]) == pytest.approx(best)
        assert 0.05 < (sim.matrix.values[~near] < 0.9 * best).mean() < 0.7
    dragged = rates("iid:cv=0", "incast").matrix.values
    assert (dragged < 0.98 * np.nanmax(dragged)).mean() > 0.05


@cases(
    "text, says",
    ("pink", "unknown model"),
    ("iid:sd=1", "no parameter 'sd'"),
    ("iid:cv=9", "cv '9'"),
    ("iid:cv=nan", "cv 'nan'"),
    ("spread:sd=x%", "sd 'x%'"),
)
def test_nonsense_is_refused_and_says_what_there_is(text, says):
    """Catches: a misspelt model or value that is silently another noise."""
    refused(says, parse_noise, [text])


RUN_SHAPE = Shape(16, 2, pod=8)


def write_noisy(folder, *noise, seed=1, again=0):
    """Write a healthy run in some noise, as the command does without."""
    rng = np.random.default_rng(seed)
    fabric = build_fabric(RUN_SHAPE, rng)
    sim = measure(RUN_SHAPE, fabric, [], rng, parse_noise(noise), again=again)
    write_run(folder, sim, folder.name, "2026-01-01T00:00:00Z")


def test_noise_is_written_into_a_run(tmp_path):
    """Catches: classes that the files do not tell, so that what reads them sees another cluster."""
    folder = tmp_path / "r"
    write_noisy(folder, "classes:share=25%", "missing")
    parts = json.loads((folder / "inventory.json").read_text())["components"]
    assert sum(p["attributes"].get("firmware") == "simulated-1" for p in parts) == 4 * 2


@pytest.mark.slow
def test_what_was_recorded_is_what_the_recordings_give():
    """Catches: a parameter whose source gives a number that no recorded run has."""
    script = Path(__file__).parents[3] / "research/fit_noise.py"
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    cv, odd, of_odd, _, step = (float(x.strip().rstrip("%")) for x in told.splitlines()[-1].split("|")[3:])
    sources = {(m.name, key): p.source for m in NOISE.values() for key, p in m.parameters.items()}
    for place, said in (
        (("iid", "cv"), f": {cv:.2f} %"),
        (("contamination", "share"), f": {odd:g} %"),
        (("contamination", "cv"), f": {of_odd:g} %"),
        (("quantised", "step"), f"which is {step:g} GB/s"),
    ):
        assert said in sources[place], told


def verdict(shakedown, folder):
    """Return the verdict on a run, and its table."""
    return json.loads(shakedown("verdict", folder, "--json")[1]), shakedown("verdict", folder)[1]


def test_a_healthy_cluster_passes_and_its_transients_are_told(shakedown, tmp_path):
    """Catches a healthy cluster that fails for a few low results, and one that passes in silence."""
    for name, again in (("first-results", 0), ("again", 6)):
        write_noisy(tmp_path / name, "contamination:share=4%,cv=5%", seed=4, again=again)
    before, _ = verdict(shakedown, tmp_path / "first-results")
    assert before["outcome"] == "FAIL" and not before["transients"]
    after, table = verdict(shakedown, tmp_path / "again")
    assert after["outcome"] == "PASS", after["reason"]
    (first, *_) = after["transients"]
    assert first["rule"] == "transient" and first["reason"].count("Gb/s") >= 1
    assert "measured again and within" in after["reason"].lower()
    assert "transient " in table


def test_results_without_a_value_are_measured_late(shakedown, tmp_path):
    """Catches a result that was missing once and keeps a healthy run from its verdict."""
    write_noisy(tmp_path / "run", "missing:share=1%", again=6)
    after, _ = verdict(shakedown, tmp_path / "run")
    assert after["outcome"] == "PASS", after["reason"]
    assert {cell["rule"] for cell in after["transients"]} == {"late"}


@pytest.mark.slow
def test_a_slow_nic_fails_however_often_it_is_measured(shakedown, tmp_path):
    """Catches a fault that is measured again until it passes."""
    for number, fault in enumerate(("nic-tx:5%", "nic-rx:5%", "flapping:20%", "slow-node:6%", "pair:20%")):
        size = ("--nodes", 16, "--rails", 2, "--pod", 8, "--fault", fault, "--remeasure")
        assert shakedown("simulate", tmp_path / str(number), *size)[0] == 0
        after, _ = verdict(shakedown, tmp_path / str(number))
        assert after["outcome"] == "FAIL", fault


def test_what_a_part_is_like_stays_when_it_is_measured_again():
    """Catches a slow NIC that is another one the second time, so that measuring again heals it."""
    shape = Shape(16, 2, pod=8, cv=0.0, dips=0.0, spread=0.0)
    rng = np.random.default_rng(3)
    fabric = build_fabric(shape, rng)
    sim = measure(shape, fabric, [], rng, parse_noise(["spread:sd=1%", "iid:cv=0.01%"]), again=2)
    first = sim.matrix.values
    for later in sim.again:
        known = np.isfinite(first) & (first < 392)
        assert np.corrcoef(first[known], later[known])[0, 1] > 0.99
        assert not np.array_equal(first[known], later[known])


def test_measuring_again_changes_no_first_result():
    """Catches a seed that gives another cluster because something is measured again."""
    shape = Shape(8, 1, pod=4)
    models = parse_noise(["t4", "thermal", "incast", "missing"])
    sims = []
    for again in (0, 3):
        rng = np.random.default_rng(9)
        sims.append(measure(shape, build_fabric(shape, rng), [], rng, models, again=again))
    np.testing.assert_array_equal(sims[0].matrix.values, sims[1].matrix.values)
    np.testing.assert_array_equal(sims[0].matrix.failed, sims[1].matrix.failed)


@pytest.mark.parametrize("name", ["my run", "-run", "läufe", "x" * 129, "a,b", "a=b"])
@pytest.mark.parametrize("command", [("simulate", "--nodes", 4), ("plan", "inventories/lab", "-o")])
def test_a_folder_whose_name_cannot_be_a_runs_is_refused(shakedown, tmp_path, command, name):
    """Catches: a traceback, and half a run left behind, because the name was only found bad when written."""
    status, _, error = shakedown(*command, tmp_path / name)
    (line,) = error.splitlines()
    assert status == 2
    assert "cannot name a run -- use a folder name of" in line
    assert list(tmp_path.iterdir()) == []


def simulated(folder: Path, nodes: int) -> None:
    """Write a healthy run of one rail."""
    shape, rng = Shape(nodes, 1), np.random.default_rng(1)
    write_run(folder, measure(shape, build_fabric(shape, rng), [], rng), "r", "2026-01-01T00:00:00Z")


def test_a_fabric_whose_plan_nothing_can_read_again_leaves_nothing(tmp_path, monkeypatch):
    """Catches: results written for an hour before the plan turns out to be too large."""
    monkeypatch.setattr(runs, "LARGEST_DOCUMENT", 1000)
    refused("plan fewer nodes", simulated, tmp_path / "r", 4)
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_the_largest_fabric_can_be_read_again(tmp_path):
    """Catches: a plan whose bytes for each pair, times those of 4,096 nodes, are more than a reader takes."""
    nodes = 64
    simulated(tmp_path / "r", nodes)
    size = (tmp_path / "r" / PLAN).stat().st_size
    # Names of 4,096 nodes are two letters longer: n0001 for n01.
    for_a_pair = size / (nodes * (nodes - 1) / 2) + 4
    assert for_a_pair * 4096 * 4095 / 2 < LARGEST_DOCUMENT
    assert len(Run(tmp_path / "r", simulated=True).plan.items[0].nodes) == nodes * (nodes - 1) / 2
