"""Faults that people told in public, each planted in the words of its machine: what is said of them here.

A source is an issue or pull request on GitHub, or a manual; nothing but single lines of output is its own.
"""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from shakedown.benchmarks.mpi.output import judge_way, parse_ucx_log
from shakedown.benchmarks.nccl.log import parse_nccl_log
from shakedown.benchmarks.nccl.metrics import judge_log, nccl_log
from shakedown.benchmarks.nccl.output import parse_nccl
from shakedown.benchmarks.nccl.settings import ExpectedWay
from shakedown.benchmarks.perftest.metrics import _mtu
from shakedown.benchmarks.perftest.output import parse_perftest
from shakedown.onnode.gpus import KEPT
from shakedown.records.base import Outcome
from shakedown.records.reading import BadInput
from shakedown.slurm.client import parse_show_job, parse_unusable
from shakedown.slurm.ending import flaw
from tests.unit.benchmarks.config.test_uniformity import inventory, odd
from tests.unit.benchmarks.gpu.test_gpu_run import STATE, cells, change, run, state  # noqa: F401
from tests.unit.benchmarks.nccl.test_networks import NICS, NODES, judged, log
from tests.unit.nics.test_nic_profiles import cells as nic_cells
from tests.unit.nics.test_nic_profiles import plant

CAPTURES = Path(__file__).parents[1] / "benchmarks/outputs/captures"
GOOD, BAD, OPEN = "good", "bad", "undecided"
Said = tuple[str, str]


class Story(NamedTuple):
    """Where it was told, who reads it here, what is planted, what must come of it and be named."""

    source: str
    reader: str
    planted: Any
    outcome: str
    names: str


def _of(wrong: float | None) -> str:
    return {0: GOOD, None: OPEN}.get(wrong, BAD)


def perftest(planted: str, _: Any) -> Said:
    """Read a client's output that ends in these words before its table."""
    text = (CAPTURES / "perftest_25.01_rxe_write_bw_client.txt").read_text()
    text = f"{planted}\n{text}" if planted.startswith("libibverbs: W") else text.split(" #bytes")[0] + planted
    try:
        return GOOD, " ".join(parse_perftest(text).warnings)
    except BadInput as refused:
        return OPEN, refused.what


def mtu(planted: str, _: Any) -> Said:
    """Hold a test that ran with another MTU against its order."""
    text = (CAPTURES / "perftest_25.01_rxe_write_bw_client.txt").read_text()
    result = parse_perftest(re.sub(r"Mtu\s+: \d+", f"Mtu : {planted}", text))
    words = " ".join(_mtu(result, SimpleNamespace(mtu=4096)))  # type: ignore[arg-type]
    return (OPEN if words.strip() else GOOD), words


def way(planted: dict[str, Any], _: Any) -> Said:
    """Judge NCCL's log: `check`, a `network`, lines that are added, words that are changed."""
    text = log(planted.get("network", "IB"), more=planted.get("more", ""))
    text = re.sub(planted.get("old", "(?!)"), planted.get("new", ""), text)
    wrong, words = judged(text)[planted.get("check", "network")]
    return _of(wrong), words


def inside(planted: str, _: Any) -> Said:
    """Judge the way between two GPUs of a node."""
    ways = log("IB").replace("gpu-b", "gpu-a").replace("NET/IB/0/GDRDMA", planted)
    expect = ExpectedWay(nvls=False, nics={NODES[0]: NICS})
    found = judge_log(parse_nccl_log(ways.replace("NET/IB/1/GDRDMA", planted)), expect, {NODES[0]: 2})
    return next((_of(one.wrong), one.detail) for one in found if one.check == "intra_node")


def warned(planted: str, _: Any) -> Said:
    """Judge a log with a line that NCCL warned."""
    text = log("IB") + f"gpu-a:500:600 [0] misc/x.cc:1 NCCL WARN {planted}\n"
    order = SimpleNamespace(
        gpus=dict.fromkeys(NODES, 1), expect=ExpectedWay(nvls=False, nics=dict.fromkeys(NODES, NICS))
    )
    output = SimpleNamespace(text=text, file=None, order=order, folder=None)
    told = {read.disturbed for read in nccl_log(output)}  # type: ignore[arg-type]
    return (OPEN if told != {""} else GOOD), " ".join(told)


