"""Sites whose nodes have a TCP network and no RoCE fabric: collectives are planned over it."""

from pathlib import Path
from typing import Any

from shakedown.benchmarks.registry import Acceptance
from shakedown.intent.inventory import site_of
from tests.kit.refusal import refused
from tests.kit.site import plan_site

WHERE = Path("inventory")
SWEEP = {"operations": ["all_reduce"], "min_bytes": 8, "max_bytes": 8}
RAILS = ("rail0", "rail1")


def made_of(acceptance: dict[str, Any], **more: Any) -> Any:
    """Plan and jobs of two nodes with two rails of TCP."""
    fabrics = [
        {"name": rail, "link_speed_gbps": 200, "mtu_bytes": 9000, "subnet": f"10.10.{i}.0/24"}
        for i, rail in enumerate(RAILS)
    ]
    hosts = {
        f"n{number}": {
            "fabric": {"system": "lab_gpus", "profile": "lab_gpus", "no_fabric": True},
            "tcp_fabrics": fabrics,
            "tcp_nics": [
                {"fabric": rail, "netdev": f"fab{i}", "ipv4": f"10.10.{i}.{number}/24"}
                for i, rail in enumerate(RAILS)
            ],
            "mgmt_ip": f"10.20.0.{number}",
            "gpus": [{"index": 0}],
            "acceptance": {**acceptance, "counter_tests": False},
            **more,
        }
        for number in (1, 2)
    }
    document = {"compute": {"hosts": [*hosts]}, "_meta": {"hostvars": hosts}}
    site = site_of(document, WHERE, Acceptance)
    profile = Path(__file__).parents[3] / "shakedown/references/profiles/lab_gpus.yml"
    return plan_site(site, [profile], learn="nccl" in acceptance)


def jobs_of(acceptance: dict[str, Any], **more: Any) -> list[Any]:
    """The jobs of such a plan."""
    return list(made_of(acceptance, **more)[1].jobs)


def nccl(**expect: Any) -> dict[str, Any]:
    """One sweep over both nodes."""
    return {"nccl": {"expect": {"nvls": False, **expect}, "sweeps": [SWEEP]}}


def test_rails_whose_rate_no_test_asks_for_are_told():
    """Catches: a rail of 1 Mbit/s beside a PASS of MPI, which took the other one, and no word of it."""

    def told(acceptance: dict[str, Any]) -> list[str]:
        return [one.what for one in made_of(acceptance)[0].not_covered if "each rail" in one.what]

    mpi = {"mpi": {"transport": "tcp", "allreduce": {"min_bytes": 8, "max_bytes": 8}}}
    assert told(mpi) == ["the rate of each rail: rail0, rail1"]
    assert told(mpi | nccl(network="socket")) == []


def test_sockets_are_planned_over_every_rail():
    """Catches: a network of TCP alone whose proof asks for RDMA, or that leaves its rails to NCCL."""
    job = next(job for job in jobs_of(nccl(network="socket")) if job.kind == "nccl")
    assert job.settings["expect"]["interfaces"] == {"n1": ("fab0", "fab1"), "n2": ("fab0", "fab1")}
    assert job.settings["variables"]["NCCL_SOCKET_IFNAME"] == "=fab0,fab1"


def test_what_the_site_says_itself_is_kept_and_proved():
    """Catches: a rail that the site's own variable leaves out, put back silently before the proof."""
    asked = nccl(network="socket")
    asked["nccl"]["variables"] = {"NCCL_SOCKET_IFNAME": "=fab0"}
    job = next(job for job in jobs_of(asked) if job.kind == "nccl")
    assert job.settings["variables"]["NCCL_SOCKET_IFNAME"] == "=fab0"
    assert job.settings["expect"]["interfaces"]["n1"] == ("fab0", "fab1")


def test_what_is_looked_at_first_is_every_planned_interface():
    """Catches: a wrong address or MTU that nothing looks for, on a rail left out of the look."""
    job = next(job for job in jobs_of(nccl(network="socket")) if job.kind == "nccl")
    assert job.settings["paths"]["n2"] == (
        {"rail": "rail0", "netdev": "fab0", "ipv4": "10.10.0.2", "mtu_bytes": 9000},
        {"rail": "rail1", "netdev": "fab1", "ipv4": "10.10.1.2", "mtu_bytes": 9000},
    )
    asked = nccl(network="socket")
    asked["nccl"]["sweeps"] = [SWEEP, {**SWEEP, "network": "rail1"}]
    both, one = (job for job in jobs_of(asked) if job.kind == "nccl")
    assert [path["rail"] for path in one.settings["paths"]["n1"]] == ["rail1"]
    # There is no RoCE here that the sweep over all rails could be named after.
    assert [job.params["network"] for job in (both, one)] == ["tcp", "rail1"]


def test_a_shared_gpu_is_told_to_the_job_and_to_the_reader():
    """Catches: two nodes on one GPU taken for two GPUs, or refused although the inventory says so."""
    alone = jobs_of(nccl(network="socket"))
    shared = jobs_of(nccl(network="socket"), gpus=[{"index": 0, "shared": True}])
    assert next(job for job in alone if job.kind == "nccl").settings["shared_gpus"] == ()
    assert next(job for job in shared if job.kind == "nccl").settings["shared_gpus"] == ("n1", "n2")


def test_rdma_is_not_expected_where_there_is_none():
    """Catches: a run of hours whose proof can only fail."""
    refused(r"nccl\.expect\.network: socket", jobs_of, nccl())


def test_mpi_goes_over_the_rails_too():
    """Catches: MPI's proof without a device to hold it against."""
    asked = {"mpi": {"transport": "tcp", "allreduce": {"min_bytes": 8, "max_bytes": 64}}}
    job = next(job for job in jobs_of(asked) if job.kind == "mpi_allreduce")
    assert job.settings["devices"] == {"n1": ("fab0", "fab1"), "n2": ("fab0", "fab1")}
    assert [path["netdev"] for path in job.settings["paths"]["n2"]] == ["fab0", "fab1"]


def test_pytorchs_collectives_look_at_the_rails_first():
    """Catches: a hang of PyTorch in the place of the interface that is wrong."""
    asked = {"torch": {"min_bytes": 1024, "max_bytes": 1024}}
    software = {"pytorch": {"from": {"path": "/opt/bin/python3"}}}
    jobs = jobs_of({**asked, **nccl(network="socket")}, software=software)
    job = next(job for job in jobs if job.kind == "torch_collectives")
    assert [path["rail"] for path in job.settings["paths"]["n1"]] == ["rail0", "rail1"]
