"""A part of a site is planned as what it is: all of it is judged, others are not, and it says so."""

import functools
from pathlib import Path

import pytest

from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.benchmarks.nccl.settings import NcclSweep
from shakedown.benchmarks.planning import make_plan, read_site, site_of
from shakedown.intent.software import SoftwareSource
from shakedown.judge.verdict import judge
from shakedown.plan.scope import WantedScope, named_nodes, named_rails, partners
from shakedown.records.base import Outcome, Stage
from shakedown.records.reading import BadInput
from shakedown.references.of_site import catalogue_of_site
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts, plan_site

ROOT = Path(__file__).parents[3]


def site(nodes: int = 5):
    """Return a site of the lab's kind."""
    return site_of(document(nodes), WHERE)


def plan_of(**wanted: object):
    """Return plan and jobs of a part."""
    return plan_site(site(), wanted=WantedScope(**wanted))


def measured(plan, worse: str = ""):
    """Return every cell measured at its reference, but zero for those whose name holds `worse`."""
    for item in plan.items:
        reference = plan.references[item.reference]
        for cell, nodes, rail, direction in item.cells():
            value = 0.0 if worse and worse in cell else reference.value
            yield records.measured(
                item,
                nodes,
                value,
                run=plan.run,
                rail=rail,
                direction=direction,
                samples=(value,) * reference.min_samples,
                attempt=1,
                job="1",
            )


def nodes_of(plan):
    """Return whom the cells are of, without switches."""
    return {name for item in plan.items for group in item.nodes for name in group if name.startswith("n")}


def test_one_node_is_measured_with_two_partners_that_are_not_judged():
    """Catches: a pair between partners that is judged; a node that nothing is measured with."""
    plan, jobs = plan_of(nodes=("n4",))
    assert plan.nodes == ("n4",)
    assert plan.scope.partners == ("n1", "n2")
    pairs = {group for item in plan.items if item.metric == "bandwidth" for group in item.nodes}
    assert {frozenset(pair) for pair in pairs} == {frozenset(("n1", "n4")), frozenset(("n2", "n4"))}
    assert not any(set(group) <= {"n1", "n2"} for item in plan.items for group in item.nodes)
    assert nodes_of(plan) == {"n1", "n2", "n4"}
    assert all("n4" in job.nodes and "n3" not in job.nodes for job in jobs.jobs)


def test_three_nodes_need_no_partner_and_have_all_their_pairs():
    """Catches: a pair of the part that is left out, or partners that nobody asked for."""
    plan, _ = plan_of(nodes=("n1", "n2", "n5"))
    assert plan.scope.partners == ()
    pairs = {frozenset(g) for item in plan.items if item.metric == "bandwidth" for g in item.nodes}
    assert pairs == {frozenset(p) for p in (("n1", "n2"), ("n1", "n5"), ("n2", "n5"))}


def test_a_part_can_pass_and_says_what_it_is_of():
    """Catches: a PASS of three nodes that reads like one of the site; a stage alone that can never pass."""
    plan, jobs = plan_of(nodes=("n1", "n2", "n3"), stages=(Stage.FABRIC,))
    assert {item.stage for item in plan.items} == {job.stage for job in jobs.jobs} == {Stage.FABRIC}
    verdict = judge(plan, measured(plan))
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert verdict.reason.startswith("3 of 5 nodes, fabric only: not an acceptance of the site; all ")
    failed = judge(plan, measured(plan, worse="/ib_write_bw/bandwidth/"))
    assert failed.outcome is Outcome.FAIL
    assert failed.reason.startswith("3 of 5 nodes, fabric only: not an acceptance of the site; ")


def test_a_rail_that_nothing_measures_is_still_a_hole():
    """Catches: a part that hides a rail which its own plan forgot."""
    plan, _ = plan_of(nodes=("n1", "n2", "n3"))
    forgotten = plan.model_copy(
        update={"items": tuple(item for item in plan.items if "rail1" not in item.rails)}
    )
    verdict = judge(forgotten, measured(forgotten))
    assert verdict.outcome is Outcome.NOT_RUN
    assert "rail rail1 is in the plan, but no required cell measures it" in verdict.reason


