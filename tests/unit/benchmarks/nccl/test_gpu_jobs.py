"""The programs inside the jobs, with programs of ours in the place of Slurm's, NVIDIA's and NCCL's."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shakedown.benchmarks.nccl import job as nccl
from shakedown.onnode import gpus, pin
from shakedown.onnode.journal import cause, watched
from shakedown.records.results import OutputRecord
from tests.kit.cases import cases
from tests.kit.files import script

SPEC = {"operations": ["all_reduce"], "min_bytes": 8, "max_bytes": 64, "factor": 2, "dtype": "float"}
SPEC |= {"iterations": 2, "warmup": 1, "repeats": 2, "tuning": False, "split": "none"}
SPEC |= {"launcher": "one-process", "gpus": {"n1": 2}, "variables": {"NCCL_NVLS_ENABLE": "0"}}
SPEC |= {"params": {"dtype": "float"}, "timeout_s": 20}
GPUS = {"kind": "busy", "message": "GPUs of n1 are in use"}
WAYS = {"kind": "environment", "message": "n2 fab1 (rail1): it is down"}
# nvidia-smi of two GPUs; $GPUS says how many it finds, $PROCESSES what works on them.
NVIDIA_SMI = """#!/bin/sh
case "$*" in
*query-gpu*loop*)
    [ -z "$STUCK" ] || exec sleep 60
    while echo '0, 90.0'; do sleep 0.1; done ;;
*query-gpu*)
    [ "$GPUS" != 0 ] || { echo 'No devices were found'; exit 6; }
    [ "$GPUS" != broken ] || { echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18; }
    echo 'index, uuid, pci.bus_id'
    for i in $(seq "$GPUS"); do echo "$i, GPU-$i, 00000000:0$i:00.0"; done ;;
*query-compute-apps*) echo 'gpu_uuid, pid, used_gpu_memory [MiB]'; [ -z "$PROCESSES" ] || echo "$PROCESSES" ;;
esac
"""
SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'
GOOD = """#!/bin/sh
echo "ran $*"
[ -z "$NCCL_DEBUG_FILE" ] || echo "log $NCCL_DEBUG_SUBSYS" >> "$NCCL_DEBUG_FILE"
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job's folder, on a node n1 with two idle GPUs; programs are put on the PATH with `tool`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("GPUS", "2")
    for name, text in (("nvidia-smi", NVIDIA_SMI), ("srun", SRUN), ("all_reduce_perf", GOOD)):
        tool(tmp_path, name, text)
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def tool(folder: Path, name: str, text: str) -> None:
    """Put a program on the PATH."""
    path = folder / "tools" / name
    script(path, text)


def run(job: Path, **changes: object) -> tuple[int, list[OutputRecord]]:
    """Run the job's program; return its exit status and journal, as the collector would read it."""
    (job / "spec.json").write_text(json.dumps({**SPEC, **changes}))
    status = subprocess.run(
        [sys.executable, "-m", "shakedown.benchmarks.nccl.job", str(job)], timeout=60, check=False
    )
    lines = (job / "outputs.jsonl").read_text().splitlines()
    return status.returncode, [OutputRecord.model_validate_json(line) for line in lines]


UUID = "GPU-7d46eb38-3edc-0c80-6f36-13338f314a07"


def look_of(node: str, uuid: str) -> dict[str, object]:
    """What a node with one GPU shows."""
    out = f"index, uuid, pci.bus_id\n0, {uuid}, 00000000:00:06.0\n"
    shown = {"exit_code": 0, "out": out, "error": ""}
    return {"node": node, "commands": {"gpus": shown, "processes": {**shown, "out": "gpu_uuid, pid\n"}}}


@cases(
    "other, shared, refused",
    (UUID, [], True),
    (UUID, ["n1"], True),
    (UUID, ["n1", "n2"], False),
    (UUID.replace("7", "8"), [], False),
)
def test_one_gpu_under_two_names_is_refused_unless_the_inventory_says_so(
    tmp_path, monkeypatch, other, shared, refused
):
    """Catches: a GPU measured against itself, and passed as two nodes."""
    for node, uuid in (("n1", UUID), ("n2", other)):
        (tmp_path / f"gpus.{node}.before.json").write_text(json.dumps(look_of(node, uuid)))
    monkeypatch.setattr(nccl, "every_node", lambda *_: subprocess.Popen(["true"]))
    problem = nccl.on_every_node(tmp_path, "before", {"gpus": {"n1": 1, "n2": 1}, "shared_gpus": shared})
    if refused:
        assert problem and problem["message"].startswith(f"n1 and n2 show the same GPU ({UUID})")
    else:
        assert problem is None


