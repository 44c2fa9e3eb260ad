"""The Linux leaf's program on a real kernel: in a network namespace of its own, here or on the lab's leaf.

Here, if this kernel has ets, red and flower; else on the lab's leaf, if a lab is up; else skipped.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.run import ran
from tests.kit.site import roce

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "roles/roce_switch/filter_plugins"))
from roce_switch import leaf_program  # noqa: E402

PROGRAM = leaf_program((ROOT / "roles/roce_switch/files/roce_leaf.py").read_text())
PROBE = " && ".join(
    (
        "ip link add probe0 type dummy",
        "ip link set probe0 up",
        "tc qdisc add dev probe0 root handle 1: ets bands 2",
        "tc qdisc add dev probe0 parent 1:1 red limit 9000 min 2000 max 4000 avpkt 1000 burst 5"
        " bandwidth 1gbit ecn",
        "tc qdisc add dev probe0 clsact",
        "tc filter add dev probe0 ingress protocol ip flower ip_tos 4/0xfc action pass",
    )
)
INTENT = {
    "roce": roce(
        cnp={"dscp": 48, "priority": 6, "traffic_class": 6, "queue": 6, "scheduler": "strict"},
        ecn={"min_bytes": 30000, "max_bytes": 90000, "mark_percent": 10},
    ),
    "mtu_bytes": 9000,
    "link_speed_gbps": 10,
    "ports": ["swp1", "swp2"],
    "protected": ["mgmt0"],
    "program_sha256": hashlib.sha256(PROGRAM.encode()).hexdigest(),
}
# Two hosts in namespaces of their own, a bridge between them, and a port that carries management.
SETUP = """
set -eu
export ROCE_LEAF_STATE=$box/intent.json ROCE_LEAF_UNITS=$box ROCE_LEAF_PROGRAM=$box/roce-leaf
ip link add br0 type bridge
for i in 1 2; do
    ip link add swp$i type veth peer name fab$i
    unshare -n sleep 60 & host=$!
    echo $host >$box/host$i
    until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.1; done
    ip link set fab$i netns $host
    nsenter -t $host -n sh -c "ip link set fab$i mtu 9000 up; ip addr add 10.10.0.$i/24 dev fab$i"
    ip link set swp$i master br0 up
done
ip link set br0 up
ip link add mgmt0 type dummy
ip addr add 192.0.2.1/24 dev mgmt0
leaf() { python3 $box/roce-leaf "$@" || true; echo; }
on() { nsenter -t $(cat $box/host$1) -n "$(command -v python3)" -c "$2"; }
"""
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, {tos})
for n in range({count}): s.sendto(b"x" * 1000, ("10.10.0.2", 4791))
"""


@pytest.fixture(scope="session")
def shell():
    """How to run a shell line as root where the kernel can do it."""
    here = ["unshare", "-n", "sh", "-c", PROBE]
    if os.geteuid() == 0 and subprocess.run(here, capture_output=True, check=False).returncode == 0:
        return ["sh", "-c"]
    lab = [sys.executable, "-m", "lab", "ssh", "leaf0"]
    probe = subprocess.run(
        [*lab, f"unshare -n sh -c {shlex.quote(PROBE)}"],
        capture_output=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )
    if probe.returncode == 0:
        return lab
    pytest.skip("this kernel has no ets, red and flower, and no lab is up")


@pytest.fixture
def leaf(shell):
    """Run a script in a fresh box; returns the JSON documents that the program printed."""

    def run(script: str, intent: dict = INTENT) -> list[dict]:
        parts = (
            "box=$(mktemp -d); export box; ",
            f"printf %s {shlex.quote(PROGRAM)} >$box/roce-leaf; ",
            f"printf %s {shlex.quote(json.dumps(intent))} >$box/i.json; ",
            f"unshare -n bash -c {shlex.quote(SETUP + script)}; ",
            "kill $(cat $box/host*) 2>/dev/null; rm -rf $box",
        )
        done = ran(*shell, "".join(parts), cwd=ROOT, timeout=180)
        documents = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert documents, done.stdout + done.stderr
        return documents

    return run


def test_what_is_applied_is_read_back_and_a_second_time_is_no_change(leaf):
    """Catches a form of the kernel's answer that differs from what was asked, and a change at every run."""
    before, first, second, after = leaf(
        "leaf check <$box/i.json; leaf apply <$box/i.json; leaf apply <$box/i.json; leaf check <$box/i.json"
    )
    assert any(line.startswith("swp1 queues: null ->") for line in before["differences"])
    assert first["changed"] is True
    assert second["changed"] is False
    assert after["differences"] == []
    assert "PFC" in after["not_done"][0]


