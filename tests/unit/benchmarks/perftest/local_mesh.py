"""Several drivers on one machine: a node is a process on a loopback address of its own, perftest a fake."""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

from shakedown.benchmarks.perftest.mesh.schedule import MeshCoverage
from shakedown.benchmarks.perftest.mesh.spec import Spec, parse_spec
from shakedown.judge.localise.outdir import Covered, Outdir
from shakedown.records.results import OutputRecord

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[3]
RUNNER = """
import pathlib, sys
from shakedown.benchmarks.perftest.mesh.driver import main
sys.exit(main(sys.argv[2:], sysfs=pathlib.Path(sys.argv[1])))
"""


def spec_data(nodes: int, rail_count: int = 1, **changes: object) -> dict:
    """Return a small specification as the planner would write it; addresses are loopback addresses."""
    return {
        "schema": 1,
        "mode": "full",
        "nodes": {
            f"n{i}": {
                "address": f"127.77.0.{i}",
                "rails": {
                    f"rail{r}": {"rdma_device": f"rxe{r}", "netdev": f"fab{r}", "ipv4": f"127.77.{r + 1}.{i}"}
                    for r in range(rail_count)
                },
            }
            for i in range(1, nodes + 1)
        },
        "rails": [f"rail{r}" for r in range(rail_count)],
        "operations": [{"test": "ib_write_bw", "size_bytes": 65536, "duration_s": 1}],
        "directions": ["forward", "reverse"],
        "tclass": 106,
        "mtu": 4096,
        "timeout_s": 3,
        "start_timeout_s": 4,
        "join_timeout_s": 4,
        "lost_after_s": 2,
        **changes,
    }


def plant_sysfs(root: Path, data: dict, node: str) -> None:
    """Write the sysfs of the node's RDMA devices: GID 0 is RoCE v1, 1 is v2 of IPv6, 3 is v2 of the IPv4."""
    for nic in data["nodes"][node]["rails"].values():
        port = root / "class/infiniband" / nic["rdma_device"] / "ports/1"
        a, b, c, d = (int(x) for x in nic["ipv4"].split("."))
        ipv4 = f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"
        gids = {
            0: (ipv4, "IB/RoCE v1"),
            1: ("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
            3: (ipv4, "RoCE v2"),
        }
        for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            (port / name).mkdir(parents=True, exist_ok=True)
        (port / "state").write_text("4: ACTIVE\n")
        for index, (gid, kind) in gids.items():
            (port / f"gids/{index}").write_text(gid + "\n")
            (port / f"gid_attrs/types/{index}").write_text(kind + "\n")
            (port / f"gid_attrs/ndevs/{index}").write_text(nic["netdev"] + "\n")


# Below those that outgoing connections take (ip_local_port_range begins at 32768), apart for each worker.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_FIRST = itertools.cycle(range(10000 + 4400 * (_WORKER % 5), 14300 + 4400 * (_WORKER % 5), 100))


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports that nobody listens on."""
    for first in itertools.islice(_FIRST, 100):
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probe = probes.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the listeners do
                probe.bind(("", port))
            return first
    raise RuntimeError("no ports are free")


class LocalMesh:
    """A mesh whose nodes are processes of this machine."""

    def __init__(self, folder: Path, data: dict) -> None:
        self.folder, self.data = folder, data
        self.out = folder / "out"
        first = free_ports(80)
        data.update(control_port=first, base_port=first + 1, port_span=64)
        self.faults: list[dict[str, str]] = []
        self.versions: dict[str, str] = {}
        self.bin = folder / "bin"
        self.bin.mkdir()
        for test in {op["test"] for op in data["operations"]}:
            shutil.copy(HERE / "fake_perftest.py", self.bin / test)
            (self.bin / test).chmod(stat.S_IRWXU)
            text = (self.bin / test).read_text().replace("/usr/bin/env python3", f"{sys.executable} -IS", 1)
            (self.bin / test).write_text(text)
        for node in data["nodes"]:
            plant_sysfs(self.sysfs(node), data, node)

    @property
    def spec(self) -> Spec:
        """The specification as the driver reads it."""
        return parse_spec(self.data)

    def sysfs(self, node: str) -> Path:
        """Return the root of a node's sysfs."""
        return self.folder / "sysfs" / node

    def start(self, *nodes: str) -> dict[str, subprocess.Popen]:
        """Start the drivers of these nodes, or of all."""
        (self.folder / "spec.json").write_text(json.dumps(self.data))
        (self.folder / "faults.json").write_text(json.dumps(self.faults))
        running = {}
        for node in nodes or self.data["nodes"]:
            env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
            env |= {"SLURMD_NODENAME": node, "FAKE_FAULTS": str(self.folder / "faults.json")}
            env |= {"FAKE_VERSION": self.versions.get(node, "6.22")}
            words = [sys.executable, "-c", RUNNER, str(self.sysfs(node)), "spec.json", str(self.out)]
            running[node] = subprocess.Popen(
                words, cwd=self.folder, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return running

    def run(self, *nodes: str, timeout: float = 60) -> dict[str, int]:
        """Run the drivers to their end and return their exit statuses."""
        return self.wait(self.start(*nodes), timeout)

    def wait(self, running: dict[str, subprocess.Popen], timeout: float = 60) -> dict[str, int]:
        """Wait for drivers and return their exit statuses; the last one's errors are kept."""
        statuses = {}
        for node, process in running.items():
            try:
                _, self.errors = process.communicate(timeout=timeout)
            finally:
                process.kill()
            statuses[node] = process.returncode
        return statuses

    def records(self) -> list[OutputRecord]:
        """Return all records; every line must be an OutputRecord."""
        lines = [
            line for f in sorted(self.out.glob("outputs.*.jsonl")) for line in f.read_text().splitlines()
        ]
        return [OutputRecord.model_validate_json(line) for line in lines]

    def coverage(self) -> MeshCoverage:
        """Return what was measured of the specification, as it was when the drivers were started last."""
        gathered, outdir = Covered(), Outdir(self.out, self.spec)
        outdir.refuse_other(hashlib.sha256((self.folder / "spec.json").read_bytes()).hexdigest())
        for measurement in outdir.measurements():
            gathered.add(measurement)
        return gathered.of(self.spec)

    def journal(self, node: str, event: str) -> list[dict]:
        """Return a node's journal entries of one kind."""
        lines = (self.out / f"journal.{node}.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]
