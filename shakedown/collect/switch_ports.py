"""What outputs say that they moved, held against the bytes that switch ports counted over the stage.

A switch that is restarted in the middle of a stage, or whose counters are cleared, counts from zero again,
and what it dropped before is gone. A counter below its old value shows it; one that grew past it does not.
The payload that went over a host's port must be among the port's bytes: headers, retransmissions and other
traffic only add to it (docs/decisions/ordered-work.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shakedown.collect.moved import MISSING_SHARE
from shakedown.collect.outputs import Told
from shakedown.nos.counters import LOST
from shakedown.records.base import Stage
from shakedown.records.counters import CounterReading

End = tuple[Stage, str, str | None]  # a stage, and a node with its rail
# What a switch's port receives the node sent.
_COUNTERS = ("rx_bytes", "tx_bytes")


def implied(told: Iterable[tuple[Stage, Told]]) -> dict[End, list[float]]:
    """Return the payload, in bytes, that each end sent and received by outputs that are evidence."""
    found: dict[End, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for stage, one in told:
        if not any(measurement.problem for measurement in one.measurements):
            for node, rail, sent, received in one.moved:
                found[stage, node, rail][0] += sent
                found[stage, node, rail][1] += received
    return found


def set_back(lines: Sequence[CounterReading], moved: Mapping[End, Sequence[float]]) -> list[CounterReading]:
    """Return the lines of switches; those of a port that counted less than was moved say it began anew."""
    counted: dict[End, list[float]] = defaultdict(lambda: [0.0, 0.0])
    unknown: set[End] = set()
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


def _end(line: CounterReading) -> End:
    return line.stage, (line.peer or "").partition("/")[0], line.rail
