"""Names that the plan, the job and the reader of its outputs share. Standard library only: nodes use it."""

from __future__ import annotations

# The kind of job and the tool of its outputs.
NAME = "gpudirect"
HOST, NEAR, FAR = "host", "near", "far"


def perftests(operation: str) -> str:
    """Return perftest's own name of an operation."""
    return f"ib_{operation}_bw"


def test_of(perftests_name: str) -> str:
    """Return the test of the cells that perftest's program measures here."""
    return f"{NAME}_{perftests_name.split('_')[1]}"


def perftests_of(test: str) -> str:
    """Return perftest's program of a test."""
    return perftests(test.removeprefix(f"{NAME}_"))


def gpus_name(node: str) -> str:
    """Return the file in which a node notes which GPUs it found near and far of its NICs."""
    return f"gpus.{node}.json"
