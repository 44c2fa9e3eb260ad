"""Names that the plan, the job and the reader of its outputs share. Standard library only: nodes use it."""

from __future__ import annotations

# The kind of job, the tool of its outputs and the test of its cells.
NAME = "traffic_class"
# What perftest runs: its server is where the data arrives.
OPERATION = "ib_write_bw"


def evidence_name(output: str) -> str:
    """Return the file in which the receiving node keeps what it counted, by the file of perftest's output."""
    return f"arrived.{output.removesuffix('.txt')}.json"