def test_what_was_measured_of_partners_alone_is_no_surprise():
    """Catches: a notice of unplanned cells for pairs of partners; one that is missing for a stranger's."""
    plan, _ = plan_of(nodes=("n4",))
    results = list(measured(plan))
    pair = next(m for m in results if m.test == "ib_write_bw")
    of_partners = pair.model_copy(update={"nodes": ("n1", "n2")})
    stranger = pair.model_copy(update={"nodes": ("n1", "n3")})
    assert judge(plan, [*results, of_partners]).unplanned == ()
    assert len(judge(plan, [*results, stranger]).unplanned) == 1


def test_ports_of_partners_are_not_judged():
    """Catches: a partner's bad cable that fails the run of another node."""
    inventory = document(4)
    inventory["switches"] = {"hosts": ["leaf0"]}
    cabling = [
        {"port": nic["leaf_port"], "host": name, "netdev": nic["netdev"], "rail": nic["rail"]}
        for name in inventory["compute"]["hosts"]
        for nic in inventory["_meta"]["hostvars"][name]["fabric_nics"]
    ]
    inventory["_meta"]["hostvars"]["leaf0"] = {"roce_switch_nos": "linux", "leaf_ports": cabling}
    whole = site_of(inventory, WHERE)
    part, _ = plan_site(whole, wanted=WantedScope(nodes=("n3",)))
    ports = {item.params["port"] for item in part.items if item.nodes[0][0] == "leaf0" and item.params}
    mine = {port for s in whole.switches for port, host, *_ in s.ports if host == "n3"}
    assert len(mine) == 2
    assert ports - {"rail0", "rail1"} == mine  # what a rail forwards is of all its ports


def test_partners_share_leaves():
    """Catches: a partner behind another leaf while one stands beside."""
    inventory = document(5)
    for name in ("n1", "n2"):
        for nic in inventory["_meta"]["hostvars"][name]["fabric_nics"]:
            nic["leaf"] = "leaf1"
    whole = site_of(inventory, WHERE)
    assert partners(whole, ("n5",), 2) == ("n3", "n4")
    assert partners(whole, ("n5",), 9) == ("n1", "n2", "n3", "n4")


@cases(
    "text, names",
    (["n[1-3]"], ("n1", "n2", "n3")),
    (["n5,n[1,3]"], ("n1", "n3", "n5")),
    (["n2", "n2", "n1"], ("n1", "n2")),
    (["n[1-2,4]"], ("n1", "n2", "n4")),
)
def test_nodes_are_named_as_slurm_writes_them(text, names):
    """Catches: a range that loses its last node, a node twice, another order."""
    assert named_nodes(site(), text) == names


def test_leading_zeros_are_kept():
    """Catches: gpu[001-003] read as gpu1."""
    inventory = document(3)
    hostvars = inventory["_meta"]["hostvars"]
    for i in (1, 2, 3):
        hostvars[f"gpu{i:03d}-ib"] = hostvars.pop(f"n{i}")
    inventory["compute"]["hosts"] = list(hostvars)
    assert named_nodes(site_of(inventory, WHERE), ["gpu[002-003]-ib"]) == ("gpu002-ib", "gpu003-ib")


@cases(
    "text, said",
    ("n9", "names 'n9', which is no node of the site -- "),
    ("n[1", "cannot be read"),
    ("n]1", "cannot be read"),
    ("n[3-1]", "'3-1' in 'n[3-1]' is no range"),
    ("n[-1]", "is no range"),
    ("n[1-999999999]", "names too many nodes"),
    ("n1,,n2", "has an empty name"),
    ("", "has an empty name"),
    ("n[1-2][3-4]", "cannot be read"),
)
def test_what_names_no_node_is_refused(text, said):
    """Catches: a mistyped node that is silently left out of what was asked for."""
    with pytest.raises(BadInput) as error:
        named_nodes(site(), [text])
    assert said in str(error.value)


def test_unknown_rails_and_stages_are_refused(shakedown):
    """Catches: a rail or stage that does not exist and measures nothing."""
    with pytest.raises(BadInput, match="--rails names 'rail7', which is no rail of the site -- use rail"):
        named_rails(site(), ["rail0,rail7"])
    status, out, said = shakedown("plan", "inventories/lab", "--stage", "fabrik")
    assert (status, out) == (2, "")
    assert said == (
        "shakedown: --stage 'fabrik' is no stage -- use config, node, fabric, collective, application\n"
    )


