"""Send to one node from many at once, and among all nodes of a group; who sends to whom at one time.
Standard library only."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from shakedown.benchmarks.perftest.mesh.driver import beside_mesh, session_of
from shakedown.benchmarks.perftest.mesh.perftest import (
    SYSFS,
    Perftest,
    RdmaDevice,
    Unusable,
    argv,
    find_device,
    perftest_versions,
    port_in_use,
    wait_until_ended,
    wait_until_listening,
)
from shakedown.benchmarks.perftest.mesh.rendezvous import Agent, Meetings
from shakedown.benchmarks.perftest.mesh.spec import Spec
from shakedown.benchmarks.perftest.mesh.wire import Conversation, Message, PeerLost
from shakedown.nics.families import family_of
from shakedown.onnode.counters import read_device
from shakedown.onnode.ethtool_stats import ethtool_family
from shakedown.onnode.journal import Clock, Journal
from shakedown.onnode.software import enter
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import natural_key
from shakedown.records.writing import unused

NAME = "incast"
INCAST, ALL_TO_ALL = "incast", "all_to_all"  # tests of the cells, which are the patterns

# What shows that senders were held back: pause frames of the RoCE priority (`N`), at senders that the switch
# pauses and at a receiver that pauses the switch, and packets that arrived marked, with the notices of them.
# Linux, drivers/net/ethernet/mellanox/mlx5/core/en_stats.c and drivers/infiniband/hw/mlx5/counters.c;
# drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c and drivers/infiniband/hw/bnxt_re/hw_counters.c.
HELD_BACK = {
    "mlx5": (
        "ethtool.rx_prioN_pause",
        "ethtool.tx_prioN_pause",
        "rdma.np_ecn_marked_roce_packets",
        "rdma.np_cnp_sent",
        "rdma.rp_cnp_handled",
    ),
    "bnxt": (
        "ethtool.rx_pfc_ena_frames_priN",
        "ethtool.tx_pfc_ena_frames_priN",
        "rdma.rx_ecn_marked_pkts",
        "rdma.rx_cnp_pkts",
        "rdma.tx_cnp_pkts",
    ),
}


def held_back_counters(family: str, priority: int) -> tuple[str, ...]:
    """Return the counters of a family of drivers; none: it counts neither pause nor marks."""
    return tuple(name.replace("N", str(priority)) for name in HELD_BACK.get(family, ()))


def note_name(pattern: str, receiver: str, rail: str) -> str:
    """Return the file in which a receiver notes who sent to it and what the NICs counted."""
    return f"{pattern}.{receiver}.{rail}.json"


def output_name(pattern: str, sender: str, receiver: str, rail: str) -> str:
    """Return the file of a sender's perftest."""
    return f"{pattern}.{sender},{receiver}.{rail}.txt"


@dataclass(frozen=True)
class Round:
    """What happens at one time on one rail."""

    pattern: str  # of names.py
    rail: str  # whose NICs carry it
    senders: dict[str, tuple[str, ...]]  # of each receiver, who sends to it

    def partners(self, node: str) -> list[str]:
        """Return with whom a node has to do, in the order of the receivers' and senders' names."""
        found = set(self.senders.get(node, ()))
        found |= {receiver for receiver, senders in self.senders.items() if node in senders}
        return sorted(found)


def rounds_of(
    nodes: Sequence[str],  # all that take part, in natural order
    rails: Sequence[str],  # one after the other
    patterns: Sequence[str],  # of names.py
    senders: int,  # at most so many send to one node
    receivers: int,  # at most so many nodes receive in incast
) -> list[Round]:
    """Return the rounds in order; none where there are fewer than two senders for any receiver."""
    if len(nodes) < 3:
        return []
    found: list[Round] = []
    for pattern in patterns:
        for rail in rails:
            if pattern == ALL_TO_ALL:
                groups = _groups(nodes, senders + 1)
                each = {node: tuple(n for n in group if n != node) for group in groups for node in group}
                found.append(Round(pattern, rail, each))
            else:
                for place in _spread(len(nodes), receivers):
                    after = [*nodes[place + 1 :], *nodes[:place]][:senders]
                    found.append(Round(pattern, rail, {nodes[place]: tuple(after)}))
    return found


