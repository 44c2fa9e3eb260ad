"""What outputs say that they moved, held against the NICs' own counters over the job.

An output can be made up, or be that of a wrapper that did less. The payload which it implies must have
gone through the NICs at its ends: headers and retransmissions only add to it
(docs/decisions/ordered-work.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shakedown.collect.outputs import Told
from shakedown.intent.site import NicSpec
from shakedown.nics.traffic import bytes_moved, counts_rdma_bytes
from shakedown.records.results import Problem
from shakedown.run.nic_counters import NodeCounters

# The share of the implied payload that the counters may lack: NICs refresh them now and then (mlx5 once a
# second), so the last reading may miss the end of a job.
MISSING_SHARE = 0.05

End = tuple[str, str | None]  # node, and its rail; None: all of its NICs


def confirmed(
    told: Sequence[Told],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    unread: Mapping[str, Problem],
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
    problem = Problem(kind="other", message=message[:2000])
    return Told(
        tuple(m if m.problem else m.model_copy(update={"problem": problem}) for m in one.measurements),
        one.moved,
    )


def _short(  # noqa: PLR0911  (one return per reason reads best)
    end: End,
    sums: Iterable[float],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    unread: Mapping[str, Problem],
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
