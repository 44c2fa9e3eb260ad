"""Planted faults: one on the wrong port, or that does nothing, lets a lab test pass for no reason."""

from __future__ import annotations

import math

import pytest

from lab import faults
from lab.errors import LabError


def test_the_commands_of_every_fault() -> None:
    """Catches a unit slip: 40 Mbit/s given as 40 Mbyte/s would be no fault at all in the lab."""
    assert faults.loss(2).qdisc == ("netem", "loss", "2%")
    assert faults.delay(0.5).qdisc[:3] == ("netem", "delay", "0.5ms")
    assert faults.rate(40).qdisc[:3] == ("tbf", "rate", "40000000bit")


def test_a_fault_is_planted_and_cleared_on_one_port_with_one_handle() -> None:
    """Catches a clear that removes the switch's own queueing, or leaves the fault in place."""
    plant = faults.plant_argv("swp3", faults.loss(2))
    assert plant == [
        "tc",
        "qdisc",
        "replace",
        "dev",
        "swp3",
        "root",
        "handle",
        "fa17:",
        "netem",
        "loss",
        "2%",
    ]
    assert faults.clear_argv("swp3") == ["tc", "qdisc", "del", "dev", "swp3", "root", "handle", "fa17:"]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("make", [faults.loss, faults.delay, faults.rate])
def test_a_value_that_is_no_fault_is_refused(make: object, value: float) -> None:
    """Catches '--percent 0': a test that plants it believes in a fault that is not there."""
    with pytest.raises(LabError):
        make(value)  # type: ignore[operator]


def test_more_than_all_packets_cannot_be_lost() -> None:
    """Catches a fraction mistaken for a percentage on the other side."""
    with pytest.raises(LabError, match="--percent"):
        faults.loss(100.5)
