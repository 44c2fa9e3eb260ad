"""Networks beside the RoCE fabric: what an inventory may say of them, and what proves their use."""

import copy
import re

from shakedown.benchmarks.nccl.log import parse_nccl_log
from shakedown.benchmarks.nccl.log_model import NcclChannel, NcclIbDevice, NcclLog, NcclRank, NcclSocketDevice
from shakedown.benchmarks.nccl.metrics import judge_log
from shakedown.benchmarks.nccl.settings import ExpectedWay
from shakedown.intent.tcp_rules import problems
from tests.kit.cases import cases

FABRICS = [{"name": "B", "link_speed_gbps": 10, "mtu_bytes": 1500, "subnet": "10.20.0.0/24"}]
HOSTS = {
    f"n{number}": {
        "fabric_nics": [{"netdev": "ens1"}],
        "tcp_nics": [{"fabric": "B", "netdev": "ens2", "ipv4": f"10.20.0.{number}/24"}],
    }
    for number in (1, 2)
}


def test_a_right_inventory_has_no_problem():
    """Catches: a rule that refuses what the shipped inventory has."""
    assert problems(FABRICS, HOSTS) == []
    assert problems([], {name: {} for name in HOSTS}) == []


@cases(
    "change, says",
    (lambda f, _: f[0].pop("subnet"), "has no subnet"),
    (lambda f, _: f[0].update(subnet="10.20.0.1/24"), "subnet of B"),
    (lambda f, _: f[0].update(name="roce"), "is the name of `fabric` itself"),
    (lambda f, _: f[0].update(name="tcp"), "is the name of all of them at once"),
    (lambda f, _: f.append(f[0]), "names B 2 times"),
    (lambda _, h: h["n1"].update(tcp_nics="ens2"), "no list of mappings"),
    (lambda _, h: h["n1"].pop("tcp_nics"), "0 interfaces in fabric B"),
    (lambda _, h: h["n1"]["tcp_nics"].append(h["n1"]["tcp_nics"][0]), "2 interfaces in fabric B"),
    (lambda _, h: h["n1"]["tcp_nics"][0].pop("netdev"), "has no netdev"),
    (lambda _, h: h["n1"]["tcp_nics"][0].update(fabric="C"), "is none of tcp_fabrics (B)"),
    (lambda _, h: h["n1"]["tcp_nics"][0].update(netdev="ens1"), "is a NIC of the RoCE fabric"),
    (lambda _, h: h["n1"]["tcp_nics"][0].update(ipv4="10.20.0.x"), "ipv4 of ens2"),
    (lambda _, h: h["n1"]["tcp_nics"][0].update(ipv4="10.10.0.1/24"), "but fabric B is 10.20.0.0/24"),
    (lambda _, h: h["n1"]["tcp_nics"][0].update(ipv4="10.20.0.2/24"), "2 interfaces have address"),
)
def test_what_cannot_be_is_said(change, says):
    """Catches: TCP measured over the RoCE NIC, over no interface, or over an address of another network."""
    fabrics, hosts = copy.deepcopy(FABRICS), copy.deepcopy(HOSTS)
    change(fabrics, hosts)
    assert any(says in str(problem) for _, problem in problems(fabrics, hosts))


def test_no_list_is_refused():
    """Catches: a traceback for a text where a list belongs."""
    ((host, problem),) = problems("B", HOSTS)
    assert host is None and "no list of mappings" in str(problem)


def log(network: str, interface: str) -> NcclLog:
    """A log of two hosts with one GPU each."""
    base = {"nodes": 2, "ib_devices": (), "ib_missing": (), "transports": {}, "net_connections": 2}
    base |= {"net_gdr_connections": 0, "socket_fallback": network == "Socket", "dmabuf_devices": 0}
    base |= {"gdr_refusals": (), "nvls_available": None, "nvls_channels": 0, "choices": (), "aborted": 0}
    base |= {
        "nccl_versions": (),
        "hosts": ("n1", "n2"),
        "networks": (network,),
        "finished": True,
        "warnings": (),
    }
    ranks = [
        NcclRank(
            communicator="c",
            rank=rank,
            ranks=2,
            host=f"n{rank + 1}",
            pid=1,
            cuda_device=0,
            bus_id="1",
            finished=True,
        )
        for rank in (0, 1)
    ]
    channels = [
        NcclChannel(
            host=f"n{rank + 1}",
            channel=0,
            sender=rank,
            receiver=1 - rank,
            direction="send",
            transport="NET",
            detail=f"{network}/0",
            network=network,
            net_device=0,
            gdr=False,
        )
        for rank in (0, 1)
    ]
    devices = [NcclSocketDevice(host=host, index=0, name=interface) for host in ("n1", "n2")]
    return NcclLog(ranks=tuple(ranks), channels=tuple(channels), socket_devices=tuple(devices), **base)


