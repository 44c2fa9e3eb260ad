"""From inventory to plan: nothing is left out, nothing is without a reference, and bad input is named."""

import re
from itertools import combinations
from typing import Any

import pytest

from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.benchmarks.planning import site_of
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts, one_host, plan_site


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_every_pair_rail_and_direction_is_planned(nodes):
    """Catches: an odd node out that is never tested, a rail or a direction left out."""
    plan, _ = plan_site(document(nodes))
    names = [f"n{i}" for i in range(1, nodes + 1)]
    for at_once in ("one", "all"):
        cells = {
            (pair, rail, direction)
            for item in plan.items
            if item.metric == "bandwidth" and item.params["rails_at_once"] == at_once
            for _, pair, rail, direction in item.cells()
        }
        assert cells == {
            (pair, rail, direction)
            for pair in combinations(names, 2)
            for rail in ("rail0", "rail1")
            for direction in ("forward", "reverse")
        }


def test_every_job_has_the_intents_traffic_class():
    """Catches: jobs that send best-effort traffic while the lossless class is being certified."""
    _, jobs = plan_site(document())
    mesh = next(job for job in jobs.jobs if job.kind == "mesh")
    assert parse_spec(mesh.settings).tclass == 106  # DSCP 26, ECT(0)


def test_cross_rail_pairs_cross_every_rail_once_each_way():
    """Catches: spines that nothing crosses, a NIC that only sends or only receives across them."""
    inventory = document()
    for host in hosts(inventory):
        host["acceptance"]["perftest"] = [
            {"test": "ib_read_bw", "size_bytes": 65536, "iterations": 9, "cross_rail": True}
        ]
    plan, jobs = plan_site(inventory)
    wanted = {"rail0", "rail1", "rail0>rail1", "rail1>rail0"}
    items = [item for item in plan.items if item.metric == "bandwidth"]
    assert {rail for item in items for rail in item.rails} == wanted
    (mesh,) = (job for job in jobs.jobs if job.kind == "mesh")
    assert set(parse_spec(mesh.settings).rails) == wanted


@pytest.mark.parametrize(
    ("at_once", "rails", "says"),
    [(["one", "all"], 2, "rail by rail"), (["one"], 1, "cross_rail on one rail")],
)
def test_what_cannot_cross_is_refused(at_once, rails, says):
    """Catches: more flows at once than NICs, judged as if each had one; a rail crossed to itself."""
    inventory = document()
    test = {"test": "ib_read_bw", "size_bytes": 65536, "iterations": 9}
    for host in hosts(inventory):
        host["acceptance"]["perftest"] = [{**test, "cross_rail": True, "rails_at_once": at_once}]
        host["fabric"]["rails"] = host["fabric"]["rails"][:rails]
        host["fabric_nics"] = host["fabric_nics"][:rails]
    refused(says, plan_site, inventory)


def test_two_sizes_of_one_test_are_two_jobs():
    """Catches: two jobs in one folder, each asked for the other's cells, counters in one place."""
    inventory = document()
    for host in hosts(inventory):
        host["acceptance"]["perftest"] = [
            {"test": "ib_write_bw", "size_bytes": size, "iterations": 9} for size in (65536, 131072)
        ]
    plan, jobs = plan_site(inventory)
    assert [job.name for job in jobs.jobs if job.kind == "mesh"] == [
        "fabric.ib_write_bw.65536",
        "fabric.ib_write_bw.131072",
    ]
    cells = [cell for item in plan.items for cell, *_ in item.cells()]
    assert len(cells) == len(set(cells))
    for item in plan.items:
        if item.test == "ib_write_bw":
            for nodes in item.nodes:
                measuring = [
                    j.name
                    for j in jobs.jobs
                    if j.measures(item.test, nodes, item.rails[0], item.directions[0], item.params)
                ]
                assert measuring == [f"fabric.ib_write_bw.{item.params['size_bytes']}"]
    counted = {item.test for item in plan.items if item.metric == "counter.rdma.rcvd_pkts"}
    assert counted == {"ib_write_bw.65536", "ib_write_bw.131072"}


def test_every_nic_has_its_counters_planned():
    """Catches: a NIC whose losses nobody looks at."""
    plan, _ = plan_site(document(3))
    watched = {
        (nodes[0], item.params["port"])
        for item in plan.items
        if item.metric == "counter.rdma.out_of_seq_request" and item.test == "ib_write_bw"
        for _, nodes, _, _ in item.cells()
    }
    assert watched == {(f"n{i}", f"rxe{r}") for i in (1, 2, 3) for r in (0, 1)}


