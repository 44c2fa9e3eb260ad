"""The counters of NICs over each job, read before and after it, and the outputs that they bear out.

A reading that is damaged or of another time costs its own cells: they get no value, and the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from shakedown.benchmarks.base.contract import TcpPath
from shakedown.collect.outputs import Told, without_place
from shakedown.evidence.job_folder import dead_nodes
from shakedown.evidence.window import Window, job_window, longer_than, moment
from shakedown.nics.counter_sets import UNTRUSTED, lacking, unwrapped
from shakedown.nics.families import family_of
from shakedown.nics.rates import (
    TWICE,
    arrived_twice,
    bytes_moved,
    counts_rdma_bytes,
    end_to_end,
    ethtool_stood_still,
    rates,
)
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.base import NicSpec, Stage
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput
from shakedown.records.results import CounterReading, JobRecord, Measurement, RunProblem
from shakedown.run.nic_counters import (
    WHEN,
    About,
    NodeCounters,
    counters_file,
    read_counters,
    without_impossible,
)

# Of which sources a counter is worked out (nics/rates.py); any other is of its own.
_WORKED_OUT_OF = {
    "module.": ("dom.",),
    "phy.": ("ethtool.", "fec."),
    "pause.": ("ethtool.", "rdma."),
    "class.": ("ethtool.", "rdma."),
    "link.": ("ethtool.",),
    "twice.": ("ethtool.", "rdma."),
}
Pair = tuple[int | None, int | None]


def unread_counters(
    told: Mapping[str, Pair],
    planned: Callable[[], Iterable[str]],
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> dict[str, str]:
    """Return the counters that could not be read before a test, after it or both times, and why.

    One that neither reading has is of those if both could not read what it comes from: a reading that had all
    of it would have shown that this NIC has no such counter.

    Args:
        told: every counter of a NIC before and after the test; None: it has no value.
        planned: returns those that the plan judges; asked only if something could not be read both times.
        before: what the reading before the test could not have, by counter or source, and why.
        after: the same of the reading after it.
    """
    found: dict[str, str] = {}
    if not before and not after:
        return found
    for name, (first, last) in told.items():
        both = last is None and _prefix(name) in _WORKED_OUT_OF  # of both readings
        lacking = [unread for unread, value in ((before, first), (after, last)) if value is None or both]
        if why := next(filter(None, (_why(name, unread) for unread in lacking)), ""):
            found[name] = why
    if before and after:
        for name in planned():
            if name not in told and _why(name, before) and (why := _why(name, after)):
                found[name] = why
    return found


def _why(name: str, unread: Mapping[str, str]) -> str:
    """Return why a counter could not be read; empty if the reading does not say that it could not."""
    if name in unread:
        return unread[name]
    prefix = _prefix(name)
    if prefix not in _WORKED_OUT_OF:
        return unread.get(prefix, "")
    sources = _WORKED_OUT_OF[prefix]
    return next((why for what, why in sorted(unread.items()) if what.startswith(sources)), "")


def _prefix(name: str) -> str:
    return name.partition(".")[0] + "."


def planned_counters(plan: Plan, stage: Stage, test: str) -> Callable[[str, str], Iterable[str]]:
    """Return what tells, by node and RDMA device, the counters that the plan judges over a test.

    The plan is looked through once, when something is asked: a large site asks for all its NICs, or none.
    """

    @cache
    def by_nic() -> Mapping[tuple[str, object], list[str]]:
        found: dict[tuple[str, object], list[str]] = defaultdict(list)
        for item in plan.items:
            if item.metric.startswith("counter.") and (item.stage, item.test) == (stage, test):
                for node, *others in item.nodes:
                    if not others:  # a counter is one node's
                        found[node, item.params.get("port")].append(item.metric.removeprefix("counter."))
        return found

    return lambda node, device: by_nic().get((node, device), ())


# How long a node's NICs were read, both times, in ms: what the reading adds to the job.
OVERHEAD = "reading.both_ms"
NodeReadings = dict[str, tuple[NodeCounters, NodeCounters]]
NOT_READ = (NodeCounters(), NodeCounters())


def read_nodes(
    job_folder: Path,
    job: JobRecord,
    nodes: Iterable[str],
    clocks: Mapping[str, float] | None = None,
    nics: Mapping[str, tuple[NicSpec, ...]] | None = None,
) -> tuple[NodeReadings, dict[str, RunProblem]]:
    """Return what each node's NICs counted before and after a job, and why a node's readings are no evidence.

    Such a node, like one that was not read, has empty readings. `clocks`: as for `told_by`; `nics`: those of
    each node that are under test.
    """
    window = job_window(job)
    found: NodeReadings = {}
    flaws: dict[str, RunProblem] = {}
    for node in nodes:
        both: list[NodeCounters] = []
        for when in WHEN:
            file = job_folder / counters_file(node, when)
            try:
                both.append(read_counters(file))
            except (BadInput, OSError) as refused:
                flaws[node] = RunProblem(kind="parse", message=without_place(job_folder, refused))
                break
            if stale := _of_another_time(both[-1], window, (clocks or {}).get(node, 0.0)):
                flaws[node] = RunProblem(kind="other", message=f"{file.name}: {stale}")
        if node not in flaws and (odd := _contradiction(both[0], both[1], job, (nics or {}).get(node, ()))):
            flaws[node] = RunProblem(kind="other", message=f"{counters_file(node, 'after')}: {odd}")
        found[node] = NOT_READ if node in flaws else (both[0], without_impossible(*both))
    return found, flaws


def _contradiction(before: NodeCounters, after: NodeCounters, job: JobRecord, nics: Iterable[NicSpec]) -> str:
    """Return how a node's two readings contradict each other or the plan; empty if they do not."""
    first, last = moment(before.taken or ""), moment(after.taken or "")
    if first is not None and last is not None and last < first:
        return f"read at {after.taken}, before the reading before the job, of {before.taken}"
    if first is not None and last is not None and longer_than(job, (last - first).total_seconds()):
        return f"read at {before.taken} and {after.taken}, the whole job took {job.duration_s:.6g} s"
    own = {nic.rdma_device: nic.netdev for nic in nics}
    for device, about in after.about.items():
        earlier = before.about.get(device)
        # A clock that never steps starts anew with the node alone.
        if (
            earlier is not None
            and None not in (earlier.read_at_s, about.read_at_s)
            and about.read_at_s < earlier.read_at_s  # type: ignore[operator]
            and before.boot_id == after.boot_id
        ):
            return f"{device} was read before the reading before the job, by the clock that never steps"
        for one in (earlier, about):
            # A bond or a VLAN may have another name than the plan's. Another NIC's name is that NIC.
            name = one.netdev if one is not None else None
            other = next((d for d, netdev in own.items() if netdev == name and d != device), None)
            if other and own.get(device, name) != name:
                return f"says that {device} is {name}, which is {other} by the plan"
    return ""