def _spread(count: int, wanted: int) -> list[int]:
    """Return places spread evenly over so many."""
    wanted = min(count, wanted)
    return [n * count // wanted for n in range(wanted)]


def _groups(nodes: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return neighbours in groups of about so many, none smaller than three."""
    count = max(1, min(round(len(nodes) / size), len(nodes) // 3))
    ends = [n * len(nodes) // count for n in range(count + 1)]
    return [nodes[one:other] for one, other in pairwise(ends)]


#     srun --ntasks-per-node=1 python -m shakedown.benchmarks.incast.job FOLDER
#
# FOLDER/spec.json is the mesh's specification with `crowd` beside it (order.py). In a round every receiver
# starts a perftest server for each of its senders and tells them the ports; none sends before all are. The
# receiver keeps the record. Only it and its senders are in a round: a node that dies costs its own rounds.

_GRACE_S = 5.0
_MARGIN_S = 15.0
_MOST_SENDERS = 64  # ports of one round


def main(arguments: list[str], *, sysfs: Path = SYSFS) -> int:
    """Run this node's part; returns the exit status."""

    def send(folder: Path, spec: Spec, digest: str, me: str, crowd: Mapping[str, Any]) -> int:
        numbers = (crowd.get("senders"), crowd.get("receivers"), crowd.get("priority"))
        if not isinstance(crowd.get("patterns"), list) or not all(type(n) is int and n >= 0 for n in numbers):
            fix = "restore the job's own file"
            raise BadInput("crowd: not who sends to whom", fix=fix, file=folder / "spec.json")
        return IncastNode(spec, crowd, me, folder, sysfs).run(digest)

    return beside_mesh(NAME, "crowd", arguments, send)


class IncastNode:
    """This node's part in all rounds."""

    def __init__(self, spec: Spec, crowd: Mapping[str, Any], me: str, folder: Path, sysfs: Path) -> None:
        self.spec, self.me, self.folder, self.sysfs = spec, me, folder, sysfs
        nodes = sorted(spec.nodes, key=natural_key)
        self.rounds = rounds_of(
            nodes, spec.rails, crowd["patterns"], int(crowd["senders"]), int(crowd["receivers"])
        )
        self.priority = int(crowd["priority"])
        self.operation = spec.operations[0]
        self.journal = Journal(folder, me)
        self.devices: dict[str, RdmaDevice] = {}
        self.problems: dict[str, str] = {}
        ready = enter(folder, "perftest")
        self.prefix = ready.prefix
        for rail, nic in spec.nodes[me].rails.items():
            try:
                self.devices[rail] = find_device(nic, spec.gid_index, sysfs)
            except Unusable as reason:
                self.problems[rail] = str(reason)
            if ready.problem:
                self.problems[rail] = ready.problem["message"]
        versions = {} if ready.problem else perftest_versions(spec, ready.prefix)
        self.version = versions.get(self.operation.test)

    def run(self, digest: str) -> int:
        """Go through all rounds; returns the exit status."""
        session = session_of(self.folder, digest)
        agent = Agent(self.spec.nodes[self.me], self.spec.control_port, session)
        lasts_s = self.spec.timeout_s + self.spec.start_timeout_s + _MARGIN_S
        good = True
        try:
            # A node may be free for many rounds before its next: partners wait for all of them.
            meetings = Meetings(self.spec, self.me, session, agent, len(self.rounds) * lasts_s)
            for index, each in enumerate(self.rounds):
                agent.enter_round(index)
                if each.partners(self.me):
                    good = self._round(index, each, meetings) and good
            agent.enter_round(len(self.rounds))
        finally:
            agent.close()
        return ExitStatus.PASS if good else ExitStatus.INCOMPLETE

    def _round(self, index: int, each: Round, meetings: Meetings) -> bool:
        """Take part in one round; returns whether all that this node received was measured."""
        clock, told = Clock(), dict[str, Message]()
        before = self._counters(each.rail)
        problem = ""
        try:
            with self._servers(index, each) as (servers, ports, unready), ExitStack() as stack:
                talks: dict[str, Conversation] = {}
                mine = self._own_problem(each.rail) or unready
                heard = [mine] if mine else []
                theirs: dict[str, Message] = {}
                for partner in sorted(each.partners(self.me), key=natural_key):
                    one, other = sorted((self.me, partner), key=natural_key)
                    hello: Message = {"port": ports.get(partner), "problem": mine, "version": self.version}
                    talks[partner], theirs[partner] = meetings.meet((one, other), index, hello)
                    stack.enter_context(closing(talks[partner]))
                    heard += self._wrong(partner, theirs[partner])
                problem = self._everybody(talks, heard)
                clients = {} if problem else self._clients(each, theirs)
                try:
                    wait_until_ended(clients.values(), self.spec.timeout_s)
                finally:
                    for run in clients.values():
                        run.kill()
                told = self._all_done(talks, clients, before, each.rail)
                if clients or servers:
                    wait_until_ended(servers.values(), 0 if problem else _GRACE_S)
        except PeerLost as lost:
            problem = f"a partner was lost: {lost}"
        if self.me not in each.senders:
            return True
        return self._note(each, clock, told, before, problem)

    def _own_problem(self, rail: str) -> str:
        if rail in self.problems or rail not in self.devices:
            return f"{self.me} {rail}: {self.problems.get(rail, 'no NIC')}"
        return "" if self.version else f"{self.me} has no working {self.operation.test}"

    def _wrong(self, partner: str, hello: Message) -> list[str]:
        found = [hello["problem"][:300]] if isinstance(hello.get("problem"), str) and hello["problem"] else []
        if not found and hello.get("version") != self.version:
            found = [f"{self.operation.test} of two versions in {self.me} and {partner}"]
        return found

    def _everybody(self, talks: Mapping[str, Conversation], heard: list[str]) -> str:
        """Wait until all partners are ready; return why nobody sends, empty if all do. Raises PeerLost."""
        for talk in talks.values():
            talk.send({"type": "go", "problem": "; ".join(heard)[:900]})
        for talk in talks.values():
            said = talk.receive("go", self.spec.start_timeout_s + _MARGIN_S).get("problem")
            heard += [said] if isinstance(said, str) and said else []
        return "; ".join(dict.fromkeys(heard))[:1000]

    def _port(self, index: int, each: Round, sender: str) -> int:
        place = index * _MOST_SENDERS + sorted(each.senders[self.me], key=natural_key).index(sender)
        return self.spec.base_port + place % self.spec.port_span

    @contextmanager
    def _servers(self, index: int, each: Round) -> Iterator[tuple[dict[str, Perftest], dict[str, int], str]]:
        """Serve each sender while the round lasts: servers and ports by sender, and why it cannot be."""
        servers: dict[str, Perftest] = {}
        ports: dict[str, int] = {}
        problem = ""
        try:
            for sender in each.senders.get(self.me, ()) if not self._own_problem(each.rail) else ():
                port = self._port(index, each, sender)
                device = self.devices[each.rail]
                if port_in_use(device.nic.ipv4, port):
                    problem = f"port {port} of {self.me} is in use"
                    break
                name = output_name(each.pattern, sender, self.me, each.rail).replace(".txt", ".server.txt")
                words = argv(self.spec, self.operation, device, port, None)
                try:
                    servers[sender] = Perftest(words, unused(self.folder / name), device.cpus, self.prefix)
                except OSError as error:
                    problem = f"{self.operation.test} on {self.me}: {error.strerror}"
                    break
                ports[sender] = port
            by_port = {ports[sender]: run for sender, run in servers.items()}
            listening = wait_until_listening(by_port, self.spec.start_timeout_s) if not problem else set()
            if deaf := [s for s, port in ports.items() if port not in listening and not problem]:
                problem = f"server on {self.me} does not listen: {servers[deaf[0]].last_words()}"
            yield servers, ports, problem
        finally:
            for run in servers.values():
                run.kill()
                if run.exit_code == 0:
                    run.output.unlink(missing_ok=True)  # it repeats the client's

    def _clients(self, each: Round, theirs: Mapping[str, Message]) -> dict[str, Perftest]:
        found: dict[str, Perftest] = {}
        device = self.devices[each.rail]
        for receiver, senders in each.senders.items():
            port = theirs.get(receiver, {}).get("port")
            if self.me not in senders or not isinstance(port, int) or isinstance(port, bool):
                continue
            words = argv(
                self.spec, self.operation, device, port, self.spec.nodes[receiver].rails[each.rail].ipv4
            )
            name = output_name(each.pattern, self.me, receiver, each.rail)
            found[receiver] = Perftest(words, unused(self.folder / name), device.cpus, self.prefix)
        return found

    def _all_done(
        self,
        talks: Mapping[str, Conversation],
        clients: Mapping[str, Perftest],
        before: Mapping[str, int],
        rail: str,
    ) -> dict[str, Message]:
        """Tell every partner how this node's sending ended, and hear it of theirs. Raises PeerLost."""
        held = _grown(before, self._counters(rail))
        for partner, talk in talks.items():
            run = clients.get(partner)
            failed = "" if run is None or run.exit_code == 0 else f"{run.last_words()}"[:300] or "no result"
            file = run.output.name if run else ""
            talk.send({"type": "done", "failed": failed, "file": file, "held": held})
        limit_s = self.spec.timeout_s + _MARGIN_S
        return {partner: talk.receive("done", limit_s) for partner, talk in talks.items()}

    def _counters(self, rail: str) -> dict[str, int]:
        """Return what of holding back this node's NIC has counted; empty: it counts none of it."""
        device = self.devices.get(rail)
        if device is None:
            return {}
        live = self.sysfs == SYSFS
        try:
            number = ethtool_family() if live else 0
        except OSError:
            number = 0
        place = self.sysfs / "class/infiniband" / device.nic.rdma_device
        read = read_device(self.sysfs.parent, place, number, live)
        family = family_of(str(read["driver"]), device.nic.rdma_device)
        wanted = held_back_counters(family.name if family else "", self.priority)
        counters = read["counters"]
        assert isinstance(counters, dict)
        return {name: counters[name] for name in wanted if name in counters}

    def _note(
        self, each: Round, clock: Clock, told: Mapping[str, Message], before: Mapping[str, int], problem: str
    ) -> bool:
        """Write what was received and the record of it; returns whether there is anything to read."""
        senders = each.senders[self.me]
        failed = [f"{s}: {told[s].get('failed')}" for s in senders if s in told and told[s].get("failed")]
        why = problem or "; ".join(failed)[:1000]
        document = {
            "schema": 1,
            "receiver": self.me,
            "rail": each.rail,
            "files": {s: str(told[s].get("file", ""))[:255] for s in senders if s in told},
            "held": {
                self.me: _grown(before, self._counters(each.rail)),
                **{s: _numbers(told[s].get("held")) for s in senders if s in told},
            },
        }
        file = unused(self.folder / note_name(each.pattern, self.me, each.rail))
        file.write_text(json.dumps(document, indent=1) + "\n")
        self.journal.add(
            NAME,
            each.pattern,
            file.name,
            [self.me],
            clock,
            None if why else 0,
            {"kind": "environment", "message": why} if why else None,
            params={"size_bytes": self.operation.size_bytes, "senders": len(senders)},
            rail=each.rail,
        )
        return not why


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return how far each counter grew; one that went back was set to zero and tells nothing."""
    return {name: after[name] - n for name, n in before.items() if after.get(name, -1) >= n}


def _numbers(said: object) -> dict[str, int]:
    known = said if isinstance(said, dict) else {}
    return {str(name)[:64]: n for name, n in list(known.items())[:16] if type(n) is int and n >= 0}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
