"""Forgeries by somebody who holds a key that the customer trusts: the order names what the seal cannot."""

# ruff: noqa: D103  (a forgery's name says what it is)

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ordered import World, reseal, sign_sums, utc

from shakedown.judge.judged import judge_folder
from shakedown.records.base import to_json
from shakedown.records.reading import BadInput
from shakedown.report import seal as bundle
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.key import NEEDS_SSH_KEYGEN

HERE = Path(__file__).parent


pytestmark = [pytest.mark.slow, NEEDS_SSH_KEYGEN]
TRUST = HERE.parents[2] / "docs/explanation/trust.md"
WRITE, LATENCY = "raw/fabric.ib_write_bw.a1", "raw/fabric.ib_send_lat.a1"
OUTPUT = f"{WRITE}/ib_write_bw.n1,n2.rail0.forward.65536.one.txt"


def edit(run: Path, file: str, change: Callable[[dict], object]) -> None:
    """Change a JSON file."""
    with edited(run / file) as document:
        change(document)


def replace(run: Path, file: str, old: str, new: str) -> None:
    """Change a text file in which something stands."""
    text = (run / file).read_text()
    assert re.search(old, text), f"{old} is not in {file}"
    (run / file).write_text(re.sub(old, new, text))


def items(plan: dict, test: str) -> list[dict]:
    """Return a test's blocks of a plan."""
    return [item for item in plan["items"] if item["test"] == test]


def loosened_gate(w: World) -> None:
    edit(w.run, "plan.json", lambda p: p["references"]["lab-ib-write-bw"].update(limit=0.001))


def no_ceiling(w: World) -> None:
    edit(w.run, "plan.json", lambda p: p["references"]["lab-ib-write-bw"].update(ceiling=None))


def own_reference(w: World) -> None:
    def change(plan: dict) -> None:
        plan["references"]["own"] = {**plan["references"]["lab-ib-write-bw"], "id": "own"}
        for item in items(plan, "ib_write_bw"):
            item["reference"] = "own" if item["reference"] == "lab-ib-write-bw" else item["reference"]

    edit(w.run, "plan.json", change)


def not_required(w: World) -> None:
    edit(w.run, "plan.json", lambda p: [i.update(required=False) for i in items(p, "ib_send_lat")])


def deleted_test(w: World) -> None:
    def change(plan: dict) -> None:
        plan["items"] = [i for i in plan["items"] if i["test"] != "ib_send_lat"]

    edit(w.run, "plan.json", change)


def not_to_be_run(w: World) -> None:
    edit(w.run, "plan.json", lambda p: items(p, "ib_send_lat")[0].update(not_run="later", required=False))


def rail_left_out(w: World) -> None:
    edit(w.run, "plan.json", lambda p: [i.update(rails=["rail0"]) for i in items(p, "ib_read_bw")])


def waiver_put_in(w: World) -> None:
    waiver = {"name": "w", "cells": "fabric/ib_write_bw/bandwidth/*", "reason": "known to be slow"}
    waivers = [{**waiver, "owner": "the vendor", "expires": "2027-01-01"}]
    edit(w.run, "plan.json", lambda p: p.update(waivers=waivers))


def caveat_taken_out(w: World) -> None:
    edit(w.run, "plan.json", lambda p: p.update(caveats=[], power=[]))


def jobs_eased(w: World) -> None:
    edit(w.run, "jobs.json", lambda j: j["jobs"][1].update(time_limit_s=99999))


def jobs_deleted(w: World) -> None:
    (w.run / "jobs.json").unlink()


def jobs_emptied(w: World) -> None:
    edit(w.run, "jobs.json", lambda j: j.update(jobs=[]))


def settings_eased(w: World) -> None:
    edit(w.run, f"{WRITE}/spec.json", lambda s: s.update(mode="ends"))


def number_in_perftest(w: World) -> None:
    replace(w.run, OUTPUT, r"(?m)^( 65536 .*)$", r"\1 ")


def number_in_mpi(w: World) -> None:
    with (w.run / "raw/collective.mpi_allreduce.a1/mpi_allreduce.txt").open("a") as file:
        file.write("\n")


