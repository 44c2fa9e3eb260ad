"""What the servers drew while one message size was moved: a number that no job can read."""

from __future__ import annotations

from shakedown.benchmarks.base.metrics import Output, Read
from shakedown.benchmarks.nccl.order import NcclOrder
from shakedown.records.base import Better
from shakedown.run.server_power import power_during

METRIC = "server_power"


def server_power(output: Output[NcclOrder]) -> Read:
    """Return the power of the server that drew most, and in words that of each.

    Raises:
        BadInput: a reading that cannot be read.
    """
    raw, record = output.folder.path.parent, output.record
    found = [power_during(raw, node, record.started, record.duration_s) for node in record.nodes]
    told = [watts for watts, _ in found if watts is not None]
    # One server that was not read may be the one that drew most.
    value = max(told) if len(told) == len(found) else None
    words = "; ".join(text for _, text in found)
    return Read(METRIC, value, "W", Better.LOWER, {}, words[:900])
