"""A node whose kernel lost the TSC at boot is booted once more, and told where that does not help."""

import subprocess
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lab import clocks, processes
from lab.topology import Topology


class Lab:
    """A lab whose nodes go by the clock sources that a test gives them, one for each boot."""

    def __init__(self, sources: dict[str, list[str]], accelerator: str = "tcg") -> None:
        self.topology = Topology(2)
        self.state = SimpleNamespace(accelerator=accelerator)
        self.sources = sources
        self.boots: list[str] = []
        self.said: list[str] = []

    def ssh(self, machine: str, command: Sequence[str], timeout_s: float) -> Any:
        """Answer with the clock source."""
        answer = self.sources[machine][0] if command[0] == "cat" else ""
        return subprocess.CompletedProcess(command, 0, f"{answer}\n", "")

    def guest(self, name: str) -> Any:
        """What runs of a machine."""
        return SimpleNamespace(process=SimpleNamespace(name=name, pid=1), ssh_port=2)

    def start(self, machine: Any, port: int) -> None:
        """Boot it with its next clock source."""
        assert port == 2
        self.boots.append(machine.name)
        self.sources[machine.name].pop(0)

    def wait_for_ssh(self, machines: Sequence[Any]) -> None:
        """It answers at once."""
        assert [machine.name for machine in machines] == self.boots[-1:]

    def progress(self, line: str) -> None:
        """Keep what was said."""
        self.said.append(line)


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Processes that were ended."""
    names: list[str] = []
    monkeypatch.setattr(processes, "end", lambda those, at_once: names.extend(one.name for one in those))
    return names


def settle(lab: Lab) -> None:
    """As after the first boot."""
    clocks.settle(lab, [machine.name for machine in lab.topology.machines])  # type: ignore[arg-type]


def test_a_node_that_lost_the_tsc_is_booted_once_more_and_no_other(ended: list[str]) -> None:
    """Catches a lab in which perftest cannot time, so that every healthy run is INCONCLUSIVE."""
    lab = Lab({"n1": ["tsc"], "n2": ["hpet", "tsc"]})
    settle(lab)
    assert (ended, lab.boots) == (["n2"], ["n2"])
    assert lab.said == ["n2's kernel goes by hpet and not by the TSC; booting it once more"]


def test_where_it_does_not_help_it_is_said_with_the_way_out() -> None:
    """Catches boots without end, and a lab whose figures will decide nothing without a word of it."""
    lab = Lab({"n1": ["hpet", "hpet", "hpet"], "n2": ["tsc"]})
    settle(lab)
    assert lab.boots == ["n1"]
    assert "goes by hpet again: perftest cannot time there" in lab.said[-1]


def test_a_guest_with_the_hosts_clock_is_left_alone() -> None:
    """Catches every start under KVM booting all nodes twice: there it is kvm-clock."""
    lab = Lab({"n1": ["kvm-clock"], "n2": ["kvm-clock"]}, "kvm")
    settle(lab)
    assert lab.boots == lab.said == []
