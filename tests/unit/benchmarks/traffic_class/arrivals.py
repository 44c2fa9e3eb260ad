"""A run of the ring as nodes would leave it: perftest's outputs, and what receivers counted."""

import json
from pathlib import Path
from typing import Any

from shakedown.records.verdict import Verdict
from tests.kit.job import output, write_counters, write_outputs
from tests.kit.run import collected, raw_of, write_run
from tests.kit.site import document, hosts, plan_site
from tests.unit.benchmarks.perftest.fake_perftest import report

NETDEVS = {"rail0": "fab0", "rail1": "fab1"}
WHEN = "2026-01-01T00:00:{:02}Z"
MOVED = 1000 * 65536  # what report() says that went over: 1000 messages of 64 KiB


def site_document(nodes: int = 2, **config: Any) -> dict[str, Any]:
    """An inventory that asks for the config stage alone."""
    inventory = document(nodes)
    for host in hosts(inventory):
        host["acceptance"] = {"config": config, "counter_tests": False}
    return inventory


def planned(inventory: dict[str, Any]):
    """Plan and jobs of an inventory."""
    return plan_site(inventory)


def packets(source: str, destination: str, count: int = 500, **other: Any) -> dict[str, Any]:
    """So many packets of data between two addresses, DSCP 26 and ECT(0) unless told otherwise."""
    ends = {"source": source, "destination": destination}
    return {**ends, "dscp": 26, "ecn": 2, "kind": "data", "count": count, **other}


def seen(*found: dict[str, Any], **other: Any) -> dict[str, Any]:
    """What a NIC's sample holds."""
    return {"error": "", "full": False, "missed": 0, "packets": list(found), **other}


def mlx5(*received: int) -> dict[str, dict[str, int]]:
    """Counters of an mlx5 NIC that received so many bytes in priorities 0, 1, ...."""
    return _grown("rx_prio{}_bytes", "rx_prio{}_packets", received)


def bnxt(*received: int) -> dict[str, dict[str, int]]:
    """The same of a bnxt NIC."""
    return _grown("rx_bytes_pri{}", "rx_packets_pri{}", received)


def _grown(octets: str, frames: str, received: tuple[int, ...]) -> dict[str, dict[str, int]]:
    more = dict(enumerate(received))
    before = {name.format(p): 7_000_000 for name in (octets, frames) for p in range(8)}
    after = {octets.format(p): 7_000_000 + more.get(p, 0) for p in range(8)}
    after |= {frames.format(p): 7_000_000 + more.get(p, 0) // 4096 for p in range(8)}
    return {"before": before, "after": after}


class Ring:
    """A run whose ring has sent on every rail; each arrival can be told otherwise before it is judged."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self.folder = folder
        self.plan, jobs = planned(site_document(nodes, dcb=False, link_speed=False))
        self.job = next(job for job in jobs.jobs if job.name == "config.traffic_class")
        about = {"started": WHEN.format(1), "duration_s": 30.0}
        self.raw = raw_of(write_run(folder, self.plan, jobs), self.job, **about)
        self.evidence: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.records: list[dict[str, Any]] = []
        (self.item,) = (item for item in self.plan.items if item.test == "traffic_class")
        for _, pair, rail, direction in self.item.cells():
            self._sent(pair, rail or "", direction or "")

    def address(self, node: str, rail: str) -> str:
        """A node's address on a rail."""
        return str(self.job.settings["nodes"][node]["rails"][rail]["ipv4"])

    def _sent(self, pair: tuple[str, ...], rail: str, direction: str) -> None:
        sender, sink = pair if direction == "forward" else pair[::-1]
        ends = self.address(sender, rail), self.address(sink, rail)
        device = self.job.settings["nodes"][sender]["rails"][rail]["rdma_device"]
        file = f"ib_write_bw.{','.join(pair)}.{rail}.{direction}.65536.all.txt"
        (self.raw / file).write_text(report("ib_write_bw", 65536, 0.26, ends, device))
        about = {"rail": rail, "direction": direction, "attempt": 1, "duration_s": 2.5}
        about |= {"started": WHEN.format(10), "params": {"size_bytes": 65536, "rails_at_once": "all"}}
        self.records.append(output("traffic_class", file, *pair, **about))
        self.evidence[sink, sender, rail] = {
            "file": f"arrived.{file.removesuffix('.txt')}.json",
            "schema": 1,
            "node": sink,
            "netdev": NETDEVS[rail],
            "started": WHEN.format(9),
            "ended": WHEN.format(13),
            "priorities": {"before": {}, "after": {}},
            "no_priorities": "the driver counts no received bytes by priority",
            "headers": seen(packets(*ends), packets(*ends[::-1], kind="ack", count=40)),
            "no_headers": "",
        }

    def judged(self) -> Verdict:
        """Write what is missing, read everything and judge it."""
        write_outputs(self.raw, self.records, "n1")
        for told in self.evidence.values():
            kept = {name: value for name, value in told.items() if name != "file"}
            (self.raw / told["file"]).write_text(json.dumps(kept))
        write_counters(self.raw, self.job.nodes, 10**9, (WHEN.format(2), WHEN.format(28)))
        return collected(self.folder)

    def cells(self) -> dict[tuple[str, str, str], tuple[str, str]]:
        """Judge, and return outcome and reason by receiver, sender and rail."""
        verdict = self.judged()
        listed = {cell.cell: cell for cell in verdict.cells}
        found = {}
        for cell, pair, rail, direction in self.item.cells():
            sender, sink = pair if direction == "forward" else pair[::-1]
            told = listed.get(cell)
            found[sink, sender, rail or ""] = (told.outcome.value, told.reason) if told else ("PASS", "")
        return found
