"""Forgeries by a trusted key's holder that put true things in a wrong place: nodes, lines, times, records."""

# ruff: noqa: D103  (a forgery's name says what it is)

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ordered import World, reseal, sha256, sign_sums
from test_forgeries import LATENCY, OUTPUT, WRITE, edit, items, replace

from shakedown.evidence import orders
from shakedown.judge.judged import judge_folder
from shakedown.records.base import to_json
from shakedown.records.reading import BadInput
from shakedown.run.folder import ORDER, ORDER_SIGNATURE
from tests.kit.key import NEEDS_SSH_KEYGEN

HERE = Path(__file__).parent


pytestmark = [pytest.mark.slow, NEEDS_SSH_KEYGEN]


def swap(one: Path, other: Path) -> None:
    """Exchange two files' contents."""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def counters_of_two_nodes_swapped(w: World) -> None:
    """Each with the other's name written over, so that nothing in the files says so."""
    files = [w.run / WRITE / f"counters.{node}.after.json" for node in ("n1", "n2")]
    texts = [path.read_text() for path in files]
    files[0].write_text(texts[1].replace('"n2"', '"n1"'))
    files[1].write_text(texts[0].replace('"n1"', '"n2"'))


def lists_of_two_nodes_swapped(w: World) -> None:
    for kind in ("json", "link.json"):
        swap(*(w.run / WRITE / f"signed.{node}.{kind}" for node in ("n1", "n2")))


def lines_of_two_jobs_swapped(w: World) -> None:
    """One node's signatures of two jobs, its lists of files left where they are."""
    swap(*(w.run / job / "signed.n1.link.json" for job in (WRITE, LATENCY)))


def last_record_of_a_node_dropped(w: World) -> None:
    path = w.run / WRITE / "outputs.n2.jsonl"
    if not path.exists() or not path.read_text():
        path = w.run / WRITE / "outputs.n1.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def journal_cut_in_its_last_line(w: World) -> None:
    path = w.run / WRITE / "outputs.n1.jsonl"
    path.write_bytes(path.read_bytes()[:-30])


def time_of_a_record_moved_within_its_job(w: World) -> None:
    replace(w.run, f"{WRITE}/outputs.n1.jsonl", r'"started": ?"([^"]+)[0-9]Z"', r'"started": "\g<1>0Z"')


def job_begun_a_minute_later(w: World) -> None:
    """Still within the order, and within what its nodes' clocks may be off."""

    def change(job: dict) -> None:
        at = datetime.fromisoformat(job["started"]) + timedelta(seconds=60)
        job["started"] = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    edit(w.run, f"{LATENCY}/job.json", change)


def nonce_put_into_last_weeks_outputs(w: World) -> None:
    """Another run's outputs with their records, which are made to bear the nonce."""
    target = w.run / WRITE / "outputs.n1.jsonl"
    records = [json.loads(line) for line in target.read_text().splitlines()]
    for record in records:
        record["started"] = record["started"].replace("2026", "2025")
    target.write_text("".join(json.dumps(r | {"nonce": w.ordered.nonce}) + "\n" for r in records))


def gate_of_a_class_eased(w: World) -> None:
    edit(w.run, "plan.json", lambda p: p["references"]["lab-ib-write-bw"].update(class_tolerance=0.9))


def reference_renamed(w: World) -> None:
    """The same gate under another name, so that the next run's may be another one."""

    def change(plan: dict) -> None:
        plan["references"]["lab"] = {**plan["references"].pop("lab-ib-write-bw"), "id": "lab"}
        for item in plan["items"]:
            item["reference"] = "lab" if item["reference"] == "lab-ib-write-bw" else item["reference"]

    edit(w.run, "plan.json", change)


def cell_marked_as_only_if_reported(w: World) -> None:
    edit(w.run, "plan.json", lambda p: [i.update(if_reported=True) for i in items(p, "ib_send_lat")])


