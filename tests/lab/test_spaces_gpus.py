"""Two GPU nodes as namespaces of one server, and faults planted there. Needs root and a GPU, or two:

    SHAKEDOWN_WHEELS=FOLDER SHAKEDOWN_PACKAGES=FOLDER SHAKEDOWN_PYTORCH=/opt/torch/bin/python3 \\
        python -m pytest tests/lab/test_spaces_gpus.py

nccl-tests are where a job looks for them (/opt/nccl-tests/build). On any other machine it is skipped.
Every port is shaped, so that ports limit and not memory copies. References come from a learning run of the
same lab. A lab that SHAKEDOWN_SPACES_LAB names, up and with site.yml done, is used and left up.
"""

import json
import os
import shlex
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from lab.acceptance import BIN
from lab.paths import CHECKOUT
from lab.spaces.cluster import SpaceLab, host_gpus
from shakedown.references import propose
from shakedown.run.folder import Run

pytestmark = [
    pytest.mark.skipif(not host_gpus() or os.geteuid() != 0, reason="needs root and a GPU"),
    pytest.mark.timeout(1200),
]
SHARED = len(host_gpus()) < 2
GIVEN = os.environ.get("SHAKEDOWN_SPACES_LAB")
NAME = GIVEN or "two-gpus"
PYTHON = os.environ.get("SHAKEDOWN_PYTORCH", "/usr/bin/python3")
NCCL = os.environ.get("SHAKEDOWN_NCCL")  # folder of the NCCL that nccl-tests shall load, as PyTorch's own
MODEL = os.environ.get("SHAKEDOWN_GPU_MODEL", "H200-SXM")
BOOK_S = 1200
# Low enough that the port limits and nothing else. At 4,000 a rail reaches 3,600. At 2,000 it reaches 1,740
# to 1,880, and one of 1,800 shows as -7 % among repeats that differ as much. At 1,000 the port limits.
RATE_MBIT = 1000
# What a person allows beyond the spread within one job.
ALLOWED = {"time": 0.5, "busbw": 0.05, "rate": 0.02, "rate_p1": 0.03}
OWN = yaml.safe_load(
    Path(__file__).with_name("one_shared_gpu.yml" if SHARED else "two_gpus.yml").read_text()
)["acceptance"]
# The rails one by one, and small: what shows a slow port.
BY_RAIL = [sweep for sweep in OWN["nccl"]["sweeps"] if "network" in sweep]
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"]
OCCUPY = "import torch, time; x = torch.zeros(9, device='cuda'); open('/tmp/busy', 'w'); time.sleep(600)"
# Works 3 of every 100 ms, from when a job has looked at the GPUs: its argument is the file of that look.
WORK_A_LITTLE = """
import glob, sys, time, torch
open('/tmp/busy', 'w')
while not glob.glob(sys.argv[1]): time.sleep(0.05)
x = torch.randn(4096, 4096, device='cuda', dtype=torch.bfloat16)
def work(count):
    begin = time.monotonic()
    for _ in range(count): torch.mm(x, x)
    torch.cuda.synchronize()
    return time.monotonic() - begin
work(50)
count = max(1, round(0.003 / (work(200) / 200)))
print('products in 3 ms:', count, flush=True)
while True: time.sleep(max(0.0, 0.1 - work(count)))
"""
BOTH_RAILS = [{**BY_RAIL[0], "network": None, "repeats": 1}]


@pytest.fixture(scope="module")
def lab():
    """Two nodes with a GPU each, or with one together; down afterwards, whatever happened."""
    started = SpaceLab.up(2, "shared" if SHARED else "1", NAME)
    try:
        shape(started)
        yield started
    finally:
        started.fault_clear()
        if not GIVEN:
            started.down()


def shape(lab, slow=()):
    """Give every port the common rate, but one that is slow: node, rail, Mbit/s."""
    lab.fault_clear()
    for link in lab.topology.links:
        own = slow[2] if slow and (link.node, link.rail) == tuple(slow[:2]) else RATE_MBIT
        lab.fault("rate", link.node, link.rail, own)


