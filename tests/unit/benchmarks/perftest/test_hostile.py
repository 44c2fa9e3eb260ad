"""What strangers may send to a driver: it ends no thread, and its answer tells nothing."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shakedown.benchmarks.perftest.mesh.driver import session_of
from shakedown.benchmarks.perftest.mesh.rendezvous import Agent, Meetings, Partner, ports_of, problems_of
from shakedown.benchmarks.perftest.mesh.schedule import slots_of
from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.benchmarks.perftest.mesh.wire import PeerLost, ask, decode
from shakedown.run.ownership import SECRET, is_of_nodes
from tests.kit.cases import cases
from tests.unit.benchmarks.perftest.local_mesh import free_ports, spec_data

NESTED = b'{"type":"ping","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
# Within Python's limit where it is parsed, beyond it where somebody walks through it or prints it.
DEEP = b'{"type":"ping","x":' + b"[" * 800 + b"]" * 800 + b"}"


@pytest.fixture
def agent():
    """An agent on a loopback address, and how to ask it."""
    port = free_ports(1)
    node = parse_spec(spec_data(2)).nodes["n1"]
    running = Agent(node, port, "our session")

    def say(message):
        if isinstance(message, dict):
            return ask(node.address, port, message, 5)
        with socket.create_connection((node.address, port), timeout=5) as sock:
            sock.sendall(message + b"\n")
            return sock.recv(1000)

    yield say
    running.close()


@pytest.mark.parametrize("line", [NESTED, DEEP, b"[]", b"7", b'{"type":[]}', b"\xff"])
def test_what_is_no_message_is_taken_for_none(agent, line):
    """Catches: a line from anybody that ends the agent's thread, so that all partners drop a healthy node."""
    assert decode(line) is None
    assert agent(line) == b""
    assert agent({"type": "ping", "session": "our session"})["round"] == -1


@cases(
    "message",
    {"type": "ping"},
    {"type": "ping", "session": "other"},
    {"type": "hello", "session": ["our session"], "round": 0, "node": "n2"},
)
def test_only_who_knows_the_session_is_told_it(agent, message):
    """Catches: a ping with which anybody learns the session, and then passes for a partner."""
    assert agent(message) == {"type": "pong"}
    ours = {"type": "ping", "session": "our session"}
    assert agent(ours) == {"type": "pong", "session": "our session", "round": -1}


def test_an_agent_that_saw_the_end_first_is_closed_all_the_same():
    """Catches: a mesh that ends with a traceback, as its agent was woken by a message right before."""
    node = parse_spec(spec_data(2)).nodes["n1"]
    running = Agent(node, free_ports(1), "our session")
    running._closing = True
    running._thread.join(timeout=5)  # it looks every second
    assert not running._thread.is_alive()
    running.close()


@pytest.mark.parametrize("lost", [[[]], [{}], [None], "n1", {"n1": 1}, 7])
def test_who_is_lost_is_learnt_from_names_only(lost):
    """Catches: a hello with which a driver ends in a traceback, or believes nonsense."""
    meetings = Meetings(parse_spec(spec_data(3)), "n1", "s", agent=None, longest_round_s=1.0)
    meetings._learn({"n2": lost})
    assert meetings.lost == {}
    meetings._learn({"n2": [[], "n3", "n9"], "n9": ["n3"]})
    assert meetings.lost == {"n2": {"n3"}}


@pytest.mark.parametrize("first", [True, False])
def test_two_voices_take_no_healthy_node_out(first):
    """Catches: a hello that speaks for two nodes, after which nobody measures with the third."""
    port = free_ports(1)
    spec = parse_spec({**spec_data(4), "control_port": port})
    agents = {name: Agent(spec.nodes[name], port, "s") for name in ("n1", "n2")}
    try:
        meetings = {name: Meetings(spec, name, "s", agents[name], 5.0) for name in agents}
        meetings["n1" if first else "n2"]._learn({"n2": ["n3", "n4"], "n1": ["n3", "n4"]})
        with ThreadPoolExecutor(2) as pool:
            met = [pool.submit(m.meet, ("n1", "n2"), 0, {}) for m in meetings.values()]
            assert {theirs["node"] for _, theirs in (one.result(30) for one in met)} == {"n1", "n2"}
        agents.pop("n2").close()
        with pytest.raises(PeerLost):
            meetings["n1"].meet(("n1", "n2"), 1, {})
    finally:
        for agent in agents.values():
            agent.close()


def test_the_session_is_a_secret(tmp_path):
    """Catches: a session that anybody can work out who has read the plan."""
    guessed = session_of(tmp_path, "a" * 64)
    (tmp_path / SECRET).write_text("x")
    assert session_of(tmp_path, "a" * 64) not in (guessed, "x")
    assert session_of(tmp_path, "b" * 64) != session_of(tmp_path, "a" * 64)
    assert not is_of_nodes(SECRET)


@pytest.mark.parametrize("kind", [[], {}, ["setup"], None, "blame", 7])
def test_a_problem_of_no_known_kind_is_none(kind):
    """Catches: a partner's answer that ends the driver in a traceback."""
    assert problems_of({"problems": {"rail0": [kind, "text"], "rail1": ["setup", []]}}) == {}
    assert problems_of({"problems": {"rail0": ["setup", "a\nb"]}}) == {"rail0": ("setup", "a b")}


def test_a_hello_is_taken_only_as_far_as_it_fits():
    """Catches: attempts of no possible number in file names; cells and texts of other types."""
    hello = {
        "done": [[0, "rail0"], [0, []], ["0", "rail0"], 7],
        "attempts": [[0, "rail0", 2], [1, "rail0", 10**30], [2, "rail0", -1], [3, "rail0", True]],
        "problems": {"rail1": [], "rail2": "x" * 10_000},
        "versions": ["6.22"],
    }
    partner = Partner(hello)
    assert (partner.done, partner.attempts) == ({(0, "rail0")}, {(0, "rail0"): 2})
    assert partner.problems == {"rail2": "x" * 500} and partner.versions == {}
    slot = slots_of(parse_spec(spec_data(2)))[0]
    for ports in ({"rail0": "80"}, {"rail0": 80}, {"rail0": True}, {"rail7": 2000}):
        assert ports_of({"slot": 0, "ports": ports}, slot) == {}
    for ready in ({"slot": 1, "ports": {}}, {"slot": 0, "ports": []}):
        with pytest.raises(PeerLost):
            ports_of(ready, slot)


def test_a_driver_survives_nested_messages(mesh):
    """Catches: a node dropped by its partners because a stranger's message ended its agent."""
    local = mesh(2)
    running = local.start("n2")  # to whose agent n1 comes
    address = ("127.77.0.2", local.data["control_port"])
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(address, timeout=1) as sock:
                sock.sendall(NESTED + b"\n")
                assert sock.recv(1000) == b""
                break
        except OSError:
            time.sleep(0.1)
    assert local.wait({**running, **local.start("n1")}) == {"n1": 0, "n2": 0}