@cases(
    "network, interface, wrong",
    ("Socket", "ens2", {"network": 0, "nics": 0}),
    ("Socket", "ens9", {"network": 0, "nics": 1}),
    ("IB", "ens2", {"network": 1, "nics": 0}),
)
def test_the_log_proves_which_network_was_measured(network, interface, wrong):
    """Catches: RoCE, or the management network, measured in the name of B."""
    expect = ExpectedWay(
        nvls=False, nics={"n1": ("r0",), "n2": ("r0",)}, interfaces={"n1": ("ens2",), "n2": ("ens2",)}
    )
    found = {d.check: d.wrong for d in judge_log(log(network, interface), expect, {"n1": 1, "n2": 1})}
    assert {check: found[check] for check in wrong} == wrong
    assert "gdr" not in found


def test_a_recorded_log_names_its_interfaces(recorded_run):
    """Catches: a line of NCCL that is read differently than NCCL writes it."""
    log = next((recorded_run("h200x4_nccl_socket") / "raw").glob("*/nccl_all_reduce.log"))
    devices = parse_nccl_log(log.read_text(), file=log).socket_devices
    assert {(device.index, device.name) for device in devices} == {(0, "eth0")}


def way(network, used, *, expect, planned=("fab0", "fab1"), link="RoCE"):
    """What the log of a run over `network` decides where `expect` was planned."""
    seen = log(network, "fab0")
    sockets = tuple(
        NcclSocketDevice(host=host, index=i, name=n) for host in ("n1", "n2") for i, n in enumerate(used)
    )
    verbs = tuple(NcclIbDevice(host=host, index=0, name="r0", port=1, link=link) for host in ("n1", "n2"))
    both = ("n1", "n2")
    wanted = ExpectedWay(
        nvls=False,
        gdr=False,
        network=expect,
        nics=dict.fromkeys(both, ("r0",)),
        interfaces=dict.fromkeys(both, planned) if expect == "socket" else {},
    )
    ib = verbs if network == "IB" else ()
    seen = seen.model_copy(update={"socket_devices": sockets, "ib_devices": ib})
    return {d.check: (d.wrong, d.detail) for d in judge_log(seen, wanted, {"n1": 1, "n2": 1})}


@cases(
    "network, link, expect, wrong, says",
    ("Socket", "", "socket", 0, "2 of 2 connections between nodes go by TCP, all of them wanted"),
    ("IB", "RoCE", "socket", 1, "0 of 2 .*; IB carries the others"),
    ("IB", "RoCE", "roce", 0, "RoCE wanted"),
    ("IB", "IB", "ib", 0, "InfiniBand wanted"),
    ("IB", "IB", "roce", 1, "over IB, RoCE wanted"),
    ("IB", "RoCE", "ib", 1, "over RoCE, InfiniBand wanted"),
    ("Socket", "", "roce", 1, "TCP fallback, no RDMA"),
    ("Socket", "", "ib", 1, "TCP fallback, no RDMA"),
)
def test_the_expected_network_decides(network, link, expect, wrong, says):
    """Catches: sockets that always fail where nothing else is planned, or InfiniBand taken for RoCE."""
    found = way(network, ("fab0", "fab1"), expect=expect, link=link)["network"]
    assert found[0] == wrong and re.search(says, found[1]), found


def test_a_rail_that_sockets_leave_out_is_named():
    """Catches: NCCL_SOCKET_IFNAME that names one rail of two."""
    wrong, says = way("Socket", ("fab0",), expect="socket")["nics"]
    assert wrong == 1 and says.endswith("planned: fab1 carry nothing")


def test_no_gpudirect_is_asked_of_sockets():
    """Catches: a check that TCP can never pass."""
    assert "gdr" not in way("Socket", ("fab0", "fab1"), expect="socket")