def test_two_nodes_with_different_nccl_are_not_measured(tmp_path, monkeypatch):
    """Catches: what the nodes said of their NCCL, not compared by the job."""
    for node, number in (("n1", "2.28.9"), ("n2", "2.28.3")):
        seen = {**look_of(node, UUID.replace("7", node[1])), "nccl": {"path": "/x", "version": number}}
        (tmp_path / f"gpus.{node}.before.json").write_text(json.dumps(seen))
    monkeypatch.setattr(nccl, "every_node", lambda *_: subprocess.Popen(["true"]))
    problem = nccl.on_every_node(tmp_path, "before", {"gpus": {"n1": 1, "n2": 1}}, "all_reduce_perf")
    assert problem and problem["message"].startswith("NCCL 2.28.9 on n1, NCCL 2.28.3 on n2")


@pytest.mark.slow
def test_a_way_that_is_not_as_planned_is_named_before_anything_is_measured(job):
    """Catches: a hang, or NCCL's own error without node and rail, in the place of the interface's name."""
    path = {"rail": "rail1", "netdev": "fab9", "ipv4": "127.1.0.1", "mtu_bytes": 9000}
    status, (numbers, logs) = run(job, paths={"n1": [path]})
    assert status == 3
    for record in (numbers, logs):
        assert record.problem and record.problem.message == "n1 fab9 (rail1): there is no fab9"
    assert (job / "nccl_all_reduce.r1.txt").read_text() == ""


def test_a_good_job_has_numbers_and_logs(job):
    """Catches: a journal that the collector refuses, a repeat or a log that is not kept."""
    status, (numbers, logs) = run(job)
    assert status == 0
    assert (numbers.tool, numbers.test, numbers.exit_code, numbers.problem) == (
        "nccl",
        "nccl_all_reduce",
        0,
        None,
    )
    assert (logs.tool, logs.params["operation"]) == ("nccl-log", "all_reduce")
    assert (
        (job / "nccl_all_reduce.r2.txt")
        .read_text()
        .startswith("ran -b 8 -e 64 -f 2 -d float -n 2 -w 1 -c 1 -g 2")
    )
    # The end of a communicator is of DESTROY since NCCL 2.30; a log without it is refused as unfinished.
    assert (job / "nccl_all_reduce.log").read_text() == 2 * "log INIT,NET,DESTROY\n"


@cases(
    "variable, value, kind, says",
    ("GPUS", "0", "environment", "no GPU on n1, 2 are planned"),
    ("GPUS", "1", "environment", "one GPU on n1, 2 are planned"),
    ("GPUS", "broken", "environment", "Driver/library version mismatch"),
    ("PROCESSES", "GPU-1, 4711, 512 MiB", "busy", "process 4711 (512 MiB)"),
)
def test_gpus_that_must_not_be_measured(job, monkeypatch, variable, value, kind, says):
    """Catches: numbers taken on too few, broken or busy GPUs."""
    monkeypatch.setenv(variable, value)
    status, records = run(job)
    assert status == 3
    for record in records:
        assert record.problem is not None
        assert record.problem.kind == kind
        assert says in record.problem.message
    assert not list(job.glob("*.r2.txt"))


@pytest.mark.slow
def test_a_stuck_sampler_costs_no_results(job, monkeypatch):
    """Catches: a nvidia-smi that never ends and takes the job's exit status with it."""
    monkeypatch.setenv("STUCK", "1")
    status, records = run(job)
    assert status == 0
    assert [record.problem for record in records] == [None, None]


def test_no_nvidia_smi(job):
    """Catches: a node without the tool, measured all the same."""
    (job.parent / "tools" / "nvidia-smi").unlink()
    _, records = run(job)
    assert [record.problem.kind for record in records] == ["missing-tool"] * 2


def test_no_nccl_tests_says_what_to_do(job):
    """Catches: a missing program that is only an exit status."""
    (job.parent / "tools" / "all_reduce_perf").unlink()
    _, records = run(job)
    assert records[0].problem.kind == "missing-tool"
    assert "install nccl-tests" in records[0].problem.message


def test_a_hung_run_is_ended_alone(job):
    """Catches: a hang that holds the job, and a watchdog that ends more than its own run."""
    bystander = subprocess.Popen(["sleep", "60"])
    tool(job.parent, "all_reduce_perf", "#!/bin/sh\necho begun\nsleep 60 &\nsleep 60\n")
    tool(job.parent, "broadcast_perf", GOOD)
    begin = time.monotonic()
    status, records = run(job, operations=["all_reduce", "broadcast"], timeout_s=1)
    assert time.monotonic() - begin < 40
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert status == 3
    assert records[0].problem.kind == "killed"
    assert "hung, no end within 1 s" in records[0].problem.message
    assert records[2].problem is None  # the next one ran


