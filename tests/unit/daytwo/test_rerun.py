"""What failed is measured again: its nodes, rails and stages, with partners that were good."""

import random

from shakedown.benchmarks.planning import site_of
from shakedown.daytwo.rerun import changed_part, failed_part
from shakedown.discover.ask import answers_of
from shakedown.judge.judged import judge_run
from shakedown.records.base import Stage
from shakedown.records.results import Component, Snapshot
from shakedown.records.writing import write_aside
from shakedown.references.files import load_catalogue
from shakedown.run.folder import Run, write_plan
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, plan_site
from tests.unit.plan.test_scope import measured


def site(nodes: int = 6):
    """Return a site of the lab's kind whose leaf is cabled."""
    inventory = document(nodes)
    hostvars = inventory["_meta"]["hostvars"]
    cabling = [
        {"port": nic["leaf_port"], "host": name, "netdev": nic["netdev"], "rail": nic["rail"]}
        for name in inventory["compute"]["hosts"]
        for nic in hostvars[name]["fabric_nics"]
    ]
    inventory["switches"] = {"hosts": ["leaf0"]}
    hostvars["leaf0"] = {"roce_switch_nos": "linux", "leaf_ports": cabling}
    return site_of(inventory, WHERE)


def run_with(tmp_path, bad) -> Run:
    """Write a run of the site. `bad` gives the factor of a value, or nothing for one that is missing."""
    catalogue = load_catalogue(["lab"])
    plan, _ = plan_site(site(), catalogue)
    folder = tmp_path / "r1"
    folder.mkdir()
    write_plan(folder, plan)
    noise = random.Random(7)
    lines = []
    for m in measured(plan):
        factor = bad(m)
        if factor is None:
            continue
        value = m.value * (noise.uniform(998, 1002) if m.metric == "bandwidth" else 1) * factor
        lines.append(m.model_copy(update={"value": value, "samples": (value,) * len(m.samples)}))
    text = "".join(m.model_dump_json(by_alias=True) + "\n" for m in lines)
    write_aside(folder / "results.jsonl", text.encode())
    return Run(folder)


def part_of_run(tmp_path, bad):
    """Return the part that is to be measured again."""
    return failed_part(site(), judge_run(run_with(tmp_path, bad)))


def test_a_slow_nic_is_measured_again_with_two_good_nodes(tmp_path):
    """Catches: a rerun of all partners of the slow node, of all rails or of all stages."""

    def slow(m):
        return 0.0005 if m.metric == "bandwidth" and m.rail == "rail1" and "n4" in m.nodes else 1

    wanted = part_of_run(tmp_path, slow)
    assert (wanted.nodes, wanted.rails, wanted.stages) == (("n4",), ("rail1",), (Stage.FABRIC,))
    plan, _ = plan_site(site(), run="r2", created="2026-01-02T00:00:00Z", wanted=wanted)
    assert plan.scope.partners == ("n1", "n2")
    assert plan.scope.words == "1 of 6 nodes, 1 of 2 rails, fabric only: not an acceptance of the site"


def test_both_ends_of_a_pair_that_names_none(tmp_path):
    """Catches: a pair of which one end alone is measured again, without evidence which."""
    wanted = part_of_run(
        tmp_path, lambda m: 0.0005 if m.metric == "bandwidth" and m.nodes == ("n2", "n5") else 1
    )
    assert wanted.nodes == ("n2", "n5")


def test_what_was_not_run_is_measured_again(tmp_path):
    """Catches: a rerun that takes what is missing for what passed."""
    wanted = part_of_run(tmp_path, lambda m: None if m.metric == "bandwidth" and "n3" in m.nodes else 1)
    assert "n3" in wanted.nodes


