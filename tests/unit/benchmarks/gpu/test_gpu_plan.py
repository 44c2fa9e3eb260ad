"""From the GPU options of a site to cells and jobs."""

import pytest

from shakedown.benchmarks.gpu.state import GpuNode
from shakedown.benchmarks.nccl.benchmark import groups, smallest_bytes
from shakedown.benchmarks.nccl.settings import Nccl
from shakedown.benchmarks.torch_collectives.output import TorchCollectives
from shakedown.records.reading import BadInput
from shakedown.references.files import load_catalogue
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import document, hosts, one_host, plan_site

SWEEP = {"operations": ["all_reduce", "reduce_scatter"], "min_bytes": 8, "max_bytes": 1 << 33}


def gpu_host(**acceptance: object):
    """Plan a host with four GPUs against the measured profile."""
    inventory = one_host()
    host = inventory["_meta"]["hostvars"]["n1"]
    host["fabric"]["profile"] = "h200x4_host"
    host["gpus"] = [{"index": i, "model": "H200-SXM"} for i in range(4)]
    host["acceptance"] = {"scope": {"gpu": "H200-SXM"}, "counter_tests": False, **acceptance}
    return plan_site(inventory, ["h200x4_host"])


def cells(plan, test: str) -> set[str]:
    """Return the ids of a test's cells."""
    return {cell for item in plan.items if item.test == test for cell, *_ in item.cells()}


def test_every_size_is_judged_once_and_checked():
    """Catches: a size without a gate, a message that moves nothing taken for a measurement."""
    plan, jobs = gpu_host(nccl={"launchers": ["one-process"], "sweeps": [SWEEP], "expect": {"nvls": False}})
    reduce, scatter = cells(plan, "nccl_all_reduce"), cells(plan, "nccl_reduce_scatter")
    assert len(reduce) == 2 * 31
    assert len(scatter) == 2 * 28  # 8, 16 and 32 B are less than 16 B a rank
    assert "collective/nccl_all_reduce/time/n1/-/-/dtype=float,size_bytes=524288" in reduce
    assert "collective/nccl_all_reduce/busbw/n1/-/-/dtype=float,size_bytes=1048576" in reduce
    assert {c.split("check=")[1].split(",")[0] for c in cells(plan, "nccl_transport")} == {
        "ranks",
        "intra_node",
        "nvls",
    }
    (job,) = jobs.jobs
    assert (job.kind, job.whole, job.settings["gpus"]) == ("nccl", True, {"n1": 4})


def test_processes_of_their_own_have_a_bound_of_their_own():
    """Catches: four processes held to the time that one process needs to launch on four GPUs in turn."""
    sweep = {"operations": ["all_reduce"], "min_bytes": 8, "max_bytes": 8}
    plan, _ = gpu_host(
        nccl={"launchers": ["one-process", "srun"], "sweeps": [sweep], "expect": {"nvls": False}}
    )
    bound = {i.params["launcher"]: plan.references[i.reference] for i in plan.items if i.metric == "time"}
    assert bound["one-process"].id == "h200x4-all-reduce-time"
    assert bound["srun"].id == "h200x4-all-reduce-time-srun"
    assert bound["srun"].gate == pytest.approx(18.6)


def test_every_gpu_and_pair_is_planned():
    """Catches: a GPU or a direction between two GPUs that nobody measures."""
    tests = ["host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce"]
    plan, _ = gpu_host(gpu_node={"nvbandwidth": tests, "state": {"topology": "NV18"}})
    assert len(cells(plan, tests[0])) == 4
    assert len(cells(plan, tests[1])) == 12
    state = cells(plan, "gpu_state")
    assert "node/gpu_state/wrong/n1/-/-/check=count" in state
    assert "node/gpu_state/wrong/n1/-/-/check=topology,gpu=3" in state
    assert not any("check=pcie" in cell for cell in state)  # the site does not ask


def test_another_gpu_has_no_reference():
    """Catches: an H100 judged by the figures of an H200."""
    with pytest.raises(BadInput, match="cells have no reference: nccl_all_reduce"):
        gpu_host(
            scope={"gpu": "H100-SXM"},
            nccl={"launchers": ["one-process"], "sweeps": [SWEEP], "expect": {"nvls": False}},
        )


