"""Interfaces and ways of a TCP network, looked at before a job measures: loopback in place of rails."""

import itertools
import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from shakedown.onnode import tcp_paths
from shakedown.onnode.tcp_paths import (
    Ends,
    Route,
    answering,
    astray,
    faults_of,
    neighbours_of,
    problem,
    route,
    told_route,
    ways,
)
from tests.kit.cases import cases

# A look of its own port each: the kernel keeps one until the last thread has let go of it.
# Apart in each process: several of them run these tests at once.
PORTS = itertools.count(20000 + os.getpid() * 97 % 9000)


def paths_of(node: int, mtu_bytes: int = 9000):
    """The two rails of a node: loopback has every address of 127.0.0.0/8."""
    return [
        {
            "rail": f"rail{rail}",
            "netdev": f"fab{rail}",
            "ipv4": f"127.{rail + 1}.0.{node}",
            "mtu_bytes": mtu_bytes,
        }
        for rail in (0, 1)
    ]


@pytest.fixture
def netdev(tmp_path, monkeypatch):
    """An interface as the kernel shows it, which can be spoiled; gives what is said of it."""

    def look(*, state="up", mtu=9000, has="127.1.0.1"):
        folder = tmp_path / "sys/class/net/fab0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "operstate").write_text(f"{state}\n")
        (folder / "mtu").write_text(f"{mtu}\n")
        monkeypatch.setattr(tcp_paths, "address", lambda _: has)
        return faults_of(paths_of(1)[0], tmp_path)

    return look


def test_an_interface_as_planned_is_not_blamed(netdev):
    """Catches: a healthy interface named; one of virtual Ethernet has no state of its own."""
    assert netdev() == netdev(state="unknown") == ""


@cases(
    "spoiled, said",
    ({"has": "127.9.0.1"}, "it has the address 127.9.0.1, 127.1.0.1 is planned"),
    ({"has": None}, "it has no address, 127.1.0.1 is planned"),
    ({"mtu": 1500}, "its MTU is 1500 bytes, 9000 are planned"),
    ({"state": "down", "has": None}, "it is down"),
)
def test_what_is_wrong_with_an_interface_is_said(netdev, spoiled, said):
    """Catches: an address or an MTU of another plan, which a collective shows as a hang."""
    assert netdev(**spoiled) == said


def test_an_interface_that_is_not_there_is_said(tmp_path):
    """Catches: a traceback where the netdev has another name."""
    assert faults_of(paths_of(1)[0], tmp_path) == "there is no fab0"


class Wire(Ends):
    """An end on whose rail 1 datagrams above a size, or all, are lost."""

    most_bytes = 65536
    no_tcp = ("127.9.",)

    def _send(self, end, text, ipv4):
        if self.most_bytes >= 0 and (ipv4.startswith("127.1.") or len(text) <= self.most_bytes):
            super()._send(end, text, ipv4)

    def connects(self, rail, ipv4):
        """A firewall keeps what begins so shut."""
        return not ipv4.startswith(self.no_tcp) and super().connects(rail, ipv4)


