"""Which networks of NCCL carry RDMA: its own, plugins, several NICs as one, and RCCL's way of writing."""

from typing import Literal

import pytest

from shakedown.benchmarks.nccl.log import parse_nccl_log
from shakedown.benchmarks.nccl.metrics import judge_log
from shakedown.benchmarks.nccl.settings import ExpectedWay
from tests.kit.cases import cases

NICS = ("mlx5_0", "mlx5_1")
NODES = ("gpu-a", "gpu-b")


def log(network: str, *, merged: bool = False, suffix: str = "", says: str = "NET/IB", more: str = "") -> str:
    """A log of two nodes with a GPU each, as NCCL 2.28 writes it (src/init.cc, src/transport/net.cc)."""
    lines = []
    for rank, node in enumerate(NODES):
        front = f"{node}:50{rank}:60{rank} [0] NCCL INFO "
        comm = f"ncclCommInitRankConfig comm 0x55 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 18000"
        net = f"{rank}[0] -> {1 - rank}[0] [send] via NET/{network}"
        said = [
            f"{says} : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
            *(["NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2"] if merged else []),
            f"Using network {network}",
            f"{comm} - Init START",
            f"comm 0x55 rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0",
            *(
                f"Channel 0{i}/0 : {net}/{device}/GDRDMA{suffix}"
                for i, device in enumerate([2] if merged else [0, 1])
            ),
            *([more] if more else []),
            "2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels",
            f"{comm} - Init COMPLETE",
            f"comm 0x55 rank {rank} nranks 2 cudaDev 0 busId 18000 - Destroy COMPLETE",
        ]
        lines += [front + line for line in said]
    return "\n".join(lines) + "\n"


def judged(
    text: str,
    network: Literal["roce", "nvlink"] = "roce",
    *,
    nics: tuple[str, ...] = NICS,
    plugin: str = "None",
) -> dict[str, tuple[int | None, str]]:
    """Whether each check is wrong, and its words."""
    of_nodes = dict.fromkeys(NODES, nics)
    expect = ExpectedWay(nvls=False, nics=of_nodes, network=network, plugins=(plugin,))
    found = judge_log(parse_nccl_log(text), expect, dict.fromkeys(NODES, 1))
    return {one.check: (one.wrong, one.detail) for one in found}


@cases(
    "network",
    *("IB", "IBext_v10", "IBext", "IBext_v11", "IBext_v12", "UCX", "UCX-RMA", "UCX-UCT", "UCX-UCT-RD"),
    *("gIB", "SPCX", "RCCL-ANP", "IB-CAST", "IB-ROCM"),
)
def test_a_plugin_that_goes_by_verbs_is_rdma(network):
    """Catches: NVIDIA's plugin of every HPC-X and NGC image called a TCP fallback."""
    found = judged(log(network))
    assert {check: wrong for check, (wrong, _) in found.items()} == dict.fromkeys(found, 0), found
    assert "over RoCE, RoCE wanted" in found["network"][1]


def test_sockets_are_no_rdma_and_of_an_unknown_plugin_nothing_is_known():
    """Catches: TCP that passes by a plugin's name; a new plugin blamed as TCP."""
    assert judged(log("Socket"))["network"] == (
        1,
        "4 of 4 connections between nodes go by Socket: TCP fallback, no RDMA",
    )
    wrong, words = judged(log("Wire_v3"))["network"]
    assert wrong is None and "go by Wire_v3: whether that is RDMA is not known here" in words
    assert judged(log("Wire_v3"), plugin="Wire_v3")["network"][0] == 0
    assert judged(log("Socket"), plugin="Socket")["network"][0] == 1
    assert judged(log("Wire_v3", says="NET/W : has"), plugin="Wire_v3")["network"][0] is None


@cases("via, transport", ("CARRIER/pigeon", "CARRIER"), ("P2P/UALINK/read", "P2P"))
def test_a_later_release_s_way_is_kept_and_makes_nothing_good(via, transport):
    """Catches: a whole log unread for one new word; a way that nobody knows taken for the one wanted."""
    text = log("IB").replace("NET/IB/1/GDRDMA", via)
    assert {c.transport for c in parse_nccl_log(text).channels} == {"NET", transport}
    found = judged(text)
    assert found["gdr"][0] == 0 and found["nics"][0] == 1  # what is known stays known
    assert (found["network"][0] is None) is (transport == "CARRIER")
    within = ExpectedWay(nvls=False, nics={"gpu-a": NICS})
    one = parse_nccl_log(log("IB").replace("NET/IB/0/GDRDMA", via).replace("NET/IB/1/GDRDMA", via))
    judged_within = {d.check: d.wrong for d in judge_log(one, within, {"gpu-a": 2})}
    assert judged_within["intra_node"] == (None if transport == "CARRIER" else 0)


@cases("says", "NET/gIB", "NET/Libfabric", "NET/OFI", "NET/IB-CAST", "NET/AWS Libfabric")
def test_a_plugin_that_lists_its_nics_by_its_own_name_is_read_and_one_that_lists_none_blames_none(says):
    """Catches: NICs that "carry nothing" of a plugin that says so in other words, or not at all."""
    assert judged(log("gIB", says=says))["nics"][0] == 0
    assert judged(log("gIB", says=f"{says} will"))["nics"][0] is None


