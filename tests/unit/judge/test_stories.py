"""Faults that people told in public, each planted in the words of its machine: what is said of them here.

A source is an issue or pull request on GitHub, or a manual; nothing but single lines of output is its own.
"""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from tests.kit.files import edited
from tests.unit.benchmarks.config.test_uniformity import inventory, odd
from tests.unit.benchmarks.gpu.test_gpu_run import STATE, cells, change, run, state  # noqa: F401
from tests.unit.benchmarks.nccl.test_networks import NICS, NODES, judged, log
from tests.unit.nics.test_nic_profiles import cells as nic_cells
from tests.unit.nics.test_nic_profiles import plant

CAPTURES = Path(__file__).parents[1] / "benchmarks/outputs/captures"
GOOD, BAD, OPEN = "good", "bad", "undecided"
Said = tuple[str, str]


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
    """Read an output of nccl-tests behind these words; of ranks that are alone, twice."""
    text = (CAPTURES / "nccl-tests_2.19.6_all_reduce_4xH200.txt").read_text()
    try:
        twice = text if "PMIx" in planted or not planted else ""
        return GOOD, " ".join(parse_nccl(f"{planted}\n{text}{twice}").warnings)
    except BadInput as refused:
        return OPEN, f"{refused.what} {refused.fix}"


