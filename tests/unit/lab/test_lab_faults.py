"""Planted faults: one on the wrong port, or that does nothing, lets a lab test pass for no reason."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import faults
from lab.errors import LabError


def test_the_commands_of_every_fault() -> None:
    """Catches a unit slip: 40 Mbit/s given as 40 Mbyte/s would be no fault at all in the lab."""
    assert faults.loss(2).qdisc == ("netem", "loss", "2%")
    assert faults.delay(0.5).qdisc[:3] == ("netem", "delay", "0.5ms")
    assert faults.rate(40).qdisc[:3] == ("tbf", "rate", "40000000bit")


@pytest.fixture
def leaf(tmp_path: Path) -> Callable[..., list[str]]:
    """Run a leaf's command against a ``tc`` that keeps one root qdisc per port; returns what it was asked."""
    tool = tmp_path / "tc"
    tool.write_text(
        "#!/bin/sh\n"
        f"cd {tmp_path}\n"
        'echo "$*" >>asked\n'
        'case "$2" in\n'
        'show) cat "port.$4" 2>/dev/null || echo "qdisc noqueue 0: root" ;;\n'
        'del) rm "port.$4" ;;\n'
        'replace) [ ! -e "port.$4" ] || { echo "Error: Invalid qdisc name." >&2; exit 2; }\n'
        '  echo "qdisc $8 $7 root" >"port.$4" ;;\n'
        "esac\n"
    )
    tool.chmod(0o755)

    def run(argv: list[str]) -> list[str]:
        (tmp_path / "asked").write_text("")
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        )
        changes = [line for line in (tmp_path / "asked").read_text().splitlines() if " show " not in line]
        return changes + done.stdout.split()

    return run


def test_a_second_fault_takes_the_place_of_the_first(leaf: Callable[..., list[str]]) -> None:
    """Catches a 'rate' after a 'loss' on one port, which tc refuses under the same handle."""
    assert leaf(faults.plant_argv("swp3", faults.loss(2))) == [
        "qdisc replace dev swp3 root handle fa17: netem loss 2%"
    ]
    assert leaf(faults.plant_argv("swp3", faults.rate(40))) == [
        "qdisc del dev swp3 root",
        "qdisc replace dev swp3 root handle fa17: tbf rate 40000000bit burst 64kb limit 16mb",
    ]


def test_clearing_touches_only_ports_with_a_fault_of_ours(
    leaf: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Catches a clear that removes the switch's own queueing, or leaves the fault in place."""
    leaf(faults.plant_argv("swp1", faults.delay(5)))
    (tmp_path / "port.swp2").write_text("qdisc ets 1: root\n")
    assert leaf(faults.clear_argv(["swp1", "swp2", "swp3"])) == ["qdisc del dev swp1 root", "swp1"]
    assert leaf(faults.clear_argv(["swp1", "swp2", "swp3"])) == []


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
