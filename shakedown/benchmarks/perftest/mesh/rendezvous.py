"""How two drivers find each other in a round, and how a dead one is told from a late one.

No coordinator and no collective: a node talks only to its partner of the round, so the death of any node
costs its own pairs and nothing else. Every hello also names the nodes that have been found dead.
"""

from __future__ import annotations

import socket
import time

from shakedown.benchmarks.perftest.mesh.agent import Agent
from shakedown.benchmarks.perftest.mesh.schedule import Pair
from shakedown.benchmarks.perftest.mesh.spec import Node, Spec
from shakedown.benchmarks.perftest.mesh.wire import (
    PROBE_EVERY_S,
    Conversation,
    Message,
    PeerLost,
    ask,
    set_timeouts,
)

_CONNECT_S = 3.0
_RETRY_S = 0.2
# Another node says that it found it dead: look once, quickly. Nobody's word is believed without a look of
# one's own: a stranger who can speak for two nodes would take healthy ones out, and they would be blamed.
_SECOND_LOOK_S = 2.0


class Probe:
    """Asks a partner's agent whether it is alive, and whether it is still with us in this round.

    Args:
        node: the partner.
        port: its control port.
        session: of this run.
        index: the round.
        give_up_after_s: how long it may fail to answer, and the earliest time (monotonic) to give up.
    """

    def __init__(
        self, node: Node, port: int, session: str, index: int, give_up_after_s: tuple[float, float]
    ) -> None:
        self._node, self._port, self._session, self._index = node, port, session, index
        self._window_s, self._not_before = give_up_after_s
        self._silent_since: float | None = None

    def __call__(self) -> str | None:
        """Return the reason to give the partner up, or None."""
        try:
            ping: Message = {"type": "ping", "session": self._session}
            answer = ask(self._node.address, self._port, ping, _CONNECT_S)
        except PeerLost as error:
            return self.failed(str(error))
        self._silent_since, self._not_before = None, 0.0
        if answer.get("session") != self._session:
            return "another run's driver answers there"
        if isinstance(answer.get("round"), int) and answer["round"] > self._index:
            return f"has gone on to round {answer['round']}"
        return None

    def failed(self, reason: str) -> str | None:
        """Note that it could not be reached; return the reason to give it up, or None."""
        now = time.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        silent_s = now - self._silent_since
        if silent_s >= self._window_s and now >= self._not_before:
            return f"no answer for {silent_s:.0f} s: {reason}"
        return None


class Meetings:
    """Connects one node to its partners, round after round, and remembers which were lost.

    Args:
        spec: the mesh.
        me: this node's name.
        session: of this run.
        agent: this node's agent.
        longest_round_s: what a round may take at most; a partner that is alive but does not come is given up.
    """

    def __init__(self, spec: Spec, me: str, session: str, agent: Agent, longest_round_s: float) -> None:
        self._spec, self._me, self._session, self._agent = spec, me, session, agent
        self._longest_round_s = longest_round_s
        self._limit_s = spec.join_timeout_s + 2 * longest_round_s
        self._join_until = time.monotonic() + spec.join_timeout_s
        self._met: set[str] = set()
        # node -> those that found it lost, as they say: each report is checked, quickly.
        self.lost: dict[str, set[str]] = {}

    def meet(self, pair: Pair, index: int, hello: Message) -> tuple[Conversation, Message]:
        """Return the open conversation with the partner, and its hello; raises PeerLost."""
        partner = pair[1] if self._me == pair[0] else pair[0]
        probe = self._probe(partner, index)
        hello = {
            **hello,
            "type": "hello",
            "session": self._session,
            "round": index,
            "node": self._me,
            "lost": {node: sorted(by) for node, by in self.lost.items()},
        }
        if self._me == pair[0]:
            conversation = self._visit(partner, probe)
            conversation.send({**hello, "time": time.time()})
            theirs = conversation.receive("hello", self._limit_s)
        else:
            conversation, theirs = self._await(partner, index, probe)
            conversation.send({**hello, "time": time.time()})
        if theirs.get("session") != self._session or theirs.get("node") != partner:
            raise PeerLost("another program answers there")
        self._met.add(partner)
        self._learn(theirs.get("lost"))
        return conversation, theirs

    def accuse(self, node: str) -> None:
        """Remember that this node has lost another."""
        self.lost.setdefault(node, set()).add(self._me)

    def _probe(self, partner: str, index: int) -> Probe:
        window_s, not_before = self._spec.lost_after_s, 0.0
        if accusers := self.lost.get(partner, set()) - {self._me}:
            # Of two that say so, the first failure of one's own is enough.
            window_s = _SECOND_LOOK_S if len(accusers) < 2 else 0.0
        elif partner in self.lost:
            window_s = _SECOND_LOOK_S
        elif partner not in self._met:
            not_before = self._join_until
        node = self._spec.nodes[partner]
        return Probe(node, self._spec.control_port, self._session, index, (window_s, not_before))

    def _visit(self, partner: str, probe: Probe) -> Conversation:
        address = (self._spec.nodes[partner].address, self._spec.control_port)
        while True:
            try:
                return Conversation(socket.create_connection(address, timeout=_CONNECT_S), probe)
            except OSError as error:
                reason = probe.failed(str(error.strerror or error))
                if reason is not None:
                    raise PeerLost(reason) from error
            time.sleep(_RETRY_S)

    def _await(self, partner: str, index: int, probe: Probe) -> tuple[Conversation, Message]:
        # One that two say is lost, and that answers all the same, may be stuck: it gets a round's time.
        doubted = len(self.lost.get(partner, set()) - {self._me}) >= 2
        limit_s = min(self._limit_s, self._longest_round_s) if doubted else self._limit_s
        deadline = time.monotonic() + limit_s
        while True:
            arrival = self._agent.take(index, partner, PROBE_EVERY_S)
            if arrival is None:
                reason = probe()
                arrival = self._agent.take(index, partner, 0) if reason is not None else None
                if reason is not None and arrival is None:
                    raise PeerLost(reason)
            if arrival is not None:
                set_timeouts(arrival.sock)
                return Conversation(arrival.sock, probe, arrival.rest), arrival.hello
            if time.monotonic() >= deadline:
                raise PeerLost(f"alive, but did not come within {limit_s:.0f} s")

    def _learn(self, lost: object) -> None:
        """Adopt what the partner knows of lost nodes, except about this node itself."""
        if not isinstance(lost, dict):
            return
        for node, accusers in lost.items():
            if node in self._spec.nodes and node != self._me and isinstance(accusers, list):
                known = {a for a in accusers if isinstance(a, str) and a in self._spec.nodes}
                if known:
                    self.lost.setdefault(node, set()).update(known)