def test_a_cell_without_a_reference_is_refused():
    """Catches: a threshold that is missing and therefore passes everything."""
    inventory = document()
    for host in hosts(inventory):
        host["acceptance"]["perftest"][0]["test"] = "ib_send_bw"
    refused("2 cells have no reference: ib_send_bw", plan_site, inventory)


def spoil(path, value):
    """Return an inventory with one thing changed on every host; a path begins at the host's variables."""
    inventory = document()
    for host in hosts(inventory):
        at = host
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
    return inventory


@cases(
    "path, value, says",
    (("fabric_nics", 0, "rail"), "rail9", "n1, n2: fabric_nics: rail rail9 is none of fabric.rails"),
    (("fabric_nics", 0, "ipv4"), "10.99.0.1/24", "fab0 has 10.99.0.1/24, but rail rail0 is 10.10.0.0/24"),
    (("fabric_nics", 0, "ipv4"), "10.10.0.1/24", "fab0 shares address 10.10.0.1 with another NIC"),
    (("fabric_nics", 1, "leaf_port"), "swp1", "fab1 shares leaf0 port swp1 with another NIC"),
    (("fabric", "roce", "cnp", "dscp"), 26, "CNPs would wait behind the traffic"),
    (("fabric", "roce", "dscp"), 64, "fabric.roce.dscp"),
    (("fabric", "roce", "dcsp"), 26, "fabric.roce: unknown key 'dcsp' -- use dscp"),
    (("fabric", "mtu_bytes", "host"), 9400, "above the switches'"),
    (("fabric", "mtu_bytes", "host"), 1500, "leaves no room for fabric.mtu_bytes.rdma 4096 -- use at least"),
    (("acceptance", "perftest", 0, "duration_s"), 3, "exactly one of duration_s"),
    (
        ("acceptance", "perftest"),
        [{"test": "ib_read_bw", "size_bytes": 8, "iterations": 9}] * 2,
        "ib_read_bw with 8 bytes 2 times",
    ),
)
def test_contradictions_are_named(path, value, says):
    """Catches: an inventory that contradicts itself, or misspells a key, planned as if nothing were wrong."""
    refused(says, site_of, spoil(path, value), WHERE)


def test_a_node_without_a_rail_is_named():
    """Catches: a missing rail that shrinks the plan instead of being reported."""
    inventory = document()
    del inventory["_meta"]["hostvars"]["n2"]["fabric_nics"][1]
    refused("n2: fabric_nics: no NIC on rail1", site_of, inventory, WHERE)


def test_an_empty_compute_group_is_refused():
    """Catches: a plan of nothing, which would be complete at once."""
    refused("no hosts", site_of, {"_meta": {"hostvars": {}}}, WHERE)


NICS = document(1)["_meta"]["hostvars"]["n1"]["fabric_nics"]


def test_single_hosts_need_no_fabric():
    """Catches: a GPU server that cannot be accepted because it has no RoCE class."""
    plan, _ = plan_site(one_host())
    assert plan.rails == ()
    assert not any(item.metric.startswith("counter.") for item in plan.items)


@cases(
    "change, says",
    (lambda host: host["fabric"].pop("no_fabric"), "link_speed_gbps"),
    (lambda host: host["fabric"].update(no_fabric=False), "no_fabric"),
    (lambda host: host["fabric"].update(rails=[{"name": "rail0", "subnet": "10.0.0.0/24"}]), "rails"),
    (lambda host: host.update(fabric_nics=NICS), "without fabric_nics"),
    (lambda host: host["acceptance"].update(config={}), "leave config, perftest, gpudirect and"),
)
def test_no_fabric_is_no_way_around_the_fabric(change, says):
    """Catches: a site with rails that escapes its NIC checks, or a forgotten fabric taken for none."""
    inventory = one_host()
    change(inventory["_meta"]["hostvars"]["n1"])
    refused(says, site_of, inventory, WHERE)


def several_hosts() -> dict[str, Any]:
    """Three hosts without a fabric; nothing is asked of them yet."""
    inventory = document(3)
    for host in hosts(inventory):
        host["fabric"] = {"system": "lab", "profile": "lab", "no_fabric": True}
        host["acceptance"] = {}
        host["gpus"] = [{"index": 0}, {"index": 1}]
        del host["fabric_nics"]
    return inventory