def snapshots_of_two_nodes_swapped(w: World) -> None:
    def change(snapshot: dict) -> None:
        other = {"n1": "n2", "n2": "n1"}
        for part in snapshot["components"]:
            part["host"] = other.get(part["host"], part["host"])

    edit(w.run, "inventory.json", change)


def counters_scaled_on_both_ends(w: World) -> None:
    """Sender and receiver by the same factor, so that nothing is lost between them."""
    for path in (w.run / WRITE).glob("counters.n*.after.json"):
        document = json.loads(path.read_text())
        for device in document["devices"]:
            device["counters"] = {k: v * 2 for k, v in device["counters"].items()}
        path.write_text(json.dumps(document, indent=1) + "\n")


def account_of_another_job(w: World) -> None:
    shutil.copyfile(w.run / LATENCY / "slurm.txt", w.run / WRITE / "slurm.txt")


def signature_of_an_unlisted_node_added(w: World) -> None:
    """n9 is of no order; a second list beside n1's, which names what n1 never wrote."""
    document = json.loads((w.run / WRITE / "signed.n1.json").read_text()) | {"node": "n9"}
    (w.run / WRITE / "output.n9.txt").write_text("1\n")
    document["files"] = {"output.n9.txt": sha256(w.run / WRITE / "output.n9.txt")}
    (w.run / WRITE / "signed.n9.json").write_text(json.dumps(document))
    shutil.copyfile(w.run / WRITE / "signed.n1.link.json", w.run / WRITE / "signed.n9.link.json")


def duplicate_key_in_a_nodes_list(w: World) -> None:
    """A reader that takes the last `files` sees the forged one, one that takes the first sees the node's."""
    path = w.run / WRITE / "signed.n1.json"
    text = path.read_text().rstrip()
    assert text.endswith("}")
    path.write_text(f'{text[:-1]}, "files": {{}}}}\n')


def duplicate_key_in_a_record_of_a_job(w: World) -> None:
    path = w.run / LATENCY / "job.json"
    text = path.read_text().rstrip()
    path.write_text(text[:-1] + ', "state": "COMPLETED"}\n')


def chain_made_anew_in_another_order(w: World) -> None:
    """By the head's own service, asked by the vendor, who submits the jobs."""
    (w.run / "raw/chain.jsonl").unlink()
    for name, _, end in w.jobs():
        w.chain(name, end + 1)


def line_of_the_chain_twice(w: World) -> None:
    path = w.run / "raw/chain.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[-1]]))


def output_under_another_nodes_name(w: World) -> None:
    """n1's output, named so that it counts as n2's."""
    output = w.run / OUTPUT
    output.rename(output.with_name(output.name.replace("n1,n2", "n2,n1")))


def order_of_its_own_validity(w: World) -> None:
    """The order of the run re-dated and signed by the vendor, whose key the customer trusts."""
    order = w.ordered.model_copy(update={"not_after": "2027-11-27T13:00:00Z"})
    orders.write(order, w.run / ORDER, w.vendor)
    assert (w.run / ORDER_SIGNATURE).exists()


def whole_run_signed_hours_later(w: World) -> None:
    """What was made at leisure is signed afterwards, and the snapshot has the nodes' clocks hours ahead."""
    hours_s = 5 * 3600.0
    for node in ("n1", "n2"):
        shutil.rmtree(w.machines[node].path("/var/lib/shakedown-sign"))
        for name, _, end in w.jobs():
            w.sign(node, name, end + hours_s)
    clocks = [
        {"host": h, "low_s": s, "high_s": s} for h, s in (("n1", hours_s), ("n2", hours_s), ("head", 0))
    ]
    edit(w.run, "inventory.json", lambda s: s.update(submit="head", clocks=clocks))


