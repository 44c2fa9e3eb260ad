"""More forgeries by somebody who holds a trusted key: of jobs, their records and the users that ran them."""

# ruff: noqa: D103  (a forgery's name says what it is)

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from host_settings import signer
from ordered import World, reseal
from test_forgeries import LATENCY, OUTPUT, TRUST, WRITE, edit, number_in_perftest

from shakedown.daytwo.history.ingest import ingest
from shakedown.onnode import noted
from shakedown.records.base import Outcome
from shakedown.run import chain
from tests.kit.cases import cases
from tests.kit.key import NEEDS_SSH_KEYGEN
from tests.kit.refusal import refused

HERE = Path(__file__).parent


pytestmark = [pytest.mark.slow, NEEDS_SSH_KEYGEN]
ANOTHER_USER = 1001


def run_twice_as_another_user(w: World) -> None:
    """A whole second run under the order; a chain is a user's, so that this one's begins at 1 as well."""
    number_in_perftest(w)
    for name, _, end in w.jobs():
        for node in ("n1", "n2"):
            w.sign(node, name, end, uid=ANOTHER_USER)


def record_of_a_job_removed(w: World) -> None:
    (w.run / LATENCY / "job.json").unlink()


def job_said_never_submitted(w: World) -> None:
    edit(w.run, f"{LATENCY}/job.json", lambda j: j.update(job=None, state="NOT-SUBMITTED"))


def nodes_of_a_job_edited(w: World) -> None:
    (w.run / WRITE / "nodes.txt").write_text("n1\nn2\nn3\n")


def journal_of_a_stranger_added(w: World) -> None:
    lines = (w.run / f"{WRITE}/outputs.n1.jsonl").read_text().replace("rail0", "rail1")
    (w.run / f"{WRITE}/outputs.n9.jsonl").write_text(lines)


def record_added(w: World) -> None:
    path = w.run / f"{WRITE}/outputs.n1.jsonl"
    lines = path.read_text()
    path.write_text(lines + lines.splitlines(keepends=True)[0])


def output_left_out_of_its_nodes_list(w: World) -> None:
    (w.run / OUTPUT).unlink()
    edit(w.run, f"{WRITE}/signed.n1.json", lambda m: m["files"].pop(Path(OUTPUT).name))


def job_under_another_number(w: World) -> None:
    (w.run / WRITE).rename(w.run / f"{WRITE[:-1]}2")


def chain_signed_by_another_host(w: World) -> None:
    edit(w.run, f"{WRITE}/job.json", lambda j: j.update(duration_s=26.0))
    (w.run / "raw/chain.jsonl").unlink()
    w.machines = {**w.machines, "head": w.machines["stranger"]}
    for name, _, end in w.jobs():
        w.chain(name, end + 1)


def list_of_files_edited(w: World) -> None:
    edit(w.run, f"{WRITE}/files.json", lambda files: files.pop("spec.json", None))


def settings_of_a_job_removed(w: World) -> None:
    (w.run / WRITE / "spec.json").unlink()


def all_signed_anew(w: World) -> None:
    for machine in w.machines.values():
        shutil.rmtree(machine.path("/var/lib/shakedown-sign"), ignore_errors=True)
    (w.run / "raw/chain.jsonl").unlink()
    for name, _, end in w.jobs():
        for node in ("n1", "n2"):
            w.sign(node, name, end)
        w.chain(name, end + 1)


def programs_put_beside_a_job(w: World) -> None:
    """Before it ran, where the plan has no software: its nodes take programs from there, and sign it."""
    (w.run / WRITE / "software.json").write_text('{"perftest": {"from": {"path": "/tmp/better"}}}')
    all_signed_anew(w)


def nics_of_a_job_edited(w: World) -> None:
    """Before it ran: nobody then looks whether the way to n2 strays."""
    (w.run / WRITE / "rails.json").write_text('{"n1": []}')
    all_signed_anew(w)


def nics_of_a_job_removed(w: World) -> None:
    for path in (w.run / WRITE).glob("counters.n1.*.json"):
        host = {
            "at_s": 1.0 + ("after" in path.name),
            "cpus": 2,
            "others": [],
            "queue_pairs": {},
            "stolen_ms": {},
        }
        host |= {"octets": {}, "hot_ms": {}, "carriers": {}, "serve": {}, "astray": []}
        edit(w.run, str(path.relative_to(w.run)), lambda told, host=host: told.update(host=host))
    all_signed_anew(w)