def nccl_tests(planted: str, _: Any) -> Said:
    """Read an output of nccl-tests with these words before it, or, of none, twice."""
    text = (CAPTURES / "nccl-tests_2.19.6_all_reduce_4xH200.txt").read_text()
    try:
        return GOOD, " ".join(parse_nccl(f"{planted}\n{text}" if planted else text + text).warnings)
    except BadInput as refused:
        return OPEN, f"{refused.what} {refused.fix}"


def kernel(planted: tuple[str, str], request: Any) -> Said:
    """Judge what a node's kernel said an hour before the end: the check, and the lines."""
    check, lines = planted

    def edit(seen: Any) -> None:
        kept = "".join(f"{line}\n" for line in KEPT.findall(f"[86400.100000] {lines}\n"))
        seen["kernel"] |= {"now_s": 9e4, "exit_code": 0, "out": kept}

    value, words = state(request.getfixturevalue("run"), edit)[check]
    return _of(value), words


def gpu(planted: tuple[str, str, str, str], request: Any) -> Said:
    """Judge an answer of nvidia-smi in which something is changed: the check, the command, old and new."""
    check, command, old, new = planted

    def edit(seen: Any) -> None:
        out, times = re.subn(old, new, seen["commands"][command]["out"], count=1)
        assert times
        seen["commands"][command]["out"] = out

    value, words = state(request.getfixturevalue("run"), edit)[check]
    return _of(value), words


def load(planted: tuple[str, str, str], request: Any) -> Said:
    """Judge what a GPU showed under load."""
    check, old, new = planted
    folder = request.getfixturevalue("run")
    change(folder, "gpus.gpu1.samples.csv", old, new, "node.gpu_node")
    outcome, words = cells(folder)[STATE.format(f"{check},gpu=1")]
    return (BAD if outcome is Outcome.FAIL else OPEN), words


def nic(planted: tuple[str, int], request: Any) -> Said:
    """Judge a ConnectX of which one counter grew."""
    verdict, _ = nic_cells(request.getfixturevalue("tmp_path"), "mlx5", plant(planted))
    failed = [f"{cell.cell} {cell.reason}" for cell in verdict.cells if cell.outcome is Outcome.FAIL]
    return (BAD if failed else GOOD), " ".join(failed)


def ucx(planted: str, _: Any) -> Said:
    """Judge UCX's log of two nodes."""
    front = "[1701292112.829711] [{}:7:0]   ucp_worker.c:1855 UCX  INFO  0x1 inter-node cfg#3 tag({})\n"
    text = "".join(front.format(node, planted) for node in NODES)
    network, _ = judge_way(parse_ucx_log(text), "rc", 2, {})
    return _of(network.wrong), network.detail


def slurm(planted: str, _: Any) -> Said:
    """Judge how Slurm says that a job ended, or what it says of a node."""
    if "|" in planted:
        words = parse_unusable(planted, ("n1", "n2"))
        return (OPEN if words else GOOD), words
    text = f"JobId=7 JobState={planted} Restarts=0 StartTime=2026-03-01T10:00:00 EndTime=2026-03-01T10:01:00"
    found = flaw(parse_show_job(text), ("n1", "n2"), ("n1", "n2"), {})
    return (OPEN, found.message) if found else (GOOD, "")


def parts(planted: dict[str, dict[str, str]], _: Any) -> Said:
    """Judge a snapshot in which one node of four is other than its like."""
    ((part, mine), (_, others)) = planted.items()
    nodes = {f"n{n}_{part}": mine if n == 2 else others for n in (1, 2, 3, 4)}
    found = odd(inventory(**nodes))
    return (BAD if list(found) == [("n2", part)] else GOOD), str(found)