def test_roce_is_classified_counted_and_queued(leaf):
    """Catches traffic in the wrong queue: DSCP 26, DSCP 48 and RoCE without a DSCP count apart."""
    *_, counters = leaf(
        "leaf apply <$box/i.json; "
        + "; ".join(
            f"on 1 {shlex.quote(SEND.format(tos=tos, count=count))}"
            for tos, count in ((106, 7), (192, 5), (0, 3))
        )
        + "; sleep 0.3; leaf counters swp1 swp2"
    )
    from shakedown.nos.registry import counters_of
    from shakedown.nos.system import Classes

    outputs = {label: one["stdout"] for label, one in counters["outputs"].items()}
    classes = Classes(priority=3, traffic_class=3, queue=3, cnp_queue=6)
    ports = counters_of("linux")(outputs, classes, None)
    assert ports["swp1"]["roce_rx_packets"] == ports["swp2"]["roce_tx_packets"] == 7
    assert ports["swp2"]["roce_tx_bytes"] == 7 * (1000 + 8 + 20 + 14)
    assert ports["swp1"]["cnp_rx_packets"] == 5
    assert ports["swp1"]["roce_misclassified_rx_packets"] == 3


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("ip link set swp2 mtu 1500", "swp2 mtu: 1500 -> 9000"),
        ("tc filter del dev swp1 ingress pref 10", "swp1 classes:"),
        (
            "tc filter replace dev swp1 ingress protocol ip pref 10 handle 1 flower ip_tos 0x68/0xfc"
            " action skbedit priority 1 pass",
            "swp1 classes:",
        ),
        (
            "tc qdisc replace dev swp2 parent 1:2 handle 20: red limit 360000 min 30000 max 90000 avpkt 1000"
            " burst 51 bandwidth 10gbit probability 0.1",
            "swp2 queues:",
        ),
        ("tc qdisc del dev swp1 root", "swp1 queues: null ->"),
        (
            "tc qdisc change dev swp1 root handle 1: ets bands 3 strict 1 quanta 9000 9000"
            " priomap 2 2 2 2 2 2 0 2",
            "swp1 queues:",
        ),
        ("tc qdisc del dev swp2 clsact", "swp2 classes: null ->"),
    ],
    ids=[
        "mtu",
        "dscp-unmapped",
        "dscp-wrong-class",
        "ecn-off",
        "queues-gone",
        "queue-map",
        "classifier-gone",
    ],
)
def test_a_planted_fault_is_seen_with_its_port_and_mended(fault, words, leaf):
    """Catches drift of one port that the read-back does not see, or that the next run does not mend."""
    _, found, mended, after = leaf(
        f"leaf apply <$box/i.json; {fault}; leaf check <$box/i.json;"
        "leaf apply <$box/i.json; leaf check --saved"
    )
    assert [line.split(":")[0] for line in found["differences"]] == [words.split(":")[0]]
    assert found["differences"][0].startswith(words)
    assert mended["changed"] is True
    assert after["differences"] == []


def test_a_planted_loss_is_seen_kept_above_the_queues_and_counted(leaf):
    """Catches a fault that takes the queues away, and its drops going uncounted."""
    planted, refused, lost = leaf(
        # The first packet, so that the address is known before nothing gets through.
        f"leaf apply <$box/i.json >/dev/null; on 1 {shlex.quote(SEND.format(tos=106, count=1))}; sleep 0.3;"
        "tc qdisc replace dev swp2 root handle fa17: netem loss 100%;"
        "leaf reseat swp2; leaf apply <$box/i.json;"
        f"on 1 {shlex.quote(SEND.format(tos=106, count=9))}; sleep 0.3; leaf counters swp1 swp2"
    )[-3:]
    assert planted["found"]["swp2"]["queues"]["roce"]["ecn"] is True
    assert "swp2 has the queueing discipline netem fa17:" in refused["refused"]
    qdiscs = json.loads(lost["outputs"]["qdiscs"]["stdout"])
    assert next(q for q in qdiscs if q["dev"] == "swp2" and q["kind"] == "netem")["drops"] >= 9


def test_a_failure_on_one_port_restores_all(leaf):
    """Catches a mixture: the first port changed, the second refused by the kernel."""
    failed, after = leaf(
        # A VLAN's MTU cannot exceed that of the device below it.
        "ip link add below type dummy; ip link set below mtu 1500 up;"
        "ip link del swp2; ip link add link below name swp2 type vlan id 5; ip link set swp2 up;"
        "leaf apply <$box/i.json; leaf check <$box/i.json"
    )
    assert "the old configuration is back" in failed["failed"]
    assert after["found"]["swp1"] == {"mtu": 1500, "queues": None, "classes": None}
    assert after["found"]["swp2"] == {"mtu": 1500, "queues": None, "classes": None}


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        (["swp1", "mgmt0"], "mgmt0 carries management"),
        (["swp1", "swp9"], "'swp9' is no port"),
        (["swp1", "swp1"], "each once"),
        (["swp1; reboot"], "is no port"),
    ],
)
def test_wrong_ports_are_refused_before_the_first_change(ports, words, leaf):
    """Catches management cut off, and a port name that is a command."""
    one_port = shlex.quote(json.dumps({**INTENT, "ports": ["swp1"]}))
    refused, after = leaf(f"leaf apply <$box/i.json; leaf check {one_port}", {**INTENT, "ports": ports})
    assert words in refused["refused"]
    assert after["found"]["swp1"]["queues"] is None


def test_somebody_elses_queues_are_refused(leaf):
    """Catches a queueing discipline replaced that could not be restored."""
    refused, after = leaf(
        "tc qdisc add dev swp1 root handle 7: tbf rate 1gbit burst 100k limit 1m;"
        "leaf apply <$box/i.json; leaf check <$box/i.json"
    )
    assert "swp1 has the queueing discipline tbf 7:" in refused["refused"]
    assert after["found"]["swp1"]["queues"] == {"foreign": "tbf 7:"}
