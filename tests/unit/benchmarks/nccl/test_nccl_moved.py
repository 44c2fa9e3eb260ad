"""Collectives between nodes held against the NICs' counters: what an operation needs must have gone over."""

from pathlib import Path

import pytest

from shakedown.benchmarks.base.contract import Moved, Output
from shakedown.benchmarks.nccl.settings import ExpectedWay, NcclSettings
from shakedown.benchmarks.registry import TOOLS
from shakedown.collect.counters import confirmed
from shakedown.collect.outputs import Told
from shakedown.physics.collectives import Collective, least_crossing_bytes
from shakedown.records.base import NicSpec, Stage
from shakedown.records.results import OutputRecord
from shakedown.run.nic_counters import JobFolder, NodeCounters
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.unit.benchmarks.nccl.test_networks import log
from tests.unit.collect.test_surroundings import reading

NODES = ("n1", "n2")
MIB = 1 << 20
ITERATIONS = 20
# Two nodes of two GPUs, one message of 1 MiB: all_reduce moves it once each way, for each of 40 calls.
NEEDED = 2 * ITERATIONS * MIB


def printed(operation: str, *, root: int = -1, in_place: str = "0") -> str:
    """What nccl-tests 2.19 prints for one message of 1 MiB that takes a millisecond."""
    factor = {"all_reduce": 1.5, "alltoall": 0.75, "broadcast": 1.0}[operation]
    row = f"  1000.00    1.05    {1.048576 * factor:.2f}"
    count = MIB // 4 // (4 if operation == "alltoall" else 1)  # of one part
    ranks = enumerate(["n1.site", "n1.site", "n2.site", "n2.site"])
    return "\n".join(
        [
            "# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809",
            f"# Collective test starting: {operation}_perf",
            f"# nThread 1 nGpus 1 minBytes {MIB} maxBytes {MIB} step: 2(factor) warmup iters: 5"
            f" iters: {ITERATIONS} agg iters: 1 validation: 1 graph: 0",
            "# Using devices",
            *(
                f"#  Rank {r} Group  0 Pid {100 + r} on {h} device {r % 2} [0x{r:02x}] NVIDIA H100"
                for r, h in ranks
            ),
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
            "     time   algbw   busbw  #wrong",
            f"  {MIB}  {count}  float  sum  {root}{row}  0{row}  {in_place}",
            "# Out of bounds values : 0 OK",
            f"# Avg bus bandwidth    : {1.048576 * factor:.2f}",
            "#",
            f"# Collective test concluded: {operation}_perf",
            "",
        ]
    )


def output(tmp_path: Path, operation: str = "all_reduce", text: str = "", **changes: object) -> Output:
    """One output of two nodes with two GPUs each."""
    order = {"operations": (operation,), "min_bytes": MIB, "max_bytes": MIB, "factor": 2, "dtype": "float"}
    order |= {"iterations": ITERATIONS, "warmup": 5, "repeats": 1, "time_below_bytes": 0, "tuning": False}
    order |= {"launcher": "srun", "gpus": dict.fromkeys(NODES, 2), "variables": {}}
    order |= {"params": {"dtype": "float"}, "timeout_s": 300, "sizes": (MIB,)}
    order |= {"expect": ExpectedWay(nvls=False, nics=dict.fromkeys(NODES, ("mlx5_0", "mlx5_1")))}
    record = OutputRecord(
        tool="nccl",
        test=f"nccl_{operation}",
        file=f"nccl_{operation}.r1.txt",
        nodes=NODES,
        exit_code=0,
        started="2026-11-20T00:00:00Z",
        duration_s=1.0,
    )
    folder = JobFolder(tmp_path)
    return Output(text or printed(operation), record, NcclSettings.model_validate(order | changes), folder)


def moved(one: Output) -> list[Moved]:
    """What the registry's reader says must have gone over the NICs."""
    tool = TOOLS["nccl"]
    assert tool.moved is not None
    return list(tool.moved(one))