def _of_another_time(reading: NodeCounters, window: Window, ahead_s: float) -> str:
    """Return why a node's reading does not belong to its job; empty if it does, or if it holds nothing.

    All releases write when they read: without it, a reading may be any other job's.
    """
    if reading.taken is None and reading.devices and window.begin is not None:
        return "it does not say when it was read, so that it may be of another job"
    return window.misses(reading.taken, ahead_s=[ahead_s])


def counted(
    plan: Plan, jobs: Jobs, job_folder: Path, job: JobRecord, spec: JobSpec, test: str, readings: NodeReadings
) -> list[CounterReading]:
    """Return one line for every counter that a job's NICs have in these readings."""
    lines: list[CounterReading] = []
    anew = {
        (node, nic.rdma_device)
        for node, (before, after) in readings.items()
        for nic in jobs.nics.get(node, ())
        if before.began_anew(after, nic.rdma_device)
    }
    # Whoever was talking to a node that died has lost packets for it, and is not to be blamed.
    bereaved = bool(anew) or bool(dead_nodes(job_folder, spec))
    planned = planned_counters(plan, job.stage, test)
    found = {
        (node, nic.rdma_device): nic_readings(before, after, nic, began_anew=(node, nic.rdma_device) in anew)
        for node, (before, after) in readings.items()
        for nic in jobs.nics.get(node, ())
        if nic.rdma_device in before.devices and nic.rdma_device in after.devices
    }
    # A rail is a network of its own where the job's settings say that nothing goes from one to another.
    rails = {str(rail) for rail in spec.settings.get("rails", ())}
    by_rail = bool(rails) and not any(">" in rail for rail in rails)
    among = {
        (node, nic.rdma_device): nic.rail if by_rail else ""
        for node in spec.nodes
        for nic in jobs.nics.get(node, ())
        if not by_rail or nic.rail in rails
    }
    for of, ppm in ({} if bereaved else arrived_twice(found, among)).items():
        found[of][TWICE] = 0, ppm
    for node, (before, after) in readings.items():
        for nic in jobs.nics.get(node, ()):
            if (node, nic.rdma_device) not in found:
                continue  # planned and absent: the verdict says NOT-RUN
            began_anew = (node, nic.rdma_device) in anew
            told = found[node, nic.rdma_device]
            unread = {}
            if not began_anew:
                about = (before.about.get(nic.rdma_device), after.about.get(nic.rdma_device))
                asked = partial(planned, node, nic.rdma_device)
                unread = unread_counters(told, asked, *(one.unread if one else {} for one in about))
                told |= dict.fromkeys(unread.keys() - told.keys(), (None, None))
            for name, (was, now) in sorted(told.items()):
                if bereaved and end_to_end(name) and not began_anew:
                    continue
                lines.append(
                    CounterReading(
                        run=plan.run,
                        stage=job.stage,
                        test=test,
                        kind="nic",
                        device=node,
                        port=nic.rdma_device,
                        rail=nic.rail,
                        counter=name,
                        before=was,
                        peer=f"{nic.leaf}/{nic.leaf_port}" if nic.leaf else None,
                        after=now,
                        began_anew=began_anew,
                        unread=unread.get(name),
                        job=job.job,
                        raw=f"raw/{job_folder.name}/{counters_file(node, 'after')}",
                    )
                )
    return lines


