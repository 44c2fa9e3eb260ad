"""A second owner of an address on a rail: heard by the owner's probe, or in another node's ARP table."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest
from test_settings_stage import report

from shakedown.benchmarks.config.job import WantedNeighbours, neighbours, peers, read_table, routes
from shakedown.benchmarks.config.output import strange_routes, wrong_neighbours
from shakedown.benchmarks.config.settings import ReadBackSettings, TargetReport
from shakedown.judge.verdict import judge
from shakedown.onnode.tcp_paths import Route
from shakedown.records.results import ClockReading, Component, Snapshot
from shakedown.references.catalogue import Catalogue
from shakedown.run.nic_counters import JobFolder
from tests.kit.cases import cases
from tests.kit.job import leave_the_rest, output, write_outputs
from tests.kit.run import gather, raw_of, write_run
from tests.kit.site import fabric, plan_site, with_nics

MACS = {f"n{i}": f"52:54:00:00:00:0{i}" for i in (1, 2, 3)}
STRANGER = "52:54:00:00:00:99"
# `ip -j neigh show`: one that answered, one that was looked for in vain, one of long ago, one of another NIC.
TABLE = json.dumps(
    [
        {"dst": "10.0.0.2", "dev": "eth2", "lladdr": MACS["n2"].upper(), "state": ["REACHABLE"]},
        {"dst": "10.0.0.3", "dev": "eth2", "state": ["FAILED"]},
        {"dst": "10.0.0.4", "dev": "eth2", "lladdr": STRANGER, "state": ["STALE"]},
        {"dst": "10.0.1.2", "dev": "eth3", "lladdr": STRANGER, "state": ["REACHABLE"]},
    ]
)


@pytest.fixture
def verdict(tmp_path):
    """Judge a config stage of two nodes; call it with changes of the reports by node."""
    return stage(tmp_path, ("n1", "n2"))


@pytest.fixture
def of_three(tmp_path):
    """The same of three nodes."""
    return stage(tmp_path, ("n1", "n2", "n3"))


def stage(tmp_path, names):
    """Plan a config stage of some nodes and return what judges it."""
    site = with_nics(fabric(), names)
    plan, jobs = plan_site(site, Catalogue([]))
    write_run(tmp_path, plan, jobs)
    inventory = Snapshot(
        run="r1",
        taken="2026-11-20T00:00:00Z",
        submit="head",
        clocks=tuple(ClockReading(host=n, low_s=0, high_s=0) for n in ("head", *names)),
        components=tuple(Component(host=n, kind="node", name=n, attributes={"boot_id": n}) for n in names),
    )
    (tmp_path / "inventory.json").write_text(inventory.model_dump_json(by_alias=True))
    job = raw_of(tmp_path, jobs.jobs[0])
    leave_the_rest(tmp_path)

    def judged(**changes: dict):
        for node in names:
            asked = changes.get(node, {})
            known = {f"10.0.0.{o[1]}": MACS[o] for o in names if o != node}
            known = {} if asked.get("neighbours", known) is None else known | asked.get("neighbours", {})
            known = {address: mac for address, mac in known.items() if mac}
            settings = {"ipv4": f"10.0.0.{node[1]}/24", "mac": MACS[node]}
            settings |= {k: v for k, v in asked.items() if k not in ("neighbours", "routes")}
            nic = report(**settings) | {"neighbours": known, "routes": asked.get("routes", [])}
            lines = []
            for target, document in (("eth2", nic), ("environment", report("environment"))):
                file = f"settings.{node}.{target}.json"
                (job / file).write_text(json.dumps(document))
                own = {"rail": "rail0"} if target == "eth2" else {"params": {"target": target}}
                lines.append(output("settings", file, node, **own))
            write_outputs(job, lines, node)
        measurements, counters = gather(tmp_path)
        found = judge(plan, measurements, counters)
        return found, {c.cell: c for c in found.cells if c.cell.startswith("config/settings/")}

    return judged


def cell_of(node: str, setting: str) -> str:
    """The cell of a NIC's setting."""
    return f"config/settings/wrong/{node}/rail0/-/setting={setting}"


def test_owners_as_planned_pass(verdict):
    """Catches: good neighbours blamed."""
    assert verdict()[1] == {}


def test_a_second_owner_that_answers_the_owners_probe_is_named(verdict):
    """Catches: an address with two owners, which shows as a connection that fails now and then."""
    found, cells = verdict(n2={"ipv4__duplicates": [STRANGER]})
    assert list(cells) == [cell_of("n2", "ipv4.duplicates")]
    words = f"10.0.0.2 on rail0 is owned by n2 ({MACS['n2']}) and by {STRANGER}, heard at n2"
    assert words in cells[cell_of("n2", "ipv4.duplicates")].reason
    assert found.reason.startswith(words), found.reason