@pytest.fixture
def seen(monkeypatch):
    """What two nodes find of their ways, where rail 1 passes datagrams of at most so many bytes."""
    monkeypatch.setattr(tcp_paths, "_TRIES", 3)
    monkeypatch.setattr(tcp_paths, "_WAIT_S", 0.03)
    monkeypatch.setattr(tcp_paths, "_START_S", 0.3)
    monkeypatch.setattr(tcp_paths, "_LINGER_S", 0.3)

    def look(most_bytes, numbers=(1, 2), no_tcp=("127.9.",)):
        monkeypatch.setattr(Wire, "most_bytes", most_bytes)
        monkeypatch.setattr(Wire, "no_tcp", no_tcp)
        port = next(PORTS)
        ends = {number: Wire(paths_of(number), port) for number in numbers}
        found: dict[int, list] = {}

        def one(number):
            other = 3 - number
            found[number] = ways(ends[number], f"n{other}", paths_of(other))
            ends[number].leave([paths_of(other)])

        threads = [threading.Thread(target=one, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    return look


def test_rails_that_carry_full_packets_are_sound(seen):
    """Catches: a healthy rail blamed."""
    assert seen(65536) == {1: [], 2: []}


def test_a_sound_way_costs_no_wait(seen, monkeypatch):
    """Catches: half a second of every job spent asleep over answers that are there."""
    monkeypatch.setattr(tcp_paths, "_WAIT_S", 20.0)
    monkeypatch.setattr(tcp_paths, "_LINGER_S", 20.0)
    began = time.monotonic()
    assert seen(65536) == {1: [], 2: []}
    assert time.monotonic() - began < 10


def test_a_rail_that_loses_full_packets_is_told_from_a_dead_one(seen):
    """Catches: an MTU mismatch on the way, which looks like a hang of NCCL."""
    found = seen(1472)
    assert found[1] == [{"rail": "rail1", "to": "n2", "full_bytes": 9000}]
    assert found[2] == [{"rail": "rail1", "to": "n1", "full_bytes": 9000}]
    assert seen(0)[1] == [{"rail": "rail1", "to": "n2", "full_bytes": None}]


def test_a_neighbour_that_answers_on_no_rail_is_not_blamed(seen):
    """Catches: a cluster whose firewall drops such datagrams, named as one without a network."""
    assert seen(65536, numbers=(1,)) == {1: []}


def test_a_rail_that_passes_datagrams_and_no_connection_is_told(seen):
    """Catches: a PASS over a rail whose TCP is filtered, as the library took another one; a firewall that
    keeps this port shut on every rail taken for a fault."""
    assert seen(65536, no_tcp=("127.2.",))[1] == [
        {"rail": "rail1", "to": "n2", "full_bytes": None, "only": "datagrams"}
    ]
    assert seen(65536, no_tcp=("127.",)) == {1: [], 2: []}


def test_a_dead_rail_is_seen_where_datagrams_are_filtered(seen):
    """Catches: a PASS over a dead rail wherever a firewall drops datagrams on the others."""
    assert seen(-1, no_tcp=("127.2.",))[1] == [{"rail": "rail1", "to": "n2", "full_bytes": None, "only": ""}]
    assert seen(-1) == {1: [], 2: []}


def test_a_question_that_comes_at_once_is_answered(monkeypatch):
    """Catches: an end that listens before it knows how to answer; a healthy rail was told to be dead."""

    class AtOnce(threading.Thread):
        def start(self):
            """A neighbour that was quicker has asked already."""
            self._target.__self__._send(self._args[1], b"!64", "127.1.0.2")

    monkeypatch.setattr(tcp_paths.threading, "Thread", AtOnce)
    assert set(Ends(paths_of(1), next(PORTS)).sockets) == {"rail0", "rail1"}


def test_neighbours_are_those_of_a_ring():
    """Catches: a node that asks itself, or the same neighbour twice."""
    assert neighbours_of("n1", ["n1", "n2"]) == ["n2"]
    assert neighbours_of("n1", ["n1", "n2", "n3"]) == ["n3", "n2"]
    assert neighbours_of("n1", ["n1"]) == []


def found_by(folder: Path, deaf=None, **nodes):
    """What the nodes wrote; returns the problem of the job."""
    planned = {f"n{number}": paths_of(number) for number in (1, 2, 3)}
    for node, (interfaces, lost) in nodes.items():
        text = json.dumps({"node": node, "interfaces": interfaces, "ways": lost, "deaf": deaf or []})
        (folder / f"tcp.{node}.json").write_text(text)
    return problem(folder, planned)


def way(to, full=None):
    """A way over rail 1 that was lost."""
    return {"rail": "rail1", "to": to, "full_bytes": full}


def test_a_wrong_interface_is_named_with_node_and_rail_and_its_neighbours_are_not(tmp_path):
    """Catches: the healthy node blamed because its neighbour's address is wrong."""
    said = found_by(
        tmp_path,
        n1=({}, [way("n2")]),
        n2=({"rail1": "it has the address 10.9.9.2, 10.1.1.2 is planned"}, [way("n1"), way("n3")]),
        n3=({}, [way("n2")]),
    )
    assert said == {
        "kind": "environment",
        "message": "n2 fab1 (rail1): it has the address 10.9.9.2, 10.1.1.2 is planned",
    }


def test_a_lost_way_is_said_once_with_its_rail(tmp_path):
    """Catches: one fault told twice, once by each end, or without the rail."""
    said = found_by(tmp_path, n1=({}, [way("n2", 9000)]), n2=({}, [way("n1", 9000)]), n3=({}, []))
    assert said is not None
    assert said["message"].startswith("rail1 loses packets of 9000 bytes between n1 and n2, short ones pass")
    assert found_by(tmp_path, n1=({}, []), n2=({}, []), n3=({}, [])) is None


def test_long_packets_that_are_lost_one_way_are_told_with_the_way(tmp_path):
    """Catches: a low MTU at one port of a leaf for which both ends' cables and ports are looked at."""
    said = found_by(tmp_path, n1=({}, [way("n2", 9000)]), n2=({}, []), n3=({}, []))
    assert "between n1 and n2 (from n1 to n2 alone), short ones pass" in said["message"]
    both = found_by(tmp_path, n1=({}, [way("n2", 9000)]), n2=({}, [way("n1", 9000)]), n3=({}, []))
    assert "alone" not in both["message"]


def test_a_second_owner_of_an_address_is_told_before_a_dead_rail_is(tmp_path):
    """Catches: a rail called dead whose packets go to somebody else, by whom the address was answered for."""
    rail, theirs = "rail1", next(p["ipv4"] for p in paths_of(2) if p["rail"] == "rail1")

    def told(mac, macs):
        """What is said where n1 hears this address of n2, which has others; and a third node has them."""
        found_by(tmp_path, n1=({}, [{**way("n2"), "only": ""}]), n2=({}, []), n3=({}, []))
        for node, more in (
            ("n1", {"heard": {theirs: mac}}),
            ("n2", {"macs": macs}),
            ("n3", {"macs": {rail: "03"}}),
        ):
            file = tmp_path / f"tcp.{node}.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | more))
        planned = {f"n{n}": paths_of(n) for n in (1, 2, 3)}
        return problem(tmp_path, planned)["message"]

    owned = f"{theirs} on {rail} is owned by n2 and by"
    assert told("aa", {rail: "02"}).startswith(f"{owned} somebody with the hardware address aa, heard at n1")
    assert told("03", {rail: "02"}).startswith(f"{owned} n3, heard at n1")
    for same in ({rail: "aa"}, {}):
        assert told("aa", same).startswith(f"{rail} carries nothing between n1 and n2")


def test_who_answers_is_read_from_the_kernels_table(tmp_path):
    """Catches: an entry that nobody answered taken for an owner."""
    table = tmp_path / "arp"
    head = "IP address HW type Flags HW address Mask Device\n"
    table.write_text(f"{head}10.0.0.2 0x1 0x2 02:aa * fab0\n10.0.0.3 0x1 0x0 00:00:00:00:00:00 * fab0\n")
    assert answering(table) == {"10.0.0.2": "02:aa"}
    assert answering(tmp_path / "none") == {}


def test_a_rail_without_tcp_is_told_apart_from_a_dead_one(tmp_path):
    """Catches: a switch port searched for what a firewall of a node does."""
    only = {**way("n2"), "only": "datagrams"}
    told = found_by(tmp_path, n1=({}, [only]), n2=({}, []))["message"]
    assert told.startswith(
        "rail1 answers datagrams and opens no TCP connection between n1 and n2 (from n1 to"
    )
    told = found_by(tmp_path, n1=({}, [{**way("n2"), "only": ""}]), n2=({}, []))["message"]
    assert told.startswith("rail1 carries nothing between n1 and n2")


def test_a_way_whose_other_end_could_not_answer_is_not_blamed(tmp_path):
    """Catches: a healthy rail named because a node's look failed, or its port was another program's."""
    assert found_by(tmp_path, n1=({}, [way("n2")])) is None
    assert found_by(tmp_path, n1=({}, [way("n2")]), n2=({}, []), deaf=["rail1"]) is None
    assert found_by(tmp_path, n1=({}, [way("n2")]), n2=({}, [])) is not None


def test_a_port_that_another_program_has_is_told():
    """Catches: a rail that seems dead because nothing could listen on it."""
    port = next(PORTS)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.2.0.1", port))
        ends = Ends(paths_of(1), port)
    assert ends.deaf == ["rail1"] and set(ends.sockets) == {"rail0"}


def test_a_node_that_said_nothing_keeps_nothing_from_being_measured(tmp_path):
    """Catches: a job given up because this look itself could not be made."""
    assert found_by(tmp_path) is None
    (tmp_path / "tcp.n1.json").write_text('{"node"')
    assert found_by(tmp_path) is None


# What Linux 6.12 answered in a namespace with fab0 (3) and fab1 (5): 10.10.0.2 over 10.10.1.2, 10.10.0.3 with
# `mtu 1400`, 10.10.0.4 on lo, 10.10.0.5 as the interface's own network, 203.0.113.9 nowhere.
ANSWERS = {
    "10.10.0.2": "7000000018000000010000000508000002202000fe0000010002000008000f00fe000000080001000a0a0002"
    "080002000a0a00010800040005000000080005000a0a0102080019000000000024000c0002000000" + "00" * 28,
    "10.10.0.3": "7400000018000000010000000508000002202000fe0000010002000008000f00fe000000080001000a0a0003"
    "080002000a0a000108000400030000000c0008000800020078050000080019000000000024000c0002000000" + "00" * 28,
    "10.10.0.4": "6800000018000000010000000508000002202000fe0000020002008008000f00fe000000080001000a0a0004"
    "080002000a0a00010800040001000000080019000000000024000c0002000000" + "00" * 28,
    "10.10.0.5": "6800000018000000010000000508000002202000fe0000010002000008000f00fe000000080001000a0a0005"
    "080002000a0a00010800040003000000080019000000000024000c0002000000" + "00" * 28,
    "203.0.113.9": "400000000200000001000000050800009bffffff2c0000001a00010001000000000000000220200000000000"
    "0000000008000100cb007109080002000a0a0001",
}


@pytest.fixture
def asked(monkeypatch):
    """`route` from those answers."""
    monkeypatch.setattr(tcp_paths.socket, "if_indextoname", {1: "lo", 3: "fab0", 5: "fab1"}.__getitem__)
    return lambda to, _from: told_route(bytes.fromhex(ANSWERS[to]))


def test_a_route_is_read_as_the_kernel_tells_it(asked):
    """Catches: an interface, gateway, MTU or own address misread in the kernel's answer."""
    assert {to: asked(to, "") for to in ANSWERS} == {
        "10.10.0.2": Route("fab1", gateway="10.10.1.2"),
        "10.10.0.3": Route("fab0", mtu_bytes=1400),
        "10.10.0.4": Route("lo", own=True),
        "10.10.0.5": Route("fab0"),
        "203.0.113.9": None,
    }


def test_this_kernel_is_asked():
    """Catches: a request that the kernel does not understand."""
    assert route("127.0.0.2", "127.0.0.1") == Route("lo", own=True)


@cases(
    "to, said",
    ("10.10.0.2", "10.10.0.2 is reached over fab1 and 10.10.1.2"),
    ("10.10.0.3", "10.10.0.3 is reached by a route with an MTU of 1400 bytes, 9000 are planned"),
    ("10.10.0.4", "10.10.0.4 is an address of this node too"),
    ("10.10.0.5", None),
    ("203.0.113.9", None),
)
def test_a_way_that_is_not_the_planned_rail_is_said(asked, to, said):
    """Catches: a dead rail whose addresses a host route sends over another one; two owners of an address."""
    mine = [{"rail": "rail0", "netdev": "fab0", "ipv4": "10.10.0.1", "mtu_bytes": 9000}]
    theirs = {"n2": [{"rail": "rail0", "ipv4": to}, {"rail": "rail1", "ipv4": "10.10.0.2"}]}
    found = astray(mine, theirs, asked)
    assert found == ([{"rail": "rail0", "to": "n2", "words": said}] if said else [])


def test_a_way_around_a_rail_is_the_jobs_problem_and_no_mtu_is_guessed(tmp_path):
    """Catches: a PASS over a dead rail; a switch port blamed for what the host's own route does."""
    paths = {f"n{node}": paths_of(node) for node in (1, 2)}
    stray = {"rail": "rail0", "to": "n2", "words": "10.10.0.2 is reached over fab1"}
    lost = {"rail": "rail0", "to": "n1", "full_bytes": 9000}
    for node, ways_of, strays in (("n1", [], [stray]), ("n2", [lost], [])):
        seen = {"node": node, "interfaces": {}, "ways": ways_of, "deaf": [], "astray": strays}
        (tmp_path / f"tcp.{node}.json").write_text(json.dumps(seen))
    assert problem(tmp_path, paths) == {
        "kind": "environment",
        "message": "n1 fab0 (rail0): n2's 10.10.0.2 is reached over fab1",
    }