READERS: dict[str, Callable[[Any, Any], Said]] = {
    one.__name__: one
    for one in (perftest, mtu, way, inside, warned, nccl_tests, kernel, gpu, load, nic, ucx, slurm, parts)
}
DISABLED = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
BEFORE = r" \[send\] via NET/IB/(\d)/GDRDMA"
STORIES = (
    Story("linux-rdma/perftest#295", "perftest", "Failed status 12: wr_id 0 syndrom 0x81", OPEN, "status 12"),
    Story(
        "linux-rdma/perftest#228", "perftest", "Couldn't connect to 192.168.125.211:18515", OPEN, "connect"
    ),
    Story("linux-rdma/perftest#173", "perftest", "Failed status 4: wr_id 0 syndrom 0x51", OPEN, "status 4"),
    Story(
        "linux-rdma/perftest#262", "perftest", "ethernet_read_keys: Couldn't read remote", OPEN, "read remote"
    ),
    Story("openucx/ucx#8702", "perftest", "Couldn't allocate MR", OPEN, "allocate MR"),
    Story(
        "NVIDIA/nccl#622", "perftest", "libibverbs: Warning: couldn't load driver 'x'", GOOD, "load driver"
    ),
    Story("NVIDIA/dgx-spark-playbooks#103", "mtu", "1024", OPEN, "MTU of 1024 bytes, 4096 were ordered"),
    Story("NVIDIA/nccl#766", "way", {"network": "Socket"}, BAD, "TCP fallback, no RDMA"),
    Story("NVIDIA/nccl#1537", "way", {"old": "/GDRDMA", "more": DISABLED, "check": "gdr"}, BAD, "mlx5_0"),
    Story(
        "NVIDIA/nccl#1676",
        "way",
        {"old": r"(IB/1)/GDRDMA", "new": r"\1", "check": "gdr"},
        BAD,
        "without GPUDir",
    ),
    Story(
        "NVIDIA/nccl#897",
        "way",
        {"old": rf"(gpu-b.*){BEFORE}", "new": r"\1 [send] via NET/IB/\2", "check": "gdr"},
        BAD,
        "2 of 4 connections without GPUDirect RDMA",
    ),
    Story("NVIDIA/nccl#1939", "way", {"old": "/GDRDMA", "check": "gdr"}, BAD, "4 of 4 connections without"),
    Story("NVIDIA/nccl#304", "inside", "SHM/direct/direct", BAD, "ACS or the IOMMU"),
    Story("NVIDIA/nccl#1120", "way", {"network": "IBext_v6"}, GOOD, "by IBext_v6 over RoCE"),
    Story("ROCm/rccl#2096", "way", {"network": "IB-ROCM"}, GOOD, "by IB-ROCM over RoCE"),
    Story("AMD-AGI/Primus#966", "way", {"network": "RCCL-ANP"}, GOOD, "by RCCL-ANP over RoCE"),
    Story("coreweave/nccl-tests#100", "way", {"network": "SPCX"}, GOOD, "by SPCX over RoCE"),
    Story("NVIDIA/nccl#229", "way", {"network": "AWS Libfabric"}, OPEN, "AWS Libfabric"),
    Story("NVIDIA/nccl#1664", "way", {"network": "IBP"}, OPEN, "IBP"),
    Story(
        "NVIDIA/nccl#2428",
        "way",
        {"old": r"(gpu-b.*IB/)1", "new": r"\g<1>0", "check": "nics"},
        BAD,
        "['mlx5_0'], ['mlx5_0', 'mlx5_1']",
    ),
    Story(
        "Mellanox/nv_peer_memory#78",
        "way",
        {"old": "mlx5_", "new": "mlx5_bond_", "check": "nics"},
        BAD,
        "bond_0",
    ),
    Story("NVIDIA/nccl#1412", "way", {"old": ":1/RoCE", "new": ":1/IB"}, BAD, "over IB, RoCE wanted"),
    Story("NVIDIA/nccl#426", "warned", "NET/IB : Got completion with error 12, opcode 0", OPEN, "error 12"),
    Story(
        "NVIDIA/nccl#769",
        "warned",
        "Call to ibv_modify_qp failed with error Connection timed out",
        OPEN,
        "qp",
    ),
    Story(
        "NVIDIA/nccl#1814", "warned", "NET/IB : Got completion from peer 1.2.3.4<5> status=12", OPEN, "=12"
    ),
    Story(
        "NVIDIA/nccl-tests#206", "warned", "Call to ibv_reg_mr_iova2 failed: Cannot allocate", OPEN, "reg_mr"
    ),
    Story(
        "NVIDIA/nccl#2135", "warned", "NET/IB: Got completion status=IBV_WC_LOC_LEN_ERR(1)", OPEN, "LOC_LEN"
    ),
    Story("deepseek-ai/DeepEP#41", "warned", "[Service thread] Accept failed", OPEN, "Accept failed"),
    Story("ROCm/amd-anp, src/net_ib.cc", "warned", "ANP plugin loaded successfully with telemetry", GOOD, ""),
    Story(
        "NVIDIA/nccl-tests#252",
        "nccl_tests",
        "kol2: Test NCCL failure common.cu:303 'remote'",
        OPEN,
        "NCCL failure",
    ),
    Story(
        "open-mpi/ompi#13523",
        "nccl_tests",
        (
            "No PMIx server was reachable, but a PMI1/2 was detected.\n"
            + (CAPTURES / "nccl-tests_2.19.6_all_reduce_4xH200.txt").read_text()
        ),
        OPEN,
        "did not find each other, each ran a test of its own start them with PMIx",
    ),
    Story("open-mpi/ompi#10286", "nccl_tests", "", OPEN, "or ranks that did not find each other"),
    Story(
        "NVIDIA/NVSentinel#155",
        "kernel",
        (
            "hardware",
            "NVRM: The NVIDIA GPU 0000:b3:00.0\n     NVRM: fallen off the bus and is not responding",
        ),
        BAD,
        "fallen off the bus",
    ),
    Story("leptonai/gpud#604", "kernel", ("xid", "NVRM: Xid (PCI:0000:ae:00): 79, fallen"), BAD, "): 79"),
    Story(
        "leptonai/gpud#1160", "kernel", ("xid", "NVRM: Xid (PCI:0000:00:00): 149, NETIR Fatal"), BAD, "NETIR"
    ),
    Story(
        "NVIDIA/open-gpu-kernel-modules#1355",
        "kernel",
        ("xid", "NVRM: Xid (PCI:0:66:00): 145, RLW"),
        BAD,
        "RLW",
    ),
    Story(
        "Azure/azurehpc#648", "kernel", ("xid", "NVRM: Xid (PCI:0:17:00): 31, python"), GOOD, "of programs"
    ),
    Story(
        "awslabs/awsome-distributed-ai#1190", "kernel", ("xid", "NVRM: Xid (PCI:0:17): 64, row"), BAD, "): 64"
    ),
    Story(
        "leptonai/gpud#348",
        "kernel",
        (
            "hardware",
            "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299: Detected insufficient power on the PCIe slot",
        ),
        GOOD,
        "insufficient power",
    ),
    Story(
        "aws/eks-node-monitoring-agent#94", "gpu", ("count", "gpus", r"\n3, .*", ""), BAD, "3 GPUs, 4 planned"
    ),
    Story(
        "NVIDIA/open-gpu-kernel-modules#1150",
        "gpu",
        ("nvlink", "nvlink", r"(GPU 0: .*\n)(?:\s+Link .*\n)+", r"\1NVML: all links are inActive\n"),
        BAD,
        "0 NVLinks are active, 18 wanted",
    ),
    Story(
        "leptonai/gpud#1085",
        "gpu",
        ("nvlink", "nvlink", r"(GPU 0: .*\n)(?:\s+Link .*\n)+", r"\1"),
        BAD,
        "0 NVL",
    ),
    Story(
        "huggingface/huggingface_hub#4134",
        "gpu",
        ("fabric", "fabric", "Completed, Success", "In Progress, N/A"),
        BAD,
        "In Progress",
    ),
    Story("NVIDIA MIG User Guide", "gpu", ("mig", "mig", "Disabled", "Enabled"), BAD, "MIG is on"),
    Story("NVIDIA/NVSentinel#890", "load", ("pcie", r", 5, 16, (\d+)\n", r", 3, 8, \1\n"), BAD, "Gen3 x8"),
    Story(
        "local-inference-lab/rtx6kpro#88",
        "load",
        ("pcie", r", 5, 16, (\d+)\n", r", 2, 16, \1\n"),
        BAD,
        "Gen2 x16",
    ),
    Story("nvml.h", "load", ("slowdown", "0x0{16}", "0x0000000000000080"), BAD, "power brake"),
    Story(
        "intel/thermal_daemon#300",
        "load",
        ("slowdown", "0x0{16}", "0x0000000000000020"),
        BAD,
        "thermal slowdown",
    ),
    Story("NVIDIA/nccl#378", "nic", ("rdma.out_of_sequence", 7), BAD, "out_of_sequence"),
    Story("openucx/ucx#6000", "nic", ("rdma.local_ack_timeout_err", 7), BAD, "local_ack_timeout_err"),
    Story("NVIDIA/nccl#306", "nic", ("ethtool.rx_discards_phy", 7), BAD, "rx_discards_phy"),
    Story("linux-rdma/perftest#284", "nic", ("ethtool.rx_prio3_buf_discard", 7), BAD, "rx_prio3_buf_discard"),
    Story("NVIDIA/nccl#173", "nic", ("ethtool.tx_prio3_pause_duration", 15_000_000), BAD, "pause.prio3_tx"),
    Story(
        "bigstack-oss/cubecos#733", "nic", ("ethtool.link_down_events_phy", 2), BAD, "link_down_events_phy"
    ),
    Story("openucx/ucx#8229", "ucx", "tcp/eth0", BAD, "UCX chose tcp/eth0"),
    Story("openpmix/openpmix#3320", "slurm", "FAILED ExitCode=1:0", OPEN, "FAILED, exit code 1:0"),
    Story("squeue(1)", "slurm", "NODE_FAIL ExitCode=0:0", OPEN, "NODE_FAIL"),
    Story("sinfo(1)", "slurm", "n1|idle|none\nn2|drained|bad DIMM\n", OPEN, "n2: it is drained (bad DIMM)"),
    Story(
        "NVIDIA/nccl#841",
        "parts",
        {"node": {"iommu": "DMA-FQ"}, "like": {"iommu": "identity"}},
        BAD,
        "DMA-FQ",
    ),
    Story(
        "l4rz/reverse-engineering-dell-idrac-to-get-rid-of-gpu-throttling#3",
        "parts",
        {"gpu": {"power_limit_w": "150.00"}, "like": {"power_limit_w": "300.00"}},
        BAD,
        "power_limit_w is 150.00",
    ),
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"{story.reader}-{story.source}")
def test_a_story_is_named_and_blames_nothing_else(story, request):
    """Catches: a fault that somebody met and that is only slow here, missed, or laid upon good hardware."""
    outcome, words = READERS[story.reader](story.planted, request)
    assert (outcome, story.names in words) == (story.outcome, True), words


def test_there_are_as_many_stories_as_are_counted():
    """Catches: a story that is told twice, or an evidence page that counts what is gone."""
    assert max(Counter(story.source for story in STORIES).values()) == 1
    outcomes = Counter(story.outcome for story in STORIES)
    page = (Path(__file__).parents[3] / "docs/evidence/matrix.md").read_text()
    assert f"{len(STORIES)} faults that people told in public" in page
    assert f"{outcomes[BAD]} FAIL, {outcomes[OPEN]} INCONCLUSIVE, {outcomes[GOOD]}" in page