def test_a_neighbour_with_anothers_mac_is_named_at_the_node_that_hears_it(verdict):
    """Catches: a node that sends to the second owner, and is blamed for it itself."""
    found, cells = verdict(n1={"neighbours": {"10.0.0.2": STRANGER}})
    assert list(cells) == [cell_of("n1", "ipv4.neighbours")]
    words = f"10.0.0.2 on rail0 is owned by n2 ({MACS['n2']}) and by {STRANGER}, heard at n1"
    assert found.reason.startswith(words), found.reason


def test_a_planned_node_that_takes_anothers_address_is_named(verdict):
    """Catches: a bare MAC for a machine that the run knows."""
    found, _ = verdict(n2={"ipv4__duplicates": [MACS["n1"]]})
    assert f"and by n1 ({MACS['n1']}), heard at n2" in found.reason


@pytest.mark.parametrize(("prefix", "known"), [(24, False), (31, True), (32, True)])
def test_a_table_without_any_neighbour_does_not_pass(verdict, prefix, known):
    """Catches: `ip neigh` that lists nobody, taken for a rail on which nobody has another's address; and a
    routed rail, on which nobody is a neighbour, doubted.
    """
    _, cells = verdict(n2={"neighbours": None, "ipv4": f"10.0.0.2/{prefix}"})
    cell = cells.get(cell_of("n2", "ipv4.neighbours"))
    assert (cell is None) is known
    if cell is not None:
        assert cell.outcome == "NOT-RUN"
        assert "neighbour table lists none of rail0: 10.0.0.1 is one" in cell.reason


SILENT = {"10.0.0.3": None}


def test_one_neighbour_that_did_not_answer_does_not_pass(of_three):
    """Catches: a peer that this node's kernel looked for in vain, passed by the others that answered."""
    _, cells = of_three(n1={"neighbours": SILENT})
    assert list(cells) == [cell_of("n1", "ipv4.neighbours")]
    assert cells[cell_of("n1", "ipv4.neighbours")].outcome == "NOT-RUN"
    words = "1 of 2 neighbours on rail0 did not answer: 10.0.0.3 of n3"
    assert words in cells[cell_of("n1", "ipv4.neighbours")].reason


def test_a_node_that_hears_nobody_is_told_once(of_three):
    """Catches: all good nodes of a rail doubted for one whose own cell says that it hears nobody."""
    _, cells = of_three(n1={"neighbours": SILENT}, n2={"neighbours": SILENT}, n3={"neighbours": None})
    assert list(cells) == [cell_of("n3", "ipv4.neighbours")]


def test_a_wrong_owner_weighs_more_than_a_silent_one(of_three):
    """Catches: a second owner that is not named because another neighbour did not answer."""
    found, _ = of_three(n1={"neighbours": {"10.0.0.2": STRANGER, **SILENT}})
    assert found.outcome == "FAIL" and f"and by {STRANGER}, heard at n1" in found.reason


def test_those_beyond_a_router_need_not_answer(of_three):
    """Catches: a rail of one network for each rack, on which the others are no neighbours, doubted."""
    _, cells = of_three(n1={"neighbours": SILENT, "ipv4": "10.0.0.1/30"})
    assert {c.outcome for c in cells.values()} == {"NOT-RUN"}  # 10.0.0.3 is in 10.0.0.0/30
    _, cells = of_three(n2={"neighbours": {"10.0.0.1": None}, "ipv4": "10.0.0.2/31"})
    assert cells == {}


def test_an_answer_counts_though_its_entry_ages():
    """Catches: a neighbour that answered doubted because its entry was old before the last one came."""
    stale = TABLE.replace("REACHABLE", "STALE")
    tables = iter([TABLE])
    found = neighbours(
        {"eth2": WantedNeighbours("192.0.2.77", ["10.0.0.2", "10.0.0.9"])},
        lambda: next(tables, stale),
        wait_s=0.2,
    )
    assert found == {"eth2": {"10.0.0.2": MACS["n2"]}}


def test_no_more_are_asked_than_a_kernel_keeps():
    """Catches: eight NICs that ask for more neighbours together than the kernel's table holds."""
    nodes = [f"n{i}" for i in range(1, 201)]
    names = [f"eth{r}" for r in range(8)]
    expect = {n: {e: {"ipv4": f"10.0.{r}.{n[1:]}"} for r, e in enumerate(names)} for n in nodes}
    targets = {n: {e: f"rail{r}" for r, e in enumerate(names)} for n in nodes}
    spec = {"targets": targets, "expect": expect}
    asked = {n: peers(spec, n, "eth3") for n in nodes}
    assert sum(len(peers(spec, "n7", e)) for e in names) <= 512
    assert {address for found in asked.values() for address in found} == {f"10.0.3.{n[1:]}" for n in nodes}


