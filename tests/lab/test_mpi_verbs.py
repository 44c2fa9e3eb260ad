"""MPI over reliable connections of Soft-RoCE: proved by UCX's own log, or undecided with the reason.

Seen in the lab: the all-reduce was proved; of the ping-pong a rank never ended after its last value. That is
why inventories/lab goes over TCP (group_vars/all/lab.yml).
"""

import re
from dataclasses import replace

import pytest
import yaml
from conftest import INVENTORY, inventory_with

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

# What roles/openmpi gives every site, and what Soft-RoCE needs beside it: no look at a datagram's sender,
# which it does not tell, and no events, which its ports do not raise.
VERBS = {"OMPI_MCA_pml": "ucx", "OMPI_MCA_btl_tcp_if_include": "10.20.0.0/24"}
VERBS |= {"PMIX_MCA_ptl_tcp_if_include": "10.20.0.0/24", "UCX_TLS": "rc,self", "UCX_NET_DEVICES": "rxe0:1"}
VERBS |= {"UCX_UD_VERBS_ETH_DGID_CHECK": "n", "UCX_IB_ASYNC_EVENTS": "n"}
# A rank over Soft-RoCE may never end (UCX 1.18.1): then Slurm ends the job, srun the step once another rank
# has ended, or UCX says itself what it lacks.
REASONS = re.compile(r"UCX says|ended (TIMEOUT|CANCELLED)|signal \d+|First task exited \d+s ago")


def ways(run, test):
    """What UCX said of the connections of a test: its joined log, or the ranks' own of a killed job."""
    files = (
        *run.glob(f"raw/collective.{test}*/*_transport.log"),
        *run.glob(f"raw/collective.{test}*/ucx.*.log"),
    )
    return "\n".join(file.read_text() for file in files)


def test_mpi_over_verbs_is_proved_or_undecided(fresh, tmp_path):
    """Catches: MPI that was to go over RDMA and passes over TCP, or a failure without a word of its cause."""
    acceptance = yaml.safe_load((INVENTORY / "group_vars/all/acceptance.yml").read_text())
    acceptance["acceptance"]["mpi"] |= {"transport": "rc", "variables": VERBS}
    site = replace(fresh, inventory=inventory_with(tmp_path, acceptance=acceptance))
    _, verdict, run = site.accept("verbs", "collective")
    mine = [cell for cell in verdict["cells"] if cell["cell"].startswith("collective/mpi_")]
    assert not [cell for cell in mine if cell["outcome"] == "FAIL"], mine
    for test in ("mpi_pingpong", "mpi_allreduce"):
        said = ways(run, test)
        # No data went another way, whether the job came to its end or not; datagrams only make connections.
        assert not re.search(r"inter-node .*\btcp/", said), said
        if undecided := [cell["reason"] for cell in mine if cell["cell"].split("/")[1].startswith(test)]:
            assert any(REASONS.search(reason) for reason in undecided), undecided
        else:
            assert "rc_verbs/rxe0" in said