@pytest.mark.slow
def test_a_hung_run_names_the_rank_that_stands_still(job):
    """Catches: a stopped rank, and a job that says only that nothing came to an end."""
    two = "SLURM_PROCID=1 sh -c 'kill -STOP $$' &\nexport SLURM_PROCID=0\nwhile :; do :; done\n"
    tool(job.parent, "all_reduce_perf", f"#!/bin/sh\n{two}")
    status, (numbers, _) = run(job, timeout_s=2)
    for rank in json.loads((job / "standing.n1.json").read_text()):
        for pid in rank["pids"] if rank["rank"] == 1 else ():
            os.kill(pid, signal.SIGKILL)
    assert status == 3
    assert "within 2 s: rank 1 on n1 stands still: stopped by a signal" in numbers.problem.message


def test_wrong_elements_are_a_result(job):
    """Catches: a wrong sum that ends as INCONCLUSIVE because nccl-tests exits with 1."""
    tool(job.parent, "all_reduce_perf", "#!/bin/sh\necho '# Out of bounds values : 5 FAILED'\nexit 1\n")
    _, records = run(job, repeats=1)
    assert records[0].problem is None


@cases(
    "words, kind",
    ("all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open", "missing-tool"),
    (
        "Test CUDA failure common.cu:1 'CUDA driver version is insufficient for CUDA runtime version'",
        "environment",
    ),
    ("NCCL WARN Cuda failure 802 'system not yet initialized'", "environment"),
    ("Test CUDA failure: 'uncorrectable ECC error encountered'", "environment"),
    ("Invalid number of GPUs: 4 requested but only 3 were found.", "environment"),
)
def test_a_failure_has_its_cause(words, kind):
    """Catches: wrong driver, missing library, dead fabric manager, all called exit status 1."""
    found = cause(f"some line\n{words}\n")
    assert found is not None
    assert found["kind"] == kind
    assert words[:60] in found["message"]


def test_a_foreign_symbol_is_not_put_down_to_nccl():
    """Catches: NCCL blamed where OpenMPI found another PMIx, as on two real GPU nodes."""
    words = "all_reduce_perf: symbol lookup error: mca_pmix_ext3x.so: undefined symbol: PMIx_Info_create"
    found = cause(words)
    assert found and found["kind"] == "environment" and words in found["message"]
    assert "NCCL" not in found["message"]


def test_an_unknown_failure_keeps_its_words(tmp_path):
    """Catches: a failure without what the program said."""
    code, problem = watched(["sh", "-c", "echo odd >&2; exit 7"], tmp_path / "o", tmp_path / "e", timeout_s=9)
    assert code == 7
    assert problem == {"kind": "other", "message": "sh: exit status 7: odd"}


@cases(
    "launcher, wanted, each",
    ("one-process", ["srun", "--ntasks=1", "--mpi=none"], 2),
    ("srun", ["srun", "--ntasks=4", "--ntasks-per-node=2", "--mpi=pmix"], 1),
    ("mpirun", ["mpirun", "plm", "slurm", "-np", "4", "ppr:2:node", "-x", "NCCL_DEBUG"], 1),
)
def test_launchers(launcher, wanted, each, tmp_path):
    """Catches: ranks that do not match the GPUs, or NCCL's variables that never reach them."""
    gpus_of = {"n1": 2} if launcher == "one-process" else {"n1": 2, "n2": 2}
    command, per_process = nccl.launch(
        {"launcher": launcher, "gpus": gpus_of}, ["prog"], {"NCCL_DEBUG": "INFO"}, tmp_path
    )
    assert per_process == each
    assert set(wanted) <= set(command)
    # Each rank is bound by what applies the node's rank file; one process drives all GPUs.
    pinned = ["-m", "shakedown.onnode.pin", "--note", str(tmp_path)]
    assert (command[-5:-1] == pinned) is (launcher != "one-process")
    assert command[-1] == "prog"


@pytest.mark.parametrize(("there", "started"), [("mpirun.openmpi", "mpirun.openmpi"), ("mpirun", "mpirun")])
def test_mpirun_by_the_name_that_its_package_has(there, started, tmp_path, monkeypatch):
    """Catches: packages that were unpacked, without Debian's link of the short name, and "no such file"."""
    for name in {there, "mpirun.openmpi"}:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = {"launcher": "mpirun", "gpus": {"n1": 1, "n2": 1}}
    assert nccl.launch(spec, ["prog"], {}, tmp_path)[0][0] == started


def test_gpus_and_ways_are_looked_at_together(tmp_path, monkeypatch):
    """Catches: seconds of a job in which one look waits for the other; and a way that hides a GPU's fault."""
    at_once = threading.Barrier(2, timeout=10)

    def look(problem):
        def one(*_):
            at_once.wait()
            return problem

        return one

    for of_gpus, of_ways, wanted in ((None, None, None), (None, WAYS, WAYS), (GPUS, WAYS, GPUS)):
        monkeypatch.setattr(nccl, "on_every_node", look(of_gpus))
        monkeypatch.setattr(nccl.tcp_paths, "look", look(of_ways))
        assert nccl.before(tmp_path, {}, {}, "") == wanted


