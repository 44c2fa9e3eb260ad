"""What the plan asks for of paths, copies and inference."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from shakedown.benchmarks.inference.metrics import Inference
from shakedown.references.catalogue import MissingReference
from tests.kit.run import python
from tests.kit.site import one_node, plan_site

INTERCONNECT = {"path": {"generation": 5}, "copies": {"at_once": [1, 2, 4], "far_pin": True}}
INFERENCE = {"gpus": [1, 2, 4, 8]}


def planned(gpus: int = 4, gpu: str = "H200-SXM", profile: str = "h200x4_interconnect", **sections):
    """Return plan and jobs of one host with as many GPUs."""
    scope = sections.pop("scope", {})
    software = {"pytorch": "/usr/bin/python3"}
    site = one_node(profile, gpus, software, scope={"gpu": gpu, **scope}, **sections)
    return plan_site(site, [profile], run="r")


def test_every_gpu_is_asked_about_and_copied_to():
    """Catches a GPU, direction or number of GPUs at once that nobody plans to measure."""
    plan, jobs = planned(interconnect=INTERCONNECT)
    cells = {cell for item in plan.items for cell, *_ in item.cells()}
    for gpu in range(4):
        for what in ("hops", "speed", "width", "sharing", "numa"):
            assert f"node/pcie_path/wrong/n1/-/-/gpu={gpu},what={what}" in cells
        for direction in ("h2d", "d2h", "h2d_duplex", "d2h_duplex"):
            assert f"node/copy/bandwidth/n1/-/{direction}/gpu={gpu},gpus=1" in cells
            assert f"node/copy/far_pin/n1/-/{direction}/gpu={gpu}" in cells
    assert {f"node/copy/bandwidth/n1/-/h2d/gpus={n}" for n in (2, 4)} <= cells
    assert [job.kind for job in jobs.jobs] == ["pcie_path", "copies"]
    assert not any(item.required for item in plan.items if item.metric == "far_pin")


def test_no_search_for_more_gpus_than_there_are():
    """Catches cells that no node could ever measure."""
    plan, jobs = planned(inference=INFERENCE)
    assert sorted({item.params["gpus"] for item in plan.items}) == [1, 2, 4]
    assert jobs.jobs[0].settings["gpus"] == (1, 2, 4)


def test_an_engine_is_held_to_references_of_its_own_arithmetic():
    """Catches INT8 held to the rate of half precision, or the other way round, and a time limit that the
    building of the engine uses up."""
    half, plain = planned(inference={**INFERENCE, "gpus": [1]})
    int8, built = planned(inference={**INFERENCE, "gpus": [1], "engine": "tensorrt"})
    rate = {item.metric: item.reference for item in half.items}["rate"]
    assert rate == "h200x4-resnet50-rate-1gpu"
    rate = {item.metric: item.reference for item in int8.items}["rate"]
    assert rate == "h200x4-resnet50-int8-rate-1gpu"
    assert built.jobs[0].time_limit_s >= plain.jobs[0].time_limit_s + 60
    with pytest.raises(ValidationError, match="needs device cuda"):
        Inference(gpus=(1,), engine="tensorrt", device="cpu", model="tiny")


def test_rate_without_a_reference_is_refused():
    """Catches a number of GPUs that could only pass by not being looked at."""
    with pytest.raises(MissingReference, match="gpus=8"):
        planned(8, inference=INFERENCE)


def test_accuracy_is_planned_with_weights_only():
    """Catches: random weights held to an accuracy, real ones that are not, and one that goes unmentioned."""
    plan, _ = planned(inference=INFERENCE)
    # These rates were measured with random weights; PRIMERGY's were not (decision/test_systems.py).
    assert not [item for item in plan.items if item.metric == "accuracy"]
    files = {"weights": "/w.pt", "weights_sha256": "ab" * 32, "images": "/i.npy", "labels": "/l.npy"}
    plan, jobs = planned(inference={**INFERENCE, **files})
    assert jobs.jobs[0].settings["weights_sha256"] == "ab" * 32
    assert not any(item.not_run for item in plan.items)
    gates = [plan.references[item.reference].gate for item in plan.items if item.metric == "accuracy"]
    assert gates == [pytest.approx(75.70, abs=0.005)] * 3


def test_time_limit_covers_the_searches():
    """Catches a Slurm time limit that ends a full search before its confirmations."""
    _, jobs = planned(inference=INFERENCE)
    assert jobs.jobs[0].time_limit_s > 3 * 3 * 600


@pytest.mark.parametrize("path", ["none", "path1", "path2", "path3", "path4"])
def test_every_path_of_the_paper_can_be_planned(path):
    """Catches a path whose figures are shipped and that no plan can be held to."""
    hops = 0 if path == "none" else int(path[-1])
    plan, _ = planned(
        4,
        "L40S",
        "primergy_cdi",
        scope={"pcie_generation": 4},
        interconnect={**INTERCONNECT, "path": {"name": path, "generation": 4, "switch_hops": hops}},
        inference={"gpus": [1, 2, 3, 4], "path": path, "metrics": ["data_rate"]},
    )
    gates = {item.params["gpus"]: item.reference for item in plan.items if item.metric == "data_rate"}
    assert gates == {n: f"primergy-l40s-{path}-{n}gpu" for n in (1, 2, 3, 4)}


ROOT = Path(__file__).parents[4]
# PyTorch is not installed here; the site's environment need not have pydantic.
PROGRAM = """
import sys, types
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["pydantic"] = None
import loadgen_harness.copies
"""


def test_it_needs_nothing_but_pytorch():
    """Catches: an import of the controller's libraries, which the site's PyTorch environment lacks."""
    path = f"{ROOT}{os.pathsep}{ROOT / 'workloads'}"
    done = python("-c", PROGRAM, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("gpu", "engine", "most"),
    [("H200-SXM", "cudnn", 989.4e12 / 8.18e9), ("H200-SXM", "tensorrt", 2 * 989.4e12 / 8.18e9)],
)
def test_no_rate_is_more_than_the_gpus_can(gpu, engine, most):
    """Catches: 30 times the images a second that a GPU can classify, as a very good rate."""
    plan, _ = planned(gpu=gpu, inference={"gpus": [1, 2], "engine": engine})
    rates = {
        item.params["gpus"]: plan.references[item.reference] for item in plan.items if item.metric == "rate"
    }
    assert {gpus: reference.ceiling for gpus, reference in rates.items()} == pytest.approx(
        {1: most, 2: 2 * most}
    )
    assert all(reference.value < reference.ceiling for reference in rates.values())