def test_a_part_without_anything_to_measure_is_refused():
    """Catches: a plan of nothing, which nothing could fail."""
    refused("nothing of application is left to measure", plan_of, stages=(Stage.APPLICATION,))


def pairs_of(plan, test: str = "ib_write_bw"):
    """Return between whom a test is planned."""
    return {frozenset(g) for item in plan.items if item.test == test for g in item.nodes if len(g) == 2}


def test_a_quick_mesh_is_of_neighbours_and_says_so():
    """Catches: --mesh quick that measures every pair, leaves a node out, or reads like a whole acceptance."""
    whole, all_jobs = plan_site(site())
    plan, jobs = plan_of(mesh="quick")
    ring = {frozenset((f"n{i}", f"n{i % 5 + 1}")) for i in range(1, 6)}
    assert pairs_of(plan) == ring < pairs_of(whole)
    mesh, before = ([job for job in made.jobs if job.kind == "mesh"] for made in (jobs, all_jobs))
    assert [job.name for job in mesh] == [job.name for job in before]
    assert all({frozenset(pair) for pair in job.settings["pairs"]} == ring for job in mesh)
    assert all(job.time_limit_s < long.time_limit_s for job, long in zip(mesh, before, strict=True))
    cells = [
        (i.test, *cell[1:], i.params) for i in plan.items if i.test == "ib_write_bw" for cell in i.cells()
    ]
    assert all(sum(job.measures(*cell) for job in mesh) == 1 for cell in cells)
    told = [one for one in plan.not_covered if one.key == "mesh"]
    assert sum(one.cells for one in told) == sum(
        len(i) for i in whole.items if i.stage is Stage.FABRIC and not i.metric.startswith("counter.")
    ) - sum(len(i) for i in plan.items if i.stage is Stage.FABRIC and not i.metric.startswith("counter."))
    verdict = judge(plan, measured(plan))
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert verdict.reason.startswith("quick mesh: not an acceptance of the site; all ")


def test_a_full_mesh_measures_what_the_site_leaves_out():
    """Catches: --mesh full that keeps a site's ring of neighbours."""
    inventory = document(5)
    test = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9, "rails_at_once": ["all", "one"]}
    test |= {"one_rail_pairs": "ring"}
    for host in inventory["compute"]["hosts"]:
        inventory["_meta"]["hostvars"][host]["acceptance"] = {"perftest": [test]}
    ringed = site_of(inventory, WHERE)

    def rail_by_rail(**wanted: object):
        plan, _ = plan_site(ringed, wanted=WantedScope(**wanted))
        one = [i for i in plan.items if i.params.get("rails_at_once") == "one" and i.metric == "bandwidth"]
        return plan, sum(len(set(i.nodes)) for i in one)

    assert rail_by_rail()[1] == 5
    plan, pairs = rail_by_rail(mesh="full")
    assert pairs == 10
    assert plan.scope is None, "all of the site and more"


def test_a_scope_that_leaves_nothing_out_is_none():
    """Catches: a firmware day of all stages that a site has, or a quick mesh of three, told as a part."""
    plan, _ = plan_site(
        site(3),
        wanted=WantedScope(
            nodes=("n1", "n2", "n3"),
            rails=("rail0", "rail1"),
            stages=(Stage.CONFIG, Stage.FABRIC, Stage.COLLECTIVE),
            mesh="quick",
        ),
    )
    assert plan.scope is None
    assert plan_of(stages=(Stage.FABRIC,))[0].scope is not None


def test_a_mesh_of_another_word_is_refused(shakedown):
    """Catches: --mesh quik that measures every pair without a word."""
    status, out, said = shakedown("plan", "inventories/lab", "--mesh", "quik")
    assert (status, out) == (2, "")
    assert said == "shakedown: --mesh 'quik' is no mesh -- use quick or full\n"


