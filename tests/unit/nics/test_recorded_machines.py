"""Recorded machines through the real probes: which NIC is whose, what is of the fabric, what is counted."""

import json

import pytest

from shakedown.benchmarks.gpudirect.job import gpus_of_nics
from shakedown.discover.ask import Answers, NodeAnswer
from shakedown.discover.nics import Role, judge_nics
from shakedown.nics.counter_sets import lacking
from shakedown.nics.families import family_of
from shakedown.onnode import discover_probe, topology_probe
from shakedown.onnode.counters import read_devices
from shakedown.topology.host_map import acs_bridges, distance, pairs, parse_topology, problems
from tests.machines.recorded import CASES, Machine, bdf_of

_FAMILY = {"mlx5_core": "mlx5", "bnxt_en": "bnxt"}


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def planted(request, tmp_path_factory):
    """A recorded machine and the root below which it stands; it is only read."""
    machine, root = Machine(*request.param), tmp_path_factory.mktemp("machine")
    machine.plant(root)
    return machine, root


def seen(root):
    """The host map that the probe's document gives."""
    return parse_topology(json.dumps(topology_probe.document(root)))


def answer_of(machine, root, name="node1", number=1, **changes):
    """What the node answers `shakedown discover`, with addresses, which no file holds."""
    document = {**discover_probe.document(root), "host": name}
    document["topology"]["host"] = name
    rails = {nic["netdev"]: f"10.10.{n}.{number}/24" for n, nic in enumerate(machine.fabric)}
    storage = {nic["netdev"]: f"10.20.{n}.{number}/24" for n, nic in enumerate(machine.others)}
    for nic in document["nics"]:
        address = rails.get(nic["netdev"]) or storage[nic["netdev"]]
        nic["ipv4"] = [address] if nic["up"] else []
    management = [nic["netdev"] for nic in machine.others if nic["rdma"] is None]
    return {**document, "default_interfaces": management, **changes}


def test_every_gpu_has_the_nic_that_is_published(planted):
    """Catches: a GPU paired across switches or sockets, or with a NIC for storage as near as its own."""
    machine, root = planted
    found = seen(root)
    for pair, gpu in zip(pairs(found), machine.gpus, strict=True):
        assert (pair.gpu.bdf, pair.distance) == (bdf_of(gpu["path"]), machine.data["gpus"]["distance"])
        if pair.distance == "PXB":
            assert pair.nic.rdma == (machine.rdma(gpu["nearest"]),)
    told = problems(found)
    assert all("NCCL_NET_GDR_LEVEL" in line for line in told)  # of the R7615, which has no PCIe switch
    assert len(told) == (len(machine.gpus) if machine.data["gpus"]["distance"] == "NODE" else 0)


def test_only_bridges_between_a_gpu_and_its_nic_lose_acs(planted):
    """Catches: ACS taken off a root port or the storage's bridges, which keeps guests and devices apart."""
    machine, root = planted
    found = acs_bridges(seen(root))
    assert found == machine.between()
    roots = {f"0000:{nic['path'].split('/')[0]}" for nic in (*machine.fabric, *machine.others)}
    assert not roots & set(found)


def test_near_and_far_gpus_of_each_fabric_nic(planted):
    """Catches: GPUDirect measured with another GPU than the published one, or a far GPU that is near."""
    machine, root = planted
    rails = {f"rail{n}": nic["rdma"] for n, nic in enumerate(machine.fabric)}
    interface = "rocm" if machine.data["gpus"]["driver"] == "amdgpu" else "cuda"
    near_and_far, lacks = gpus_of_nics(root, rails, interface)
    nearest = {machine.rdma(gpu["nearest"]): bdf_of(gpu["path"]) for gpu in reversed(machine.gpus)}
    for rail, rdma in rails.items():
        assert near_and_far[rail, "near"].bdf == nearest[rdma]
        if machine.data["far"]:
            assert near_and_far[rail, "far"].distance == machine.data["far"]
        else:
            assert "no GPU is farther" in lacks[rail, "far"]


def test_discover_takes_the_fabrics_nics_and_no_other(planted):
    """Catches: a rail made of a storage or management NIC, or a compute NIC that is left out."""
    machine, root = planted
    node = NodeAnswer.model_validate(answer_of(machine, root))
    judged = judge_nics({"node1": node})["node1"]
    compute = {one.nic.netdev for one in judged if one.role is Role.COMPUTE}
    assert compute == {nic["netdev"] for nic in machine.fabric}
    assert all(one.why for one in judged if one.role is not Role.COMPUTE)


def test_every_fabric_nic_is_counted_by_its_drivers_family(planted):
    """Catches: a renamed RDMA device (rocep24s0) of no family, so that none of its counters is judged."""
    machine, root = planted
    devices = {str(one["device"]): one for one in read_devices(root, live=False)}
    for nic in machine.fabric:
        one = devices[nic["rdma"]]
        family = family_of(str(one["driver"]), nic["rdma"])
        assert family is not None
        assert (family.name, one["netdev"]) == (_FAMILY[nic["driver"]], nic["netdev"])
        missing = lacking(family, one["counters"])
        assert not [name for name in missing if name.startswith("rdma.")]
        # A copy of sysfs has no ethtool: that is told as missing, never as fine.
        assert any(name.startswith("ethtool.") for name in missing)


def test_distances_are_those_of_the_published_matrix(planted):
    """Catches: another GPU's NIC as near as the own one, which would hide a wrong pairing."""
    machine, root = planted
    found = seen(root)
    if machine.data["gpus"]["distance"] != "PXB":
        pytest.skip("no PCIe switch: every NIC of the socket is as far")
    gpus = found.gpu_devices()
    for n, nic in enumerate(machine.fabric):
        device = next(one for one in found.devices if one.netdevs == (nic["netdev"],))
        far = [distance(found, gpu, device) for gpu in gpus]
        own = far.pop(n)
        assert (own, set(far)) == ("PXB", {"NODE", "SYS"})


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_two_of_them_become_a_site_that_can_be_planned(shakedown, tmp_path, case):
    """Catches: a machine that discover describes and plan refuses, rails that are not one a fabric NIC."""
    machine = Machine(*case)
    machine.plant(tmp_path / "sys-root")
    names = ("node1", "node2")
    nodes = {name: answer_of(machine, tmp_path / "sys-root", name, n) for n, name in enumerate(names, 1)}
    document = Answers.model_validate({"schema": 1, "nodes": nodes, "submit": "node1", "partition": "all"})
    file = tmp_path / "answers.json"
    file.write_text(document.model_dump_json(by_alias=True))
    assert shakedown("discover", tmp_path / "site", "--from", file)[0] == 0
    status, out, err = shakedown("plan", tmp_path / "site", "--json")
    assert (status, err) == (0, "")
    plan = json.loads(out)
    assert len(plan["rails"]) == len(machine.fabric)
    assert plan["nodes"] == list(names)
