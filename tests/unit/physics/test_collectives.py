"""busbw factors and ceilings against published figures."""

import pytest

from shakedown.physics import collectives as c
from shakedown.physics.ethernet import payload_ceiling_gbps
from shakedown.records.reading import BadInput
from tests.kit.cases import cases

NIC_400G_GB_PER_S = payload_ceiling_gbps(400, rdma_mtu_bytes=4096) / 8


@cases(
    "collective, factor",
    ("all_reduce", 1.75),
    ("all_gather", 0.875),
    ("reduce_scatter", 0.875),
    ("alltoall", 0.875),
    ("broadcast", 1),
    ("reduce", 1),
    ("sendrecv", 1),
)
def test_factors_of_nccl_tests_at_8_ranks(collective, factor):
    """A factor of another operation turns a slow result into a good one (all_reduce is twice all_gather)."""
    assert c.busbw_factor(c.Collective(collective), 8) == factor


@cases(
    "collective, ranks, size, time_us, busbw",
    ("all_reduce", 8, 17_179_869_184, 127997, 234.89),  # ml-engineering, A100 x 8
    ("all_reduce", 8, 8_388_608, 133.5, 109.93),
    ("all_reduce", 4, 8_589_934_592, 35286.6, 365.15),  # our own capture, 4 x H200
    ("reduce_scatter", 4, 8_589_934_592, 18423.3, 349.69),
)
def test_busbw_of_real_outputs(collective, ranks, size, time_us, busbw):
    """The tool's own column must come out of its size and time, or units are confused (GB against GiB)."""
    got = c.busbw_gb_per_s(c.Collective(collective), ranks=ranks, size_bytes=size, time_us=time_us)
    assert got == pytest.approx(busbw, rel=5e-4)


def test_flat_ring_of_eight_400g_nics():
    """392.1 GB/s; Tolly's 389.7 is 99.4 % of it, or 48.7 GB/s per NIC; the 95 % gate is 372."""
    ceiling = c.flat_ring_busbw_gb_per_s([NIC_400G_GB_PER_S] * 8)
    assert ceiling == pytest.approx(392.1, abs=0.051)
    assert 100 * 389.7 / ceiling == pytest.approx(99.4, abs=0.05)
    assert pytest.approx(48.7, abs=0.05) == 389.7 / 8
    assert 0.95 * ceiling == pytest.approx(372, abs=0.6)


def test_one_of_eight_nics_at_half_rate_halves_the_ring():
    """Averaging the NICs instead of taking the slowest would expect 368 GB/s and hide the cause."""
    rates = [NIC_400G_GB_PER_S] * 7 + [NIC_400G_GB_PER_S / 2]
    assert c.flat_ring_busbw_gb_per_s(rates) == pytest.approx(196, abs=0.1)


def test_hierarchical_schedules_may_exceed_the_ring():
    """8 nodes x 8: 9/8 of the ring; without it a Tree result above 392 GB/s would be called impossible."""
    node = 8 * NIC_400G_GB_PER_S
    assert c.hierarchical_busbw_gb_per_s(node, ranks=64, ranks_per_node=8) == pytest.approx(node * 63 / 56)


def test_alltoall_ceiling_lies_above_the_published_result():
    """32 GPUs with 8 x 400G: 48 GB/s published, at most 63.3."""
    ceiling = c.alltoall_busbw_gb_per_s(NIC_400G_GB_PER_S, ranks=32, ranks_per_node=8)
    assert ceiling == pytest.approx(NIC_400G_GB_PER_S * 31 / 24)
    assert ceiling > 48


@pytest.mark.parametrize(("nvlink", "measured", "share"), [(450, 480, 0.69), (900, 838, 0.60)])
def test_nvls_model_against_measured_nodes(nvlink, measured, share):
    """Published nodes reach 0.69 (8 x H100: 480) and 0.60 (B200: 838): a wrong model would exceed 1."""
    assert measured / c.nvls_all_reduce_busbw_gb_per_s(nvlink, ranks=8) == pytest.approx(share, abs=0.005)


@cases(
    "call",
    lambda: c.busbw_factor(c.Collective.ALL_REDUCE, 1),
    lambda: c.flat_ring_busbw_gb_per_s([]),
    lambda: c.flat_ring_busbw_gb_per_s([49.0, 0.0]),
    lambda: c.hierarchical_busbw_gb_per_s(392, ranks=8, ranks_per_node=8),
    lambda: c.alltoall_busbw_gb_per_s(49, ranks=12, ranks_per_node=8),
    lambda: c.busbw_gb_per_s(c.Collective.REDUCE, ranks=2, size_bytes=8, time_us=0),
)
def test_nonsense_is_refused(call):
    """One node has no network ceiling; returning infinity would let everything pass."""
    with pytest.raises(BadInput):
        call()
