"""The way to every GPU, from sysfs trees through the probe to the verdict's words."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from sysfs_trees import Function, Tree, cdi

from shakedown.benchmarks.interconnect.output import PlannedPath, gpu_paths, judge_paths
from shakedown.topology.host_map import Topology, parse_topology


def probe(root) -> Topology:
    """Run the probe on a tree, as a job does on a node."""
    command = [sys.executable, "-m", "shakedown.onnode.topology_probe", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return parse_topology(done.stdout)


def wrong(tree: Tree, tmp_path, *, gpus: int = 4, loaded: bool = True, **plan) -> dict[tuple[int, str], str]:
    """Return what differs from the plan, by GPU and question."""
    planned = PlannedPath(**{"generation": 4, "switch_hops": 1, "shared_by": 4, **plan})
    judged = judge_paths(gpu_paths(probe(tree.write(tmp_path))), planned, gpus=gpus, loaded=loaded)
    return {(gpu, what): detail for gpu, what, differs, detail in judged if differs}


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("path", [0, 1, 2, 3, 4])
def test_hops_of_every_configuration(path, readable, tmp_path):
    """Catches hops counted as bridges, or counted only where the configuration space is readable."""
    found = gpu_paths(probe(cdi(path).write(tmp_path, readable=readable)))
    assert [gpu.switch_hops for gpu in found] == [path] * 4
    assert [len(gpu.links) for gpu in found] == [path + 1] * 4
    shared = [max(link.shared_by for link in gpu.links) for gpu in found]
    assert shared == ([1] * 4 if path == 0 else [4] * 4), "who shares an uplink"
    assert all(link.generation == 4 and link.width == 16 for gpu in found for link in gpu.links)


@pytest.mark.parametrize("path", [1, 2, 3, 4])
def test_a_configuration_that_is_as_planned_has_nothing_wrong(path, tmp_path):
    """Catches a check that blames good hardware."""
    assert not wrong(cdi(path), tmp_path, switch_hops=path)


def test_another_path_than_planned_is_named(tmp_path):
    """Catches GPUs that were put behind more switches than ordered."""
    found = wrong(cdi(3), tmp_path, switch_hops=1)
    assert set(found) == {(gpu, "hops") for gpu in range(4)}
    assert "3 switch hops, planned 1" in found[0, "hops"]


def test_what_the_plan_leaves_open_is_not_judged(tmp_path):
    """Catches a host blamed for switches that no source states, and one let off what is stated."""
    tree = cdi(3)
    assert not wrong(tree, tmp_path / "good", switch_hops=None, shared_by=None)
    tree.chains[1][-1].width = 8
    found = wrong(tree, tmp_path / "narrow", gpus=5, switch_hops=None, shared_by=None)
    assert set(found) == {(1, "width"), (4, "hops"), (4, "speed"), (4, "width"), (4, "numa")}


def test_gpus_of_one_path_cross_as_many_switches(tmp_path):
    """Catches: a GPU behind another box than the rest, and a CDI path that is none, without a figure."""
    paths = gpu_paths(probe(cdi(2).write(tmp_path)))
    plan = PlannedPath(name="path2", generation=4, switch_hops=None, shared_by=4)
    for hops in (1, 3):
        odd = [replace(path, switch_hops=hops) if path.index == 1 else path for path in paths]
        found = {
            (gpu, what): text
            for gpu, what, wrong, text in judge_paths(odd, plan, gpus=4, loaded=True)
            if wrong
        }
        assert set(found) == {(1, "hops")}
        assert f"{hops} switch hops, most GPUs of the node have 2" in found[1, "hops"]
    bare = gpu_paths(probe(cdi(0).write(tmp_path / "bare")))
    judged = judge_paths(bare, plan.model_copy(update={"shared_by": 1}), gpus=4, loaded=True)
    found = {(gpu, what): text for gpu, what, wrong, text in judged if wrong}
    assert set(found) == {(gpu, "hops") for gpu in range(4)}
    assert "no switch on the way, planned is path2" in found[0, "hops"]


def test_x8_link_in_the_middle_is_named(tmp_path):
    """Catches a downtrained uplink that no endpoint shows: the GPUs' own links are x16."""
    tree = cdi(2)
    for chain in tree.chains:
        chain[3].width = 8  # the second switch's upstream port
    found = wrong(tree, tmp_path, switch_hops=2)
    assert set(found) == {(gpu, "width") for gpu in range(4)}
    assert "link 0000:17:00.0 to 0000:18:00.0 is x8, planned x16" in found[0, "width"]


