"""Three generations of each tool's words, in forms read in its sources, give the same result."""

import re

import captured
import nccl_output
import pytest

from shakedown.benchmarks.gpu.state import parse_nvlink
from shakedown.benchmarks.mpi.output import parse_allreduce, parse_ucx_log
from shakedown.benchmarks.nccl.output import parse_nccl
from shakedown.benchmarks.perftest.output import parse_perftest
from shakedown.slurm.client import parse_show_job, parse_show_nodes
from tests.kit.refusal import refused
from tests.unit.benchmarks.nccl.test_networks import judged, log

# perftest_parameters.c, ctx_print_test_info: what stands where 25.01 has its two lines; then what follows.
PERFTEST = {
    "4.5": (" PCIe relax order: ON\n ibv_wr* API     : ON", ""),
    "24.x": (
        " PCIe relax order: ON\t\tLock-free      : OFF\n ibv_wr* API     : ON\t\tUsing DDP      : OFF",
        "",
    ),
    "26.x": (
        " PCIe relax order: Unsupported\t\tLock-free\t: Unsupported\n"
        " WARNING: CPU is not PCIe relaxed ordering compliant.\n"
        " ibv_wr* API     : ON\t\tUsing Enhanced Reorder      : ON\n CQE Poll Batch  : Dynamic",
        " NUMA node       : 0\n",
    ),
}
NCCL_TESTS = {
    "2.17.9": ("2.17.9", ""),
    "2.19.6": ("2.19.6", " unalign: 0"),
    "2.20.0": ("2.20.0 (b4d5bee)", " unalign: 0"),  # NVIDIA/dgx-spark-playbooks, pull request 103
    "later": ("2.31.0 (b4d5bee)", " unalign: 0 one more: 7"),
}
NCCL = {  # src/init.cc and src/transport/p2p.cc: how a communicator and a channel are called
    "2.18": (r"ncclCommInitRankConfig (.*) nvmlDev 0", r"\1"),
    "2.23": (r"ncclCommInitRankConfig", "ncclCommInitRank"),
    "2.30": (r"(ncclCommInitRankConfig)", r"[Rank 0] \1"),
    "RCCL": (r"(/GDRDMA)\n", r"\1 comm 0x5581 nRanks 02\n"),
}
END = "StartTime=2026-03-01T10:00:00 EndTime=2026-03-01T10:01:00 Requeue=0 Restarts=0 ExitCode=0:0"
SLURM = {  # shortened, as people printed it from 2021 to 2026
    "20.11": f"JobId=7 JobName=x UserId=a(1) Power= JobState=COMPLETED Reason=None Dependency=(null) {END}",
    "23.11": f"JobId=7 JobName=x JobState=COMPLETED Reason=None {END} ReqTRES=cpu=8 AllocTRES=cpu=8,node=2",
    "2026": f"JobId=7 JobState=COMPLETED {END} LicensesAlloc=(null) SubmitLine=x OOMKillStep=0",
}
WHO = "Reason=shakedown: rail 3 is slow [root@2026-03-01T10:00:00]"
NODES = {
    "20.11": f"NodeName=n1 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=2 TmpDisk=0 {WHO}",
    "23.11": f"NodeName=n1 State=IDLE+DRAIN+DYNAMIC_NORM {WHO} Comment=a Extra=topo=x",
    "2026": f"NodeName=n1 State=IDLE+DRAIN+DYNAMIC_NORM {WHO} Extra=x InstanceId=i-0 InstanceType=t",
}
NVLINK = {"535": "26.562 GB/s", "580": "53.125 GB/s", "590": "100 GB/s"}
UCX = {
    "1.13": "ep_cfg[1]: tag({});",
    "1.14": "0x1 inter-node cfg#3 tag({})",
    "with am": "0x1 inter-node cfg#3 am({})",
}


@pytest.mark.parametrize("release", PERFTEST)
def test_perftest(release):
    """Catches: a line that one release has more or less, taken for damage."""
    plain = captured.read("perftest_25.01_rxe_write_bw_client.txt")
    lines, more = PERFTEST[release]
    text = re.sub(r" PCIe relax order.*\n ibv_wr\* API.*", lambda _: lines, plain)
    text = re.sub(r"( Data ex\. method.*\n)", rf"\1{more}", text)
    found = parse_perftest(text)
    assert text != plain and found.model_copy(update={"warnings": ()}) == parse_perftest(plain)


@pytest.mark.parametrize("release", NCCL_TESTS)
def test_nccl_tests(release):
    """Catches: a whole run refused for a commit behind the version, or one key more in its header."""
    version, more = NCCL_TESTS[release]
    text = nccl_output.text(named=True).replace("2.19.6", version).replace(" graph: 0", f" graph: 0{more}")
    assert (parse_nccl(text).version, parse_nccl(text).ranks) == (version.split()[0], 4)


@pytest.mark.parametrize("release", NCCL)
def test_nccl_log(release):
    """Catches: a communicator or a channel that another release calls otherwise, and a log without it."""
    text = re.sub(*NCCL[release], log("IB"))
    assert text != log("IB") and judged(text) == judged(log("IB"))


@pytest.mark.parametrize("release", SLURM)
def test_slurm(release):
    """Catches: a field more, or in another place, that hides how a job ended or who drained a node."""
    found, node = parse_show_job(SLURM[release]), parse_show_nodes(NODES[release])["n1"]
    assert (found.good, found.duration_s, found.started) == (True, 60.0, "2026-03-01T10:00:00Z")
    assert (node.reason, node.by, node.ours) == ("shakedown: rail 3 is slow", "root", True)


@pytest.mark.parametrize("release", NVLINK)
def test_nvidia_smi(release):
    """Catches: a rate without a fraction, or an inactive link, read as a link less or more."""
    text = f"GPU 0: NVIDIA X (UUID: GPU-1)\n\t Link 0: {NVLINK[release]}\n\t Link 1: <inactive>\n"
    assert parse_nvlink(text) == {0: (float(NVLINK[release].split()[0]),)}


@pytest.mark.parametrize("release", UCX)
def test_ucx(release):
    """Catches: a lane of another release that is not read, so that nothing is known of the way."""
    front = "[1701292112.829711] [n1:7:0]   ucp_worker.c:1855 UCX  INFO  "
    (lane,) = parse_ucx_log(front + UCX[release].format("rc_mlx5/mlx5_0:1") + "\n").lanes
    assert (lane.transport, lane.device) == ("rc_mlx5", "mlx5_0")


@pytest.mark.parametrize("words", ["", "No PMIx server was reachable, but a PMI1/2 was detected.\n"])
def test_mpi_ranks_that_srun_left_alone(words):
    """Catches: ranks without PMIx, told as JSON that nobody understands."""
    text = captured.read("mpi-allreduce_5.0.7_tcp_2nodes.jsonl")
    refused(
        "2 .*ranks? .*did not find each other.* -- start ranks with PMIx", parse_allreduce, words + text * 2
    )