@contextmanager
def planted(lab, fault, *words):
    """A fault beside the ports' rates."""
    lab.fault(fault, *words)
    try:
        yield
    finally:
        shape(lab)


@contextmanager
def another_program(lab, program, *words):
    """A program of somebody else on the GPU of n2, from when it has made /tmp/busy."""
    argv = shlex.join([PYTHON, "-c", program, *words])
    begin = f"rm -f /tmp/busy; setsid {argv} > /tmp/busy.log 2>&1 < /dev/null & echo $!"
    pid = lab.run("n2", ["sh", "-c", begin], "starting a program on the GPU").strip()
    try:
        until = time.monotonic() + 60
        while lab.ssh("n2", ["test", "-e", "/tmp/busy"]).returncode and time.monotonic() < until:
            time.sleep(0.5)
        yield
    finally:
        lab.ssh("n2", ["kill", "-KILL", pid])


class Play:
    """Run playbooks on the lab, with what a test asks for in the place of the site's acceptance."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profile: dict = {}
        self.count = 0

    def site(self, name: str, asked: dict) -> Path:
        """Make a site's folder."""
        site, own = self.folder / name, CHECKOUT / "inventories" / "lab_gpus"
        values = site / "group_vars" / "all"
        values.mkdir(parents=True, exist_ok=True)
        (site / "profiles").mkdir(exist_ok=True)
        for at, kept in ((site, "hosts.py"), (values, "fabric.yml"), (values, "lab.yml")):
            kept_at = own / kept if at == site else own / "group_vars/all" / kept
            if not (at / kept).exists():
                (at / kept).symlink_to(kept_at)
        if self.profile:
            (site / "profiles" / "learnt.yml").write_text(yaml.safe_dump(self.profile, sort_keys=False))
            asked = {**asked, "profiles": ["learnt"]}
        asked = {**asked, "scope": {"gpu": MODEL}, "counter_tests": False}
        (values / "acceptance.yml").write_text(yaml.safe_dump({"acceptance": asked}, sort_keys=False))
        software = {"pytorch": {"from": {"path": PYTHON}}}
        if NCCL:
            software["nccl_tests"] = {"from": {"path": "/opt/nccl-tests/build"}, "libraries": [NCCL]}
        (values / "software.yml").write_text(yaml.safe_dump({"software": software}))
        return site

    def book(self, site: Path, book: str, *options: str) -> int:
        """Run a playbook; return its exit status."""
        argv = [str(BIN / "ansible-playbook"), "-i", str(site), f"playbooks/{book}", *options]
        environment = {**os.environ, "SHAKEDOWN_LAB": NAME, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")}
        return subprocess.run(argv, cwd=CHECKOUT, env=environment, timeout=BOOK_S, check=False).returncode

    def run(self, folder: Path, run_id: str, asked: dict, *options: str) -> dict:
        """Measure; return the verdict, whose `cells` are those that did not pass.

        The submit host keeps outputs of earlier runs and refuses an id that was used.
        """
        self.count += 1
        run_id = f"{run_id}-{os.getpid()}-{self.count}"
        site = self.site(f"site-{run_id}", asked)
        self.book(site, "acceptance.yml", "-e", f"run_id={run_id}", "-e", f"run_root={folder}", *options)
        return json.loads((folder / run_id / "verdict.json").read_text())


@pytest.fixture(scope="module")
def play(lab, tmp_path_factory):
    """The playbooks of the lab, converged."""
    made = Play(tmp_path_factory.mktemp("two-gpus"))
    if not GIVEN:
        assert made.book(made.site("site", OWN), "site.yml") == 0
    return made


@pytest.fixture(scope="module")
def learnt(play):
    """The references of a run that judges none."""
    verdict = play.run(play.folder, "learn", OWN, *LEARN, *STAGES)
    assert reasons(verdict, "FAIL") + reasons(verdict, "INCONCLUSIVE") == []
    run = Run(play.folder / verdict["run"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propose, "MIN_SAMPLES", 1)  # what has one value is taken too, with twice the allowance
        entries = list(propose.proposals(run.measurements(), scope={"gpu": MODEL}, prefix="learnt"))
    for entry in entries:
        allowed = ALLOWED[str(entry["metric"])] * (2 if str(entry["test"]).startswith("torch_") else 1)
        entry["tolerance"] = max(float(str(entry["tolerance"])), allowed)
        entry["set_by"] = f"this test - as proposed, at least {allowed:.0%}"
    play.profile = propose.profile_of("learnt", run.plan, entries)


LEARN = ("-e", "acceptance_learn=true")
STAGES = ("-e", f"acceptance_stages={'collective' if SHARED else 'node,collective'}")
COLLECTIVE = ("-e", "acceptance_stages=collective")
NODE = ("-e", "acceptance_stages=node")


def reasons(verdict, outcome):
    """Why cells ended so."""
    return [cell["reason"] for cell in verdict["cells"] if cell["outcome"] == outcome]


@pytest.mark.usefixtures("learnt")
def test_two_healthy_nodes_pass(play, tmp_path):
    """Catches: two nodes that NCCL takes for one, sockets taken for a fallback, a healthy rail blamed."""
    verdict = play.run(tmp_path, "healthy", OWN, *STAGES)
    assert reasons(verdict, "FAIL") + reasons(verdict, "INCONCLUSIVE") == []
    assert verdict["outcome"] == "PASS"
    assert "nccl_transport" in (tmp_path / verdict["run"] / "plan.json").read_text()


def test_a_rail_left_out_is_named(play, tmp_path):
    """Catches: NCCL_SOCKET_IFNAME that halves the network, unseen."""
    own = json.dumps({"acceptance_learn": True, "acceptance_variables": {"NCCL_SOCKET_IFNAME": "=fab0"}})
    asked = {"nccl": {**OWN["nccl"], "launchers": ["srun"], "sweeps": BOTH_RAILS}}
    verdict = play.run(tmp_path, "one-rail", asked, "-e", own, *COLLECTIVE)
    failed = reasons(verdict, "FAIL")
    assert failed and all("fab1 carry nothing" in reason for reason in failed)


@pytest.mark.parametrize(
    ("fault", "words", "said"),
    [
        ("wrong-address", ("n2", "rail1"), "n2 fab1 (rail1): it has the address 10.10.99.2"),
        ("link-down", ("n2", "rail1"), "n2 fab1 (rail1): it is down"),
        ("port-mtu", ("n2", "rail1", 1500), "rail1 loses packets of 9000 bytes between n1 and n2"),
    ],
)
def test_a_spoiled_rail_is_named_and_nothing_is_measured_over_it(lab, play, tmp_path, fault, words, said):
    """Catches: a hang or NCCL's own error in the place of the rail, and a healthy node blamed."""
    asked = {"nccl": {**OWN["nccl"], "launchers": ["srun"], "sweeps": BOTH_RAILS}}
    with planted(lab, fault, *words):
        verdict = play.run(tmp_path, fault, asked, *LEARN, *COLLECTIVE)
    found = reasons(verdict, "INCONCLUSIVE")
    assert found and all(said in reason and "n1 fab" not in reason for reason in found)
    assert reasons(verdict, "FAIL") == []


def test_a_gpu_in_use_is_named_with_its_node(lab, play, tmp_path):
    """Catches: figures of a GPU that somebody else works on, and a healthy node blamed."""
    asked = {"nccl": {**OWN["nccl"], "launchers": ["srun"], "sweeps": BOTH_RAILS}}
    with another_program(lab, OCCUPY):
        verdict = play.run(tmp_path, "busy", asked, *LEARN, *COLLECTIVE)
    assert verdict["outcome"] == "INCONCLUSIVE" and reasons(verdict, "FAIL") == []
    assert all("GPUs of n2 are in use" in reason for reason in reasons(verdict, "INCONCLUSIVE"))


def test_mpirun_and_all_sizes_are_measured(lab, play, tmp_path):
    """Catches: a launcher that starts nothing across the nodes, or a size up to 1 GiB without a value."""
    sweep = {"operations": OPERATIONS, "min_bytes": 8, "max_bytes": 1 << 30, "factor": 8}
    sweeps = [{**sweep, "iterations": 2, "warmup": 1}]
    asked = {"nccl": {**OWN["nccl"], "launchers": ["srun", "mpirun"], "sweeps": sweeps}}
    lab.fault_clear()  # 1 GiB over ports of 2 Gb/s takes minutes
    try:
        verdict = play.run(tmp_path, "sizes", asked, *LEARN, *COLLECTIVE)
    finally:
        shape(lab)
    assert reasons(verdict, "FAIL") + reasons(verdict, "INCONCLUSIVE") == []
    assert verdict["outcomes"]["BASELINE"] > 2 * 6 * 8


@pytest.mark.usefixtures("learnt")
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_slow_port_fails_its_rail_alone(lab, play, tmp_path, share):
    """Catches: a slow port that no collective shows, or one that is held against the other rail too."""
    shape(lab, ("n2", "rail1", int(share * RATE_MBIT)))
    asked = {"nccl": {**OWN["nccl"], "launchers": ["srun"], "sweeps": BY_RAIL}}
    try:
        verdict = play.run(tmp_path, f"slow-{100 * share:.0f}", asked, *COLLECTIVE)
    finally:
        shape(lab)
    assert verdict["outcome"] == "FAIL"
    assert all("busbw" in cell["cell"] and "network=rail1" in cell["cell"] for cell in verdict["cells"])


@pytest.mark.skipif(SHARED, reason="rates of a GPU that two nodes share are not measured")
@pytest.mark.usefixtures("learnt")
def test_a_gpu_used_a_little_does_not_pass(lab, play, tmp_path):
    """Catches: a rate within its reference that was measured beside another process, and n1 blamed for it."""
    name = f"a-little-{play.count + 1}"
    look = f"/shared/shakedown/runs/{name}-*/raw/node.gpu_rate.*/gpus.n2.before.json"
    asked = {key: OWN[key] for key in ("software_check", "gpu_rate")}
    with another_program(lab, WORK_A_LITTLE, look):
        verdict = play.run(tmp_path, name, asked, *NODE)
    assert verdict["outcome"] in ("FAIL", "INCONCLUSIVE")
    assert len(verdict["cells"]) == 4  # median and slowest window, products and copies
    assert all("/n2/" in cell["cell"] for cell in verdict["cells"])
    assert all("another process was on GPU 0 of n2" in cell["reason"] for cell in verdict["cells"])


@pytest.mark.skipif(SHARED, reason="a GPU that two nodes share is in use by both")
@pytest.mark.usefixtures("learnt")
def test_a_gpu_used_beside_pytorch_decides_nothing(lab, play, tmp_path):
    """Catches: collectives within their references that were measured beside another process."""
    name = f"beside-torch-{play.count + 1}"
    look = f"/shared/shakedown/runs/{name}-*/raw/collective.torch*/gpus.n2.before.json"
    with another_program(lab, WORK_A_LITTLE, look):
        verdict = play.run(tmp_path, name, {"torch": OWN["torch"]}, *COLLECTIVE)
    assert verdict["outcome"] == "INCONCLUSIVE" and reasons(verdict, "FAIL") == []
    assert all("busbw" in cell["cell"] for cell in verdict["cells"])
    assert all("another process was on GPU 0 of n2" in cell["reason"] for cell in verdict["cells"])
