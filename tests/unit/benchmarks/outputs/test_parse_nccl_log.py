"""NCCL's log: transports, devices, algorithms; socket fallback; mixed and unfinished logs."""

import contextlib
import time

import captured
import pytest

from shakedown.benchmarks.nccl.log import parse_nccl_log
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused

CAPTURE = "nccl_2.28.9_debug_info_all_reduce_16G_4xH200.txt"


def line(message: str, rank: int = 0) -> str:
    """One INFO line of the process of a rank; ranks 0 and 1 are on n1, 2 and 3 on n2."""
    return f"n{1 + rank // 2}:{100 + rank}:{200 + rank} [{rank % 2}] NCCL INFO {message}"


def comm(rank: int, event: str) -> str:
    """A line on the communicator of a rank."""
    place = f"cudaDev {rank % 2} nvmlDev {rank % 2} busId 1a000"
    return line(f"ncclCommInitRank comm 0xabc{rank} rank {rank} nranks 4 {place} commId 0x77 - {event}", rank)


def log(*messages: str, end: bool = True) -> str:
    """A two-node log with these lines in the middle."""
    lines = ["NCCL version 2.27.6+cuda12.8"]
    lines += [comm(rank, "Init START") for rank in range(4)]
    lines += [
        line(f"comm 0xabc{rank} rank {rank} nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0", rank)
        for rank in range(4)
    ]
    lines += [comm(rank, "Init COMPLETE") for rank in range(4)] + list(messages)
    ends = [
        line(f"comm 0xabc{rank} rank {rank} nranks 4 cudaDev {rank % 2} busId 1a000 - Destroy COMPLETE", rank)
        for rank in range(4)
    ]
    return "\n".join([*lines, *(ends if end else []), ""])


def test_real_log_of_one_node():
    """Catches "Using network Socket" of one node, which sends nothing over it, taken for a fallback."""
    result = parse_nccl_log(captured.read(CAPTURE))
    assert result.nccl_versions == ("2.28.9+cuda13.0",)
    assert result.transports == {"P2P/direct pointer": 96}  # 24 channels round a ring of 4
    assert (result.nodes, result.networks, result.socket_fallback) == (1, ("Socket",), False)
    assert (result.nvls_channels, result.ib_missing, result.finished) == (0, ("vm",), True)
    ranks = {rank.rank: (rank.host, rank.cuda_device, rank.bus_id) for rank in result.ranks}
    assert ranks == {0: ("vm", 0, "60"), 1: ("vm", 1, "70"), 2: ("vm", 2, "80"), 3: ("vm", 3, "90")}
    assert {(c.channel, c.sender, c.receiver) for c in result.channels} == {
        (channel, rank, (rank + 1) % 4) for channel in range(24) for rank in range(4)
    }


def test_roce_with_gpudirect():
    """Catches a device, a proxy rank or GDRDMA lost from `via NET/IB/...`."""
    result = parse_nccl_log(
        log(
            line("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"),
            line("NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_0:2/IB} [RO]; OOB eth0:10.0.0.2<0>", 2),
            line("NET/IB : Using [2]mlx5_2:1:2::/IB [RO]; OOB eth0:10.0.0.2<0>", 3),
            line("Using network IB"),
            line("DMA-BUF is available on GPU device 0"),
            line("DMA-BUF is available on GPU device 0", 2),
            line("Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA", 1),
            line("Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/1(0)/GDRDMA(PCI)/Shared", 1),
            line("Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/0", 2),
            line("Channel 00/0 : 0[1a000] -> 1[1b000] via P2P/CUMEM/read"),
            line("Channel 00 : 2[0] -> 3[1] via SHM/direct/direct", 2),
            line("GPU Direct RDMA Disabled for GPU 1 / HCA 1 (distance 8 > 5)", 1),
        )
    )
    assert result.transports == {"NET/IB": 1, "NET/IB/GDRDMA": 2, "P2P/CUMEM": 1, "SHM/direct": 1}
    assert (result.net_connections, result.net_gdr_connections, result.socket_fallback) == (3, 2, False)
    assert [(d.host, d.index, d.name, d.port, d.link) for d in result.ib_devices] == [
        ("n1", 0, "mlx5_0", 1, "RoCE"),
        ("n1", 1, "mlx5_3", 1, "RoCE"),
        ("n2", 0, "mlx5_0+mlx5_0", 1, "IB"),
        ("n2", 2, "mlx5_2", 1, "IB"),
    ]
    assert [c.net_device for c in result.channels] == [0, 1, 0, None, None]
    assert result.gdr_refusals == ("GPU Direct RDMA Disabled for GPU 1 / HCA 1 (distance 8 > 5)",)
    assert (result.dmabuf_devices, result.hosts, result.nodes) == (2, ("n1", "n2"), 2)