def job_made_good_by_its_user_before_the_chain(w: World) -> None:
    """The jobs' user writes job.json and Slurm's record before the submit host signs for them."""
    edit(w.run, f"{LATENCY}/job.json", lambda j: j.update(job="99"))
    (w.run / "raw/chain.jsonl").unlink()
    shutil.rmtree(w.machines["head"].path("/var/lib/shakedown-sign"))
    for name, _, end in w.jobs():
        w.chain(name, end + 1)


FORGERIES: dict[Callable[[World], None], str] = {
    counters_of_two_nodes_swapped: "counters.n1.after.json: was changed after its node had signed it",
    lists_of_two_nodes_swapped: "signed.n1.json: is of another node, n2",
    lines_of_two_jobs_swapped: "signed.n1.json: is not what n1 signed",
    last_record_of_a_node_dropped: ".jsonl: was changed after its node had signed it",
    journal_cut_in_its_last_line: "outputs.n1.jsonl: was changed after its node had signed it",
    time_of_a_record_moved_within_its_job: "outputs.n1.jsonl: was changed after its node had signed it",
    job_begun_a_minute_later: "job.json: was changed after the job had ended",
    nonce_put_into_last_weeks_outputs: "outputs.n1.jsonl: was changed after its node had signed it",
    gate_of_a_class_eased: "reference lab-ib-write-bw: class_tolerance changed",
    reference_renamed: "reference lab is not of the order",
    cell_marked_as_only_if_reported: "is not the plan that was ordered",
    snapshots_of_two_nodes_swapped: "n1 is another machine than the order's",
    counters_scaled_on_both_ends: "counters.n1.after.json: was changed after its node had signed it",
    account_of_another_job: "slurm.txt: was changed after the job had ended",
    signature_of_an_unlisted_node_added: "output.n9.txt: unsigned: no word of",
    duplicate_key_in_a_nodes_list: "signed.n1.json: ",
    duplicate_key_in_a_record_of_a_job: "job.json: ",
    chain_made_anew_in_another_order: "chain broken: submit host signed outputs that are not in the bundle",
    line_of_the_chain_twice: "chain broken: line",
    output_under_another_nodes_name: "was signed by n1 and is not in the bundle",
    whole_run_signed_hours_later: "out of time: n1's signature of",
    job_made_good_by_its_user_before_the_chain: "is of Slurm's job 4, job.json says 99",
    order_of_its_own_validity: "order.json: is not the order that was given",
}


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda f: f.__name__)
def test_what_is_put_in_a_wrong_place_is_named(world, forgery):
    """Catches: a run of true parts, each sealed and each signed, that is not what was ordered."""
    forgery(world)
    reseal(world.run, world.vendor)
    found = world.verify()
    assert not found.authentic and found.differs
    said = [str(finding) for finding in found.findings]
    assert any(FORGERIES[forgery] in line for line in said), (found.reason, said[:10])


def test_an_output_that_is_a_link_is_no_part_of_a_bundle(world, tmp_path):
    """Catches: an output whose content is somewhere else, to be changed after the sealing."""
    outside = tmp_path / "outside.txt"
    (world.run / OUTPUT).rename(outside)
    (world.run / OUTPUT).symlink_to(outside)
    with pytest.raises(BadInput, match=r"is a link|symbolic link|plain file"):
        reseal(world.run, world.vendor)
        world.verify()


def test_a_file_beside_the_sums_is_named(world):
    """Catches: a file that is put into a sealed bundle without sealing it again."""
    (world.run / WRITE / "ib_write_bw.more.txt").write_text("1\n")
    assert "was added after sealing" in world.verify().reason


def test_results_of_a_cell_that_was_never_planned_count_for_nothing(world):
    """Catches: a value that no raw file gives, written into the results alone."""
    path = world.run / "results.jsonl"
    line = json.loads(path.read_text().splitlines()[0]) | {"metric": "better"}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    (world.run / "verdict.json").write_bytes(to_json(judge_folder(world.run)))
    sign_sums(world.run, world.vendor)
    assert "results.jsonl is not what the raw files give" in world.verify().reason
