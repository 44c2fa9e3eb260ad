"""The networking chapter's system: its jobs cross the network, its GPUs are held to the printed topology."""

import json

import pytest
from test_systems import plan_and_jobs, planned

from tests.kit.job import leave_the_rest, output, write_outputs
from tests.kit.run import gather, raw_of, write_run


def test_one_large_message_against_many_small_ones_is_read_of_every_node(tmp_path):
    """Catches: a comparison without a sweep that no reader understands, a node's result given to another."""
    plan, jobs = plan_and_jobs("ml_engineering")
    write_run(tmp_path, plan, jobs)
    published = {(1, 4_000_000_000): 157.1, (1000, 4_000_000): 46.8}
    asked_many = [job for job in jobs.jobs if job.kind == "torch_collectives" and job.settings["many"]]
    for number, job in enumerate(asked_many, 1):
        ended = {"started": "2026-11-20T08:00:00Z", "duration_s": 1}
        raw = raw_of(tmp_path, job, run=plan.run, job=str(number), **ended)
        about = {"test": "torch_all_reduce", "params": job.params, **ended}
        write_outputs(raw, [output("torch-collectives", "torch.jsonl", *job.nodes, **about)])
        header = {"type": "header", "torch": "2.2", "library": "2.19", "backend": "nccl", "ranks": 8}
        lines = [header | {"hosts": job.nodes * 8}]
        for (messages, size), busbw in published.items():
            algbw = busbw / 1.75
            rate = {
                "time_us": messages * size / algbw / 1e3,
                "algbw_gb_per_s": algbw,
                "busbw_gb_per_s": busbw,
            }
            row = {"type": "row", "operation": "all_reduce", "size_bytes": size, "messages": messages}
            lines.append(row | rate | {"wrong": None})
        (raw / "torch.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    leave_the_rest(tmp_path)
    # Beside them stand the switches, which nothing read here.
    found = [measurement for measurement in gather(tmp_path)[0] if measurement.test != "switches"]
    asked = [item for item in plan.items if item.test == "torch_all_reduce" and "messages" in item.params]
    wanted = {cell for item in asked for cell, *_ in item.cells()}
    assert {m.cell for m in found} == wanted and len(found) == 4 * 3
    assert not [m for m in found if m.problem or m.value is None]
    ratio = next(m.value for m in found if m.metric == "large_over_small")
    assert ratio == pytest.approx(3.4, abs=0.05)


def test_ml_engineering_crosses_its_network():
    """Catches: a plan of a fabric in which no job leaves its node; a sweep that stops short."""
    jobs = {job.name: job for job in plan_and_jobs("ml_engineering")[1].jobs}
    sweep = jobs["collective.torch.nccl"]
    assert len(sweep.nodes) == len(jobs["fabric.ib_write_bw"].nodes) == 4
    assert sweep.settings["sizes"] == tuple(2**n for n in range(15, 35)) and not sweep.settings["many"]
    alone = [job for name, job in jobs.items() if name.startswith("collective.torch.nccl.1x.")]
    assert len(alone) == 4 and all(job.settings["many"] == 1000 for job in alone)
    assert not any(job.settings["operations"] for job in alone)
    gating = {
        item.params["size_bytes"]
        for item in planned("ml_engineering").items
        if item.required and item.metric == "busbw" and len(item.nodes[0]) == 4
    }
    assert gating == {2**n for n in range(30, 35)}


@pytest.mark.parametrize(("name", "links"), [("ml_engineering", 12), ("ml_engineering_h100", 18)])
def test_gpus_are_held_to_the_published_topology(name, links):
    """Catches: NVLinks, NUMA nodes or pairs of GPUs that the chapter prints and no cell is held to."""
    plan, jobs = plan_and_jobs(name)
    state = next(job for job in jobs.jobs if job.kind == "gpu_node").settings["state"]
    assert (state["nvlinks"], state["topology"]) == (links, f"NV{links}")
    assert tuple(state["numa"]) == (0, 0, 0, 0, 1, 1, 1, 1)
    pairs = [item for item in plan.items if item.test == "device_to_device_memcpy_write_ce"]
    assert len(pairs) == 8 * 7
    asked = {item.params["check"] for item in plan.items if item.test == "gpu_state"}
    assert {"topology", "numa", "nvlink", "pcie"} <= asked