def test_an_owner_without_a_report_is_held_against_nobody(verdict):
    """Catches: a node whose own report is damaged, told as a second owner."""
    _, cells = verdict(n2={"mac": None})
    assert cell_of("n1", "ipv4.neighbours") not in cells


def test_only_neighbours_that_answered_count():
    """Catches: the MAC of a NIC that was swapped, which kernels keep, taken for an owner."""
    assert read_table(TABLE, "eth2") == {"10.0.0.2": MACS["n2"]}
    assert read_table("not JSON", "eth2") == {}
    assert read_table("", "eth2") == {}


def test_neighbours_that_never_answer_are_none():
    """Catches: a program that fails, or waits for ever, where no neighbour answers or no table is."""
    nics = {
        "eth2": WantedNeighbours("192.0.2.77", ["10.0.0.2", "10.0.0.9"]),
        "eth9": WantedNeighbours("192.0.2.78", ["10.0.9.9"]),
    }
    found = neighbours(nics, lambda: TABLE, wait_s=0.2)
    assert found == {"eth2": {"10.0.0.2": MACS["n2"]}, "eth9": {}}
    assert neighbours(nics, lambda: None, wait_s=0.2) is None


def test_only_nics_of_the_same_rail_are_neighbours():
    """Catches: another rail's address looked for where it cannot be."""
    expect = {n: {f"eth{r}": {"ipv4": f"10.0.{r}.{n[1]}"} for r in (0, 1)} for n in ("n1", "n2", "n3")}
    targets = {n: {"eth0": "rail0", "eth1": "rail1", "environment": None} for n in expect}
    for found in expect.values():
        found["environment"] = {"env.X": "1"}
    spec = {"targets": targets, "expect": expect}
    assert peers(spec, "n2", "eth1") == ["10.0.1.3", "10.0.1.1"]
    assert peers(spec, "n2", "environment") == []


def test_a_report_is_read_once_for_all_that_are_held_against_it(of_three, monkeypatch):
    """Catches: every NIC's reading opens every other's, half an hour of it for 1,024 nodes of eight NICs."""
    read, real = [], JobFolder.text
    monkeypatch.setattr(JobFolder, "text", lambda folder, name: read.append(name) or real(folder, name))
    assert of_three()[1] == {}
    times = Counter(name for name in read if ".eth2." in name)  # for itself, and for the rail
    assert times == {f"settings.n{node}.eth2.json": 2 for node in (1, 2, 3)}


OWN_WAY = {"netdev": "eth2", "gateway": None, "mtu_bytes": None, "own": False, "source": None, "of": 1}


@cases(
    "way, said",
    (
        {"netdev": "lo", "own": True},
        "10.0.0.2 on rail0 is owned by n2 (52:54:00:00:00:02) and by n1 (on its lo)",
    ),
    ({"netdev": "eth3"}, "n1 sends to n2's 10.0.0.2 on rail0 over eth3, which is of no rail"),
    ({"netdev": "eth3", "gateway": "10.9.0.1"}, "rail0 over eth3, which is of no rail, by 10.9.0.1"),
    (
        {"gateway": "10.0.0.3"},
        "n1 sends to n2's 10.0.0.2 on rail0 by another node, by n3's 10.0.0.3 on rail0",
    ),
    ({"gateway": "10.0.0.254"}, None),
    ({"mtu_bytes": 1500}, "on rail0 by a route with an MTU of 1500 bytes, 9000 are wanted"),
    ({"source": "10.0.0.77"}, "on rail0 from 10.0.0.77, its own address there is 10.0.0.1"),
    ({"source": "10.0.0.1", "mtu_bytes": 9000}, None),
    ({"netdev": None}, "n1 has no route to n2's 10.0.0.2 on rail0"),
)
def test_a_route_that_is_not_its_own_rails_is_named(of_three, way, said):
    """Catches: a dead rail whose addresses a host route sends over another NIC or the management; an address
    that a second node has on its lo, which answers no probe; a good gateway blamed.
    """
    found, cells = of_three(n1={"routes": [OWN_WAY | {"to": ["10.0.0.2"]} | way]})
    assert list(cells) == ([cell_of("n1", "ipv4.routes")] if said else [])
    assert not said or (found.outcome == "FAIL" and said in found.reason), found.reason