@cases("message", "Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0", "Using network Socket")
def test_socket_fallback(message):
    """Catches a run over TCP certified as RoCE."""
    assert parse_nccl_log(log(line(message))).socket_fallback is True


def test_algorithms_of_old_and_new_versions():
    """Catches Ring taken for NVLS: a busbw above the ring ceiling is legal only if it was not Ring."""
    result = parse_nccl_log(
        log(
            line("AllReduce: 8589934592 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"),
            line("AllReduce: 8589934592 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"),
            line("1024 Bytes -> Algo 1 proto 0 time 12.300000"),
            line("AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512"),
        )
    )
    assert [(c.operation, c.size_bytes, c.algorithm, c.protocol, c.times) for c in result.choices] == [
        ("AllReduce", 8589934592, "NVLS", "SIMPLE", 2),
        (None, 1024, "RING", "LL", 1),
        ("AllReduce", 64, "SYMMETRIC", "AllReduce_AGxLL_R", 1),
    ]


def test_nvls_is_available_only_if_everywhere():
    """Catches one node without NVLink multicast hidden by the others."""
    on = line("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)")
    off = line("NVLS multicast support is not available on dev 1", 3)
    assert parse_nccl_log(log(on)).nvls_available is True
    assert parse_nccl_log(log(on, off)).nvls_available is False
    assert parse_nccl_log(log()).nvls_available is None


def test_warnings_are_kept_with_their_text():
    """Catches a warning that leaves no trace."""
    warning = "n1:100:200 [0] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with error No data"
    stamped = (
        "[2026-11-20 10:00:00] n2:102:202 [0] transport/net_ib.cc:99 NCCL WARN NET/IB : Got completion 12"
    )
    result = parse_nccl_log(log(warning, "", stamped))
    assert result.warnings == (
        "n1: Call to ibv_modify_qp failed with error No data",
        "n2: NET/IB : Got completion 12",
    )


@cases(
    "text, message",
    (
        log("Channel".join(["n1:100:200 [0] NCCL INFO ", " 00/0 : 1[1] -> 2[0] [send] via NET/IB"])),
        "transport",
    ),
    (log(line("Channel 00/0 : 1[1] -> 2[0] [send] via carrier pigeon")), "unknown transport"),
    (log(line("Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRD")), "unknown transport"),
    (log(line("Channel 00/0 : 1[1] -> x[0] via SHM/direct")), "channel that cannot be read"),
    (log(line("1024 Bytes -> Algo 9 proto 0 time 12.3")), "unknown algorithm"),
    (log(line("1024 Bytes -> Algo RING")), "cannot be read"),
    (log("n1:100:200 [0] NCCL INFO Chann" + line("Using network IB", 1)), "mixed"),
    (log("   1048576   262144   float   sum  -1" + line("Using network IB")), "mixed"),
    (log(end=False), "ends before 'Destroy COMPLETE'"),
    ("\n".join(comm(rank, "Init START") for rank in range(4)), "begun and never set up"),
    ("# nccl-tests version 2.19.6\n", "ends before the first 'Init COMPLETE'"),
)
def test_damaged_logs_are_refused(text, message):
    """Catches a log half-read: a mixed line may hide the one NET/Socket."""
    refused(message, parse_nccl_log, text)


def test_an_address_used_twice_and_an_abort():
    """Catches a second communicator at the address of the first, taken for ended because the first was."""
    again = comm(0, "Init START") + "\n" + comm(0, "Init COMPLETE") + "\n"
    refused("ends before 'Destroy COMPLETE'", parse_nccl_log, log() + again)
    refused("begun and never set up", parse_nccl_log, log() + comm(0, "Init START") + "\n")
    abort = line("comm 0xabc0 rank 0 nranks 4 cudaDev 0 busId 1a000 - Abort COMPLETE") + "\n"
    result = parse_nccl_log(log() + again + abort)
    assert (result.finished, result.aborted, len(result.ranks)) == (True, 1, 4)


def test_an_unfinished_log_on_request():
    """Catches `finished` claimed for a log whose end nobody saw."""
    result = parse_nccl_log(log(end=False), allow_unfinished=True)
    assert (result.finished, len(result.ranks)) == (False, 4)
    assert not any(rank.finished for rank in result.ranks)


