"""Planted faults, and planting: the right port gets one that does something, and clearing takes it back."""

import json
import math
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import faults, node_faults, planting
from lab.errors import LabError
from lab.topology import Topology
from tests.kit.cases import cases
from tests.kit.files import script
from tests.kit.run import ran


def test_the_commands_of_every_fault() -> None:
    """Catches a unit slip: 40 Mbit/s given as 40 Mbyte/s would be no fault at all in the lab."""
    assert faults.loss(2).qdisc == ("netem", "loss", "2%")
    assert faults.delay(0.5).qdisc[:3] == ("netem", "delay", "0.5ms")
    assert faults.reorder(25).qdisc[:5] == ("netem", "delay", "5ms", "reorder", "25%")
    assert faults.rate(40).qdisc[:3] == ("tbf", "rate", "40000000bit")


@pytest.fixture
def leaf(tmp_path: Path) -> Callable[..., list[str]]:
    """Run a leaf's command against a ``tc`` that keeps one root qdisc per port; returns what it was asked."""
    tool = tmp_path / "tc"
    script(
        tool,
        "#!/bin/sh\n"
        f"cd {tmp_path}\n"
        'echo "$*" >>asked\n'
        'case "$2" in\n'
        'show) cat "port.$4" 2>/dev/null || echo "qdisc noqueue 0: root" ;;\n'
        'del) rm "port.$4" ;;\n'
        'replace) [ ! -e "port.$4" ] || { echo "Error: Invalid qdisc name." >&2; exit 2; }\n'
        '  echo "qdisc $8 $7 root" >"port.$4" ;;\n'
        "esac\n",
    )

    def run(argv: list[str]) -> list[str]:
        (tmp_path / "asked").write_text("")
        done = ran(*argv, check=True, env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})
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


def test_clearing_touches_only_ports_with_a_fault_of_ours(leaf, tmp_path):
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