def kernel(planted: str, request: Any) -> Said:
    """Judge what a node's kernel said an hour before the end."""

    def edit(seen: Any) -> None:
        kept = "".join(f"{line}\n" for line in KEPT.findall(f"[86400.100000] {planted}\n"))
        seen["kernel"] |= {"now_s": 9e4, "exit_code": 0, "out": kept}

    folder = request.getfixturevalue("run")
    with edited(folder / "raw/node.gpu_node.a1/gpus.gpu1.before.json") as seen:
        edit(seen)
    value, words = state(folder, edit)["earlier"]
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
UP = ("nvlink", r"(GPU 0: .*\n)(?:\s+Link .*\n)+")  # all links of a GPU
IDRAC = "l4rz/reverse-engineering-dell-idrac-to-get-rid-of-gpu-throttling"
# By reader: where it was told, what is planted, what must come of it, what must be named.
TOLD: dict[str, tuple[tuple[str, Any, str, str], ...]] = {
    "perftest": (
        ("linux-rdma/perftest#295", "Failed status 12: wr_id 0 syndrom 0x81", OPEN, "status 12"),
        ("linux-rdma/perftest#228", "Couldn't connect to 192.168.125.211:18515", OPEN, "connect"),
        ("linux-rdma/perftest#173", "Failed status 4: wr_id 0 syndrom 0x51", OPEN, "status 4"),
        ("linux-rdma/perftest#262", "ethernet_read_keys: Couldn't read remote", OPEN, "read remote"),
        ("openucx/ucx#8702", "Couldn't allocate MR", OPEN, "allocate MR"),
        ("NVIDIA/nccl#622", "libibverbs: Warning: couldn't load driver 'x'", GOOD, "load driver"),
    ),
    "mtu": (("NVIDIA/dgx-spark-playbooks#103", "1024", OPEN, "MTU of 1024 bytes, 4096 were ordered"),),
    "way": (
        ("NVIDIA/nccl#766", {"network": "Socket"}, BAD, "TCP fallback, no RDMA"),
        ("NVIDIA/nccl#1537", {"old": "/GDRDMA", "more": DISABLED, "check": "gdr"}, BAD, "mlx5_0"),
        ("NVIDIA/nccl#1676", {"old": "(IB/1)/GDRDMA", "new": "\\1", "check": "gdr"}, BAD, "without GPUDir"),
        ("NVIDIA/nccl#897", {"old": "(gpu-b.*IB/.)/GDRDMA", "new": "\\1", "check": "gdr"}, BAD, "2 of 4"),
        ("NVIDIA/nccl#1939", {"old": "/GDRDMA", "check": "gdr"}, BAD, "4 of 4 connections without"),
        ("NVIDIA/nccl#1120", {"network": "IBext_v6"}, GOOD, "by IBext_v6 over RoCE"),
        ("ROCm/rccl#2096", {"network": "IB-ROCM"}, GOOD, "by IB-ROCM over RoCE"),
        ("AMD-AGI/Primus#966", {"network": "RCCL-ANP"}, GOOD, "by RCCL-ANP over RoCE"),
        ("coreweave/nccl-tests#100", {"network": "SPCX"}, GOOD, "by SPCX over RoCE"),
        ("NVIDIA/nccl#229", {"network": "AWS Libfabric"}, OPEN, "AWS Libfabric"),
        ("NVIDIA/nccl#1664", {"network": "IBP"}, OPEN, "IBP"),
        ("NVIDIA/nccl#2428", {"old": "(gpu-b.*IB/)1", "new": "\\g<1>0", "check": "nics"}, BAD, "'], ["),
        ("Mellanox/nv_peer_memory#78", {"old": "mlx5_", "new": "mlx5_bond_", "check": "nics"}, BAD, "bond_0"),
        ("NVIDIA/nccl#1412", {"old": ":1/RoCE", "new": ":1/IB"}, BAD, "over IB, RoCE wanted"),
    ),
    "inside": (("NVIDIA/nccl#304", "SHM/direct/direct", BAD, "ACS or the IOMMU"),),
    "warned": (
        ("NVIDIA/nccl#426", "NET/IB : Got completion with error 12, opcode 0", OPEN, "error 12"),
        ("NVIDIA/nccl#769", "Call to ibv_modify_qp failed with error Connection timed out", OPEN, "qp"),
        ("NVIDIA/nccl#1814", "NET/IB : Got completion from peer 1.2.3.4<5> status=12", OPEN, "=12"),
        ("NVIDIA/nccl-tests#206", "Call to ibv_reg_mr_iova2 failed: Cannot allocate", OPEN, "reg_mr"),
        ("NVIDIA/nccl#2135", "NET/IB: Got completion status=IBV_WC_LOC_LEN_ERR(1)", OPEN, "LOC_LEN"),
        ("deepseek-ai/DeepEP#41", "[Service thread] Accept failed", OPEN, "Accept failed"),
        ("ROCm/amd-anp, src/net_ib.cc", "ANP plugin loaded successfully with telemetry", GOOD, ""),
    ),
    "nccl_tests": (
        ("NVIDIA/nccl-tests#252", "kol2: Test NCCL failure common.cu:303 'remote'", OPEN, "NCCL failure"),
        ("open-mpi/ompi#13523", "No PMIx server was reachable, but a PMI1/2 was", OPEN, "2 ranks did not"),
        ("open-mpi/ompi#10286", "", OPEN, "or ranks that did not find each other"),
    ),
    "kernel": (
        ("NVIDIA/NVSentinel#155", "NVRM: GPU\n   NVRM: fallen off the bus", BAD, "fallen"),
        ("leptonai/gpud#604", "NVRM: Xid (PCI:0000:ae:00): 79, fallen", BAD, "): 79"),
        ("leptonai/gpud#1160", "NVRM: Xid (PCI:0000:00:00): 149, NETIR Fatal", BAD, "NETIR"),
        ("NVIDIA/open-gpu-kernel-modules#1355", "NVRM: Xid (PCI:0:66:00): 145, RLW", BAD, "RLW"),
        ("Azure/azurehpc#648", "NVRM: Xid (PCI:0:17:00): 31, python", GOOD, "of programs"),
        ("awslabs/awsome-distributed-ai#1190", "NVRM: Xid (PCI:0:17): 64, row", BAD, "): 64"),
        ("leptonai/gpud#348", "mlx5_core 5c:00.0: insufficient power", GOOD, "power"),
    ),
    "gpu": (
        ("aws/eks-node-monitoring-agent#94", ("count", "gpus", "\\n3, .*", ""), BAD, "3 GPUs, 4 planned"),
        ("NVIDIA/open-gpu-kernel-modules#1150", ("nvlink", *UP, "\\1all are inActive\\n"), BAD, "0 NVLinks"),
        ("leptonai/gpud#1085", ("nvlink", *UP, "\\1"), BAD, "0 NVLinks are active, 18 wanted"),
        (
            "huggingface/huggingface_hub#4134",
            ("fabric", "fabric", "Completed", "In Progress"),
            BAD,
            "In Prog",
        ),
        ("NVIDIA MIG User Guide", ("mig", "mig", "Disabled", "Enabled"), BAD, "MIG is on"),
    ),
    "load": (
        ("NVIDIA/NVSentinel#890", ("pcie", ", 5, 16, (\\d+)\\n", ", 3, 8, \\1\\n"), BAD, "Gen3 x8"),
        ("local-inference-lab/rtx6kpro#88", ("pcie", ", 5, (16, \\d+)\\n", ", 2, \\1\\n"), BAD, "Gen2 x16"),
        ("nvml.h", ("slowdown", "0x0{16}", "0x0000000000000080"), BAD, "power brake"),
        ("intel/thermal_daemon#300", ("slowdown", "0x0{16}", "0x0000000000000020"), BAD, "thermal slowdown"),
    ),
    "nic": (
        ("NVIDIA/nccl#378", ("rdma.out_of_sequence", 7), BAD, "out_of_sequence"),
        ("openucx/ucx#6000", ("rdma.local_ack_timeout_err", 7), BAD, "local_ack_timeout_err"),
        ("NVIDIA/nccl#306", ("ethtool.rx_discards_phy", 7), BAD, "rx_discards_phy"),
        ("linux-rdma/perftest#284", ("ethtool.rx_prio3_buf_discard", 7), BAD, "rx_prio3_buf_discard"),
        ("NVIDIA/nccl#173", ("ethtool.tx_prio3_pause_duration", 15000000), BAD, "pause.prio3_tx"),
        ("bigstack-oss/cubecos#733", ("ethtool.link_down_events_phy", 2), BAD, "link_down_events_phy"),
    ),
    "ucx": (("openucx/ucx#8229", "tcp/eth0", BAD, "UCX chose tcp/eth0"),),
    "slurm": (
        ("openpmix/openpmix#3320", "FAILED ExitCode=1:0", OPEN, "FAILED, exit code 1:0"),
        ("squeue(1)", "NODE_FAIL ExitCode=0:0", OPEN, "NODE_FAIL"),
        ("sinfo(1)", "n1|idle|none\nn2|drained|bad DIMM\n", OPEN, "n2: it is drained (bad DIMM)"),
    ),
    "parts": (
        ("NVIDIA/nccl#841", {"node": {"iommu": "DMA-FQ"}, "like": {"iommu": "identity"}}, BAD, "DMA-FQ"),
        (f"{IDRAC}#3", {"gpu": {"power_limit_w": "150"}, "like": {"power_limit_w": "300"}}, BAD, "w is 150"),
    ),
}
STORIES = [(reader, *story) for reader, told in TOLD.items() for story in told]


@pytest.mark.parametrize(
    ("reader", "source", "planted", "outcome", "names"), STORIES, ids=[f"{x[0]}-{x[1]}" for x in STORIES]
)
def test_a_story_is_named_and_blames_nothing_else(reader, source, planted, outcome, names, request):
    """Catches: a fault that somebody met and that is only slow here, missed, or laid upon good hardware."""
    found, words = READERS[reader](planted, request)
    assert (found, names in words) == (outcome, True), (source, words)


def test_there_are_as_many_stories_as_are_counted():
    """Catches: a story that is told twice, or an evidence page that counts what is gone."""
    assert max(Counter(source for _, source, *_ in STORIES).values()) == 1
    of = Counter(outcome for *_, outcome, _ in STORIES)
    page = (Path(__file__).parents[3] / "docs/evidence/matrix.md").read_text()
    assert f"{len(STORIES)} faults that people told in public" in page
    assert f"{of[BAD]} FAIL, {of[OPEN]} INCONCLUSIVE, {of[GOOD]} told" in page
