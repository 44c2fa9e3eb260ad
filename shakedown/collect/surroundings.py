"""What else a node's CPUs did while its NICs were measured, and which ways strayed meanwhile.

A program on the CPUs that serve a NIC makes a good NIC slow, and no counter of the NIC or its port tells of
it. What was at work beside a value can only have made it worse: within its reference it passes all the same,
outside it decides nothing, unless it lacks more than that can take (docs/decisions/busy-meanwhile.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shakedown.benchmarks.base.contract import TcpPath
from shakedown.collect.counters import amount, grown
from shakedown.collect.outputs import Told
from shakedown.onnode.host import MOST_OTHERS
from shakedown.onnode.pin import cpu_set
from shakedown.records.base import NicSpec
from shakedown.records.results import Load, Measurement, RunProblem
from shakedown.records.wording import BLAMES, printable
from shakedown.run.nic_counters import HostReading, NodeCounters, OtherProcess

# Of the CPUs that serve a NIC, others took half of one, and a tenth of all: less goes on on every node.
_LEAST_CPUS, _LEAST_SHARE = 0.5, 0.1
# A program that polls a NIC for others takes more of one CPU; one that waits takes next to none.
_OF_A_CPU = 0.25
_KEPT_BACK = 0.05  # of the time of one CPU, by heat or by a machine below
# TCP lost up to 1.0 of the time that a program took on its sender's or receiver's CPU: 22 loads, in bursts of
# 0.1 to 100 ms, on 16 idle cores, where rates scattered by 9 %.
_COSTS = 1.25
_SHORTEST_S = 1.0
_MOST_NAMED = 2
Both = tuple[NodeCounters, NodeCounters]
Nics = Sequence[NicSpec | TcpPath]


def over_nics(m: Measurement) -> bool:
    """Whether busy CPUs can make a value worse: a rate or a time over NICs, and no count of what is wrong."""
    return (len(m.nodes) > 1 or m.rail is not None) and ("/" in m.unit or m.unit in ("s", "ms", "us", "min"))


def beside_others(told: Sequence[Told], readings: Mapping[str, Both], nics: Mapping[str, Nics]) -> list[Told]:
    """Return what a job's outputs say, with what else was at work at each value's ends, and why ways stray.

    A way that strays leaves a value undecided: what passed may have gone around a dead rail.
    """
    known: dict[tuple[str, str | None], tuple[list[Load], str]] = {}
    foreign = _foreign(told, readings, nics)

    def at_end(node: str, rail: str | None) -> tuple[list[Load], str]:
        if (node, rail) not in known:
            mine = [n for n in nics.get(node, ()) if rail is None or n.rail in rail.split(">")]
            both = readings.get(node, (NodeCounters(), NodeCounters()))
            known[node, rail] = (
                [*foreign.get(node, ()), *_loads(node, both, mine)],
                _strays(node, both, mine, nics),
            )
        return known[node, rail]

    def told_of(m: Measurement) -> Measurement:
        ends = [at_end(node, m.rail) for node in m.nodes] if over_nics(m) else []
        new: dict[str, object] = {}
        if loads := [load for of_end, _ in ends for load in of_end]:
            new["loaded"] = tuple(loads[:16])
        if (strays := "; ".join(filter(None, (one for _, one in ends)))) and m.problem is None:
            new["problem"] = RunProblem(kind="environment", message=strays[:2000])
        return m.model_copy(update=new) if new else m

    return [one.of(map(told_of, one.measurements)) for one in told]


def _foreign(
    told: Sequence[Told], readings: Mapping[str, Both], nics: Mapping[str, Nics]
) -> dict[str, list[Load]]:
    """Return by node what others sent over an interface of the job: bytes that no output explains.

    Of TCP alone: the octets of an interface leave RDMA out.
    """
    implied: dict[tuple[str, str], float] = defaultdict(float)
    for node, over, sent, received in (moved for one in told for moved in one.moved):
        implied[node, over or ""] += max(sent, received)
    # Of doubling, each step a message as long as the first.
    steps = 1 + math.ceil(math.log2(max(2, len({node for node, _ in implied}))))
    found: dict[str, list[Load]] = defaultdict(list)
    for (node, over), own in implied.items():
        for nic in nics.get(node, ()):
            if isinstance(nic, NicSpec) or over not in (nic.rail, nic.netdev):
                continue
            most = max(grown(nic, *readings.get(node, (NodeCounters(), NodeCounters()))))
            if most - _MOST_OF_ONES_OWN * steps * own >= _FOREIGN_BYTES:
                what = f"carried {amount(most)}, of which the job explains {amount(own)}"
                said = BLAMES["busy-nic"].told(node=node, what=f"{nic.netdev} ({nic.rail}) {what}")
                found[node].append(Load(node=node, said=printable(said)[:500], most=1 - own / most))
    return found


# Headers, warm-up and repeats come on top of what a job's outputs imply at least; and what is worth a word.
_MOST_OF_ONES_OWN, _FOREIGN_BYTES = 4, 1e8


def _loads(node: str, both: Both, nics: Nics) -> Iterator[Load]:
    """Yield what else was at work on the CPUs that serve these NICs of a node; on all if none says which."""
    first, last = both[0].host, both[1].host
    if first is None or last is None or last.at_s - first.at_s < _SHORTEST_S:
        return
    serve = {cpu for nic in nics for cpu in last.serve.get(nic.netdev, ())} or set(range(last.cpus))
    devices = {nic.rdma_device for nic in nics if isinstance(nic, NicSpec)}
    for most, what in (*_programs(first, last, serve, devices), *_machine(first, last, serve)):
        said = printable(BLAMES["busy-cpus"].told(node=node, what=what))
        yield Load(node=node, said=said[:500], most=min(1.0, _COSTS * most))


def _programs(
    first: HostReading, last: HostReading, serve: set[int], devices: set[str]
) -> Iterator[tuple[float, str]]:
    passed_s = last.at_s - first.at_s
    before = {(one.pid, one.began): one.cpu_s for one in first.others or ()}
    # One that the first list was too full for had used no more than the last in it.
    unlisted_s = min(before.values()) if len(before) >= MOST_OTHERS else 0.0
    took: list[tuple[float, OtherProcess]] = []
    for one in last.others or ():
        used_s = one.cpu_s - before.get((one.pid, one.began), unlisted_s)
        if not 0 <= used_s <= last.cpus * (passed_s + _SHORTEST_S):
            continue  # no process does that
        share = used_s / passed_s
        pairs = {d for reading in (first, last) for d in reading.queue_pairs.get(str(one.pid), ())}
        if (on_nic := devices & pairs) and share >= _OF_A_CPU:
            yield 1, f"{_who(one)} has queue pairs on {', '.join(sorted(on_nic))} and used {share:.1f} CPUs"
        else:
            where = cpu_set(one.cpus) or serve
            took.append((share * len(where & serve) / len(where), one))
    all_of_them = sum(share for share, _ in took)
    if all_of_them >= max(_LEAST_CPUS, _LEAST_SHARE * len(serve)):
        took.sort(key=lambda one: -one[0])
        names = " and ".join(_who(one) for _, one in took[:_MOST_NAMED])
        yield all_of_them, f"{names} took {all_of_them:.1f} of its {len(serve)} CPUs"


def _who(one: OtherProcess) -> str:
    return f"{one.name!r} of {'root' if one.uid == 0 else f'user {one.uid}'} (process {one.pid})"


def _machine(first: HostReading, last: HostReading, serve: set[int]) -> Iterator[tuple[float, str]]:
    for who, was, now in (
        ("the machine below kept back", first.stolen_ms, last.stolen_ms),
        ("heat slowed down", first.hot_ms, last.hot_ms),
    ):
        ms = {cpu: now[cpu] - was.get(cpu, 0) for cpu in now if int(cpu) in serve}
        worst = max(ms, key=lambda cpu: ms[cpu], default="")
        share = ms.get(worst, 0) / 1000 / (last.at_s - first.at_s)
        if share >= _KEPT_BACK:
            yield share, f"{who} CPU {worst} for {share:.0%} of the time"


def _changes(reading: NodeCounters, nic: NicSpec | TcpPath) -> int | None:
    """Return how often a link went up or down; of releases before 0.3, how often down."""
    if reading.host and nic.netdev in reading.host.carriers:
        return reading.host.carriers[nic.netdev]
    counters = reading.devices.get(nic.rdma_device, {}) if isinstance(nic, NicSpec) else {}
    return counters.get("netdev.carrier_down_count")


def _mute_to(
    nic: NicSpec | TcpPath, told: Iterable[Mapping[Any, str]], rails: Mapping[str, Nics]
) -> Iterator[str]:
    """Yield the nodes that answered this one on other rails, each time it asked, and never on this."""
    answered = [(way.get("to", ""), way.get("rail", "")) for way in told]
    for to in dict.fromkeys(to for to, _ in answered):
        others = [rail for of, rail in answered if of == to]
        there = any(end.rail == nic.rail for end in rails.get(to, ()))
        if there and nic.rail not in others and any(others.count(rail) == _TIMES_ASKED for rail in others):
            yield to


_TIMES_ASKED = 2  # before the job and after it


def _strays(node: str, both: Both, nics: Nics, rails: Mapping[str, Nics]) -> str:
    """Say how a node sent otherwise than planned on these NICs, and what was not up all along."""
    words = dict[str, None]()
    for nic in nics:
        of = {"node": node, "netdev": nic.netdev, "rail": nic.rail}
        for one in (one for reading in both if reading.host for one in reading.host.astray):
            if one.get("rail") == nic.rail:
                to = one.get("to")
                blame = BLAMES["way-strays" if to else "interface"]
                words[blame.told(**of, words=one.get("words", ""), owner=to)] = None
        was, now = (_changes(reading, nic) for reading in both)
        if was is not None and now is not None and now > was:
            words[BLAMES["link-changed"].told(**of, times=now - was)] = None
        asked = [reading.host.answered if reading.host else None for reading in both]
        if asked[0] is None or asked[1] is None:
            continue
        for gone in (way for way in asked[0] if way.get("rail") == nic.rail and way not in asked[1]):
            words[BLAMES["rail-died"].told(**of, owner=gone.get("to"))] = None
        was_long, is_long = (reading.host.answered_long if reading.host else None for reading in both)
        for way in (way for way in was_long or () if way.get("rail") == nic.rail and way in asked[1]):
            if is_long is not None and way not in is_long:
                words[BLAMES["long-died"].told(**of, owner=way.get("to"))] = None
        for owner in _mute_to(nic, asked[0] + asked[1], rails):
            words[BLAMES["rail-mute"].told(**of, owner=owner)] = None
    return printable("; ".join(words))