def test_a_stage_is_planned_though_another_has_no_references():
    """Catches: a plan of the collectives that is refused for a fabric test without a reference."""
    inventory = document(4)
    for host in hosts(inventory):
        test = {"test": "ib_read_lat", "size_bytes": 12345, "iterations": 9}
        host["acceptance"] = {**host["acceptance"], "perftest": [test]}
    odd = site_of(inventory, WHERE)

    def planned(*stages: Stage):
        wanted = WantedScope(stages=stages)
        made = {"run": "r1", "created": "2026-01-01T00:00:00Z", "wanted": wanted}
        return plan_site(odd, **made)[0]

    plan = planned(Stage.COLLECTIVE)
    assert {item.stage for item in plan.items} == {Stage.COLLECTIVE}
    assert "none" not in plan.references
    assert judge(plan, measured(plan)).outcome is Outcome.PASS
    for stages in ((), (Stage.FABRIC,), (Stage.FABRIC, Stage.COLLECTIVE)):
        refused("2 cells have no reference: ib_read_lat", planned, *stages)


@functools.cache
def shipped(name: str):
    """Return a site that ships and its references."""
    folder = ROOT / "inventories" / name
    whole = read_site(folder)
    return whole, catalogue_of_site(whole, folder)


def part_of_shipped(name: str, acceptance=None, **wanted: object):
    """Return plan and jobs of a part of a site that ships; `acceptance`: what it asks for instead."""
    whole, catalogue = shipped(name)
    if acceptance:
        whole = whole.model_copy(
            update={"acceptance": whole.acceptance.model_copy(update=acceptance(whole.acceptance))}
        )
        catalogue = catalogue_of_site(whole, ROOT / "inventories" / name)
    return make_plan(whole, catalogue, run="r", created="2026-01-02T00:00:00Z", wanted=WantedScope(**wanted))


SITES = sorted(folder.name for folder in (ROOT / "inventories").iterdir() if folder.is_dir())
LARGEST = "tolly_xe9680_z9664f"  # takes half as long as all others together


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == LARGEST else []) for n in SITES]
)
def test_any_part_of_any_shipped_site_is_planned_or_refused_in_a_line(name):
    """Catches: a part that ends in an internal error; other nodes in its jobs; what is left out untold."""
    site, _ = shipped(name)
    nodes, rails = sorted(site.nics), [rail.name for rail in site.fabric.rails]
    one = [{"nodes": (node,), "partners": n} for node in {nodes[0], nodes[-1]} for n in (0, 1, 99, None)]
    alone = {"nodes": (nodes[0],), "partners": 0}
    of_rail = [{"rails": (rails[0],), **more} for more in ({}, alone)] if rails else []
    of_stage = [{"stages": (stage,), **more} for stage in Stage for more in ({}, alone)]
    meshes = [{"mesh": mesh, **more} for mesh in ("quick", "full") for more in ({}, alone)]
    whole, _ = part_of_shipped(name)
    assert part_of_shipped(name, partners=0)[0] == whole == part_of_shipped(name, partners=99)[0]
    for wanted in (*one, *of_rail, *of_stage, *meshes):
        try:
            plan, jobs = part_of_shipped(name, **wanted)
        except BadInput as said:
            assert "stages" in wanted and said.what.startswith("nothing of "), (wanted, said.what)
            continue
        judged = set(wanted.get("nodes", nodes))
        more = wanted.get("partners", 0)
        assert set(plan.nodes) == judged
        used = {node for job in jobs.jobs for node in job.nodes}
        assert len(used) <= len(judged) + (2 if more is None else more), wanted
        gone = {i.test for i in whole.items if i.stage in wanted.get("stages", Stage)}
        gone -= {item.test for item in plan.items}
        told = [one for one in plan.not_covered if one not in whole.not_covered]
        assert told or not gone, (wanted, gone)