def job_run_twice_in_its_folder(w: World) -> None:
    """Its user ended it before its nodes signed, the chain has it, and it ran again."""
    folder, _, end = w.jobs()[0]
    job = w.run / "raw" / folder / "job.json"
    for machine in w.machines.values():
        shutil.rmtree(machine.path("/var/lib/shakedown-sign"), ignore_errors=True)
    (w.run / "raw/chain.jsonl").unlink()
    good = job.read_bytes()
    edit(w.run, f"raw/{folder}/job.json", lambda j: j.update(job="99", state="CANCELLED"))
    w.chain(folder, end - 1)
    job.write_bytes(good)
    for name, _, ended in w.jobs():
        for node in ("n1", "n2"):
            w.sign(node, name, ended)
        w.chain(name, ended + 1)


# What Slurm's own record says otherwise than job.json, which says that all is well: how, and what names it.
ACCOUNTS: dict[str, str] = {
    "changes Slurm's own record, ExitCode=0:0 to ExitCode=0:9": "says exit_code 0:0, Slurm's own record 0:9",
    "changes Slurm's own record, Restarts=0 to Restarts=3": "Slurm's own record has 3 restarts",
    "changes Slurm's own record, StartTime=2026 to StartTime=2025": "Slurm's own record 2025",
    "changes Slurm's own record, JobName=fabric to JobName=other": "Slurm's own record other.ib_write_bw",
    "changes Slurm's own record, Restarts=0 to NodeList=n[1-3]": "Slurm's own record other nodes",
    "changes Slurm's own record, JobName= to JobName=x JobState=COMPLETED ": "says twice: JobState",
    "changes Slurm's own record, =COMPLETED to =NODE_FAIL": "Slurm's own record NODE_FAIL",
}


def counters_removed(w: World) -> None:
    for path in (w.run / WRITE).glob("counters.n2.*.json"):
        path.unlink()


def second_folder_of_the_same_job(w: World) -> None:
    shutil.copytree(w.run / WRITE, w.run / f"{WRITE[:-1]}01")


def output_in_a_folder_of_its_own(w: World) -> None:
    inner = w.run / WRITE / "inner"
    inner.mkdir()
    shutil.copyfile(w.run / OUTPUT, inner / Path(OUTPUT).name)


def logs_of_reframe_edited(w: World) -> None:
    for name in ("rfm_job.out", "rfm_job.sh", "rfm_job.more.err", "signed.more.err"):
        (w.run / WRITE / name).write_text("srun: error: n1: task 0: Exited with exit code 1\n")


def certificate_added(w: World) -> None:
    (w.run / "certificate.txt").write_text("PASS\n")


def last_job(w: World) -> Path:
    """The last job's folder: nothing follows in any chain that a hole could be seen by."""
    return w.run / "raw" / w.jobs()[-1][0]


def counters_of_the_last_job_removed(w: World) -> None:
    """With n2's list and its signature; n2 wrote nothing else in this job."""
    for path in [*last_job(w).glob("counters.n2.*"), *last_job(w).glob("signed.n2.*")]:
        path.unlink()


def last_job_said_never_submitted(w: World) -> None:
    """Its output is another one, nobody signs it, and the chain does not know the job."""
    job = last_job(w)
    for path in job.glob("signed.*"):
        path.unlink()
    edit(w.run, f"raw/{job.name}/job.json", lambda j: j.update(job=None))
    chain = w.run / "raw/chain.jsonl"
    chain.write_bytes(b"".join(chain.read_bytes().splitlines(keepends=True)[:-1]))
    with (job / "mpi_pingpong.txt").open("a") as file:
        file.write("\n")


def attempt_without_job_json(w: World) -> None:
    shutil.copytree(w.run / LATENCY, w.run / f"{LATENCY[:-1]}9")
    (w.run / f"{LATENCY[:-1]}9/job.json").unlink()


def output_under_a_name_that_no_node_signs(w: World) -> None:
    """The jobs' user has the journal signed so, and writes the output afterwards."""
    name, output = Path(OUTPUT).name, w.run / OUTPUT
    output.rename(output.with_name(f"{name}.new"))
    journal = w.run / f"{WRITE}/outputs.n1.jsonl"
    journal.write_text(journal.read_text().replace(name, f"{name}.new"))
    for path in w.machines.values():
        shutil.rmtree(path.path("/var/lib/shakedown-sign"), ignore_errors=True)
    for folder, _, end in w.jobs():
        for node in ("n1", "n2"):
            w.sign(node, folder, end)
    with output.with_name(f"{name}.new").open("a") as file:
        file.write("\n")


def another_node_said_to_have_failed(w: World) -> None:
    (w.run / f"{WRITE}/rfm_job.err").write_text("srun: error: n1: task 0: Exited with exit code 1\n")


def what_the_job_said_removed(w: World) -> None:
    (w.run / f"{WRITE}/rfm_job.err").unlink()


def record_of_another_job(w: World) -> None:
    edit(w.run, f"{LATENCY}/job.json", lambda j: j.update(test="fabric.ib_write_bw"))