def test_one_process_of_a_program_built_with_openmpi(job, tmp_path):
    """Catches: nccl-tests built with MPI, run as one process without PMIx: OpenMPI ends it in MPI_Init."""
    tool(job.parent, "ldd", "#!/bin/sh\necho 'libopen-pal.so.40 => /usr/lib/libopen-pal.so.40'\n")
    spec = {"launcher": "one-process", "gpus": {"n1": 2}}
    assert "--mpi=pmix" in nccl.launch(spec, ["/opt/all_reduce_perf"], {}, tmp_path)[0]
    assert "--mpi=pmix" in nccl.launch(spec, ["env", "/opt/all_reduce_perf"], {}, tmp_path)[0]
    tool(job.parent, "ldd", "#!/bin/sh\necho 'libnccl.so.2 => /usr/lib/libnccl.so.2'\n")
    assert "--mpi=none" in nccl.launch(spec, ["/opt/all_reduce_perf"], {}, tmp_path)[0]


def test_a_rank_runs_beside_its_gpu(tmp_path):
    """Catches: rank i bound to the CPUs of another GPU."""
    for index, (address, cpus) in enumerate({"0000:81:00.0": "8-11", "0000:06:00.0": "0-3,16"}.items()):
        (tmp_path / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "local_cpulist").write_text(f"{cpus}\n")
        assert index < 2
    assert pin.local_cpus(0, tmp_path) == {0, 1, 2, 3, 16}
    assert pin.local_cpus(1, tmp_path) == {8, 9, 10, 11}
    assert pin.local_cpus(2, tmp_path) == set()


def test_idle_gpus_are_no_obstacle():
    """Catches: an obstacle that is always there, so that nothing is ever measured."""
    table = {"exit_code": 0, "out": "index\n0\n1\n", "error": ""}
    none = {"exit_code": 0, "out": "gpu_uuid, pid, used_gpu_memory [MiB]\n", "error": ""}
    assert gpus.obstacle({"node": "n1", "commands": {"gpus": table, "processes": none}}, 2) is None


def node_stage(job: Path) -> tuple[int, list[OutputRecord]]:
    """Run the node stage's program on n1 with an nvbandwidth that says how it was called."""
    tool(job.parent, "nvbandwidth", '#!/bin/sh\necho "$@"\n')
    spec = {"gpus": {"n1": 2}, "nvbandwidth": ["h2d", "d2h"], "warmup": True}
    spec["timeout_s"] = 9
    (job / "spec.json").write_text(json.dumps(spec))
    argv = [sys.executable, "-m", "shakedown.benchmarks.gpu.job", str(job)]
    status = subprocess.run(argv, timeout=60, check=False).returncode
    lines = (job / "outputs.n1.jsonl").read_text().splitlines()
    return status, [OutputRecord.model_validate_json(line) for line in lines]


def test_the_node_stage_warms_up_and_measures_apart(job):
    """Catches: a first copy through untouched memory that is judged, a test that is not run."""
    status, records = node_stage(job)
    assert status == 0
    assert [(r.tool, r.test, r.problem) for r in records] == [
        ("nvbandwidth", "h2d", None),
        ("nvbandwidth", "d2h", None),
        ("gpu-state", "gpu_state", None),
    ]
    assert (job / "warmup.n1.json").read_text() == "-j -t h2d -t d2h\n"
    assert (job / records[0].file).read_text() == "-j -t h2d\n"


def test_busy_gpus_are_looked_at_but_not_measured(job, monkeypatch):
    """Catches: copies measured beside another job, or a node whose state nobody reads because it is busy."""
    monkeypatch.setenv("PROCESSES", "GPU-1, 4711, 512 MiB")
    status, records = node_stage(job)
    assert status == 3
    assert [r.problem.kind for r in records[:2]] == ["busy", "busy"]
    assert (records[2].tool, records[2].problem) == ("gpu-state", None)
    assert not (job / "warmup.n1.json").exists()


def test_a_missing_nvbandwidth_is_named(job):
    """Catches: no tool, no number, no reason."""
    spec = {"gpus": {"n1": 2}, "nvbandwidth": ["h2d"], "timeout_s": 9}
    spec["warmup"] = False
    (job / "spec.json").write_text(json.dumps(spec))
    subprocess.run([sys.executable, "-m", "shakedown.benchmarks.gpu.job", str(job)], timeout=60, check=False)
    first = json.loads((job / "outputs.n1.jsonl").read_text().splitlines()[0])
    assert first["problem"]["kind"] == "missing-tool"
