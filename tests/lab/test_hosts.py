"""Hosts: what the roles set is on the wire, survives a reboot, is missed when gone, and can be taken back."""

import re
import time

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

CHECK = "/usr/local/libexec/shakedown/host-settings check --all"
CM = "/sys/kernel/config/rdma_cm/rxe0"
FORGET_TOS = f"mkdir {CM}; echo 0 > {CM}/ports/1/default_roce_tos; rmdir {CM}"
# What each host gets, and the setting that must be named for it.
FAULTS = {
    "n1": {
        "rdma_cm.default_roce_tos": FORGET_TOS,
        "pfc.priorities": "dcb pfc set dev fab0 prio-pfc all:off",
        "mtu.host_bytes": "ip link set dev fab1 mtu 1500",
        "mtu.rdma_bytes": "true",  # follows the MTU
        "env.NCCL_IB_TC,target=environment": "echo NCCL_IB_TC=104 > /etc/nccl.conf",
        "others,target=environment": "rm /etc/profile.d/shakedown-roce.sh",
    },
    "n2": {
        "dscp.map": "dcb app del dev fab0 dscp-prio 26:3",
        "others": "dcb ets set dev fab0 tc-tsa all:strict tc-bw all:0",
        "rdma.device": "rdma link delete rxe1",
        "gid.type": "true",  # goes with the device
        "ipv4": "ip addr del 10.10.1.2/24 dev fab1",
    },
}


def shell(site, machine, script):
    """Run a script on a machine; return what it prints."""
    answer = site.lab.ssh(machine, ["sh", "-c", script])
    return answer.stdout + answer.stderr


def on_the_wire(site, *options):
    """Send RoCE traffic from n1 to n2 on rail 0; return the ToS bytes that n2 saw on UDP port 4791.

    Queue pair 1 is left out: the kernel answers a request that nobody listens for with ToS 0.
    """
    command = f"ib_write_bw -d rxe0 -s 4096 -n 50 {' '.join(options)}"
    data = "udp port 4791 and not (udp[13:2] = 0 and udp[15] = 1)"  # the BTH's destination queue pair
    capture = f"tcpdump -ni fab0 -vv '{data}' > /tmp/wire.txt 2>&1"
    shell(site, "n2", f"({capture} & echo $! > /tmp/dump) < /dev/null")
    # On a busy machine the server may not listen yet when it says so, and one that met a client that gave up
    # may be gone: each try has its own. What fails to connect sends no data.
    serve = f"(stdbuf -oL timeout 120 {command} > /tmp/server.txt 2>&1 & echo $! > /tmp/server) < /dev/null"
    waits = "for _ in $(seq 60); do grep -q Waiting /tmp/server.txt && break; sleep 0.5; done; sleep 1"
    said = []
    for _ in range(4):
        shell(site, "n2", f"{serve}; {waits}")
        client = shell(site, "n1", f"timeout 90 {command} 10.10.0.2; echo status $?")
        server = shell(site, "n2", "sleep 1; kill $(cat /tmp/server) 2> /dev/null; cat /tmp/server.txt")
        said.append(f"n1: {client}\nn2: {server}")
        if "status 0" in client:
            break
    assert "status 0" in client, "\n".join(said)
    seen = shell(site, "n2", "sleep 1; kill $(cat /tmp/dump); sleep 1; cat /tmp/wire.txt")
    return set(re.findall(r"\(tos (0x[0-9a-f]+),", seen))


def test_rdma_cm_and_verbs_traffic_has_the_class(fresh):
    """Catches: a ToS that is set somewhere and on no packet. 0x6a is DSCP 26 with ECT(0)."""
    assert on_the_wire(fresh, "-R") == {"0x6a"}
    tclass = shell(fresh, "n1", ". /etc/shakedown/roce.env; echo $SHAKEDOWN_ROCE_TCLASS").strip()
    assert on_the_wire(fresh, f"--tclass={tclass}") == {"0x6a"}
    shell(fresh, "n1", FORGET_TOS)
    assert "0x0" in on_the_wire(fresh, "-R")


def test_settings_survive_a_reboot(fresh):
    """Catches: what is lost at boot and not set again by the unit that udev starts."""
    boot = shell(fresh, "n2", "cat /proc/sys/kernel/random/boot_id")
    fresh.lab.ssh("n2", ["systemctl", "reboot", "--force"])
    deadline, said = time.monotonic() + 300, ""
    while time.monotonic() < deadline:
        time.sleep(5)
        said = shell(fresh, "n2", f"cat /proc/sys/kernel/random/boot_id; {CHECK}")
        if said and not said.startswith(boot.strip()) and "as wanted" in said and "found" not in said:
            break
    assert "found" not in said, said
    assert said.count("as wanted") >= 3, said


