"""On somebody else's cluster: discover, plan, measure as an ordinary user, change nothing.

`make test-foreign` runs it. The cluster is set up by lab/foreign, and by none of the playbooks.
"""

import json
import os
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import NAME
from foreign_site import (
    JOB,
    MACHINES,
    OWN,
    STAGE,
    as_user,
    connect,
    digest,
    install_for_user,
    other,
    read_and_add,
    shakedown_there,
    sums,
)

from lab import cluster
from lab.acceptance import BIN, Steps, environment, playbook, wheelhouse
from lab.cluster import Lab
from tests.kit.run import ran

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]


@dataclass
class Theirs:
    """The cluster, what it was made of before anything was tried, and the site's folder on the controller."""

    lab: Lab
    wheels: Path
    folder: Path
    before: dict[str, str]
    logs: list[Path] = field(default_factory=list)

    @property
    def site(self) -> Path:
        """The site's folder; its name is the site's."""
        return self.folder / "theirs"

    def command(self, *words: object) -> tuple[int, str, str]:
        """Run the command line on the controller; return its status and what it printed."""
        done = ran(
            BIN / "shakedown",
            *words,
            env={**os.environ, **environment(self.lab.name, self.wheels)},
            timeout=1200,
        )
        return done.returncode, done.stdout, done.stderr

    def accept(self, site: Path, run_id: str) -> tuple[bool, str]:
        """Play acceptance; return whether it passed, and what it printed on one line."""
        log = self.folder / f"{run_id}.log"
        options = ("-e", f"run_root={self.folder}")
        well = playbook(
            "acceptance.yml",
            Steps(),
            name=self.lab.name,
            wheels=self.wheels,
            log=log,
            run_id=run_id,
            options=options,
            inventory=site,
        )
        self.logs.append(log)
        return well, " ".join(log.read_text(encoding="utf-8").split())

    def verdict(self, run_id: str) -> dict[str, Any]:
        """Return a run's verdict."""
        _, said, error = self.command("verdict", self.folder / run_id, "--json")
        assert said, error
        return json.loads(said)

    def jobs_ever(self) -> int:
        """Count the jobs that Slurm was ever given."""
        asked = ["sacct", "--allusers", "--noheader", "--allocations", "--starttime=2020-01-01"]
        asked += ["--format=JobID"]
        done = self.lab.ssh("head", asked)
        assert done.returncode == 0, done.stderr
        return len(done.stdout.splitlines())


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The foreign cluster as its owner left it."""
    name = f"{NAME}-theirs"
    cluster.stop(name)
    lab = Lab.up(2, name, site="foreign", progress=lambda line: print(line, flush=True))
    try:
        yield Theirs(lab, wheelhouse(Steps()), tmp_path_factory.mktemp("theirs"), sums(lab))
    finally:
        cluster.stop(name)


@pytest.fixture(scope="module")
def described(theirs):
    """The site's folder, from one Slurm job of an ordinary user, read and completed by a person."""
    install_for_user(theirs.lab, theirs.wheels)
    command = " ".join(["shakedown discover site --slurm gpu", *JOB, "--record answers.json"])
    said = as_user(theirs.lab, shakedown_there(command))
    assert said.returncode == 0, said.stdout + said.stderr
    answers = theirs.folder / "answers.json"
    answers.write_text(theirs.lab.ssh("head", ["cat", f"{OWN}/answers.json"]).stdout)
    status, said, error = theirs.command("discover", theirs.site, "--from", answers)
    assert status == 0, error
    (theirs.folder / "discovered.txt").write_text(said)
    read_and_add(theirs.site, theirs.wheels)
    connect(theirs.site, theirs.lab)
    return theirs


@pytest.fixture(scope="module")
def accepted(described):
    """A run of acceptance, on a cluster where site.yml never ran."""
    assert described.lab.ssh("head", ["ls", STAGE]).stdout == "", "something was there before"
    well, said = described.accept(described.site, "first")
    return described, well, said


def test_what_discover_wrote_is_what_is_there(described):
    """Catches: a drained node of theirs taken for ours, account or reservation lost, a wrong NIC."""
    hosts = (described.site / "hosts.yml").read_text()
    assert "a1 did not answer: Slurm has it as" in hosts
    compute = yaml.safe_load(hosts)["compute"]["hosts"]
    assert list(compute) == ["n1", "n2"]
    assert [nic["rdma_device"] for nic in compute["n1"]["fabric_nics"]] == ["rxe0", "rxe1"]
    # The network of their Slurm, and not that of the default route.
    assert [node["mgmt_ip"] for node in compute.values()] == ["10.20.0.11", "10.20.0.12"]
    slurm = yaml.safe_load((described.site / "group_vars/all/site.yml").read_text())["slurm"]
    assert slurm == {
        "partition": "gpu",
        "account": "bench",
        "qos": "accept",
        "reservation": "maint_nov",
        "max_job_time": "00:20:00",
    }
    status, said, error = described.command("discover", described.site)
    assert (status, said.splitlines()[-1:]) == (
        0,
        [f"no difference between {described.site} and 2 nodes that answered"],
    ), said + error