def test_nvlink_between_nodes_can_be_planned_and_is_not_roce():
    """Catches: a rack of GB200 that can never PASS; NVLink taken for RoCE."""
    lines = (
        log("IB")
        .replace("[send] via NET/IB/0/GDRDMA", "via P2P/MNNVL")
        .replace("[send] via NET/IB/1/GDRDMA", "via P2P/MNNVL")
    )
    assert judged(lines, "nvlink")["network"] == (
        0,
        "4 connections between nodes go over NVLink, all of them wanted",
    )
    assert judged(log("IB"), "nvlink")["network"][0] == 1
    found = judged(lines)
    assert (found["network"][0], found["nics"][0], found["intra_node"][0]) == (1, None, 0)
    assert "over NVLink (MNNVL), none over a NIC" in found["network"][1]


@cases(
    "said",
    "NET/IB: ncclIbResiliencyCheckErrorNotFatal: The error is not fatal. Trying to continue...",
    "NET/IB : mlx5_0:1 speed change detected: 400000 -> 100000 Mbps",
    "NET/IB: ncclIbResiliencyDevFail: Marking device 1 as permanently failed (send comm=0x7f)",
)
def test_a_nic_that_is_lost_or_slowed_in_mid_run_is_told(said):
    """Catches: NCCL 2.30, which goes on without a NIC and calls that INFO."""
    assert parse_nccl_log(log("IB", more=said)).warnings == tuple(f"{node}: {said}" for node in NODES)


def test_a_device_that_is_made_of_two_ports_counts_for_both():
    """Catches: both NICs of a node called silent, because NCCL merged them; their link as unknown."""
    found = judged(log("IB", merged=True))
    assert (found["nics"][0], found["network"][0]) == (0, 0), found


def test_the_second_way_of_a_nic_to_gpus_is_that_nic():
    """Catches: a healthy NIC with Data Direct (`mlx5_0_dma`) of which it is said that it carries nothing."""
    found = judged(log("IB").replace("mlx5_0:", "mlx5_0_dma:"))
    assert (found["nics"][0], found["network"][0]) == (0, 0), found


FOUND = (
    "NET/IB: [{i}] mlx5_{i}:uverbs{i}:1/RoCE provider=Mlx5 speed=400000 context=0x7f pciPath=/sys/{i} ar=0",
    "NET/IB : Made virtual device [{i}] name=mlx5_{i}{way} speed=400000 ndevs=1",
)


@cases(
    "way, listed, merged",
    ("", True, True),
    ("_dma", True, True),
    ("", False, True),  # the list is lost: each device was told as it was found
    ("_dma", False, False),
)
def test_devices_are_known_in_each_form_that_nccl_has_for_them(way, listed, merged):
    """Catches: NICs called unknown, or their link, where a release tells of each as it is found."""
    text = log("IB", merged=merged).replace("mlx5_0+mlx5_1", f"mlx5_0{way}+mlx5_1{way}")
    lines = []
    for line in text.replace("mlx5_0:", f"mlx5_0{way}:").replace("mlx5_1:", f"mlx5_1{way}:").splitlines():
        front, _, said = line.partition("NCCL INFO ")
        if " : Using [0]" in said:
            lines += [f"{front}NCCL INFO {form.format(i=i, way=way)}" for i in (0, 1) for form in FOUND]
        if listed or " : Using [0]" not in said:
            lines.append(line)
    found = judged("\n".join(lines) + "\n")
    assert (found["nics"][0], found["network"][0]) == (0, 0), found
    assert len(parse_nccl_log("\n".join(lines) + "\n").ib_devices) == 2 * (2 + merged)


def test_the_third_device_of_two_is_both():
    """Catches: the NICs of a node called unknown, whose log does not tell that NCCL merged the only two."""
    text = "".join(x for x in log("IB", merged=True).splitlines(True) if "Made virtual" not in x)
    found = judged(text)
    assert (found["nics"][0], found["network"][0]) == (0, 0), found
    more = text.replace("[RO]", "[2]mlx5_2:1/RoCE [RO]")
    assert judged(more)["nics"][0] == 1
    none = "".join(x for x in text.splitlines(True) if ": Using" not in x)
    assert (judged(none)["nics"][0], judged(none)["network"][0]) == (None, None)


@pytest.mark.parametrize(
    ("listed", "nics"),
    [
        ("[0]={[0] mlx5_0:1/RoCE, [1] mlx5_0:2/RoCE} [1]={[2] mlx5_1:1/RoCE, [3] mlx5_1:2/RoCE}", NICS),
        (
            "[0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [1]={[2] mlx5_2:1/RoCE, [3] mlx5_3:1/RoCE}",
            ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"),
        ),
        ("[0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [1]mlx5_2:1/RoCE", ("mlx5_0", "mlx5_1", "mlx5_2")),
    ],
)
def test_ports_that_nccl_2_21_fused_have_the_number_before_the_braces(listed, nics):
    """Catches: NICs that "carry nothing", since a fused device was read by the numbers of its ports."""
    plain = "[0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE"
    found = judged(log("IB").replace(plain, listed), nics=nics)
    assert (found["nics"][0], found["network"][0]) == (0, 0), found
    assert judged(log("IB").replace(plain, listed), nics=(*nics, "mlx5_9"))["nics"][0] == 1


def test_a_channel_that_rccl_wrote_is_read():
    """Catches: a whole log refused for the communicator that RCCL names at the end of a channel's line."""
    assert judged(log("IB", suffix=" comm 0x5581 nRanks 02"))["network"][0] == 0
