"""The counters of NICs over each job, and of switches over each stage, from what was read before and after.

A reading that is damaged or of another time costs its own cells: they get no value, and the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

from shakedown.benchmarks.registry import JOB_KINDS
from shakedown.collect.outputs import without_place
from shakedown.evidence.window import CLOCKS_S, Window, job_window, longer_than, moment
from shakedown.intent.site import NicSpec
from shakedown.nics.counter_sets import UNTRUSTED, lacking, unwrapped
from shakedown.nics.families import family_of
from shakedown.nics.rates import TWICE, arrived_twice, end_to_end, ethtool_stood_still, rates
from shakedown.nos.readings import SwitchReading, load_reading, port_name, readings
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.base import Better, Stage
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput
from shakedown.records.results import CounterReading, JobRecord, Measurement, RunProblem
from shakedown.run.nic_counters import About, NodeCounters, counters_file, read_counters

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


WHEN = ("before", "after")
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
        found[node] = NOT_READ if node in flaws else (both[0], both[1])
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


def dead_nodes(job_folder: Path, spec: JobSpec) -> Collection[str]:
    """Return which nodes died in a job; where nothing can tell any more, each may have."""
    kind = JOB_KINDS.get(spec.kind)
    try:
        return (kind.lost_nodes(job_folder, spec.nodes) or ()) if kind and kind.lost_nodes else ()
    except (BadInput, OSError):
        return spec.nodes


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


def switch_counters(
    plan: Plan, folder: Path, windows: Mapping[Stage, Window], nics: Mapping[str, tuple[NicSpec, ...]]
) -> tuple[list[CounterReading], list[Measurement]]:
    """Return every switch's counters over each stage, from `raw/switches.STAGE/SWITCH.{before,after}.json`.

    And, without values, the cells of switches whose readings are damaged, of another time or cabling, or not
    there although the stage had jobs.
    """
    ends = {(nic.leaf, nic.leaf_port): (node, nic.netdev) for node, own in nics.items() for nic in own}
    lines: list[CounterReading] = []
    spoiled: list[Measurement] = []
    for stage in Stage:
        of_stage = folder / "raw" / f"switches.{stage}"
        read: set[str] = set()
        # A link leads to what is not this run's: its switches were not read.
        for after in () if of_stage.is_symlink() else sorted(of_stage.glob("*.after.json")):
            name = after.name.removesuffix(".after.json")
            before = after.with_name(f"{name}.before.json")
            if not before.exists():
                continue  # told below
            read.add(name)
            raw = str(after.relative_to(folder))
            try:
                first, last = load_reading(before), load_reading(after)
                if odd := misplaced(plan, stage, first, last, windows) or _cabled_otherwise(last, ends):
                    flaw = RunProblem(kind="other", message=odd)
                else:
                    lines += readings(first, last, run=plan.run, stage=stage, test="switches", raw=raw)
                    continue
            except (BadInput, OSError) as refused:
                flaw = RunProblem(kind="parse", message=without_place(folder, refused))
            spoiled += uncounted(plan, stage, "switches", name, flaw)
        for name in sorted(_switches(plan, stage) - read) if stage in windows else ():
            unread = f"{name} was not read before and after the {stage.value} stage: could it be reached?"
            flaw = RunProblem(kind="not-run", message=unread)
            spoiled += uncounted(plan, stage, "switches", name, flaw)
    return lines, spoiled


def _switches(plan: Plan, stage: Stage) -> set[str]:
    """Return the switches whose counters over a stage are planned."""
    return {
        switch
        for item in plan.items
        if item.stage == stage and item.test == "switches" and item.metric.startswith("counter.")
        for (switch,) in item.nodes
    }


def _cabled_otherwise(
    reading: SwitchReading, ends: Mapping[tuple[str | None, str | None], tuple[str, str]]
) -> str:
    """Return where a switch's reading has another NIC at a port than the plan; empty if nowhere.

    What it counts there would be told of the wrong node.
    """
    for cable in reading.cabling:
        node, netdev = ends.get((reading.switch, port_name(cable.port)), (cable.host, cable.netdev))
        if (node, netdev) != (cable.host, cable.netdev):
            at = f"{reading.switch} {cable.port}"
            return f"the reading has {cable.host}/{cable.netdev} at {at}, the plan has {node}/{netdev}"
    return ""


def misplaced(
    plan: Plan, stage: Stage, before: SwitchReading, after: SwitchReading, windows: Mapping[Stage, Window]
) -> str:
    """Return why a switch's two readings are not those around a stage; empty if they are.

    The first is read before the stage's first job, which may wait in the queue for hours, and never before
    the run was planned; the second when the last job has ended, and before the next stage's jobs begin.
    """
    window = windows.get(stage)
    if window is None or window.begin is None or window.end is None:
        return ""
    slack = CLOCKS_S
    planned = moment(plan.created)
    ladder = list(Stage)
    later = [windows[s].begin for s in ladder[ladder.index(stage) + 1 :] if s in windows]
    earlier = [windows[s].end for s in ladder[: ladder.index(stage)] if s in windows]
    from_time = max([t for t in (planned, *earlier) if t is not None], default=None)
    until = min([t for t in later if t is not None], default=None)
    for one, lower, upper in ((before, from_time, window.begin), (after, window.end, until)):
        at = moment(one.taken)
        if at is None:
            return (
                f"{one.switch}: the reading {one.when} the stage is of {one.taken[:40]!r}, which is no time"
            )
        too_early = lower is not None and (lower - at).total_seconds() > slack
        too_late = upper is not None and (at - upper).total_seconds() > slack
        if too_early or too_late:
            return f"{one.switch}: {window.says(at, f'reading {one.when} the stage')}"
    return ""


def without_the_idle(
    plan: Plan, counters: list[CounterReading], measurements: Iterable[Measurement]
) -> list[CounterReading]:
    """Return the readings without those that must show traffic, at ends over which nothing was measured.

    A silent NIC or port whose partner is dead is no finding: such a reading is left out, its cell not run.
    """
    busy = {
        (m.stage, node, rail)
        for m in measurements
        if m.value is not None and m.rail
        for node in m.nodes
        for rail in m.rail.split(">")
    }
    floors = {
        (item.stage, item.metric.removeprefix("counter."))
        for item in plan.items
        if item.metric.startswith("counter.") and item.better is Better.HIGHER
    }
    return [
        reading
        for reading in counters
        if (reading.stage, reading.counter) not in floors
        or (reading.stage, _node(reading), reading.rail or "") in busy
    ]


def _node(reading: CounterReading) -> str:
    """Return the node at which a counter counts: its own, or the one cabled to the switch port."""
    return reading.device if reading.kind == "nic" else (reading.peer or "").partition("/")[0]