def nic_readings(
    before: NodeCounters, after: NodeCounters, nic: NicSpec, *, began_anew: bool
) -> dict[str, tuple[int | None, int | None]]:
    """Return every counter of a NIC before and after a test, and what is worked out of them.

    A counter that the driver always reports and that a reading lacks was cut off or could not be read: it
    stands there without a value, so that its cell is INCONCLUSIVE; so do ethtool's counters where they stood
    still while RDMA moved bytes. One of few bits that went over its end is told as if it had more.
    """
    device = nic.rdma_device
    first, last = before.devices[device], after.devices[device]
    was, now = before.about.get(device, About()), after.about.get(device, About())
    # Soft-RoCE's driver is that of the network device below it, or none. Readings of old did not say any.
    family = (
        family_of(now.driver, device) or family_of(nic.driver, device) if now.driver is not None else None
    )
    untrusted = UNTRUSTED.get(family.name, frozenset()) if family else frozenset()
    first, last = (
        {name: n for name, n in counters.items() if name not in untrusted} for counters in (first, last)
    )
    if ethtool_stood_still(first, last):
        last = {name: n for name, n in last.items() if not name.startswith("ethtool.")}
    if not began_anew:
        last = {name: unwrapped(family, name, first.get(name, n), n) for name, n in last.items()}
    found: dict[str, tuple[int | None, int | None]] = {
        name: (first.get(name), last.get(name)) for name in first.keys() | last.keys()
    }
    if family is not None:
        for counters in (first, last):
            found |= dict.fromkeys(lacking(family, counters), (None, None))
    if was.read_at_s is not None and now.read_at_s is not None and not began_anew:
        # While a link is down it has no speed.
        speed = next((n for n in (now.speed_mbps, was.speed_mbps) if n and n > 0), None)
        told = rates(first, last, now.read_at_s - was.read_at_s, speed)
        found |= {name: (0, value) for name, value in told.items()}
    if before.took_s is not None and after.took_s is not None:
        found[OVERHEAD] = 0, round(1000 * (before.took_s + after.took_s))
    return found