def test_acceptance_passes_and_changes_nothing(accepted):
    """Catches: a job that their Slurm refuses, root that is needed, and a file of theirs that is touched."""
    described, well, said = accepted
    verdict = described.verdict("first")
    assert verdict["outcome"] == "PASS", (verdict["reason"], verdict["cells"][:10], said[-3000:])
    assert well, said[-3000:]
    found = described.lab.ssh("head", ["find", STAGE, "!", "-user", "alice"])
    assert (found.returncode, found.stdout) == (0, ""), "not all of it belongs to who measured"
    software = described.folder / "first/raw/config.software.a1/software.n1.openmpi.json"
    assert "/opt/site/openmpi/5.0.7" in software.read_text()
    after = sums(described.lab)
    for machine in MACHINES:
        differs = set(described.before[machine].splitlines()) ^ set(after[machine].splitlines())
        assert digest(after[machine]) == digest(described.before[machine]), (machine, sorted(differs)[:20])


def test_the_sums_are_of_what_could_be_touched(theirs):
    """Catches: checksums that stay the same whatever is changed."""
    theirs.lab.ssh("n2", ["touch", "/etc/planted"])
    assert sums(theirs.lab)["n2"] != theirs.before["n2"]
    theirs.lab.ssh("n2", ["rm", "/etc/planted"])
    touched = sums(theirs.lab)["n2"]
    assert set(touched.splitlines()) == set(theirs.before["n2"].splitlines())


@pytest.mark.parametrize(
    ("option", "user", "says"),
    [
        ("--partition=gone", "alice", "slurm.partition 'gone': Slurm has no such partition"),
        ("--partition=staff", "alice", "slurm.partition 'staff' does not take slurm.account 'bench'"),
        ("--account=gone", "alice", "slurm.account 'gone': Slurm has no such account for alice"),
        ("--qos=gone", "alice", "slurm.qos 'gone': alice may not use it with slurm.account 'bench'"),
        ("--reservation=gone", "alice", "slurm.reservation 'gone': Slurm has no such reservation"),
        ("--comment=x", "bob", "slurm.reservation 'maint_nov' is not for bob but for alice"),
        ("--comment=x", "root", "this Slurm takes no jobs of root (DisableRootJobs)"),
    ],
)
def test_what_their_slurm_would_refuse_is_told(accepted, option, user, says):
    """Catches: a name that Slurm does not know, told by a job that fails, or not by its key."""
    described, *_ = accepted
    before = described.jobs_ever()
    jobs = (described.folder / "first/jobs.json").read_text()
    program = f"shakedown.slurm.preflight --access='[\"{option}\"]'"
    done = as_user(described.lab, f"{shakedown_there(program)}", user=user, given=jobs)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert described.jobs_ever() == before


def test_a_limit_of_the_account_is_told_before_the_first_job(accepted):
    """Catches: jobs that Slurm takes and never starts, because their account may have one node."""
    described, *_ = accepted
    before, queue = described.jobs_ever(), ["squeue", "--noheader"]
    small = other(described.site, "small", account="small", qos="normal")
    well, said = described.accept(small, "small")
    assert not well
    assert "is for 2 nodes, but slurm.account 'small'" in said, said[-3000:]
    assert "(MaxTRES node=1)" in said
    assert described.lab.ssh("head", queue).stdout == ""
    assert described.jobs_ever() == before
    assert described.lab.ssh("head", ["test", "-e", f"{STAGE}/runs/small"]).returncode == 1


def test_a_waiver_that_has_expired_is_refused(described):
    """Catches: a failure that stays accepted after the day that was signed for."""
    late = other(described.site, "late")
    waiver = {"name": "slow-cable", "cells": "fabric/ib_write_bw/bandwidth/*n2*/rail1/*"}
    waiver |= {"reason": "replacement on order", "owner": "A. Person"}
    waiver |= {"expires": str(date.today() - timedelta(days=1))}
    (late / "group_vars/all/waivers.yml").write_text(yaml.safe_dump({"waivers": [waiver]}))
    status, said, error = described.command("plan", late, "--output", described.folder / "late-run")
    assert (status, said) == (2, "")
    assert error.count("\n") == 1
    assert "waivers.yml" in error
    assert "slow-cable" in error
    assert not (described.folder / "late-run").exists()


def test_a_node_with_another_nic_is_measured_again(accepted):
    """Catches: a replaced NIC that nothing notices, or a scoped run that their Slurm does not take."""
    described, *_ = accepted
    # Their technician swaps the NIC of n2 on rail1.
    new = "52:54:00:0c:02:77"
    swap = f"""
    rdma link delete rxe1 && ip link set dev fab1 down && ip link set dev fab1 address {new} &&
    ip link set dev fab1 up && rdma link add rxe1 type rxe netdev fab1
    """
    done = described.lab.ssh("n2", ["sh", "-c", swap])
    assert done.returncode == 0, done.stderr
    now = described.folder / "now.json"
    status, said, error = described.command("discover", described.site, "--record", now)
    assert status in (0, 1), error
    again = described.folder / "again"
    status, said, error = described.command(
        "rerun", described.folder / "first", described.site, "--changed", now, "--output", again
    )
    assert status == 0, error
    assert f"n2 fab1: its MAC address is {new}, in run first it was " in said, said[-3000:]
    well, said = described.accept(described.site, "again")
    verdict = described.verdict("again")
    assert verdict["outcome"] == "PASS", (verdict["reason"], verdict["cells"][:10], said[-3000:])
    assert verdict["reason"].startswith("1 of 2 nodes"), verdict["reason"]
    assert well