def test_a_metric_that_a_part_loses_is_told_by_its_name():
    """Catches: traffic between nodes, ranks' lag or MPI's way that a part of one node lacks without a word,
    beside a test of which the rest is planned."""

    whole, catalogue = shipped("lab")
    metrics = ("samples_per_s", "rank_skew", "traffic_share")
    asked = {"lora": (TrainingSpec(model="llama2-7b", device="cpu", metrics=metrics),)}
    software = {
        **whole.software,
        "pytorch": SoftwareSource.model_validate({"from": {"path": "/opt/bin/python3"}}),
    }
    acceptance = whole.acceptance.model_copy(update=asked)
    whole = whole.model_copy(update={"acceptance": acceptance, "software": software})
    named = {"run": "r", "created": "2026-01-02T00:00:00Z", "learn": True}
    plan, _ = make_plan(whole, catalogue, **named, wanted=WantedScope(nodes=("n1",), partners=0))
    lost = {"mpi_allreduce_transport wrong check=nics", "traffic_class share", "lora traffic_share"}
    kept = {f"{item.test} {item.metric}" for item in plan.items}
    assert {"lora samples_per_s", "mpi_allreduce_transport wrong"} <= kept
    told = {what for one in plan.not_covered for what in one.what.split(", ")}
    assert lost | {"lora rank_skew"} <= told


def test_a_site_or_part_too_small_for_all_that_is_asked_is_refused():
    """Catches: a mesh of one node; a refusal that says that acceptance asks for nothing."""
    one = {"nodes": ("n1",), "partners": 0}

    def mesh(asked):
        kept = {section.key: None for section in asked.sections if section.key != "perftest"}
        return {**kept, "counter_tests": False}

    refused(
        "nothing is left of that part: .*between nodes, and there is one", part_of_shipped, "lab", mesh, **one
    )
    refused("measures between nodes, and there is one", plan_site, site(1))


@pytest.mark.parametrize(
    ("name", "wanted", "left", "kept"),
    [
        ("ml_engineering", {"nodes": ("a100-1",)}, "PyTorch's collectives of 3 nodes", "ib_write_bw"),
        ("tolly_xe9680_z9664f", {"nodes": ("xe9680-1",)}, "training llama2-70b by tp", "ib_write_bw"),
        ("tolly_xe9680_z9664f", {"rails": ("rail0",)}, "ib_write_bw from rail to rail", "ib_write_bw"),
        ("lab", {"nodes": ("n1",), "partners": 0}, "mpi_pingpong", "mpi_allreduce"),
    ],
)
def test_what_a_part_is_too_small_for_is_left_out_and_told(name, wanted, left, kept):
    """Catches: a part that cannot be planned at all for a size, a batch or a ring of the whole; an internal
    error; the rest of that benchmark left out with it."""
    plan, jobs = part_of_shipped(name, **wanted)
    (told,) = [one for one in plan.not_covered if one.what == left]
    assert told.why.startswith("the whole site has it, this part cannot: ")
    assert kept in {item.test for item in plan.items}
    planned = {item.test for item in plan.items}
    assert all(planned.intersection(job.tests) for job in jobs.jobs)


def test_what_the_whole_lacks_too_is_no_matter_of_the_part():
    """Catches: a size without any reference, left out of a part instead of refused."""

    def other_size(asked):
        return {"perftest": (asked.perftest[0].model_copy(update={"size_bytes": 12345}), *asked.perftest[1:])}

    part = {"nodes": ("xe9680-1",)}
    refused("no reference for ib_read_bw", part_of_shipped, "tolly_xe9680_z9664f", other_size, **part)


def test_all_nodes_of_a_sweep_are_those_of_the_part():
    """Catches: `all` that stays the whole site's number, a number named twice, one beyond the part kept."""
    sweep = {"operations": ("all_reduce",), "min_bytes": 1 << 30, "max_bytes": 1 << 30}

    def several(asked):
        sweeps = (NcclSweep(**sweep, nodes=(1, 2, 8, "all")),)
        kept = {section.key: None for section in asked.sections if section.key in ("lora", "torch")}
        return {**kept, "nccl": asked.nccl.model_copy(update={"sweeps": sweeps}), "profiles": ("physical",)}

    def sizes(**wanted):
        plan, _ = part_of_shipped("tolly_xe9680_z9664f", several, **wanted)
        found = {len(group) for i in plan.items if i.test == "nccl_all_reduce" for group in i.nodes}
        return found, [one.what for one in plan.not_covered if one.key == "acceptance.nccl.sweeps"]

    assert sizes() == ({1, 2, 8}, [])
    assert sizes(nodes=("xe9680-1",)) == ({1, 2, 3}, ["all_reduce of 8 nodes"])
