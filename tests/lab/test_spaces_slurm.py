"""What needs neither RDMA nor a kernel of its own: two nodes as namespaces of this host. Needs root."""

import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest
import yaml
from conftest import GPUS, LAB_GPUS, inventory_with

from lab.acceptance import BIN
from tests.kit.bmc import CHASSIS, make_certificate, redfish
from tests.kit.files import lines_of
from tests.unit.benchmarks.outputs import nccl_output

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of a whole machine need root"),
    pytest.mark.timeout(1200),
]


def test_second_converge_without_mitogen_changes_nothing(spaces):
    """Catches: a task that changes something on every run, or that only Mitogen forgives."""
    assert spaces.unchanged(plain_ssh=True) >= {"head", "n1", "n2"}


# Programs in the place of NVIDIA's: what they print of a load that took long enough for readings of a BMC.
NVIDIA_SMI = """#!/bin/sh
case "$*" in
*loop*) while echo '0, 90.0'; do sleep 0.2; done ;;
*query-gpu*) printf "index, uuid, name\\n0, $(hostname)-0, NVIDIA H100\\n1, $(hostname)-1, NVIDIA H100\\n" ;;
*query-compute-apps*) echo 'gpu_uuid, pid, used_gpu_memory [MiB]' ;;
esac
"""
# One size of the two that it prints.
OUTPUT = re.sub(r"^ {11}8 .*\n", "", nccl_output.text(named=True), flags=re.MULTILINE)
OUTPUT = OUTPUT.replace("minBytes 8", "minBytes 16").replace(" iters: 20 ", " iters: 300 ")
LOAD_S, LOAD = 7, {"bytes": 16, "iterations": 300}
ALL_REDUCE = f"""#!/bin/sh
case "$*" in --help) echo USAGE; exit ;; *"-n {LOAD["iterations"]} "*) sleep {LOAD_S} ;; esac
[ "$SLURM_PROCID" = 0 ] || exit 0
cat << 'END'
{OUTPUT}END
"""
SWEEP = {"operations": ["broadcast"], "min_bytes": 16, "max_bytes": 16}  # has no stand-in
POWER = {"bmc": True, "operations": ["all_reduce"], "loads": {"small": LOAD}}
# What the machines share is a folder of this host.
STORAGE = {"name": "share", "path": "/shared", "size_mib": 16, "processes": 2, "accesses": ["write"]}
STORAGE |= {"seconds": 5, "fill_s": 5}
WATTS = {"before": 700.0, "during": 710.0}  # what each BMC says: one is read from before the run on
PROFILE = """
schema: 1
profile: power
title: Stand-ins
published: nowhere
audit: none
hardware: {nodes: 2, node: none, nic: none, nics_per_node: 2, switches: none}
references:
  - stage: node
    kind: baseline
    source: this test
    set_by: this test
    rows:
      - {id: disk, test: storage, metric: bandwidth, value: 0.001, limit: 0.001, unit: GB/s, better: higher}
  - stage: collective
    kind: baseline
    source: this test
    set_by: this test
    rows:
      - {id: time, test: nccl_broadcast, metric: time, value: 1000, limit: 1000, unit: us, better: lower}
      - {id: bw, test: nccl_all_reduce, metric: busbw, value: 0.001, limit: 0.001, unit: GB/s, better: higher}
      # Both servers together, read before and during.
      - {id: w, test: nccl_all_reduce, metric: server_power, value: 1410, limit: 1420, unit: W, better: lower}
"""


# What users set for themselves, all at once: where playbooks come from, and on every machine.
WISHES = {
    "ANSIBLE_STDOUT_CALLBACK": "oneline",
    "BASH_ENV": "/root/wishes.sh",
    "GREP_OPTIONS": "--color=always",
    "LC_ALL": "tr_TR.UTF-8",
    "LD_PRELOAD": "/nowhere/libmine.so",
    "NCCL_DEBUG": "TRACE",
    "NCCL_SOCKET_IFNAME": "lo",
    "OMPI_MCA_btl": "self",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "PMIX_MCA_psec": "none",
    "PYTHONPATH": "/root/mine",
    "RFM_STAGE_DIR": "/nowhere/stage",
    "RFM_SYSTEM": "mine",
    "SACCT_FORMAT": "jobid",
    "SBATCH_TIMELIMIT": "1",
    "SINFO_FORMAT": "%n",
    "SLURM_TIME_FORMAT": "relative",
    "SQUEUE_FORMAT": "%i",
    "TZ": "Europe/Berlin",
    "UCX_TLS": "self",
}


