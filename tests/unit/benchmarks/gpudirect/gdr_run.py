"""A run of GPUDirect as nodes would leave it. Lines of GPUs are those that perftest's sources print."""

import json
from pathlib import Path
from typing import Any

from shakedown.benchmarks.planning import site_of
from shakedown.records.verdict import Verdict
from shakedown.references.files import load_catalogue
from shakedown.references.of_site import catalogue_of_site
from tests.kit.job import output, write_counters, write_outputs
from tests.kit.run import collected, raw_of, write_run
from tests.kit.site import WHERE, document, hosts, plan_site
from tests.unit.benchmarks.perftest.fake_perftest import gpu_lines, report

WHEN = "2026-01-01T00:00:{:02}Z"
BUSES = ("0000:18:00.0", "0000:2a:00.0", "0000:ab:00.0", "0000:bc:00.0")
NEAR, FAR = 0, 3
HOST_GBPS, NEAR_GBPS, FAR_GBPS = 390.0, 388.0, 250.0  # of a RoCE link at 400 Gb/s and RDMA MTU 4096


def site_document(nodes: int = 2, profiles: tuple[str, ...] = ("physical",), **asked: Any) -> dict[str, Any]:
    """An inventory of nodes with four GPUs that asks for GPUDirect alone."""
    inventory = document(nodes)
    for host in hosts(inventory):
        host["acceptance"] = {
            "gpudirect": {"operations": ["write"], **asked},
            "counter_tests": False,
            "software_check": False,
        }
        host["fabric"] = {**host["fabric"], "profile": profiles[0], "link_speed_gbps": 400}
        host["gpus"] = [{"index": index, "model": "H100-SXM"} for index in range(4)]
    return inventory


def planned(inventory: dict[str, Any], profile: Path | None = None):
    """Plan and jobs of an inventory."""
    site = site_of(inventory, WHERE)
    catalogue = load_catalogue([profile]) if profile else catalogue_of_site(site, WHERE)
    return plan_site(site, catalogue)


class GdrRun:
    """A healthy run; what any output says can be changed before it is judged."""

    def __init__(self, folder: Path, profile: Path | None = None, **asked: Any) -> None:
        self.folder = folder
        self.plan, jobs = planned(site_document(2, **asked), profile)
        (self.job,) = (job for job in jobs.jobs if job.kind == "gpudirect")
        about = {"started": WHEN.format(1), "duration_s": 30.0}
        self.raw = raw_of(write_run(folder, self.plan, jobs), self.job, **about)
        self.path = self.job.settings["memory"]["path"]
        self.interface = self.job.settings["memory"]["interface"]
        self.records: dict[str, dict[str, Any]] = {}
        self.gbps = {"host": HOST_GBPS, "near": NEAR_GBPS, "far": FAR_GBPS}
        # Of (node, memory): index of the GPU that perftest picks, and its path; None: host memory.
        self.picks: dict[tuple[str, str], tuple[int, str] | None] = {}
        self.reason = ""  # why GPU memory was not measured at all

    def _lines(self, node: str, memory: str) -> str:
        index, path = NEAR if memory == "near" else FAR, self.path
        pick = self.picks.get((node, memory), (index, path))
        if memory == "host" or pick is None:
            return ""
        return gpu_lines(self.interface, pick[0], BUSES, dmabuf=pick[1] == "dma-buf")

    def _cell(self, operation: str, memory: str, pair: list[str], rail: str, direction: str) -> None:
        client, server = pair if (direction != "reverse") ^ (operation == "read") else pair[::-1]
        nics = [self.job.settings["nodes"][node]["rails"][rail] for node in (client, server)]
        addresses, device = [nic["ipv4"] for nic in nics], nics[0]["rdma_device"]
        size, both = 1048576, direction == "both"
        stem = f"ib_{operation}_bw.{','.join(pair)}.{rail}.{direction}.{size}.{memory}.one"
        about = {"test": f"gpudirect_{operation}", "rail": rail, "direction": direction, "attempt": 1}
        about |= {"params": {"size_bytes": size, "rails_at_once": "one", "memory": memory}}
        about |= {"started": WHEN.format(10), "duration_s": 4.5}
        record = output("gpudirect", f"{stem}.txt", *pair, **about)
        if self.reason and memory != "host":
            record |= {"file": f"{stem}.n1.note.txt", "exit_code": None}
            record["problem"] = {"kind": "not-run", "message": self.reason}
            (self.raw / record["file"]).write_text(self.reason + "\n")
        else:
            gbps = self.gbps[memory] * (2 if both else 1)
            text = report(f"ib_{operation}_bw", size, gbps, addresses, device, both=both, seconds=2)
            (self.raw / record["file"]).write_text(self._lines(client, memory) + text)
            if memory != "host":
                waits = "* Waiting for client to connect... *\n" + self._lines(server, memory)
                (self.raw / f"{stem}.server.txt").write_text(waits + text)
        self.records[record["file"]] = record

    def write(self) -> None:
        """Write what the job leaves."""
        settings = self.job.settings
        pairs = settings["pairs"]
        for operation in settings["operations"]:
            for pair in pairs:
                for rail in settings["rails"]:
                    for direction in settings["directions"]:
                        name = operation["test"].split("_")[1]
                        self._cell(name, operation["memory"], list(pair), rail, direction)
        for node in self.job.nodes:
            gpus = [
                {"rail": rail, "memory": memory, "index": i, "bdf": BUSES[i], "distance": far}
                for rail in settings["rails"]
                for memory, i, far in (("near", NEAR, "PIX"), ("far", FAR, "SYS"))
            ]
            note = {"schema": 1, "node": node, "gpus": gpus}
            (self.raw / f"gpus.{node}.json").write_text(json.dumps(note))

    def judged(self) -> Verdict:
        """Write what is missing, read everything and judge it."""
        write_outputs(self.raw, self.records.values(), "n1")
        write_counters(self.raw, self.job.nodes, 10**14, (WHEN.format(2), WHEN.format(28)))
        return collected(self.folder)