@pytest.fixture
def switch(tmp_path: Path) -> Callable[..., tuple[int, list[str], str]]:
    """Run a leaf's command where `tc`, `ip` and the switch's program note what they are asked."""
    state = tmp_path / "intent.json"
    qdisc = (
        '[{"kind":"red","handle":"20:","options":{"limit":16777216,"min":1048576,"max":2097152,'
        '"ecn":true,"nodrop":true,"probability":0.05}}]'
    )
    rules = '[{"pref":10},{"pref":10,"options":{"keys":{"ip_tos":104,"ip_tos_mask":"fc"}}}]'
    answers = f'case "$*" in *"qdisc show"*) echo \'{qdisc}\';; *"filter show"*) echo \'{rules}\';; esac\n'
    for name in ("tc", "ip", "systemctl", "roce-leaf"):
        tool = tmp_path / name
        reply = '[ "$1" != apply ] || echo \'{"changed": true}\'\n' if name == "roce-leaf" else answers
        script(tool, f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/asked\n{reply}')

    def run(argv: list[str], *, configured: bool = True) -> tuple[int, list[str], str]:
        (tmp_path / "asked").write_text("")
        if configured:
            state.write_text("{}")
        argv = [
            word.replace("/var/lib/roce-leaf/intent.json", str(state)).replace(
                "/usr/local/sbin/roce-leaf", str(tmp_path / "roce-leaf")
            )
            for word in argv
        ]
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": path})
        asked = (tmp_path / "asked").read_text().splitlines()
        return done.returncode, [line for line in asked if " show " not in line], done.stdout + done.stderr

    return run


ON_THE_WAY_OUT = "tc filter replace dev swp3 egress protocol ip pref 64023 handle 1 flower ip_tos 104/0xfc"


@cases(
    "fault, command",
    # An ECN fault that also changes depth or thresholds, and is then found for another reason.
    (
        faults.ecn_off(),
        "tc qdisc change dev swp3 parent 1:2 handle 20: red limit 16777216 min 1048576 max 2097152"
        " probability 0.05 avpkt 1000 burst 1400 bandwidth 10gbit",
    ),
    # A wrong map that takes the classifier away, which is found because nothing is counted.
    (
        faults.wrong_dscp_map(),
        "tc filter replace dev swp3 ingress protocol ip pref 10 handle 1 flower ip_tos 104/0xfc"
        " action skbedit priority 1 pass",
    ),
    # A fault on the way in, which the read-back of the ingress filters shows, or on other bits.
    *(
        (fault, f"{ON_THE_WAY_OUT} action pedit ex munge ip dsfield {change} pipe action csum ip4h")
        for fault, change in (
            (faults.rewrite_dscp(0), "set 0x00 retain 0xfc"),
            (faults.rewrite_dscp(10), "set 0x28 retain 0xfc"),
            (faults.bleach_ecn(), "set 0x00 retain 0x03"),
        )
    ),
)
def test_a_fault_changes_one_thing(switch, fault: faults.SettingFault, command: str) -> None:
    """Catches what stands above each row: a fault that is found for another reason, or does more."""
    assert switch(faults.setting_argv("swp3", fault))[:2] == (0, [command])


@pytest.mark.parametrize("dscp", [-1, 64])
def test_a_dscp_that_is_none_is_refused(dscp: int) -> None:
    """Catches a DSCP that spills into the ECN bits."""
    with pytest.raises(LabError, match="--dscp"):
        faults.rewrite_dscp(dscp)


def test_clearing_takes_the_rewriting_from_its_port_alone(tmp_path: Path) -> None:
    """Catches a clear after which a port still rewrites, and every later test finds it."""
    tool = tmp_path / "tc"
    script(
        tool,
        f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n'
        'case "$*" in "filter show dev swp2 egress") echo "filter protocol ip pref 64023 flower ";; esac\n',
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    argv = faults.clear_argv(["swp1", "swp2"])
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PATH": path})
    assert done.stdout.split() == ["swp2"]
    changes = [line for line in (tmp_path / "asked").read_text().splitlines() if " show " not in line]
    assert changes == ["filter del dev swp2 egress pref 64023"]


@pytest.mark.parametrize("fault", [faults.ecn_off(), faults.wrong_dscp_map(), faults.port_mtu(1500)])
def test_a_switch_without_configuration_cannot_be_spoiled(fault, switch):
    """Catches a fault planted on a switch that has no queues yet: the test would find the missing role."""
    status, asked, said = switch(faults.setting_argv("swp3", fault), configured=False)
    assert (status, asked) == (1, [])
    assert "run site.yml first" in said


def test_swapped_cables_come_back_by_swapping_again(switch):
    """Catches a swap that loses a port's name on the way."""
    _, asked, _ = switch(faults.swap_argv("swp1", "swp2"))
    names = {"swp1": "n1", "swp2": "n2"}
    for line in asked:
        words = line.split()
        if "name" in words:
            names[words[-1]] = names.pop(words[4])
    assert names == {"swp1": "n2", "swp2": "n1"}
    assert asked[-1] == "systemctl restart lldpd"


def test_settings_come_back_from_what_the_switch_saved(switch):
    """Catches a clear that leaves a port shut, or a setting wrong."""
    status, asked, said = switch(faults.restore_argv(["swp1", "swp2"]))
    assert (status, said) == (0, '{"changed": true}\n')
    assert asked == ["ip link set dev swp1 up", "ip link set dev swp2 up", "roce-leaf apply --saved"]


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
    assert lab.asked[-1][0] == "leaf0" and lab.asked[-1][1][-1] == "swp4"
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
    assert "n1 and n2 rail0 back in place" in done and "leaf0 has its settings back" in done


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
    assert said.startswith(key) and list(lab.state.faults) == [key]
    lab.changed = False
    lab.asked.clear()
    assert len(planting.clear(lab)) == 1 and lab.state.faults == {}
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
