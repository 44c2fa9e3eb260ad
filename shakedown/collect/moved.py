"""Traffic that a NIC or a switch port did not see does not count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shakedown.collect.outputs import Told
from shakedown.intent.site import NicSpec
from shakedown.nics.rates import bytes_moved, counts_rdma_bytes
from shakedown.nos.system import LOST
from shakedown.records.base import Stage
from shakedown.records.results import CounterReading, RunProblem
from shakedown.run.nic_counters import NodeCounters

# What outputs say that they moved, held against the NICs' own counters over the job.
#
# An output can be made up, or be that of a wrapper that did less. The payload which it implies must have
# gone through the NICs at its ends: headers and retransmissions only add to it
# (docs/decisions/ordered-work.md).

# The share of the implied payload that the counters may lack: NICs refresh them now and then (mlx5 once a
# second), so the last reading may miss the end of a job.
MISSING_SHARE = 0.05

End = tuple[str, str | None]  # node, and its rail; None: all of its NICs


def confirmed(
    told: Sequence[Told],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    unread: Mapping[str, RunProblem],
    nics: Mapping[str, tuple[NicSpec, ...]],
) -> list[Told]:
    """Return what a job's outputs say, with a problem for those that the NICs' counters do not bear out.

    An output is borne out when an end's counters can tell and none of them contradicts it. Nothing is asked
    of outputs that imply no traffic, or of nodes without NICs. Such a problem makes a cell undecided, never
    bad: it is the evidence that is at fault.
    """
    implied: dict[End, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in told:
        for node, rail, sent, received in one.moved:
            implied[node, rail][0] += sent
            implied[node, rail][1] += received
    short = {end: _short(end, sums, readings, unread, nics) for end, sums in implied.items()}
    return [_held(one, short) for one in told]


def _held(one: Told, short: Mapping[End, tuple[bool, str]]) -> Told:
    ends = [short[node, rail] for node, rail, *_ in one.moved]
    against = [why for tells, why in ends if tells and why]
    silent = [why for tells, why in ends if not tells]
    if against:
        message = against[0]
    elif ends and len(silent) == len(ends) and silent[0]:
        message = f"no counter bears out what this output says: {silent[0]}"
    else:
        return one
    problem = RunProblem(kind="other", message=message[:2000])
    return Told(
        tuple(m if m.problem else m.model_copy(update={"problem": problem}) for m in one.measurements),
        one.moved,
    )


def _short(  # noqa: PLR0911  (one return per reason reads best)
    end: End,
    sums: Iterable[float],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    unread: Mapping[str, RunProblem],
    nics: Mapping[str, tuple[NicSpec, ...]],
) -> tuple[bool, str]:
    """Return whether an end's counters can tell what it moved, and what speaks against it, or why not."""
    node, rail = end
    where = f"{node} {rail}" if rail else node
    devices = [nic.rdma_device for nic in nics.get(node, ()) if rail in (None, nic.rail)]
    if not devices:
        return False, ""  # nothing of it is under test
    if node in unread:
        return False, unread[node].message
    before, after = readings.get(node, (NodeCounters(), NodeCounters()))
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
    lacking = [
        f"{what} {_amount(claimed)}, the NIC counted {_amount(found)}"
        for what, claimed, found in zip(("sent", "received"), sums, counted, strict=True)
        if found < (1 - MISSING_SHARE) * claimed
    ]
    if not lacking:
        return True, ""
    if not all_tell:
        return (
            False,
            f"{where}: the driver of {', '.join(devices)} has no counter of RDMA bytes that is known here",
        )
    return True, f"{where}: by the outputs of this job it {' and '.join(lacking)}"


def _amount(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


# What outputs say that they moved, held against the bytes that switch ports counted over the stage.
#
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