def node_left_out_of_the_snapshot(w: World) -> None:
    def change(snapshot: dict) -> None:
        parts = snapshot["components"]
        snapshot["components"] = [p for p in parts if (p["host"], p["kind"]) != ("n2", "node")]

    edit(w.run, "inventory.json", change)


def hosts_removed(w: World) -> None:
    (w.run / "inventory.json").unlink()


def signs_again(w: World, node: str, *, first: str = "") -> None:
    """What root of a node can: its chain made anew; of the job `first` it signs what bears no node's name."""
    shutil.rmtree(w.machines[node].path("/var/lib/shakedown-sign"))
    for name, _, end in w.jobs():
        w.sign(node, name, end, first=name == first)


def output_of_all_nodes_by_root_of_another(w: World) -> None:
    """The first node has signed it; root of the other one writes to the share and signs it as well."""
    output = w.run / "raw/collective.mpi_allreduce.a1/mpi_allreduce.txt"
    with output.open("a") as file:
        file.write("\n")
    signs_again(w, "n2", first=output.parent.name)


def output_claimed_by_root_of_another(w: World) -> None:
    """n1 has signed it; n2's journal names it as its own, and n2 signs both."""
    number_in_perftest(w)
    with (w.run / f"{WRITE}/outputs.n2.jsonl").open("a") as journal:
        journal.write(json.dumps({"file": Path(OUTPUT).name, "nonce": w.ordered.nonce}) + "\n")
    signs_again(w, "n2")


def output_changed_before_its_node_signs(w: World) -> None:
    """n1 notes its output as it is written; root of n2 writes to the share before the job's last step."""
    place = w.run.parent / "disk of n1"
    (place / str(os.getuid())).mkdir(mode=0o700, parents=True)
    folder = Path(WRITE).name
    job = json.loads((w.run / WRITE / "job.json").read_text())["job"]
    for machine in w.machines.values():
        shutil.rmtree(machine.path("/var/lib/shakedown-sign"), ignore_errors=True)
    with w.monkeypatch.context() as patch:
        patch.setattr(noted, "PLACE", place)
        for name, value in {noted.ORDER: w.digest, "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": job}.items():
            patch.setenv(name, value)
        noted.note(w.run / WRITE, Path(OUTPUT).name)
        number_in_perftest(w)
        for name, _, end in w.jobs():
            for node in ("n1", "n2"):
                w.sign(node, name, end, status=(name, node) == (folder, "n1"))
    assert not any(next(place.iterdir()).iterdir())


FORGERIES: dict[Callable[[World], None], str] = {
    list_of_files_edited: "files.json: is not the list of when the job had ended",
    run_twice_as_another_user: "was asked for by user 1001, the order is of user 1000's jobs",
    record_of_a_job_removed: "job.json: chain broken: the job was run and this is not in the bundle",
    job_said_never_submitted: "job.json: was changed after the job had ended",
    nodes_of_a_job_edited: "nodes.txt: was changed after its node had signed it",
    journal_of_a_stranger_added: "outputs.n9.jsonl: unsigned: no word of",
    record_added: "outputs.n1.jsonl: was changed after its node had signed it",
    output_left_out_of_its_nodes_list: "signed.n1.json: is not what n1 signed",
    job_under_another_number: "is of another job, ",
    chain_signed_by_another_host: "was signed by another host than the submit host of the order",
    settings_of_a_job_removed: "the job had other settings than were ordered",
    programs_put_beside_a_job: "software.json: the job had other settings than were ordered",
    nics_of_a_job_edited: "rails.json: the job had other settings than were ordered",
    nics_of_a_job_removed: "rails.json: the job had other settings than were ordered",
    job_run_twice_in_its_folder: "ran more than once: lines 1 and 2 of the chain",
    counters_removed: "was signed by n2 and is not in the bundle",
    second_folder_of_the_same_job: "is no job of the chain",
    counters_of_the_last_job_removed: "signed.n2.json: is missing: n2 has signed nothing of this job",
    last_job_said_never_submitted: "says that the job was never submitted, and there are outputs of it",
    attempt_without_job_json: "a9: has no job.json that can be read",
    output_under_a_name_that_no_node_signs: "names a file that no node signs as its output",
    another_node_said_to_have_failed: "rfm_job.err: was changed after the job had ended",
    what_the_job_said_removed: "rfm_job.err: chain broken: the job was run and this is not in the bundle",
    record_of_another_job: "is of another job, fabric.ib_write_bw",
    node_left_out_of_the_snapshot: "inventory.json: says nothing of n2",
    hosts_removed: "inventory.json: is missing",
    output_of_all_nodes_by_root_of_another: "mpi_allreduce.txt: n1 signed it with another content",
    output_changed_before_its_node_signs: f"{OUTPUT}: was changed after n1 had written it, before it",
    output_claimed_by_root_of_another: f"{OUTPUT}: n1 signed it with another content",
}


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda f: f.__name__)
def test_forged_job_is_named(world, forgery):
    """Catches: a run whose jobs are not those that were ordered, or not as they were."""
    forgery(world)
    reseal(world.run, world.vendor)
    found = world.verify()
    assert not found.authentic and found.differs
    said = [str(finding) for finding in found.findings]
    assert any(FORGERIES[forgery] in line for line in said), said[:10]


