"""The config stage from plan to measurement: a node passes only if it shows what this run's intent says."""

import json
import socket
import threading

import pytest

from shakedown.benchmarks.config import job
from shakedown.benchmarks.config.settings import TargetReport, expected_of_nic, judge
from shakedown.collect.outputs import job_measurements
from shakedown.intent.site import Site
from shakedown.judge.verdict import judge as judge_run
from shakedown.references.catalogue import Catalogue
from tests.kit.cases import cases
from tests.kit.run import ordered_in, raw_of, write_run
from tests.kit.site import fabric, plan_site, with_nics

GOOD = {"mtu.host_bytes": 9000, "mtu.rdma_bytes": 4096, "rdma.device": "mlx5_0"}
GOOD |= {"rdma_cm.default_roce_mode": "RoCE v2", "rdma_cm.default_roce_tos": 106, "gid.type": "RoCE v2"}
GOOD |= {"link.state": "up", "ipv4": "10.0.0.1/24", "ipv4.others": [], "ipv4.duplicates": []}
GOOD |= {"gid.others": [], "mac": "52:54:00:00:00:01", "dcbx.mode": "host ieee", "pfc.priorities": [3]}
GOOD |= {"dscp.map": "0-25:0 26:3 27-47:0 48:6 49-63:0", "link.speed_gbps": 400.0, "rings.rx": 8192}


@pytest.fixture
def site() -> Site:
    """One node with one NIC."""
    return with_nics(fabric(), ["n1"])


def report(target: str = "eth2", **changes: object) -> dict:
    """A node's report; `changes` by setting, with __ for dots, None for a setting that it lacks."""
    values = GOOD if target == "eth2" else {"env.NCCL_IB_TC": "106", "file:/etc/shakedown/roce.env": "x"}
    values = values | {key.replace("__", "."): value for key, value in changes.items()}
    settings = [
        {"key": k, "found": v, "wanted": v, "ok": True, "settable": True}
        for k, v in values.items()
        if v is not None
    ]
    return {
        "schema": 1,
        "target": target,
        "driver": "mlx5",
        "ok": True,
        "error": None,
        "settings": settings,
        "not_applicable": [{"key": "firmware", "reason": "mlxconfig is not installed"}],
        "changes": [],
    }


def wrong(site: Site, document: dict) -> dict[str, str]:
    """What the comparison with the intent finds, by setting."""
    expected = expected_of_nic(site.fabric, rdma_device="mlx5_0", ipv4="10.0.0.1", dcb=True, link_speed=True)
    return {key: why for key, count, why in judge(TargetReport.model_validate(document), expected) if count}


def test_a_good_node_has_nothing_wrong(site):
    """Catches a comparison that blames a good node."""
    assert wrong(site, report()) == {}


@cases(
    "change, setting, words",
    ({"mtu__host_bytes": 1500}, "mtu.host_bytes", "found 1500, wanted 9000"),
    ({"mtu__rdma_bytes": 1024}, "mtu.rdma_bytes", "found 1024, wanted 4096"),
    ({"rdma_cm__default_roce_tos": 104}, "rdma_cm.default_roce_tos", "found 104, wanted 106"),
    ({"pfc__priorities": []}, "pfc.priorities", "found [], wanted [3]"),
    ({"pfc__priorities": [3, 4]}, "pfc.priorities", "found [3, 4], wanted [3]"),
    ({"dscp__map": "0-25:0 26:3 27-63:0"}, "dscp.map", "found"),
    ({"dscp__map": "0-23:0 24-26:3 27-47:0 48:6 49-63:0"}, "dscp.map", "24-26:3"),
    ({"dscp__map": "nonsense"}, "dscp.map", "nonsense"),
    ({"gid__type": "IB/RoCE v1"}, "gid.type", "IB/RoCE v1"),
    ({"link__speed_gbps": 100.0}, "link.speed_gbps", "found 100.0, wanted 400.0"),
    ({"link__state": "down"}, "link.state", "down"),
    ({"ipv4": ["10.0.0.2/24"]}, "ipv4", "10.0.0.2"),
    ({"ipv4__others": ["10.9.9.9/24"]}, "ipv4.others", "10.9.9.9/24"),
    ({"ipv4__duplicates": ["52:54:00:00:00:09"]}, "ipv4.duplicates", "52:54:00:00:00:09"),
    ({"gid__others": ["10.9.9.9"]}, "gid.others", "10.9.9.9"),
    ({"rdma__device": "mlx5_3"}, "rdma.device", "mlx5_3"),
    ({"dcbx__mode": "lld_managed ieee"}, "dcbx.mode", "lld_managed"),
    ({"pfc__priorities": None}, "pfc.priorities", "found nothing"),
)
def test_each_fault_is_named_although_the_node_is_content(site, change, setting, words):
    """Each entry is a node configured from another intent: by its own account all is well."""
    found = wrong(site, report(**change))
    assert list(found) == [setting]
    assert words in found[setting]