def held(one: Output, counted: int) -> str:
    """Why the output decides nothing, where the NICs of each node together counted so many bytes each way."""
    measured = records.measurement(
        run="r1",
        stage=Stage.COLLECTIVE,
        test=one.record.test,
        metric="busbw",
        value=1.57,
        unit="GB/s",
        nodes=NODES,
    )
    words = counted // 4 // 2
    devices = [
        {f"mlx5_{n}": {"ib.port_xmit_data": share, "ib.port_rcv_data": share} for n in (0, 1)}
        for share in (0, words)
    ]
    readings = dict.fromkeys(NODES, (NodeCounters(devices[0]), NodeCounters(devices[1])))
    nics = dict.fromkeys(
        NODES,
        tuple(
            NicSpec(rail=f"rail{n}", rdma_device=f"mlx5_{n}", netdev=f"eth{n}", ipv4=f"10.0.{n}.1")
            for n in (0, 1)
        ),
    )
    (told,) = confirmed([Told((measured,), tuple(moved(one)))], readings, {}, nics, nics)
    problem = told.measurements[0].problem
    return problem.message if problem else ""


def test_a_collective_that_the_nics_did_not_carry_decides_nothing(tmp_path):
    """Catches: 2 of 20 iterations, printed as 20 by a wrapper, certified as a collective between nodes."""
    one = output(tmp_path)
    assert held(one, NEEDED // 10) == (
        "n1: by the outputs of this job it sent 41.9 MB, the NIC counted 4.19 MB and received 41.9 MB, "
        "the NIC counted 4.19 MB"
    )
    assert "the NIC counted 0 bytes" in held(one, 0)


@pytest.mark.parametrize("share", [1.0, 0.96])
def test_the_least_that_any_algorithm_moves_is_enough(tmp_path, share):
    """Catches: a good SHARP or tree run doubted, because a ring would have moved more."""
    assert held(output(tmp_path), round(share * NEEDED)) == ""


def test_ways_that_are_not_the_nics_under_test_are_not_asked_of_them(tmp_path):
    """Catches: a comparison over TCP, another network's sweep or groups within nodes held to idle NICs."""
    assert moved(output(tmp_path))
    for changes in (
        {"network": "B"},
        {"split": "div"},
        {"variables": {"NCCL_IB_DISABLE": "1"}},
        {"variables": {"NCCL_NET": "Socket"}},
    ):
        assert moved(output(tmp_path, **changes)) == []
    # RDMA that is off in a value that keeps it on.
    assert moved(output(tmp_path, variables={"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB"}))
    assert moved(output(tmp_path, variables={"NCCL_NET": "IBext_v10"}))  # NVIDIA's plugin goes by verbs, too


def test_sockets_over_the_nics_under_test_are_asked_of_them(tmp_path):
    """Catches: a site that expects sockets on its fabric, and whose runs no counter ever bears out."""
    interfaces = dict.fromkeys(NODES, ("eth0", "eth1"))
    expect = ExpectedWay(nvls=False, network="socket", nics=dict.fromkeys(NODES, ()), interfaces=interfaces)
    one = output(tmp_path, expect=expect, variables={"NCCL_IB_DISABLE": "1"})
    assert {node.sent for node in moved(one)} == {float(NEEDED)}


def test_the_roots_node_sends_and_the_others_receive(tmp_path):
    """Catches: a broadcast asked for bytes that its root never gets, or a root on the wrong node."""
    at = {root: moved(output(tmp_path, "broadcast", printed("broadcast", root=root))) for root in (0, 3)}
    there, back = Moved("n1", None, NEEDED, 0.0), Moved("n2", None, 0.0, NEEDED)
    assert at[0] == [there, back]
    assert at[3] == [back._replace(node="n1"), there._replace(node="n2")]
    elsewhere = printed("broadcast", root=0).replace(".site", "x.site")
    assert {(one.sent, one.received) for one in moved(output(tmp_path, "broadcast", elsewhere))} == {(0, 0)}


def test_what_was_not_checked_is_not_counted(tmp_path):
    """Catches: an all-to-all in place, which nccl-tests cannot check, taken for proof of traffic."""
    one = output(tmp_path, "alltoall", printed("alltoall", in_place="N/A"))
    # Each of a node's two ranks sends half of its message to the other node.
    assert {node.sent for node in moved(one)} == {ITERATIONS * MIB}