def counters_edited(w: World) -> None:
    edit(w.run, f"{WRITE}/counters.n2.after.json", lambda c: c["devices"][0]["counters"].update(x=0))


def settings_readback_edited(w: World) -> None:
    replace(w.run, "raw/config.settings.a1/settings.n1.fab0.json", r"\Z", "\n")


def record_edited(w: World) -> None:
    replace(w.run, f"{WRITE}/outputs.n1.jsonl", r'"duration_s": ?[0-9.]+', '"duration_s": 1.0')


def record_of_another_cell(w: World) -> None:
    replace(w.run, f"{WRITE}/outputs.n1.jsonl", "rail0", "rail9")


def output_over_another(w: World) -> None:
    shutil.copyfile(w.run / OUTPUT, w.run / OUTPUT.replace("rail0", "rail1"))


def counters_of_another_node(w: World) -> None:
    text = (w.run / f"{WRITE}/counters.n1.after.json").read_text()
    (w.run / f"{WRITE}/counters.n2.after.json").write_text(text.replace('"n1"', '"n2"'))


def output_added(w: World) -> None:
    shutil.copyfile(w.run / OUTPUT, w.run / f"{WRITE}/ib_write_bw.n1,n2.rail0.forward.65536.one.a2.txt")


def output_removed(w: World) -> None:
    (w.run / OUTPUT).unlink()


def manifest_made_to_fit(w: World) -> None:
    number_in_perftest(w)
    import hashlib

    found = hashlib.sha256((w.run / OUTPUT).read_bytes()).hexdigest()
    edit(w.run, f"{WRITE}/signed.n1.json", lambda m: m["files"].update({Path(OUTPUT).name: found}))


def signature_removed(w: World) -> None:
    (w.run / f"{WRITE}/signed.n1.link.json").unlink()


def all_signatures_removed(w: World) -> None:
    for path in w.run.glob("raw/*/signed.*"):
        path.unlink()


def signed_by_a_stranger(w: World) -> None:
    number_in_perftest(w)
    w.machines = {**w.machines, "n1": w.machines["stranger"]}
    w.sign("n1", Path(WRITE).name, utc("2026-11-20T13:30:24Z"))


def whole_run_by_a_stranger(w: World) -> None:
    w.machines = {**w.machines, "n1": w.machines["stranger"]}
    for name, _, end in w.jobs():
        w.sign("n1", name, end)


def measured_again_and_signed_again(w: World) -> None:
    number_in_perftest(w)
    end = w.jobs()[-1][2]
    w.sign("n1", Path(WRITE).name, end)


def one_node_for_another(w: World) -> None:
    w.machines = {**w.machines, "n2": w.machines["n1"]}
    for name, _, end in w.jobs():
        w.sign("n2", name, end)


def signature_of_another_job(w: World) -> None:
    for name in ("signed.n1.json", "signed.n1.link.json"):
        shutil.copyfile(w.run / LATENCY / name, w.run / WRITE / name)


def last_line_edited(w: World) -> None:
    name = w.jobs()[-1][0]
    replace(w.run, f"raw/{name}/signed.n1.link.json", r"(2026-11-20T13:3\d:\d)\d(Z)", r"\g<1>0\2")
    # What names the line by its digest is not there: it is the last.


def signed_after_the_order(w: World) -> None:
    name = w.jobs()[-1][0]
    w.sign("n1", name, utc("2026-12-24T00:00:00Z"))


def signed_for_another_order(w: World) -> None:
    name, _, end = w.jobs()[0]
    w.sign("n1", name, end, order="0" * 64)


def failed_job_made_good(w: World) -> None:
    edit(w.run, f"{WRITE}/job.json", lambda j: j.update(duration_s=26.0))


def failed_job_made_good_and_the_chain(w: World) -> None:
    failed_job_made_good(w)
    (w.run / "raw/chain.jsonl").unlink()
    for name, _, end in w.jobs():
        w.chain(name, end + 1, signs=False)


