"""Signatures of faults: a hint that fires where it means nothing sends people after the wrong thing."""

import pytest

from shakedown.judge.cells import fault_hint
from tests.kit import records

BUSBW = records.reference(id="ar", value=389.7, limit=372.0, ceiling=392.0, unit="GB/s")


def hint(value, size_bytes, test="nccl_all_reduce", nodes=("n1", "n2")):
    """The hint for a bus bandwidth in GB/s."""
    params = {} if size_bytes is None else {"size_bytes": size_bytes}
    return fault_hint(
        records.measurement(
            stage="collective",
            test=test,
            metric="busbw",
            value=value,
            unit="GB/s",
            nodes=nodes,
            params=params,
        ),
        BUSBW,
    )


@pytest.mark.parametrize(
    ("value", "nodes", "words"),
    [(3.0, ("n1", "n2"), "over TCP"), (190.0, ("n1", "n2"), "half rate"), (300.0, ("n1",), "NVLS")],
)
def test_a_large_message_tells_of_the_path_a_small_one_of_latency(value, nodes, words):
    """Catches TCP, a lost NIC or lost NVLS suspected because a small message is slow, as all are."""
    assert words in hint(value, 1 << 30, nodes=nodes)
    assert words in hint(value, None, nodes=nodes)
    for size in (8, 65536, 1 << 20, 64 << 20):
        assert hint(value, size, nodes=nodes) == ""


def test_mpi_is_not_sent_to_the_nccl_log():
    """Catches advice about a log that an MPI benchmark does not write."""
    assert hint(3.0, 1 << 30, test="mpi_allreduce") == ""
