"""What else a node's CPUs did while its NICs were measured, and how the NICs stand in it.

A program on the CPUs that serve a NIC makes a good NIC slow, and no counter of the NIC or its port tells of
it. What was at work beside a value can only have made it worse: within its reference it passes all the same,
outside it decides nothing (docs/decisions/busy-meanwhile.md). How a NIC stands is told beside what failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shakedown.collect.outputs import Told
from shakedown.intent.site import NicSpec
from shakedown.onnode.pin import cpu_set
from shakedown.records.results import Measurement, RunProblem
from shakedown.records.wording import BLAMES, printable
from shakedown.run.nic_counters import HostReading, NicPlace, NodeCounters, OtherProcess

# Of the CPUs that serve a NIC, others took half of one, and a tenth of all: less goes on on every node.
_LEAST_CPUS, _LEAST_SHARE = 0.5, 0.1
_OF_A_CPU = (
    0.25  # a program that polls a NIC for others takes more of one CPU; one that waits takes next to none
)
_STOLEN, _HOT = 0.05, 0.05  # shares of the time
# An interrupt that comes so often a second, and takes so much of a CPU, is a storm.
_STORM_PER_S, _STORM_SHARE = 50_000, 0.1
_SHORTEST_S = 1.0
_MOST_NAMED = 2
Both = tuple[NodeCounters, NodeCounters]


def is_rate(m: Measurement) -> bool:
    """Whether busy CPUs can make a value worse: a rate or a time, and no count of what is wrong."""
    return "/" in m.unit or m.unit in ("s", "ms", "us", "min")


def beside_others(
    told: Sequence[Told], readings: Mapping[str, Both], nics: Mapping[str, tuple[NicSpec, ...]]
) -> list[Told]:
    """Return what a job's outputs say, with what else was at work at each value's ends, and why ways stray.

    A way that strays leaves a value undecided: what passed may have gone around a dead rail.
    """
    known: dict[tuple[str, str | None], tuple[str, str, str]] = {}

    def at_end(node: str, rail: str | None) -> tuple[str, str, str]:
        if (node, rail) not in known:
            mine = [n for n in nics.get(node, ()) if rail is None or n.rail in rail.split(">")]
            both = readings.get(node, (NodeCounters(), NodeCounters()))
            known[node, rail] = _load(node, both, mine), _stands(node, both, mine), _strays(node, both, mine)
        return known[node, rail]

    def told_of(m: Measurement) -> Measurement:
        ends = [at_end(node, m.rail) for node in m.nodes] if is_rate(m) else []
        load, stands, strays = (
            ("; ".join(filter(None, one)) for one in zip(*ends, strict=True)) if ends else ("",) * 3
        )
        new: dict[str, object] = {}
        if load:
            new["loaded"] = load[:500]
        if stands:
            new["detail"] = "; ".join(filter(None, (m.detail, stands)))[:1000]
        if strays and len(m.nodes) > 1 and m.problem is None:
            new["problem"] = RunProblem(kind="environment", message=strays[:2000])
        return m.model_copy(update=new) if new else m

    return [one.of(map(told_of, one.measurements)) for one in told]


def _load(node: str, both: Both, nics: Sequence[NicSpec]) -> str:
    """Say what else was at work on the CPUs that serve these NICs of a node; on all CPUs without NICs."""
    first, last = both[0].host, both[1].host
    if first is None or last is None or last.at_s - first.at_s < _SHORTEST_S:
        return ""
    devices = [nic.rdma_device for nic in nics]
    places = [place for device in devices if (place := last.nics.get(device))]
    serve = {cpu for place in places for cpu in (place.serve or place.beside)}
    serve = serve & set(map(int, last.cpus)) or set(map(int, last.cpus))
    words = [*_programs(first, last, serve, devices), *_machine(first, last, serve, places)]
    if not words:
        return ""
    return printable(BLAMES["busy-cpus"].told(node=node, what=", ".join(words)))


def _programs(
    first: HostReading, last: HostReading, serve: set[int], devices: Sequence[str]
) -> Iterator[str]:
    passed_s = last.at_s - first.at_s
    before = {(one.pid, one.began): one.cpu_s for one in first.others or ()}
    took: list[tuple[float, OtherProcess]] = []
    for one in last.others or ():
        share = (one.cpu_s - before.get((one.pid, one.began), 0.0)) / passed_s
        where = cpu_set(one.cpus) or serve
        on_nic = {*devices} & {
            *last.queue_pairs.get(str(one.pid), ()),
            *first.queue_pairs.get(str(one.pid), ()),
        }
        if on_nic and share >= _OF_A_CPU:
            yield f"{_who(one)} has queue pairs on {', '.join(sorted(on_nic))} and used {share:.1f} CPUs"
        else:
            took.append((share * len(where & serve) / len(where), one))
    all_of_them = sum(share for share, _ in took)
    if all_of_them >= max(_LEAST_CPUS, _LEAST_SHARE * len(serve)):
        took.sort(key=lambda one: -one[0])
        names = " and ".join(_who(one) for _, one in took[:_MOST_NAMED])
        yield f"{names} took {all_of_them:.1f} of its {len(serve)} CPUs"


def _who(one: OtherProcess) -> str:
    return f"{one.name!r} of {'root' if one.uid == 0 else f'user {one.uid}'} (process {one.pid})"


def _machine(
    first: HostReading, last: HostReading, serve: set[int], places: Sequence[NicPlace]
) -> Iterator[str]:
    passed_s = last.at_s - first.at_s
    grown = {
        int(cpu): [now - was for now, was in zip(ticks, first.cpus[cpu], strict=True)]
        for cpu, ticks in last.cpus.items()
        if cpu in first.cpus and int(cpu) in serve
    }
    every = sum(ticks[3] for ticks in grown.values())
    if every > 0 and (stolen := sum(ticks[2] for ticks in grown.values()) / every) >= _STOLEN:
        yield f"the machine below kept back {stolen:.0%} of the time of its CPUs"
    hot = {
        c: (ms - first.hot_ms.get(c, 0)) / 1000 / passed_s for c, ms in last.hot_ms.items() if int(c) in serve
    }
    if (worst := max(hot, key=lambda c: hot[c], default=None)) is not None and hot[worst] >= _HOT:
        yield f"heat slowed CPU {worst} down for {hot[worst]:.0%} of the time"
    own = {number for place in places for number in place.interrupts}
    taken = max((ticks[1] / ticks[3] for ticks in grown.values() if ticks[3] > 0), default=0.0)
    for number, (count, name) in last.interrupts.items():
        often = (count - first.interrupts.get(number, (0, ""))[0]) / passed_s
        if number not in own and often >= _STORM_PER_S and taken >= _STORM_SHARE:
            yield f"interrupt {number} ({name}) came {often:.0f} times a second, {taken:.0%} of a CPU's time"


def _stands(node: str, both: Both, nics: Sequence[NicSpec]) -> str:
    """Say what an ordinary user sees of how a node's NICs stand that makes them slow."""
    host, words = both[1].host or both[0].host, list[str]()
    for nic in nics:
        if host is None or (place := host.nics.get(nic.rdma_device)) is None:
            continue
        if " of " in place.pcie:
            words.append(f"the PCIe link of {nic.rdma_device} is {place.pcie}")
        if place.serve and place.beside and (far := sorted({*place.serve} - {*place.beside})):
            words.append(f"interrupts of {nic.rdma_device} come to CPU {far[0]}, which is not beside it")
    if host is not None and nics and host.iommu not in ("off", "identity"):
        words.append(f"its IOMMU translates ({host.iommu})")
    if host is not None and nics and host.others is None:
        words.append("who else is at work there is hidden (hidepid)")
    return printable(f"{node}: {', '.join(words)}") if words else ""


def _strays(node: str, both: Both, nics: Sequence[NicSpec]) -> str:
    """Say how a node's kernel sent otherwise than planned on these NICs' rails, before or after the job."""
    words = dict[str, None]()
    for nic in nics:
        for one in (one for reading in both if reading.host for one in reading.host.astray):
            if one.get("rail") == nic.rail:
                of = {"node": node, "netdev": nic.netdev, "rail": nic.rail, "words": one.get("words", "")}
                to = one.get("to")
                words[BLAMES["way-strays" if to else "interface"].told(**of, owner=to)] = None
    return printable("; ".join(words))