def job_of_another_id(w: World) -> None:
    edit(w.run, f"{WRITE}/job.json", lambda j: j.update(job="99"))


def job_left_out(w: World) -> None:
    shutil.rmtree(w.run / LATENCY)


def job_left_out_and_the_chain(w: World) -> None:
    job_left_out(w)
    failed_job_made_good_and_the_chain(w)


def jobs_in_another_order(w: World) -> None:
    path = w.run / "raw/chain.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:1], *lines[2:3], *lines[1:2], *lines[3:]]))


def line_of_the_chain_taken_out(w: World) -> None:
    path = w.run / "raw/chain.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def chain_deleted(w: World) -> None:
    (w.run / "raw/chain.jsonl").unlink()


def better_attempt_in_place(w: World) -> None:
    shutil.copytree(w.run / LATENCY, w.run / f"{LATENCY[:-1]}2")


def slurms_record_edited(w: World) -> None:
    replace(w.run, f"{WRITE}/slurm.txt", "COMPLETED", "COMPLETED ")


def without_nonce(w: World) -> None:
    for journal in w.run.glob("raw/*/outputs*.jsonl"):
        replace(w.run, journal.relative_to(w.run).as_posix(), r', "nonce": "[0-9a-f]+"', "")


def earlier_run(w: World) -> None:
    """Last week's run, made before there was an order, with the order laid beside it."""
    without_nonce(w)
    all_signatures_removed(w)
    chain_deleted(w)


def own_order(w: World) -> None:
    edit(w.run, "order.json", lambda o: o["references"]["lab-ib-write-bw"].update(limit=0.001))
    loosened_gate(w)


def order_removed(w: World) -> None:
    (w.run / "order.json").unlink()


def other_machine(w: World) -> None:
    def change(snapshot: dict) -> None:
        for part in snapshot["components"]:
            if part["host"] == "n2" and part["kind"] == "node":
                part["attributes"]["machine_id"] = "f" * 32

    edit(w.run, "inventory.json", change)


def other_system(w: World) -> None:
    edit(w.run, "plan.json", lambda p: p.update(system="better"))


FORGERIES: dict[Callable[[World], None], str] = {
    loosened_gate: "reference lab-ib-write-bw: gate loosened",
    no_ceiling: "reference lab-ib-write-bw: ceiling changed",
    own_reference: "reference own is not of the order",
    not_required: "is not required any more",
    deleted_test: "was ordered and is not in the plan",
    not_to_be_run: "is not to be run",
    rail_left_out: "cells, ",
    waiver_put_in: "is not the plan that was ordered",
    caveat_taken_out: "is not the plan that was ordered",
    jobs_eased: "are not the jobs that were ordered",
    settings_eased: "the job had other settings than were ordered",
    number_in_perftest: f"{OUTPUT}: was changed after its node had signed it",
    number_in_mpi: "was changed after its node had signed it",
    counters_edited: "counters.n2.after.json: was changed after its node had signed it",
    settings_readback_edited: "was changed after its node had signed it",
    record_edited: "outputs.n1.jsonl: was changed after its node had signed it",
    record_of_another_cell: "outputs.n1.jsonl: was changed after its node had signed it",
    output_over_another: "was changed after its node had signed it",
    counters_of_another_node: "was changed after its node had signed it",
    output_added: "unsigned: no word of",
    output_removed: "was signed by n1 and is not in the bundle",
    manifest_made_to_fit: "signed.n1.json: is not what n1 signed",
    signature_removed: "unsigned: signed.n1.link.json is missing",
    all_signatures_removed: "unsigned: no word of",
    signed_by_a_stranger: "was signed on another machine than the n1 of the order",
    whole_run_by_a_stranger: "was signed by another host than the n1 of the order",
    measured_again_and_signed_again: "chain broken: n1 signed outputs that are not in the bundle",
    one_node_for_another: "was signed by another host than the n2 of the order",
    signature_of_another_job: "is of another job",
    last_line_edited: "n1's signature does not hold",
    signed_after_the_order: "out of time: signed 2026-12-24",
    signed_for_another_order: "was signed for another order",
    failed_job_made_good: "job.json: was changed after the job had ended",
    failed_job_made_good_and_the_chain: "is not signed by the submit host",
    job_of_another_id: "is of Slurm's job 2, job.json says 99",
    job_left_out: "the job was run and this is not in the bundle",
    job_left_out_and_the_chain: "chain broken: n1 signed outputs that are not in the bundle",
    jobs_in_another_order: "chain broken: line 2 does not follow the one before",
    line_of_the_chain_taken_out: "is no job of the chain",
    chain_deleted: "is missing: nothing says which jobs there were",
    better_attempt_in_place: "is no job of the chain",
    slurms_record_edited: "slurm.txt: was changed after the job had ended",
    without_nonce: "does not carry the order's nonce",
    earlier_run: "does not carry the order's nonce",
    own_order: "order.json: is not the order that was given",
    order_removed: "order.json: is missing",
    other_machine: "n2 is another machine than the order's",
    other_system: "is of run 20261120T132502Z on better",
}