def test_x8_link_of_one_gpu_is_that_gpus(tmp_path):
    """Catches blaming every GPU for one bad slot."""
    tree = cdi(1)
    tree.chains[2][-1].width = 8
    found = wrong(tree, tmp_path)
    assert set(found) == {(2, "width")}
    assert "0000:42:00.0 is x8" in found[2, "width"]


def test_a_generation_lower_is_named(tmp_path):
    """Catches a link that trained at Gen3."""
    tree = cdi(1)
    tree.chains[0][-1].generation = 3
    assert set(wrong(tree, tmp_path)) == {(0, "speed")}


def test_a_gpu_at_rest_is_not_blamed_for_its_power_saving(tmp_path):
    """Catches blame for a link that is slow only because nothing was copied."""
    tree = cdi(1)
    for chain in tree.chains:
        chain[-1].generation = 1
    assert not wrong(tree, tmp_path / "rest", loaded=False)
    assert set(wrong(tree, tmp_path / "load", loaded=True)) == {(gpu, "speed") for gpu in range(4)}


def test_wrong_numa_pin_is_named(tmp_path):
    """Catches processes pinned to the node that the GPU is not on."""
    found = wrong(cdi(0), tmp_path, switch_hops=0, shared_by=1, numa_nodes=(0, 0, 1, 0))
    assert set(found) == {(3, "numa")}
    assert "on NUMA node 1, pinned to node 0" in found[3, "numa"]


def test_unknown_numa_node_is_named(tmp_path):
    """Catches a BIOS that gives no NUMA node on a host that has two."""
    tree = cdi(0)
    tree.chains[1][-1].numa = -1
    assert set(wrong(tree, tmp_path, switch_hops=0, shared_by=1)) == {(1, "numa")}


def test_missing_gpu_fails_every_question_about_it(tmp_path):
    """Catches a GPU that fell off the bus and so has no link to be wrong."""
    found = wrong(cdi(1, gpus=3), tmp_path, shared_by=3)
    assert {what for gpu, what in found if gpu == 3} == {"hops", "speed", "width", "sharing", "numa"}
    assert "GPU 3 is not there, 3 of 4 GPUs found" in found[3, "hops"]


def test_an_uplink_shared_by_more_than_planned_is_named(tmp_path):
    """Catches GPUs that were to have an uplink of their own."""
    assert set(wrong(cdi(1), tmp_path, shared_by=1)) == {(gpu, "sharing") for gpu in range(4)}


def test_gpu_on_the_root_bus_as_in_a_virtual_machine(tmp_path):
    """Catches a probe that needs a root port above every GPU."""
    tree = Tree(numa_nodes=1)
    tree.chains.append([Function("0000:00:06.0", 0, generation=5, most_generation=5, gpu=True, numa=-1)])
    assert not wrong(tree, tmp_path, gpus=1, switch_hops=0, shared_by=1, generation=5)
    assert "root bus =x16 Gen5=> GPU 0 0000:00:06.0" in gpu_paths(probe(tmp_path))[0].drawn()


def test_a_path_is_drawn_from_root_port_to_gpu(tmp_path):
    """Catches a picture that leaves out a switch, a width or who shares the uplink."""
    drawn = gpu_paths(probe(cdi(2).write(tmp_path)))[1].drawn()
    assert drawn == (
        "0000:15:01.0 =x16 Gen4 shared by 4=> 0000:16:00.0 [switch 1] 0000:17:00.0 "
        "=x16 Gen4 shared by 4=> 0000:18:00.0 [switch 2] 0000:19:01.0 =x16 Gen4=> GPU 1 0000:41:00.0"
    )
    json.dumps(drawn)