# A wrong setting of each port of the leaf, in the words of its read-back. swp1 and swp2 are rail0 of n1 and
# n2, swp3 and swp4 their rail1. No host has the same setting wrong at the other end.
PORTS = {
    ("swp1", "rail0"): '"traffic_class": 1',
    ("swp2", "rail0"): "mtu: 1500 -> 9000",
    ("swp3", "rail1"): "roce.ecn false -> true",
    ("swp4", "rail1"): "fa17:",
}


@pytest.fixture(scope="module")
def misconfigured(site):
    """Reasons of the failed cells, and of all, of one run with every host fault and one for each port."""
    site.restore()
    for machine, faults in FAULTS.items():
        for setting, script in faults.items():
            said = shell(site, machine, f"{script} && echo planted")
            assert said.endswith("planted\n"), (machine, setting, said)
    site.lab.fault_wrong_dscp_map("n1", "rail0")
    site.lab.fault_port_mtu("n2", "rail0", 1500)
    site.lab.fault_ecn_off("n1", "rail1")
    site.lab.fault_rate("n2", "rail1", 40)
    site.lab.fault_port_down("n2", "rail1")
    site.tell_neighbours()
    status, verdict, _ = site.accept("misconfigured", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    reasons = {c["cell"]: c["reason"] for c in verdict["cells"]}
    return {c["cell"]: c["reason"] for c in verdict["cells"] if c["outcome"] == "FAIL"}, reasons


def test_each_planted_misconfiguration_is_named(misconfigured):
    """Catches: a config stage that is green on a host that lost a setting, or blames its neighbour."""
    failed, _ = misconfigured
    for machine, faults in FAULTS.items():
        for setting in faults:
            mine = [r for c, r in failed.items() if f"/{machine}/" in c and c.endswith(f"setting={setting}")]
            assert len(mine) == 1, (machine, setting, sorted(failed))
            assert "found" in mine[0], mine
    # Rail 1 of n2 lost its device and n1 has none of n2's faults.
    assert not [c for c in failed if "/n1/" in c and "rdma.device" in c]
    assert not [c for c in failed if "/n2/" in c and "mtu.host_bytes" in c]


def test_wrong_settings_of_four_ports_are_each_named(misconfigured):
    """Catches: a switch that drifted from the intent and forwards all the same; a port named for another."""
    failed, _ = misconfigured
    found = {cell: reason for cell, reason in failed.items() if "switch_settings" in cell}
    wanted = {
        f"config/switch_settings/wrong/leaf0/{rail}/-/port={port}": words
        for (port, rail), words in PORTS.items()
    }
    assert set(found) == set(wanted)
    for cell, words in wanted.items():
        assert words in found[cell]
        assert f"leaf0 {cell.partition('port=')[2]}: " in found[cell]
        assert not [other for other in PORTS.values() if other != words and other in found[cell]]


def test_both_ends_of_a_cable_are_held_against_each_other(misconfigured):
    """Catches: a port whose setting is another than its host's, or a cable named that has none of it."""
    failed, reasons = misconfigured
    where = "config/crosscheck/wrong/"
    ends = {cell.removeprefix(where): reason for cell, reason in failed.items() if cell.startswith(where)}
    wanted = {
        "n1/rail0/-/what=dscp.26": "n1/fab0 has class 3, leaf0/swp1 has class 1",
        "n2/rail0/-/what=dscp.26": "n2/fab0 has class 0, leaf0/swp2 has class 3",  # the host's own fault
        "n2/rail0/-/what=mtu": "n2/fab0 has 9000 bytes, leaf0/swp2 has 1500 bytes",
    }
    assert set(ends) == set(wanted), ends
    assert all(words in ends[end] for end, words in wanted.items()), ends
    # The port that is shut. Its neighbour is not asked: it may as well be the node's cable.
    shut = f"{where}n2/rail1/-/what=cabling"
    assert "leaf0/swp4 heard no LLDP neighbour" in reasons[shut], reasons.get(shut)
    assert not [cell for cell in ends if cell.endswith("what=cabling")]


def test_rollback_restores_the_hosts(fresh):
    """Catches: a change without a record of what was there, and a rollback that never comes to rest."""
    well, printed = fresh.play("rollback.yml")
    assert well, printed[-4000:]
    assert shell(fresh, "n1", "rdma link show").strip() == ""
    assert shell(fresh, "n1", "cat /proc/sys/net/ipv4/conf/fab0/arp_ignore").strip() == "0"
    assert "3:off" in shell(fresh, "n1", "dcb pfc show dev fab0")
    assert "No such file" in shell(fresh, "n1", "ls /etc/shakedown/roce.env")
    well, printed = fresh.play("rollback.yml")
    assert well
    recap = re.findall(
        r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", printed.rpartition("PLAY RECAP")[2], re.MULTILINE
    )
    assert recap
    assert all(count == "0" for _, count in recap), recap