@cases(
    "collective, root, least",
    ("all_reduce", None, (800, 800)),
    ("all_gather", None, (200, 600)),
    ("reduce_scatter", None, (600, 200)),
    ("alltoall", None, (1200, 1200)),
    ("sendrecv", None, (800, 800)),
    ("broadcast", True, (800, 0)),
    ("broadcast", False, (0, 800)),
    ("reduce", True, (0, 800)),
    ("reduce", False, (800, 0)),
    ("reduce", None, (0, 0)),
)
def test_what_must_cross_by_operation(collective, root, least):
    """Catches: more asked of a node than the best algorithm moves, or ways turned round. Two of 8 ranks."""
    operation = Collective(collective)
    assert least_crossing_bytes(operation, size_bytes=800, ranks=8, of_node=2, root=root) == least
    assert least_crossing_bytes(operation, size_bytes=800, ranks=8, of_node=8, root=root) == (0, 0)
    refused("9 of 8 ranks", least_crossing_bytes, operation, size_bytes=800, ranks=8, of_node=9)


def test_times_that_do_not_fit_into_the_time_of_the_record_are_of_another_run(tmp_path):
    """Catches: rows of another run with rates that agree with their own times, judged under this record."""
    one = output(tmp_path)
    counted_s = 2 * ITERATIONS * 1e-3  # out of place and in place, a millisecond each
    short = one.record.model_copy(update={"duration_s": 0.9 * counted_s})
    again = Output(one.text, short, one.order, one.folder)
    refused(f"counted over {counted_s:.3g} s, the whole test took", list, TOOLS["nccl"].metrics(again))
    assert list(TOOLS["nccl"].metrics(one))


def named(
    tmp_path: Path, network: str, size: int = 128 * MIB, operation: str = "all_reduce", **more: object
) -> list[Moved]:
    """What must have gone over each NIC that NCCL's log of both nodes names."""
    text = log(network, **more).replace("gpu-a", "n1").replace("gpu-b", "n2")
    tool = TOOLS["nccl-log"]
    assert tool.moved is not None and tool.moved_check == "nics"
    return list(tool.moved(output(tmp_path, operation, text, sizes=(size,), gpus=dict.fromkeys(NODES, 1))))


def test_each_nic_that_nccls_log_names_is_held_against_its_own_counters(tmp_path):
    """Catches: a log that names both NICs while one of them carried next to nothing: "nics" passed."""
    share = 0.1 * 128 * MIB / 2
    each = [Moved(node, nic, share, 0.0) for node in NODES for nic in ("mlx5_0", "mlx5_1")]
    assert named(tmp_path, "IB") == each == named(tmp_path, "IBext_v10", merged=True)
    assert named(tmp_path, "IB", MIB) == [], "a small message may go over one NIC"
    for operation in ("broadcast", "sendrecv", "alltoall"):  # a healthy NIC that a ring's end leaves idle
        assert named(tmp_path, "IB", operation=operation) == []


@pytest.mark.parametrize(
    ("octets", "doubt"), [(70, "n1 fab0: by the outputs of this job it sent"), (10**9, "")]
)
def test_an_interface_that_is_no_nic_under_test_is_held_against_its_bytes(octets, doubt):
    """Catches: a dead rail of a TCP network, named by a log, gone around by a route: PASS over 70 bytes."""
    one = records.measurement(
        run="r1", stage=Stage.COLLECTIVE, test="nccl_transport", metric="wrong", value=0.0, nodes=("n1",)
    )
    one = one.model_copy(update={"params": {"check": "nics"}})
    both = tuple(
        NodeCounters(host=reading(at, octets={"fab0": [at, n]}).host) for at, n in ((10, 0), (70, octets))
    )
    told = Told((one,), (Moved("n1", "fab0", 1e6, 0.0),), "nics")
    (found,) = confirmed([told], {"n1": both}, {}, {"n1": ()}, {})
    problem = found.measurements[0].problem
    assert doubt in (problem.message if problem else "") and bool(problem) is bool(doubt)
