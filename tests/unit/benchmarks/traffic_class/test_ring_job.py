"""The job itself, on processes of this machine: perftest, the node's service and ethtool are stand-ins."""

import json
import socket
import threading
from pathlib import Path

import pytest
from arrivals import bnxt, mlx5, packets, planned, seen, site_document

from shakedown.benchmarks.traffic_class import job as watch
from tests.kit.cases import cases
from tests.kit.files import script
from tests.kit.site import hosts
from tests.unit.benchmarks.perftest import local_mesh

RUNNER = """
import pathlib, sys
from shakedown.benchmarks.traffic_class.job import main
sys.exit(main([sys.argv[3]], sysfs=pathlib.Path(sys.argv[1]), service=sys.argv[3] + "/arrivals.sock"))
"""


class FakeService:
    """A service that counts the same for everyone, as the node's own would say it."""

    def __init__(self, path: Path, answer: bytes, ready: bytes = b"ready\n") -> None:
        self.asked = 0
        self._answer, self._ready = answer, ready
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            self.asked += 1
            connection.sendall(self._ready)
            if self._ready != b"ready\n":
                return
            while connection.recv(64):
                pass
            connection.sendall(self._answer)

    def close(self) -> None:
        """Answer no more."""
        self._listener.close()


@pytest.fixture
def ring(tmp_path, monkeypatch):
    """Return a maker of rings of nodes on this machine."""

    def make(nodes: int):
        inventory = site_document(nodes)
        for number, host in enumerate(hosts(inventory), start=1):
            host["mgmt_ip"] = f"127.77.0.{number}"
            for rail in range(2):
                host["fabric"]["rails"][rail]["subnet"] = f"127.77.{rail + 1}.0/24"
                host["fabric_nics"][rail]["ipv4"] = f"127.77.{rail + 1}.{number}/24"
        plan, jobs = planned(inventory)
        job = next(job for job in jobs.jobs if job.kind == "traffic_class")
        monkeypatch.setattr(local_mesh, "RUNNER", RUNNER)
        mesh = local_mesh.LocalMesh(tmp_path, dict(job.settings))
        mesh.out.mkdir()

        def run() -> dict[str, int]:
            (mesh.out / "spec.json").write_text(json.dumps(mesh.data))
            return mesh.run()

        return mesh, plan, run

    return make


@pytest.mark.parametrize("nodes", [2, 3])
def test_every_receiver_counts_what_every_sender_sends(ring, nodes):
    """Catches a cell that driver and plan name differently, a direction uncounted, the wrong node's count."""
    mesh, plan, run = ring(nodes)
    answer = json.dumps({"schema": 1, "netdevs": {f"fab{rail}": seen() for rail in range(2)}})
    service = FakeService(mesh.out / "arrivals.sock", answer.encode())
    assert set(run().values()) == {0}, mesh.errors
    service.close()
    (item,) = (item for item in plan.items if item.test == "traffic_class")
    records = mesh.records()
    assert sorted((r.nodes, r.rail, r.direction) for r in records) == sorted(
        (pair, rail, way) for _, pair, rail, way in item.cells()
    )
    for record in records:
        assert (record.tool, record.test, record.problem) == ("traffic_class", "traffic_class", None)
        assert record.params == item.params
        told = json.loads((mesh.out / f"arrived.{record.file.removesuffix('.txt')}.json").read_text())
        assert told["node"] == record.nodes[1 if record.direction == "forward" else 0]
        assert told["netdev"] == f"fab{record.rail[-1]}"
        assert told["headers"] == seen()
        assert told["no_headers"] == ""
    # One count for each time that a node receives: from each neighbour once, over all rails together.
    assert service.asked == 2 * len(item.nodes)


def test_a_client_without_a_clock_sends_once(ring):
    """Catches minutes of trying again for a rate that is not asked, and cells undecided for want of it."""
    mesh, _, run = ring(2)
    mesh.faults = [{"node": "n1", "side": "client", "fault": "noclock", "times": 99}]
    assert set(run().values()) == {0}, mesh.errors
    assert [record.problem for record in mesh.records()] == [None] * 4
    assert not list(mesh.out.glob("*noclock*"))


def test_a_node_without_the_service_says_so(ring):
    """Catches a job that fails, or hangs, at a site whose hosts were configured before the service came."""
    mesh, _, run = ring(2)
    assert set(run().values()) == {0}, mesh.errors
    assert len(list(mesh.out.glob("arrived.*.json"))) == 4
    for file in mesh.out.glob("arrived.*.json"):
        told = json.loads(file.read_text())
        assert told["headers"] is None
        assert "arrivals.sock" in told["no_headers"]
        assert "run the playbook that configures hosts" in told["no_headers"]


@cases(
    "ready, answer, words",
    (b"", b"", "does not count"),
    (b"hello\n", b"", "does not count"),
    (b"ready\n", b"{]", "Expecting"),
    (b"ready\n", b"[]", "the answer is no count"),
)
def test_a_service_that_talks_nonsense_is_no_evidence(tmp_path, ready, answer, words):
    """Catches an answer of something else that ends the job, or counts."""
    service = FakeService(tmp_path / "s", answer, ready)
    with watch.watching(tmp_path, "n2", str(tmp_path / "s"))({"a.txt": "lo"}):
        pass
    service.close()
    told = json.loads((tmp_path / "arrived.a.json").read_text())
    assert told["headers"] is None
    assert words in told["no_headers"]


@pytest.mark.parametrize("driver", [mlx5, bnxt])
def test_the_priorities_of_a_nic_are_read_before_and_after(tmp_path, monkeypatch, driver):
    """Catches other counters kept, or a NIC's late ones read too early."""
    counters = driver(1, 2, 3, 4)
    tool = tmp_path / "ethtool"
    for when, values in counters.items():
        lines = "".join(f"     {name}: {value}\n" for name, value in values.items())
        (tmp_path / when).write_text(f"NIC statistics:\n     rx_packets: 5\n     rx_prio3_pause: 7\n{lines}")
    script(tool, f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\ncat {tmp_path}/now\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(watch, "_LATE_S", 0.01)
    (tmp_path / "before").rename(tmp_path / "now")
    with watch.watching(tmp_path, "n2", "/nowhere")({"a.txt": "eth9"}):
        (tmp_path / "after").rename(tmp_path / "now")
    told = json.loads((tmp_path / "arrived.a.json").read_text())
    assert told["priorities"] == counters
    assert told["no_priorities"] == ""
    # A bnxt is read again once its counters are those of now.
    assert (tmp_path / "asked").read_text().splitlines() == ["-S eth9"] * (4 if driver is bnxt else 2)


def test_packets_of_a_sample_are_read_as_the_service_writes_them():
    """Catches a document of the role's program that the reader of evidence refuses."""
    from shakedown.benchmarks.traffic_class.output import Headers

    assert Headers.model_validate(seen(packets("10.0.0.1", "10.0.0.2"))).packets[0].dscp == 26
