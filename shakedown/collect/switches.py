"""The counters of switches over each stage, from what was read before its first job and after its last.

A reading that is damaged or of another time costs its own cells: they get no value, and the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from shakedown.collect.counters import MISSING_SHARE
from shakedown.collect.outputs import Told, without_place
from shakedown.evidence.window import CLOCKS_S, Window, moment
from shakedown.nos.readings import SwitchReading, load_reading, port_name, readings
from shakedown.nos.system import LOST
from shakedown.records.base import Better, NicSpec, Stage
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput
from shakedown.records.results import CounterReading, Measurement, RunProblem

SWITCHES = "switches"  # the test under which they stand
Unread = tuple[Stage, str, RunProblem]  # a stage, a switch, and why that has no reading of it


def switch_counters(
    plan: Plan, folder: Path, windows: Mapping[Stage, Window], nics: Mapping[str, tuple[NicSpec, ...]]
) -> tuple[list[CounterReading], list[Unread]]:
    """Return every switch's counters over each stage, from `raw/switches.STAGE/SWITCH.{before,after}.json`.

    And of which switches a stage has no reading, and why: it is damaged, of another time or cabling, or not
    there although the stage had jobs.
    """
    ends = {(nic.leaf, nic.leaf_port): (node, nic.netdev) for node, own in nics.items() for nic in own}
    lines: list[CounterReading] = []
    unread: list[Unread] = []
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
                    lines += readings(first, last, run=plan.run, stage=stage, test=SWITCHES, raw=raw)
                    continue
            except (BadInput, OSError) as refused:
                flaw = RunProblem(kind="parse", message=without_place(folder, refused))
            unread.append((stage, name, flaw))
        for name in sorted(_switches(plan, stage) - read) if stage in windows else ():
            lacking = f"{name} was not read before and after the {stage.value} stage: could it be reached?"
            unread.append((stage, name, RunProblem(kind="not-run", message=lacking)))
    return lines, unread


def _switches(plan: Plan, stage: Stage) -> set[str]:
    """Return the switches whose counters over a stage are planned."""
    return {
        switch
        for item in plan.items
        if item.stage == stage and item.test == SWITCHES and item.metric.startswith("counter.")
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


# A switch that is restarted in the middle of a stage, or whose counters are cleared, counts from zero again,
# and what it dropped before is gone. A counter below its old value shows it; one that grew past it does not.
# The payload that went over a host's port must be among the port's bytes: headers, retransmissions and other
# traffic only add to it (docs/decisions/ordered-work.md).

StageEnd = tuple[Stage, str, str | None]  # a stage, and a node with its rail
# What a switch's port receives the node sent.
_COUNTERS = ("rx_bytes", "tx_bytes")


def implied(told: Iterable[tuple[Stage, Told]]) -> dict[StageEnd, list[float]]:
    """Return the payload, in bytes, that each end sent and received by outputs that are evidence."""
    found: dict[StageEnd, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for stage, one in told:
        if not any(measurement.problem for measurement in one.measurements):
            for node, rail, sent, received in one.moved:
                found[stage, node, rail][0] += sent
                found[stage, node, rail][1] += received
    return found


def set_back(
    lines: Sequence[CounterReading], moved: Mapping[StageEnd, Sequence[float]]
) -> list[CounterReading]:
    """Return the lines of switches; those of a port that counted less than was moved say it began anew."""
    counted: dict[StageEnd, list[float]] = defaultdict(lambda: [0.0, 0.0])
    unknown: set[StageEnd] = set()
    for line in lines:
        if line.counter in _COUNTERS and (end := _end(line)) in moved:
            if line.delta is None:
                unknown.add(end)
            else:
                counted[end][_COUNTERS.index(line.counter)] += line.delta
    short = {
        end
        for end, has in counted.items()
        if end not in unknown
        and any(got < (1 - MISSING_SHARE) * due for got, due in zip(has, moved[end], strict=True))
    }
    of_rails = {(line.stage, line.device, line.rail) for line in lines if _end(line) in short}
    return [
        line.model_copy(update={"began_anew": True})
        if _end(line) in short or (line.counter == LOST and (line.stage, line.device, line.rail) in of_rails)
        else line
        for line in lines
    ]


def _end(line: CounterReading) -> StageEnd:
    return line.stage, (line.peer or "").partition("/")[0], line.rail


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