def test_a_switch_port_is_its_hosts(tmp_path):
    """Catches: a dirty port of a leaf that is planned again for no node, or for all."""
    port = next(p for s in site().switches for p, host, *_ in s.ports if host == "n6")

    def dropping(m):
        return None if m.nodes == ("leaf0",) and m.params.get("port") == port else 1

    assert part_of_run(tmp_path, dropping).nodes == ("n6",)


def test_a_run_that_passed_has_nothing_to_measure_again(tmp_path):
    """Catches: a rerun of everything after a PASS."""
    refused("every required cell passed", part_of_run, tmp_path, lambda _: 1)


def test_a_run_of_another_site_is_refused(tmp_path):
    """Catches: nodes of the run that are silently left out because the site does not know them."""
    judged = judge_run(run_with(tmp_path, lambda m: None if "n6" in m.nodes else 1))
    refused("n6 of the run is not in the site", failed_part, site(3), judged)


def macs(of: dict[str, str]) -> Snapshot:
    """Return what a run was made on: the NICs' addresses."""
    nics = (
        Component(host=where.split()[0], kind="nic", name=where.split()[1], attributes={"mac": mac})
        for where, mac in of.items()
    )
    return Snapshot(run="first", taken="2026-11-20T00:00:00Z", components=tuple(nics))


def seen(of: dict[str, str]):
    """Return what the nodes answer now."""
    nodes: dict[str, object] = {}
    for where, mac in of.items():
        node, netdev = where.split()
        tree = {"schema": 1, "host": node, "virtual": True, "numa": [], "cores": [], "devices": []}
        document = nodes.setdefault(node, {"schema": 1, "host": node, "topology": tree, "nics": []})
        document["nics"].append({"netdev": netdev, "mac": mac})  # type: ignore[index]
    return answers_of(nodes)


OLD, NEW = "52:54:00:0c:02:01", "52:54:00:0c:02:77"
THEN = {
    f"n{n} {nic}": f"52:54:00:{n:02x}:02:0{i}" for n in (1, 2, 3) for i, nic in enumerate(("fab0", "fab1"))
}


def test_a_node_whose_nic_was_replaced_is_measured_again():
    """Catches: a NIC swap that nothing notices, one that is taken for all nodes', a NIC that is gone."""
    part, words = changed_part(site(), macs(THEN), seen({**THEN, "n2 fab1": NEW}))
    assert (part.nodes, part.rails, part.stages, part.partners) == (("n2",), (), (), 2)
    assert words == (f"n2 fab1: its MAC address is {NEW}, in run first it was 52:54:00:02:02:01",)
    gone = {where: mac for where, mac in THEN.items() if where != "n3 fab0"}
    part, words = changed_part(site(), macs(THEN), seen(gone))
    assert part.nodes == ("n3",)
    assert words == ("n3 fab0: it is not there, in run first it was 52:54:00:03:02:00",)


@cases(
    "then, now, says",
    (THEN, THEN, "all 6 NICs are those of run first"),
    # Of adm0, no NIC of the fabric, and of a node that does not answer, nothing is said.
    (
        {**THEN, "n1 adm0": OLD},
        {k: v for k, v in THEN.items() if "n2" not in k} | {"n1 adm0": NEW},
        "all 4 NICs",
    ),
    (THEN, dict.fromkeys(THEN, ""), "no MAC address is known of both run first and now"),
    ({}, THEN, "no MAC address is known of both run first and now"),
)
def test_nics_that_are_the_same_are_not_measured_again(then, now, says):
    """Catches: a whole site measured again for nothing, and silence taken for sameness."""
    refused(says, changed_part, site(), macs(then), seen(now))


def test_what_failed_may_be_said_and_not_together_with_what_changed(shakedown, tmp_path):
    """Catches: --failed that is no option, or of which one half is silently left out."""
    words = ("rerun", tmp_path, "inventories/lab", "--failed", "--changed", tmp_path / "a.json")
    status, out, err = shakedown(*words)
    assert (status, out) == (2, "")
    assert err == "shakedown: --failed and --changed both say what to plan -- give one of them\n"