def test_connections_lost_of_a_ring_or_a_tree():
    """Catches a connection whose line was lost: it may have been the one over sockets."""
    text = captured.read(CAPTURE)
    for lost in ("Channel 07/0 : 2[2] -> 3[3] via", "Channel 09/24 :", "Channel 23/24 :"):
        with pytest.raises(BadInput, match="is missing: lines of the log are lost"):
            parse_nccl_log("".join(x for x in text.splitlines(True) if lost not in x))
    again = next(x for x in text.splitlines(True) if "Channel 07/0 : 2[2] -> 3[3] via" in x)
    refused("a connection is named twice", parse_nccl_log, text.replace(again, again * 2))


def two_nodes(lost: str = "") -> str:
    """Two ranks of two nodes in one ring and one tree; `lost` names a line that is not there."""
    lines = [
        line("Channel 00/01 : 0 1 2 3"),
        line("Trees [0] 1/-1/-1->0->2"),
        line("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"),
        line("Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA", 1),
        line("Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/0/GDRDMA", 2),
        line("Channel 00/0 : 2[0] -> 3[1] via P2P/CUMEM", 2),
        line("Channel 00/0 : 3[1] -> 0[0] [send] via NET/IB/0/GDRDMA", 3),
        line("Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA"),
        line("Connected all rings, use ring PXN 0 GDR 1"),
        line("Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA"),
        line("Channel 00/0 : 0[0] -> 2[0] [receive] via NET/IB/0/GDRDMA", 2),
        line("Connected all trees"),
    ]
    return log(*(x for x in lines if not lost or lost not in x))


@cases("lost", "0[0] -> 1[1]", "1[1] -> 2[0] [send]", "1[1] -> 2[0] [receive]", "0[0] -> 2[0] [send]")
def test_connections_between_nodes_have_two_ends(lost):
    """Catches one end of a connection lost, of a ring or of a tree."""
    assert parse_nccl_log(two_nodes()).net_gdr_connections == 6
    refused("is missing: lines of the log are lost", parse_nccl_log, two_nodes(lost))


def test_a_version_that_stands_alone_and_tagged_lines():
    """Catches "NCCL version" without "NCCL INFO" passed over, and a log of all ranks under --tag-output."""
    assert parse_nccl_log(log()).nccl_versions == ("2.27.6+cuda12.8",)
    tagged = "".join(f"[1,{n % 4}]<stdout>:{x}\n" for n, x in enumerate(two_nodes().splitlines()))
    assert parse_nccl_log(tagged) == parse_nccl_log(two_nodes())


@cases("piece", "a", "a:1:1 [0] ", "[0]a", "[0]a:", "[0]a:0:", "}={", "1:", "- ", "(", "a:0", ids=repr)
@cases("head", "", "NET/IB : Using ", "NET/Socket : Using ", "1 Bytes -> Algo a proto a channel{", ids=repr)
def test_many_lines_of_the_longest_cost_no_time(head, piece):
    """Catches: an expression that looks from each character on to the line's end: 0.1 s for each line of
    8,000 characters, and a quarter of an hour for a log of 64 MB."""
    message = (head + piece * 8000)[:8000]
    began = time.process_time()
    with contextlib.suppress(BadInput):
        parse_nccl_log(log(*[line(message)] * 40), allow_unfinished=True)
    assert time.process_time() - began < 0.5


@cases(
    "message, spliced",
    ("Channel 00 : 0[0] -> n1:1:2 [0] NCCL INFO Channel 01", True),
    ("Channel 00 : 0[0] -> n1:1:2 [0] and more of it NCCL WARN", True),
    ("Channel NCCL INFO Channel", True),
    ("Call to connect returned n1:1:2 [0] refused", False),
    ("it said NCCL INFO", False),
)
def test_a_line_that_begins_within_another_is_told(message, spliced):
    """Catches: two processes' lines in one, read as one; a message that names an address taken for two."""
    with pytest.raises(BadInput, match="are mixed") if spliced else contextlib.nullcontext():
        parse_nccl_log(log(line(message)) if spliced else log(line(f"x {message}")))


def test_a_line_without_end_costs_no_time():
    """Catches: an expression that is tried from each letter of a line of 80 kB on, which took minutes."""
    started = time.process_time()
    refused("a line of 80000 characters does not come from NCCL", parse_nccl_log, "a" * 80_000 + "\n")
    assert time.process_time() - started < 1