NCCL_SWEEP = {"operations": ["all_reduce"], "min_bytes": 8, "max_bytes": 8}


@cases(
    "together",
    {"mpi": {"allreduce": {"min_bytes": 8, "max_bytes": 64}}},
    {"lora": [{"model": "tiny"}]},
    {"nccl": {"expect": {"nvls": False}, "sweeps": [NCCL_SWEEP]}},
    {"nccl": {"expect": {"nvls": False}, "sweeps": [{**NCCL_SWEEP, "nodes": [1, 2]}]}},
    {"torch": {"min_bytes": 64, "max_bytes": 64}},
)
def test_hosts_without_a_fabric_measure_nothing_together(together):
    """Catches: traffic between nodes over a network that nobody describes, and so nobody judges."""
    inventory = several_hosts()
    for host in hosts(inventory):
        host["acceptance"] = together
    refused("which must be described", site_of, inventory, WHERE)


INTERCONNECT = {"path": {"generation": 4, "switch_hops": 2}}


def test_nodes_may_differ_in_what_each_is_measured_for_by_itself():
    """Catches: every node held to the first one's path, and facts of one node taken for all."""
    inventory = several_hosts()
    hosts = inventory["_meta"]["hostvars"]
    for generation, host in enumerate(hosts.values(), start=3):
        path = {"generation": generation, "switch_hops": generation}
        host["acceptance"] = {
            "scope": {"gpu": f"G{generation}", "model": "resnet50"},
            "interconnect": {"path": path},
        }
    site = site_of(inventory, WHERE)
    assert site.acceptance.scope == {"model": "resnet50"}
    assert site.of("n3").scope["gpu"] == "G5"
    _, jobs = plan_site(site)
    assert {job.nodes[0]: job.settings["path"]["switch_hops"] for job in jobs.jobs} == {
        "n1": 3,
        "n2": 4,
        "n3": 5,
    }


def test_what_nobody_states_of_a_path_is_not_judged():
    """Catches: a number of switches made up for a system, and good hardware blamed for another."""
    inventory = several_hosts()
    for host in hosts(inventory):
        host["acceptance"] = {
            "interconnect": {"path": {"generation": 4, "switch_hops": None, "shared_by": None}}
        }
    plan, _ = plan_site(inventory)
    # Hops are then held to those of the node's other GPUs (test_pcie_path.py), not to a figure.
    assert {item.params["what"] for item in plan.items} == {"hops", "speed", "width", "numa"}


@cases(
    "key, value, says",
    ("acceptance", {"interconnect": INTERCONNECT, "counter_tests": False}, "counter_tests of n2"),
    ("fabric", {"system": "other", "profile": "lab", "no_fabric": True}, "fabric of n2"),
)
def test_what_holds_for_all_must_be_the_same_on_all(key, value, says):
    """Catches: one node's word taken for all, while another node's file says otherwise."""
    inventory = several_hosts()
    for host in hosts(inventory):
        host["acceptance"] = {"interconnect": INTERCONNECT}
    inventory["_meta"]["hostvars"]["n2"][key] = value
    refused(says, site_of, inventory, WHERE)


def test_all_missing_references_are_told_at_once():
    """Catches: a site that is refused once for each reference, so that twelve runs of `plan` find twelve."""
    inventory = document()
    acceptance = {
        "perftest": [{"test": "ib_read_lat", "size_bytes": 7, "iterations": 9, "rails_at_once": ["one"]}],
        "mpi": {"allreduce": {"min_bytes": 8, "max_bytes": 64}},
    }
    for host in hosts(inventory):
        host["acceptance"] = acceptance
    with pytest.raises(BadInput) as told:
        plan_site(inventory, ["pt_r7615_bcm57508"])
    said = str(told.value)
    assert re.match(r"[1-9][0-9]* cells have no reference: ", said)
    for each in ("ib_read_lat", "mpi_allreduce time"):
        assert each in said, each
    facts = "nic_speed_gbps=25 nodes=2 rdma_mtu_bytes=4096 system=lab"
    assert f"mpi_allreduce time {facts} size_bytes=8 to 64 (4 sizes): " in said
    assert "\n" not in said