@pytest.fixture
def wishes(spaces, monkeypatch):
    """Make every environment a user's own; another clone of this package and a talking shell lie there."""
    machines = ("head", "n1", "n2")
    lines = "".join(f"{name}={value}\n" for name, value in WISHES.items() if name[:7] != "ANSIBLE")
    clone = "mkdir -p /root/mine/shakedown && echo 'raise SystemExit(9)' > /root/mine/shakedown/__init__.py"
    plant = f"cat > /etc/environment && echo 'echo hello from a shell' > /root/wishes.sh && {clone}"
    for machine in machines:
        assert spaces.lab.ssh(machine, ["sh", "-c", plant], input_text=lines).returncode == 0
    # Of these, what Python itself would not start with stays away from the controller.
    for name in WISHES.keys() - {"PYTHONPATH", "LD_PRELOAD", "LC_ALL"}:
        monkeypatch.setenv(name, WISHES[name])
    yield
    for machine in machines:
        spaces.lab.ssh(machine, ["sh", "-c", ": > /etc/environment"])


def test_what_a_user_wishes_for_himself_steers_no_run(spaces, wishes):
    """Catches: a setting of somebody's shell that ends a run, sends its bytes elsewhere or blames a node."""
    status, verdict, _ = spaces.accept("wishes")
    assert (status, verdict["outcome"]) == (0, "PASS"), verdict["reason"]
    # They were there: what the run kept out is said.
    assert "UCX_TLS" in spaces.logs[-1].read_text()


@pytest.fixture(scope="module")
def killed(spaces, tmp_path_factory):
    """A run of which one job was cancelled, and another one measured while BMCs were read."""
    folder = tmp_path_factory.mktemp("power")
    for machine in ("n1", "n2"):
        for name, text in (("nvidia-smi", NVIDIA_SMI), ("all_reduce_perf", ALL_REDUCE)):
            write = f"cat > /usr/local/bin/{name} && chmod 755 /usr/local/bin/{name}"
            assert spaces.lab.ssh(machine, ["sh", "-c", write], input_text=text).returncode == 0
    asked = yaml.safe_load((LAB_GPUS / "group_vars/all/acceptance.yml").read_text())
    expect = {"nvls": False, "network": "socket", "pinned": False}
    asked["acceptance"]["nccl"] = {"sweeps": [SWEEP], "expect": expect, "server_power": POWER}
    asked["acceptance"]["profiles"] = ["power"]
    asked["acceptance"]["storage"] = [STORAGE]
    inventory = inventory_with(folder, LAB_GPUS, acceptance=asked, gpus=GPUS)
    (inventory / "profiles").mkdir()
    (inventory / "profiles/power.yml").write_text(PROFILE)
    certificate, secret = make_certificate(folder), folder / "bmc.password"
    secret.write_text("correct-horse\n")
    secret.chmod(0o600)
    readers, cancelled = [], []

    def read(run, when):
        """Begin to read both BMCs, as docs/how-to/server-power.md says."""
        bmc = {"through": "redfish", "address": "localhost", "port": ports[when], "user": "monitor"}
        bmc |= {"password_file": str(secret), "ca_file": str(certificate / "ca.pem")}
        file = folder / f"{when}.yml"
        file.write_text(json.dumps({"bmcs": {"n1": bmc, "n2": bmc}}))
        words = ("power", run, "--bmcs", file, "--seconds", "900", "--every", "0.5")
        argv = [str(word) for word in (BIN / "shakedown", *words)]
        readers.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))

    def disturb(run):
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and not cancelled:
            answer = spaces.lab.ssh("head", ["squeue", "--noheader", "--states=RUNNING", "--format=%i %j"])
            for line in answer.stdout.splitlines():
                job, _, name = line.partition(" ")
                if len(readers) < 2:
                    read(run, "during")
                if name.startswith("collective.mpi"):
                    spaces.lab.ssh("head", ["scancel", job])
                    cancelled.append(job)
                    break
            time.sleep(0.1)

    def planned(run):
        read(run, "before")
        threading.Thread(target=disturb, args=(run,), daemon=True).start()

    with redfish(certificate) as before, redfish(certificate) as during:
        ports = {"before": before[0], "during": during[0]}
        for when, (_, tree, _) in (("before", before), ("during", during)):
            tree[f"{CHASSIS}/EnvironmentMetrics"] = {"PowerWatts": {"Reading": WATTS[when]}}
        status, verdict, run = spaces.accept("killed", on=inventory, planned=planned)
        for reader in readers:
            reader.send_signal(signal.SIGINT)
        told = [reader.communicate(timeout=30)[0] for reader in readers]
    assert cancelled, "no job was seen running"
    return status, verdict, run, told


def test_killed_job_is_inconclusive(killed):
    """Catches: a job cancelled in its middle taken for a good one, or for bad hardware."""
    status, verdict, *_ = killed
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]
    mine = [cell for cell in verdict["cells"] if cell["cell"].startswith("collective/mpi_")]
    assert any("CANCELLED" in cell["reason"] for cell in mine), mine