def uncounted(
    plan: Plan, stage: Stage, test: str, device: str, problem: RunProblem, *, job: JobRecord | None = None
) -> Iterator[Measurement]:
    """Yield the planned counters of a node or switch without values, with the reason."""
    for item in plan.items:
        if item.stage != stage or item.test != test or not item.metric.startswith("counter."):
            continue
        for _, nodes, rail, direction in item.cells():
            if nodes == (device,):
                yield Measurement(
                    run=plan.run,
                    stage=stage,
                    test=test,
                    metric=item.metric,
                    value=None,
                    unit=item.unit,
                    better=item.better,
                    nodes=nodes,
                    rail=rail,
                    direction=direction,
                    params=item.params,
                    job=job.job if job else None,
                    state=job.state if job else "COMPLETED",
                    attempt=job.attempt if job else 1,
                    problem=problem,
                )


# An output can be made up, or be that of a wrapper that did less. The payload which it implies must have
# gone through the NICs at its ends: headers and retransmissions only add to it
# (docs/decisions/ordered-work.md).

# The share of the implied payload that the counters may lack: NICs refresh them now and then (mlx5 once a
# second), so the last reading may miss the end of a job.
MISSING_SHARE = 0.05

End = tuple[str, str | None]  # a node, and over what (`Moved`); None: all of its NICs