@pytest.mark.parametrize("forgery", ACCOUNTS)
def test_what_slurm_says_of_a_job_is_held_against_its_record(world, forgery, monkeypatch):
    """Catches: a job that failed, ran again, elsewhere or at another time, and a record that says PASS."""
    old, _, new = forgery.partition(", ")[2].partition(" to ")
    real, folder = chain.add, Path(WRITE).name

    def add(raw: Path, name: str, order: str, account: str, sign: object) -> None:
        assert old in account or name != folder
        real(raw, name, order, account.replace(old, new) if name == folder else account, sign)

    monkeypatch.setattr(chain, "add", add)
    all_signed_anew(world)
    reseal(world.run, world.vendor)
    found = world.verify()
    assert not found.authentic and any(ACCOUNTS[forgery] in str(one) for one in found.findings), (
        found.findings
    )


def test_a_history_takes_no_run_that_was_changed_since_it_was_sealed(world, tmp_path):
    """Catches: a baseline or an alarm from values that somebody edited in a run which was sealed."""
    now = datetime(2026, 11, 21, tzinfo=UTC)
    assert "of 2 nodes" in ingest(tmp_path / "history", world.run, now=now)
    for name in ("results.jsonl", OUTPUT):
        before = (world.run / name).read_bytes()
        (world.run / name).write_bytes(before.replace(b"0", b"1", 1))
        refused("was changed after sealing", ingest, tmp_path / "other", world.run, now=now)
        (world.run / name).write_bytes(before)


@cases(
    "forgery",
    output_in_a_folder_of_its_own,
    logs_of_reframe_edited,
    certificate_added,
    ids=lambda f: f.__name__,
)
def test_what_no_node_signs_decides_nothing_and_is_listed(world, forgery):
    """Catches: a value that is read from a file whose writer nobody signs for."""
    files = ("results.jsonl", "counters.jsonl", "verdict.json")
    before = [(world.run / name).read_bytes() for name in files]
    forgery(world)
    reseal(world.run, world.vendor)
    assert [(world.run / name).read_bytes() for name in files] == before
    assert world.verify().authentic
    assert "**What decides nothing**" in TRUST.read_text()


def test_a_last_job_left_out_of_every_chain_is_no_pass(world):
    """Catches: a job that went badly, taken out where no hole shows it, and a run that passes without."""
    shutil.rmtree(last_job(world))
    chain = world.run / "raw/chain.jsonl"
    chain.write_bytes(b"".join(chain.read_bytes().splitlines(keepends=True)[:-1]))
    reseal(world.run, world.vendor)
    assert world.verify().outcome is Outcome.NOT_RUN
    assert "**The last job, left out of every chain.**" in TRUST.read_text()


def test_what_another_user_has_signed_spoils_nothing(world):
    """Catches: an ordinary user who reads the order's digest and, by one request, spoils an honest run."""
    for machine in world.machines.values():
        shutil.rmtree(machine.path("/var/lib/shakedown-sign"), ignore_errors=True)
    (world.run / "raw/chain.jsonl").unlink()
    for name, _, end in world.jobs():
        with world.monkeypatch.context() as patch:
            patch.setattr(signer.time, "time", lambda end=end: end)
            for machine in world.machines.values():
                signer.signed(machine, world.digest, "ab" * 32, ANOTHER_USER)
        for node in ("n1", "n2"):
            world.sign(node, name, end)
        world.chain(name, end + 1)
    reseal(world.run, world.vendor)
    found = world.verify()
    assert found.authentic, found.findings[:3]


def test_what_the_jobs_user_writes_is_listed(world):
    """Catches: a page on trust that promises what a node's signature does not say: that it was measured."""
    number_in_perftest(world)
    for node in ("n1", "n2"):
        # Nobody has measured under this order before.
        state = json.loads((world.machines[node].path("/var/lib/shakedown-sign/chains.json")).read_text())
        assert state["chains"].keys() == {f"1000:{world.digest}"}
        shutil.rmtree(world.machines[node].path("/var/lib/shakedown-sign"))
        for name, _, end in world.jobs():
            world.sign(node, name, end)
    reseal(world.run, world.vendor)
    assert world.verify().authentic
    assert "**The user whose jobs they are**" in TRUST.read_text()