def test_an_answer_of_another_rails_nic_is_named(tmp_path):
    """Catches: a host that answers for its other NIC (ARP flux), told as a stranger with a bare MAC."""
    nics = {"eth2": ("rail0", "10.0.0", "0"), "eth3": ("rail1", "10.0.1", "1")}
    order = ReadBackSettings(
        targets={n: {e: rail for e, (rail, _, _) in nics.items()} for n in ("n1", "n2")},
        expect={n: {e: {"ipv4": f"{net}.{n[1]}"} for e, (_, net, _) in nics.items()} for n in ("n1", "n2")},
    )
    for node in ("n1", "n2"):
        for netdev, (_, net, digit) in nics.items():
            known = {f"{net}.2": "52:54:00:00:12:02"} if (node, netdev) == ("n1", "eth2") else {}
            document = report(ipv4=f"{net}.{node[1]}/24", mac=f"52:54:00:00:{11 + int(digit)}:0{node[1]}")
            text = json.dumps(document | {"target": netdev, "neighbours": known})
            (tmp_path / f"settings.{node}.{netdev}.json").write_text(text)
    seen = SimpleNamespace(
        node="n1", record=SimpleNamespace(rail="rail0"), order=order, folder=JobFolder(tmp_path)
    )
    text = (tmp_path / "settings.n1.eth2.json").read_text()
    wrong, said = wrong_neighbours(seen, TargetReport.model_validate_json(text))
    assert wrong == 1
    assert (
        "10.0.0.2 on rail0 is owned by n2 (52:54:00:00:11:02) and by n2 on rail1 (52:54:00:00:12:02)" in said
    )


def test_routes_that_were_not_read_do_not_pass(verdict):
    """Catches: a job of another release, or a reader that failed, taken for good routes."""
    _, cells = verdict(n2={"routes": None})
    assert [c.outcome for c in cells.values()] == ["NOT-RUN"] and cell_of("n2", "ipv4.routes") in cells


@cases(
    "own, prefix, over, gateway, blamed",
    ("10.0.0.11", 24, "eth2", None, False),  # eth2 and eth3 are in one network: RDMA says by which it sends
    ("10.0.1.11", 24, "eth2", None, True),
    ("10.0.0.11", 24, "eth2", "10.0.0.99", True),
    ("10.0.0.11", 24, "eno1", None, True),
)
def test_several_nics_in_one_network_are_no_stray_route(tmp_path, own, prefix, over, gateway, blamed):
    """Catches: a planned network of several rails blamed; and a route over the management excused with it."""
    nodes = {"n1": {"eth2": "10.0.0.1", "eth3": own}, "n2": {"eth2": "10.0.0.2", "eth3": "10.0.0.12"}}
    order = ReadBackSettings(
        targets={n: {"eth2": "rail0", "eth3": "rail1"} for n in nodes},
        expect={n: {e: {"ipv4": a} for e, a in names.items()} for n, names in nodes.items()},
    )
    way = OWN_WAY | {"netdev": over, "gateway": gateway, "to": ["10.0.0.12"]}
    document = report(ipv4=f"{own}/{prefix}") | {"target": "eth3", "routes": [way]}
    seen = SimpleNamespace(
        node="n1", record=SimpleNamespace(rail="rail1"), order=order, folder=JobFolder(tmp_path)
    )
    wrong, said = strange_routes(seen, TargetReport.model_validate(document))
    assert (wrong, "n1 sends to n2's 10.0.0.12 on rail1 over" in said) == (int(blamed), blamed)


def test_each_address_of_its_own_is_told_with_the_interface_that_has_it():
    """Catches: `lo`, by which the kernel reaches all that is its own, named for a rail's interface."""
    nodes = [f"n{i}" for i in range(1, 6)]
    spec = {
        "targets": {n: {"eth2": "rail0"} for n in nodes},
        "expect": {n: {"eth2": {"ipv4": f"10.0.0.{n[1]}"}} for n in nodes},
    }
    ways = {"10.0.0.2": Route("lo", own=True), "10.0.0.3": Route("lo", own=True), "10.0.0.4": None}

    def ask(to, own):
        return ways.get(to, Route("eth2", source="10.0.0.77" if own is None else None))

    told = routes(spec, "n1", "eth2", ask, lambda: {"10.0.0.2": "eth9"})
    assert [(w["netdev"], w["own"], w["source"], w["to"]) for w in told] == [
        ("eth9", True, None, ["10.0.0.2"]),
        ("lo", True, None, ["10.0.0.3"]),
        (None, False, None, ["10.0.0.4"]),
        ("eth2", False, "10.0.0.77", ["10.0.0.5"]),
    ]