def test_power_read_from_before_the_run_or_during_it_is_kept_and_judged(killed):
    """Catches: a run refused for readings that are there already, readings that the fetch deletes or spoils,
    a power that nobody judges."""
    _, verdict, run, told = killed
    for node in ("n1", "n2"):
        lines = lines_of(run / f"raw/server_power/{node}.jsonl")
        for words, watts in zip(told, WATTS.values(), strict=True):
            (count,) = re.findall(rf"{node}: (\d+) readings$", words, re.MULTILINE)
            assert int(count) > 10 and sum(line["watts"] == watts for line in lines) == int(count), words
    (power,) = (one for one in lines_of(run / "results.jsonl") if one["metric"] == "server_power")
    assert 1400 <= power["value"] <= 1420 and not power["problem"], power
    assert "server_power" in (run / "plan.json").read_text()
    assert not [cell for cell in verdict["cells"] if "server_power" in cell["cell"]]


def test_storage_is_measured_and_its_data_compared(killed):
    """Catches: options that a real fio refuses, or a run that leaves files where others work."""
    _, verdict, run, _ = killed
    found = [m for m in lines_of(run / "results.jsonl") if m["test"] == "storage"]
    assert {(m["nodes"][0], m["metric"]) for m in found} == {
        (node, metric) for node in ("n1", "n2") for metric in ("bandwidth", "wrong")
    }
    assert all(m["problem"] is None for m in found), found
    assert not [cell for cell in verdict["cells"] if "/storage/" in cell["cell"]]


def test_a_way_that_strays_in_the_middle_of_a_job_is_named(spaces):
    """Catches: a PASS of a job whose traffic a new route sends around its rail, after its first look."""
    began = "until ls /shared/shakedown/runs/strays*/raw/*/tcp.n1.json >/dev/null 2>&1; do sleep 0.05; done"
    plant = ["timeout", "600", "sh", "-c", f"{began}; ip route add 10.10.0.2/32 dev fab1"]
    planter = threading.Thread(
        target=spaces.lab.ssh, args=("n1", plant), kwargs={"timeout_s": 600}, daemon=True
    )
    planter.start()
    try:
        status, verdict, run = spaces.accept("strays")
    finally:
        spaces.lab.ssh("n1", ["ip", "route", "del", "10.10.0.2/32"])
    assert (run / "raw/collective.mpi_allreduce.a1/rails.json").is_file()
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    assert "n1 fab0 (rail0): n2's 10.10.0.2 is reached over fab1" in verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]


def test_a_node_whose_rail_went_down_is_drained_by_slurm_and_comes_back(spaces):
    """Catches: a rail that dies between runs on a node that still gets jobs, or never comes back."""
    well, printed = spaces.play("health.yml", options=("-e", "node_health_hold_s=0"))
    assert well, printed[-4000:]
    lines = "HealthCheckProgram=/usr/local/sbin/shakedown-health\\nHealthCheckInterval=5"
    conf, machines = "/etc/slurm/slurm.conf", ("head", "n1", "n2")

    def configure(change: str) -> None:
        for machine in machines:
            assert spaces.lab.ssh(machine, ["sh", "-c", change]).returncode == 0
        assert spaces.lab.ssh("head", ["scontrol", "reconfigure"]).returncode == 0

    configure(f"cp -p {conf} {conf}.was && printf '{lines}\\n' >> {conf}")
    try:
        spaces.lab.fault("link-down", "n2", "rail1")
        spaces.wait_for_nodes("n2", lambda state: state.startswith("drain"), "n2 is not drained")
        said = spaces.lab.ssh("head", ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]).stdout.split(
            "\n"
        )
        assert "n2|drained|shakedown-health: fab1: link down, up accepted" in said
        assert "n1|idle|none" in said
        spaces.lab.fault_clear()
        spaces.wait_for_nodes("n2", lambda state: state == "idle", "n2 does not come back")
    finally:
        spaces.lab.fault_clear()
        configure(f"mv {conf}.was {conf}")


def test_node_that_is_down_before_the_run_is_named(spaces):
    """Catches: a run that waits for ever for a node that Slurm cannot use, or blames its hardware."""
    # Any answer of its daemon takes a node back that is down (ReturnToService=2).
    assert spaces.lab.ssh("n2", ["pkill", "-KILL", "-x", "slurmd"]).returncode == 0
    update = ["scontrol", "update", "nodename=n2", "state=down", "reason=planted"]
    assert spaces.lab.ssh("head", update).returncode == 0
    status, verdict, _ = spaces.accept("node-down")
    assert status == 3, verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]
    reasons = {cell["reason"] for cell in verdict["cells"] if "/n1,n2/" in cell["cell"]}
    assert reasons
    down = re.compile(r"n2: it is down( and does not respond)? \(planted\)")
    others = sorted(reason for reason in reasons if not down.search(reason))
    assert not others, others