def test_gpu_tests_without_gpus_are_refused():
    """Catches: a GPU stage that plans nothing because the inventory lists no GPU."""
    inventory = document()
    for host in hosts(inventory):
        host["acceptance"] = {"gpu_node": {}}
    refused("no node has `gpus`", plan_site, inventory)


def test_nothing_to_measure_is_refused():
    """Catches: an empty acceptance, complete at once."""
    refused("asks for nothing", gpu_host)


@cases(
    "nodes, many, made",
    (4, 2, [("a", "b"), ("c", "d")]),
    (5, 2, [("a", "b"), ("c", "d"), ("d", "e")]),
    (3, 3, [("a", "b", "c")]),
    (3, 1, [("a",), ("b",), ("c",)]),
)
def test_groups_hold_every_node(nodes, many, made):
    """Catches: an odd node out that is in no group."""
    assert groups(tuple("abcde"[:nodes]), many) == made


def test_several_nodes_are_held_to_network_and_nics():
    """Catches: a run between nodes whose log is only asked about what happens inside one."""
    inventory = document(2)
    for host in hosts(inventory):
        host["fabric"]["profile"] = "tolly_xe9680_z9664f"
        host["gpus"] = [{"index": i} for i in range(32)]
        sweep = {"operations": ["all_reduce"], "min_bytes": 1 << 34, "max_bytes": 1 << 34}
        sweep |= {"split": ["none", "mod"]}
        host["acceptance"] = {
            "scope": {"nodes": 8},
            "counter_tests": False,
            "nccl": {"launchers": ["srun", "mpirun"], "sweeps": [sweep], "expect": {"nvls": False}},
        }
    catalogue = load_catalogue(["tolly_xe9680_z9664f"])
    for entry in [e for e in catalogue.entries.values() if e.test == "nccl_all_reduce"]:
        catalogue.entries[entry.id] = entry.model_copy(update={"scope": {}})
    plan, jobs = plan_site(inventory, catalogue)
    assert len(jobs.jobs) == 4  # two launchers, with and without split
    checks = {str(item.params["check"]) for item in plan.items if item.test == "nccl_transport"}
    assert checks == {"ranks", "intra_node", "nvls", "network", "gdr", "nics"}
    assert jobs.jobs[0].settings["expect"]["nics"] == {"n1": ("rxe0", "rxe1"), "n2": ("rxe0", "rxe1")}
    # Each cell is one job's alone, though all share a test and their nodes.
    for item in plan.items:
        for _, nodes, *_ in item.cells():
            assert sum(job.measures(item.test, nodes, None, None, item.params) for job in jobs.jobs) == 1


@cases(
    "model, options",
    (Nccl, {"sweeps": [SWEEP], "expect": {"nvls": False}, "variables": {"LD_PRELOAD": "/tmp/x.so"}}),
    (Nccl, {"sweeps": [{**SWEEP, "min_bytes": 1 << 34}], "expect": {"nvls": False}}),
    (Nccl, {"sweeps": [{**SWEEP, "operations": ["all_reduce"] * 2}], "expect": {"nvls": False}}),
    (Nccl, {"sweeps": [SWEEP]}),
    (Nccl, {"sweeps": [SWEEP, SWEEP], "expect": {"nvls": False}}),
    (GpuNode, {"state": {"topology": "NVLINK"}}),
    (GpuNode, {"state": {"pcie_generation": 5}}),
    (TorchCollectives, {"variables": {"LD_PRELOAD": "/tmp/x.so"}, "min_bytes": 64, "max_bytes": 64}),
)
def test_options_that_are_refused(model, options):
    """Catches: code loaded by a variable, a sweep of nothing, an expectation left out, a shell's words.

    A PCIe link that nothing loads would be undecided in every run.
    """
    with pytest.raises(ValueError):
        model.model_validate(options)


def test_rounding():
    """Catches: sizes left out that do move data (nccl-tests rounds to 16 bytes a rank)."""
    assert smallest_bytes("reduce_scatter", 4) == 64
    assert smallest_bytes("all_reduce", 4) == 0
