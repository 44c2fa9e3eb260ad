"""Rates with more digits than nccl-tests print: two decimals are steps of 5 % at 0.2 GB/s."""

from pathlib import Path

import pytest

from shakedown.benchmarks.nccl.output import parse_nccl
from shakedown.benchmarks.nccl.output_model import precise_busbw_gb_per_s

# tests/runs/h100x2_slow_port_10, nccl_all_reduce.r1.txt of rail 1; {row}, {mean} and {options} are replaced.
TEXT = (Path(__file__).parent / "printed/digits.txt").read_text()
SLOW = "    16777216       4194304     float     sum      -1  80968.9    0.21    0.21       0  79615.2    0.21    0.21       0"  # noqa: E501
FAST = "   268435456      67108864     float     sum      -1   1519.4  176.67  176.67       0   1519.4  176.67  176.67       0"  # noqa: E501


@pytest.mark.parametrize(
    ("row", "size", "mean", "wanted"),
    [
        (SLOW, 16777216, 0.208967, 16777216 / 80968.9e-6 / 1e9),
        (FAST, 268435456, 176.67, 176.67),  # as printed: no more is known than what was
    ],
)
def test_a_low_rate_has_the_digits_of_its_time(row, size, mean, wanted):
    """Catches: a port 10 % too slow that is undecided, because 0.2 GB/s is printed in steps of 5 %."""
    result = parse_nccl(TEXT.format(row=row, size=size, mean=mean), file="nccl_all_reduce.r1.txt")
    (one,) = result.rows
    assert one.out_of_place
    assert precise_busbw_gb_per_s(result, one, one.out_of_place) == pytest.approx(wanted, rel=1e-9)


def test_a_time_of_the_host_says_nothing_of_the_rate():
    """Catches: -C, whose times are the host's, taken for the device's."""
    result = parse_nccl(TEXT.format(row=SLOW, size=16777216, mean=0.208967), file="nccl_all_reduce.r1.txt")
    (one,) = result.rows
    assert one.out_of_place
    assert precise_busbw_gb_per_s(result.model_copy(update={"cpu_time": True}), one, one.out_of_place) == 0.21