def confirmed(
    told: Sequence[Told],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    unread: Mapping[str, RunProblem],
    nics: Mapping[str, tuple[NicSpec, ...]],
    rails: Mapping[str, tuple[NicSpec | TcpPath, ...]],
) -> list[Told]:
    """Return what a job's outputs say, with a problem for those that the NICs' counters do not bear out.

    An output is borne out when an end's counters can tell and none of them contradicts it. Nothing is asked
    of outputs that imply no traffic, or of nodes without NICs. Such a problem makes a cell undecided, never
    bad: it is the evidence that is at fault.
    """
    implied: dict[End, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in told:
        for node, over, sent, received in one.moved:
            implied[node, over][0] += sent
            implied[node, over][1] += received
    short = {end: _short(end, sums, readings, unread, nics) for end, sums in implied.items()}
    for (node, over), (tells, why) in short.items():
        if tells and over and (beside := _beside(node, over, implied, readings, rails)):
            short[node, over] = True, "; ".join(filter(None, (why, beside)))
    return [_held(one, short) for one in told]


def _held(one: Told, short: Mapping[End, tuple[bool, str]]) -> Told:
    ends = [short[node, over] for node, over, *_ in one.moved]
    against = [why for tells, why in ends if tells and why]
    silent = [why for tells, why in ends if not tells]
    if against:
        message = against[0]
    elif ends and len(silent) == len(ends) and silent[0]:
        message = f"no counter confirms what this output says: {silent[0]}"
    else:
        return one
    problem = RunProblem(kind="other", message=message[:2000])
    held = tuple(
        m
        if m.problem or one.check not in ("", m.params.get("check"))
        else m.model_copy(update={"problem": problem})
        for m in one.measurements
    )
    return replace(one, measurements=held)


def _short(  # noqa: PLR0911  (one return per reason reads best)
    end: End,
    sums: Iterable[float],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    unread: Mapping[str, RunProblem],
    nics: Mapping[str, tuple[NicSpec, ...]],
) -> tuple[bool, str]:
    """Return whether an end's counters can tell what it moved, and what speaks against it, or why not."""
    node, over = end
    where = f"{node} {over}" if over else node
    mine = nics.get(node, ())
    devices = [nic.rdma_device for nic in mine if over in (None, nic.rail, nic.rdma_device, nic.netdev)]
    before, after = readings.get(node, (NodeCounters(), NodeCounters()))
    if not devices:
        # None of those under test: of an interface that is named its own bytes tell, of all others nothing.
        first_of, last_of = (
            (one.host.octets.get(over or "") if one.host else None) for one in (before, after)
        )
        if first_of is None or last_of is None:
            return False, ""
        grown = (last_of[1] - first_of[1], last_of[0] - first_of[0])
        less = _less(sums, grown)
        return True, f"{where}: by the outputs of this job it {' and '.join(less)}" if less else ""
    if node in unread:
        return False, unread[node].message
    counted, all_tell = [0, 0], True
    for device in devices:
        first, last = before.devices.get(device), after.devices.get(device)
        if first is None or last is None:
            return False, f"{where}: the counters of {device} were not read before and after the job"
        if before.began_anew(after, device):
            return False, f"{where}: the counters of {device} count from zero again"
        moved = bytes_moved(first, last)
        counted = [total + more for total, more in zip(counted, moved, strict=True)]
        all_tell = all_tell and counts_rdma_bytes(first) and counts_rdma_bytes(last)
    lacking = _less(sums, counted)
    if not lacking:
        return True, ""
    if not all_tell:
        return (
            False,
            f"{where}: the driver of {', '.join(devices)} has no counter of RDMA bytes that is known here",
        )
    return True, f"{where}: by the outputs of this job it {' and '.join(lacking)}"


def _beside(
    node: str,
    over: str,
    implied: Mapping[End, Sequence[float]],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    rails: Mapping[str, tuple[NicSpec | TcpPath, ...]],
) -> str:
    """Say which rail, of which no output tells, moved as much as this one must have, and one way alone.

    Rails that are joined, a neighbour's wrong entry and a rule for one protocol lead frames there. What
    others send beside the job goes both ways, or is another amount.
    """
    before, after = readings.get(node, (NodeCounters(), NodeCounters()))
    claimed = {end for of, end in implied if of == node}
    for nic in rails.get(node, ()):
        if not claimed.isdisjoint({nic.rail, nic.netdev, getattr(nic, "rdma_device", nic.netdev)}):
            continue
        found = grown(nic, before, after)
        for what, due, most, other in zip(
            ("sent", "received"), implied[node, over], found, found[::-1], strict=True
        ):
            alike = due >= _ENOUGH_TO_TELL and _ALIKE * due <= most <= due / _ALIKE
            if alike and other < (1 - _ALIKE) * most:
                return f"{node} {nic.netdev} ({nic.rail}) {what} {amount(most)}, of which no output tells"
    return ""


# Bytes of a job that a rail's daemons do not come near; how alike two amounts are, of which headers are a few
# per cent.
_ENOUGH_TO_TELL, _ALIKE = 1e6, 0.9


def grown(nic: NicSpec | TcpPath, before: NodeCounters, after: NodeCounters) -> tuple[int, int]:
    """Return the bytes that a NIC sent and received; 0 where nothing tells."""
    if isinstance(nic, NicSpec) and {nic.rdma_device} <= before.devices.keys() & after.devices.keys():
        return bytes_moved(before.devices[nic.rdma_device], after.devices[nic.rdma_device])
    first, last = ((one.host.octets.get(nic.netdev) if one.host else None) for one in (before, after))
    return (0, 0) if first is None or last is None else (last[1] - first[1], last[0] - first[0])


def _less(sums: Iterable[float], counted: Iterable[int]) -> list[str]:
    """Return in words where less was counted than was claimed, of what was sent and of what was received."""
    return [
        f"{what} {amount(claimed)}, the NIC counted {amount(found)}"
        for what, claimed, found in zip(("sent", "received"), sums, counted, strict=True)
        if found < (1 - MISSING_SHARE) * claimed
    ]


def amount(count: float) -> str:
    """Write a number of bytes with three digits."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