def test_what_the_node_itself_finds_wrong_counts(site):
    """Catches drift in a setting that the intent does not name."""
    document = report()
    document["settings"][-1] |= {"found": 512, "ok": False}
    assert wrong(site, document) == {"others": "rings.rx: found 512, wanted 8192"}


def test_a_target_that_could_not_be_read_is_wrong_in_everything(site):
    """Catches a read-back that failed and left an empty list, in which nothing is wrong."""
    document = report() | {"settings": [], "error": "dcb is not installed"}
    found = wrong(site, document)
    assert set(found) == {*GOOD.keys() - {"rings.rx", "mac"}, "others"}
    assert "dcb is not installed" in found["others"]


@pytest.fixture
def run(site, tmp_path, monkeypatch):
    """A run of the config stage whose node answers over a socket; call it with the reports."""
    plan, jobs = plan_site(site, Catalogue([]))
    [spec] = jobs.jobs
    write_run(tmp_path, plan, jobs)
    out = raw_of(tmp_path, spec)
    ordered_in(out, spec)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    path = tmp_path / "settings.sock"
    monkeypatch.setattr(job, "SOCKET", str(path))

    def answer(*reports: dict) -> tuple[int, dict]:
        if reports:
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(path))
            server.listen(1)

            def serve() -> None:
                connection, _ = server.accept()
                connection.sendall(json.dumps({"schema": 1, "targets": list(reports)}).encode())
                connection.close()
                server.close()

            threading.Thread(target=serve, daemon=True).start()
        status = job.main([str(out)])
        measurements = job_measurements(plan, {spec.name: spec}, out)
        cells = judge_run(plan, measurements, []).cells
        return status, {v.cell: v for v in cells if "/settings/" in v.cell}

    return answer


def test_from_the_node_to_a_passing_verdict(run):
    """Catches planned settings that no measurement reaches: the verdict would be NOT-RUN."""
    assert run(report(), report("environment")) == (0, {})


def test_a_fault_reaches_the_verdict_with_node_found_and_wanted(run):
    """Catches a FAIL that says 1 is more than 0 and nothing else."""
    status, cells = run(report(pfc__priorities=[]), report("environment", env__NCCL_IB_TC="104"))
    assert status == 0
    reasons = {c.reason for c in cells.values()}
    assert {c.outcome.value for c in cells.values()} == {"FAIL"}
    assert any("n1" in r and "rail0" in r and "pfc.priorities: found [], wanted [3]" in r for r in reasons)
    assert any("env.NCCL_IB_TC" in r and '"104"' in r for r in reasons)
    assert len(cells) == 2


def test_no_service_is_not_run_and_says_what_to_do(run):
    """Catches a node without the read-back service that passes, or fails as if its NICs were bad."""
    status, cells = run()
    assert status == 0
    assert {c.outcome.value for c in cells.values()} == {"NOT-RUN"}
    assert all("run the playbook that configures hosts" in c.reason for c in cells.values())


def test_a_nic_the_node_does_not_know_is_inconclusive(run):
    """Catches a NIC that was never configured and is passed over."""
    _, cells = run(report("environment"))
    assert len(cells) == len(GOOD) + 1  # all but rings.rx and mac, and others, neighbours and routes
    assert {c.outcome.value for c in cells.values()} == {"INCONCLUSIVE"}


def test_a_node_without_the_right_to_ask_is_not_run_with_the_reason(run):
    """Catches: a second owner of an address that nobody looked for, passed or blamed on the node."""
    document = report(ipv4__duplicates=None)
    document["not_applicable"].append(
        {"key": "ipv4.duplicates", "reason": "no ARP probe could be sent: Operation not permitted"}
    )
    _, cells = run(document, report("environment"))
    (cell,) = cells.values()
    assert cell.cell.endswith("setting=ipv4.duplicates")
    assert cell.outcome == "NOT-RUN"
    assert "no ARP probe could be sent: Operation not permitted" in cell.reason
