"""Planting: the right port of the right machine gets the fault, and clearing brings everything back."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lab import faults, node_faults, planting
from lab.errors import LabError
from lab.topology import Topology
from tests.kit.cases import cases


class Lab:
    """A lab that notes what its leaf is asked."""

    def __init__(self) -> None:
        self.topology = Topology(2)
        self.state = SimpleNamespace(faults={})
        self.asked: list[tuple[str, list[str]]] = []
        self.changed = True

    def ssh(self, machine: str, command: Sequence[str], timeout_s: float) -> Any:
        """Take a command for a machine."""
        self.asked.append((machine, list(command)))
        answer = json.dumps({"changed": self.changed}) if command[3:4] == ["restore"] else ""
        return subprocess.CompletedProcess(command, 0, answer, "")

    def save_state(self) -> None:
        """Nothing is kept."""

    def boot_what_is_off(self) -> list[str]:
        """Everything is on."""
        return []

    @contextmanager
    def monitor(self, _node: str) -> Iterator[Any]:
        """A monitor that takes everything."""
        yield SimpleNamespace(command=lambda *_args, **_options: None)


@pytest.fixture
def lab() -> Any:
    """Two nodes: swp1, swp2 are rail0 of n1, n2, swp3, swp4 their rail1."""
    return Lab()


def test_a_wrong_setting_lands_on_the_port_of_its_node_and_rail(lab: Any) -> None:
    """Catches a fault on the neighbour's port: the test would find it and blame the wrong one."""
    said = planting.setting_fault(lab, "n2", "rail1", faults.ecn_off())
    assert lab.asked[-1][0] == "leaf0"
    assert lab.asked[-1][1][-1] == "swp4"
    assert "leaf0 swp4" in said
    assert lab.state.faults == {"n2 rail1": "ECN off"}


def test_swapped_cables_are_remembered_and_brought_back(lab: Any) -> None:
    """Catches a clear that leaves two ports with each other's names, and so every later test miswired."""
    planting.miswire(lab, "n1", "n2", "rail0")
    assert lab.asked[-1][1][-2:] == ["swp1", "swp2"]
    with pytest.raises(LabError, match="one pair of cables"):
        planting.miswire(lab, "n1", "n2", "rail1")
    done = planting.clear(lab)
    assert lab.state.faults == {}
    swaps = [command[-2:] for _, command in lab.asked if command[3] == "swap"]
    assert swaps == [["swp1", "swp2"]] * 2
    assert "n1 and n2 rail0 back in place" in done
    assert "leaf0 has its settings back" in done


def test_clearing_without_faults_says_nothing(lab: Any) -> None:
    """Catches a clear that claims to have mended what was whole."""
    lab.changed = False
    assert planting.clear(lab) == []


def test_a_cable_cannot_change_places_with_itself(lab: Any) -> None:
    """Catches a miswiring that is none."""
    with pytest.raises(LabError, match="name two nodes"):
        planting.miswire(lab, "n1", "n1", "rail0")
    assert lab.asked == []


@cases(
    "plant, key, undo",
    (lambda lab: node_faults.stage_readonly(lab, "n2"), "n2 stage", "rw"),
    (lambda lab: node_faults.duplicate_address(lab, "n2", "rail1"), "n2 rail1", "br-rail1"),
    (lambda lab: node_faults.clock(lab, "n2", -90), "n2 clock", "n2"),
    (lambda lab: node_faults.small_rx_ring(lab, "n2", "rail1", 16), "n2 rail1", "256"),
)
def test_faults_of_a_node_are_remembered_and_undone(lab, monkeypatch, plant, key, undo):
    """Catches: a clear that leaves a node's clock, stage or address as the fault made it."""
    on_time = []
    monkeypatch.setattr(node_faults.snapshots, "set_clock", lambda _, m: on_time.append(m.name) or True)
    said = plant(lab)
    assert said.startswith(key)
    assert list(lab.state.faults) == [key]
    lab.changed = False
    lab.asked.clear()
    assert len(planting.clear(lab)) == 1
    assert lab.state.faults == {}
    assert [undo] in [*(command[-1:] for _, command in lab.asked), on_time]


@pytest.mark.parametrize("seconds", [0.0, float("nan"), float("inf"), 1e6])
def test_a_clock_that_is_no_fault_is_refused(lab, seconds):
    """Catches: a test that plants no offset, or one that breaks more than the clock."""
    with pytest.raises(LabError, match="out of range"):
        node_faults.clock(lab, "n1", seconds)
    assert lab.asked == []


def test_a_flap_lasts_as_long_as_asked_and_leaves_nothing(lab, monkeypatch):
    """Catches: a cable that stays unplugged after a flap, or after one that broke off."""
    links = []
    monkeypatch.setattr(planting, "_set_link", lambda _, port, *, up: links.append((port.name, up)))
    monkeypatch.setattr(planting.time, "sleep", links.append)
    assert "no carrier for 2 s" in planting.flap(lab, "n2", "rail0", 2.0)
    assert links == [("swp2", False), 2.0, ("swp2", True)]
    assert lab.state.faults == {}

    def stopped(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(planting.time, "sleep", stopped)
    with pytest.raises(KeyboardInterrupt):
        planting.flap(lab, "n2", "rail0", 2.0)
    assert lab.state.faults == {"n2 rail0": faults.LINK_DOWN}  # which clearing plugs in


def test_pause_frames_leave_by_the_port_of_the_node_and_reach_it(lab, monkeypatch):
    """Catches: frames sent into the bridge, at another node, or thrown away by virtio: no fault."""
    monkeypatch.setattr(node_faults.time, "sleep", lambda s: lab.asked.append(("wait", [s])))
    assert "leaf0 swp4, into n2" in node_faults.pause_frames(lab, "n2", "rail1", 100)
    joined, (machine, command), waited, left = lab.asked
    assert joined == ("n2", ["ip", "link", "set", "fab1", "allmulticast", "on"])
    assert (machine, command[-2:]) == ("leaf0", ["swp4", "100"])
    assert (waited[0], left[1][-1]) == ("wait", "off")
    assert lab.state.faults == {}


@cases(
    "plant",
    lambda lab: planting.flap(lab, "n1", "rail0", 0.0),
    lambda lab: planting.flap(lab, "n1", "rail0", 3600.0),
    lambda lab: node_faults.small_rx_ring(lab, "n1", "rail0", 7),
    lambda lab: node_faults.pause_frames(lab, "n1", "rail0", 0),
)
def test_what_is_no_fault_of_a_nic_is_refused(lab, plant):
    """Catches: a test that plants nothing and passes."""
    with pytest.raises(LabError, match="out of range"):
        plant(lab)
    assert lab.asked == []