def test_nothing_forged_is_as_ordered(world):
    """Catches: an order that an honest run cannot keep."""
    found = world.verify()
    assert found.findings == () and found.authentic, found.reason
    assert "as ordered by customer@site" in found.reason
    assert "not checked without --order" in world.verify(ordered=False).reason


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda f: f.__name__)
def test_forgery_by_who_holds_a_key_is_named(world, forgery):
    """Catches: a run that a trusted key sealed and that is not what was ordered."""
    forgery(world)
    reseal(world.run, world.vendor)
    found = world.verify()
    assert not found.authentic and found.differs
    # They are looked for last: the seal holds, and everything follows from the raw files.
    said = [str(finding) for finding in found.findings]
    assert any(FORGERIES[forgery] in line for line in said), said[:10]


def of_a_switch(w: World) -> None:
    replace(w.run, "raw/switches.fabric/leaf0.after.json", r"\Z", "\n")


def of_a_firmware(w: World) -> None:
    def change(snapshot: dict) -> None:
        for part in snapshot["components"]:
            part["attributes"]["firmware"] = "28.41.1000"

    edit(w.run, "inventory.json", change)


def by_root_of_a_node(w: World) -> None:
    """The node's own key, and its chain, are root's: it signs whatever it likes, from the first line on."""
    number_in_perftest(w)
    for node in ("n1", "n2"):
        shutil.rmtree(w.machines[node].path("/var/lib/shakedown-sign"))
        for name, _, end in w.jobs():
            w.sign(node, name, end)


@cases(
    "forgery, listed",
    (of_a_switch, "What the controller reads itself"),
    (of_a_firmware, "What the controller reads itself"),
    (by_root_of_a_node, "Root of a node"),
)
def test_what_cannot_be_seen_is_listed(original, tmp_path, forgery, listed):
    """Catches: a page on trust that promises more, or less, than `verify` sees."""
    world = original.copy(tmp_path / original.run.name)
    machines = {}
    for name, machine in original.machines.items():
        shutil.copytree(machine.root, tmp_path / name)
        machines[name] = type(machine)(str(tmp_path / name))
    world.machines = machines
    forgery(world)
    reseal(world.run, world.vendor)
    assert world.verify().authentic
    assert listed in TRUST.read_text()


@pytest.mark.parametrize("forgery", [jobs_deleted, jobs_emptied], ids=lambda f: f.__name__)
def test_results_without_jobs_differ(world, forgery):
    """Catches: forged results.jsonl "recomputed" from itself, because nothing says which jobs it is of."""
    forgery(world)
    for name in ("results.jsonl", "counters.jsonl", "verdict.json"):
        assert (world.run / name).exists()
    with pytest.raises(BadInput, match=r"jobs\.json: is missing or has no jobs"):
        bundle.seal(world.run, world.vendor)
    (world.run / "verdict.json").write_bytes(to_json(judge_folder(world.run)))
    sign_sums(world.run, world.vendor)
    for ordered in (True, False):
        assert "jobs.json is missing or has no jobs" in world.verify(ordered=ordered).reason
