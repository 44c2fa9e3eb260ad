"""A good job's files, each with one edit that makes no sense: its cells get no value, and the true reason."""

import json
import re
import shutil

import pytest

from shakedown.collect.run import collect
from shakedown.evidence import job_folder
from shakedown.judge.judged import judge_folder
from shakedown.records.reading import read_output
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.job import write_job
from tests.kit.run import gather
from tests.unit.collect.test_collect import CELL, FORWARD, JOB, PAIR, judged


def text(name: str, old: str, new: str):
    """Change the first place of a file that a pattern fits."""

    def edit(run):
        path = run / JOB / name
        before = path.read_text()
        after = re.sub(old, new, before, count=1)
        assert after != before
        path.write_text(after)

    return edit


def reading(change, when: str = "after"):
    """Change what n1's NICs counted."""

    def edit(run):
        with edited(run / JOB / f"counters.n1.{when}.json") as document:
            change(document)

    return edit


def swapped(field: str):
    """Give each of two devices the other's."""

    def change(document):
        one, other = document["devices"]
        one[field], other[field] = other[field], one[field]

    return change


def linked(run):
    """Put the output elsewhere and a link in its place."""
    elsewhere = run.parent / "elsewhere.txt"
    (run / JOB / FORWARD).rename(elsewhere)
    (run / JOB / FORWARD).symlink_to(elsewhere)


def taken(times: dict[str, str]):
    """Readings of other times."""

    def edit(run):
        for when, at in times.items():
            reading(lambda document, at=at: document.update(taken=at), when)(run)

    return edit


EDITS = {
    "exit code twice": (
        text("outputs.n1.jsonl", '"exit_code": ?0', '"exit_code":1,"exit_code":0'),
        "outputs.n1.jsonl:1: duplicate key 'exit_code'",
    ),
    "exit code twice, below a warning": (
        text("outputs.n1.jsonl", '\\A(.*?)"exit_code": ?0', 'warning\n\\1"exit_code":1,"exit_code":0'),
        "outputs.n1.jsonl:2: duplicate key 'exit_code'",
    ),
    "counter twice, far below": (
        text(
            "counters.n1.after.json",
            '\\A([^$]*)"rdma.rcvd_seq_err": 0',
            " " * 300 + '\\1"rdma.rcvd_seq_err": 9, "rdma.rcvd_seq_err": 0',
        ),
        "counters.n1.after.json: duplicate key 'rdma.rcvd_seq_err'",
    ),
    "counter twice": (
        text("counters.n1.after.json", '"rdma.rcvd_seq_err": 0', '"rdma.rcvd_seq_err": 9, \\g<0>'),
        "counters.n1.after.json: duplicate key 'rdma.rcvd_seq_err'",
    ),
    "state twice": (text("job.json", '"state"', '"state": "FAILED", "state"'), "job.json: duplicate key"),
    "negative time": (
        text("outputs.n1.jsonl", '"duration_s": ?[0-9.]+', '"duration_s":-1'),
        "duration_s: Input should be greater than or equal to 0",
    ),
    "no number for a time": (
        text("outputs.n1.jsonl", '"duration_s": ?[0-9.]+', '"duration_s":NaN'),
        "duration_s: Input should be a finite number",
    ),
    "no time at all": (
        text("outputs.n1.jsonl", '"duration_s": ?[0-9.]+', '"duration_s":0'),
        f"{FORWARD} took no time at all by its record",
    ),
    "less time than it counted": (
        text("outputs.n1.jsonl", '"duration_s": ?[0-9.]+', '"duration_s":0.1'),
        "s, the whole test took 0.1 s by its record",
    ),
    "longer than its job": (
        text("outputs.n1.jsonl", '"duration_s": ?[0-9.]+', '"duration_s":86400'),
        "took 86400 s by its record, its whole job",
    ),
    "job of no time": (text("job.json", '"duration_s": [0-9.]+', '"duration_s": 0'), "its whole job 0 s"),
    "job of less than no time": (
        text("job.json", '"duration_s": [0-9.]+', '"duration_s": -27'),
        "job.json: duration_s: Input should be greater than or equal to 0",
    ),
    "another NIC's netdev": (
        reading(swapped("netdev")),
        "counters.n1.after.json: says that rxe0 is fab1, which is rxe1 by the plan",
    ),
    "another NIC's counters": (
        reading(swapped("device")),
        "counters.n1.after.json: says that rxe1 is fab0, which is rxe0 by the plan",
    ),
    "a NIC twice": (
        reading(lambda document: document["devices"].append(document["devices"][0])),
        "counters.n1.after.json: has rxe0 twice",
    ),
    "a link": (linked, f"{FORWARD}: cannot be read: Too many levels of symbolic links"),
}


@pytest.fixture
def job(run):
    """The run of a job of 25 seconds, with what was read and written at the times of the record."""
    write_job(run / JOB, nodes=PAIR, started="2026-11-20T11:59:25Z", duration_s=25)
    taken({"before": at(27), "after": at(47)})(run)
    return run


def at(second: int) -> str:
    """A time within the job, or soon after."""
    return f"2026-11-20T{'11:59' if second < 60 else '12:00'}:{second % 60:02}.000+00:00"


@pytest.mark.parametrize("what", EDITS)
def test_what_contradicts_itself_is_no_evidence(job, what):
    """Catches: an edited run that says PASS, or that one file of it stops the whole verdict."""
    edit, words = EDITS[what]
    edit(job)
    verdict, cells = judged(job)
    assert verdict.outcome == "INCONCLUSIVE"
    assert any(words in cell.reason for cell in cells.values()), {cell.reason for cell in cells.values()}


def test_what_does_not_is(job):
    """Catches: a job that ran well refused for its times or the names of its NICs."""
    taken({"before": at(25), "after": at(53)})(job)  # rounded by Slurm, by clocks that run a little apart
    reading(lambda document: document["devices"][0].update(netdev="bond0"))(job)
    assert judged(job)[0].outcome == "PASS"


@cases(
    "before, after, words",
    (at(30), at(29), f"read at {at(29)}, before the reading before the job, of {at(30)}"),
    (at(27), at(59), f"read at {at(27)} and {at(59)}, the whole job took 25 s"),
)
def test_readings_in_the_wrong_order_or_of_a_longer_time_are_of_something_else(job, before, after, words):
    """Catches: a difference of counters that is of another time than the job's."""
    taken({"before": before, "after": after})(job)
    _, cells = judged(job)
    assert any(f"counters.n1.after.json: {words}" in cell.reason for cell in cells.values())
    assert CELL not in cells  # n2's counters bear the outputs out


def test_the_clock_that_never_steps_tells_the_order_within_one_boot(job):
    """Catches: two readings that were exchanged, their times edited; a restarted node called a liar."""
    for when, read_at_s in (("before", 2000.5), ("after", 1990.5)):
        reading(
            lambda document, read_at_s=read_at_s: document["devices"][0].update(read_at_s=read_at_s), when
        )(job)
    told = "rxe0 was read before the reading before the job, by the clock that never steps"
    assert any(told in cell.reason for cell in judged(job)[1].values())
    reading(lambda document: document.update(boot_id="one"), "before")(job)
    reading(lambda document: document.update(boot_id="another"))(job)
    assert not any(told in cell.reason for cell in judged(job)[1].values())


ONE, OTHER = ("GPU-00000000-0000-0000-0000-00000000000" + n for n in "12")


@cases(
    "pattern, old, new, shared, told",
    ("raw/*/gpus.n2.after.json", OTHER, ONE, (), f"n1 and n2 show the same GPU ({ONE})"),
    ("inventory.json", OTHER, ONE, (), f"n1 and n2 show the same GPU ({ONE})"),
    (
        "raw/*/gpu_rate.n2.jsonl",
        "49cff9fc-1f25-cbbc-6735-e09f8a312599",
        ONE,
        (),
        "n1 and n2 show the same GPU",
    ),
    ("raw/*/gpus.n2.after.json", OTHER, ONE, ("n1", "n2"), ""),
    ("raw/*/gpus.n2.after.json", OTHER, f"{OTHER} {OTHER}", (), f"shows {OTHER} of n2 twice"),
    ("raw/*/gpus.n2.after.json", "0000-000000000002", "0000-000000000000", (), ""),  # withheld
)
def test_nodes_that_show_one_gpu_are_one_machine(pattern, old, new, shared, told, recorded_run):
    """Catches: one GPU under two names or twice in one node, which was measured against itself and PASSed."""
    run = recorded_run("h100x2_healthy")
    changed = [path for path in run.glob(pattern) if old in path.read_text()]
    for path in changed:
        path.write_text(path.read_text().replace(old, new))
    jobs = json.loads((run / "jobs.json").read_text())
    for job in jobs["jobs"]:
        if "shared_gpus" in job["settings"]:
            job["settings"]["shared_gpus"] = shared
    (run / "jobs.json").write_text(json.dumps(jobs))
    doubted = {m.disturbed for m in gather(run)[0] if m.disturbed}
    assert changed and all(told in why for why in doubted) and bool(doubted) is bool(told)
    if told:
        collect(run)
        cells = judge_folder(run).cells
        rates = [cell for cell in cells if "/n1,n2/" in cell.cell and "/busbw/" in cell.cell]
        assert rates and {cell.outcome for cell in rates} <= {"INCONCLUSIVE", "FAIL"}


def test_workers_of_one_search_have_a_gpu_each(recorded_run):
    """Catches: two of a search's workers on one GPU, whose rate was called that of two."""
    run = recorded_run("h200x4_interconnect")
    for path in run.glob("raw/application.inference.gpu1.a1/worker.*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "uuid": ONE}))
    doubted = {m.disturbed for m in gather(run)[0] if m.disturbed}
    assert doubted == {f"worker.N.json shows {ONE} of gpu1 twice: no two GPUs have one UUID"}


@cases(
    "told, outcome, says",
    ({"gpu": "NVIDIA A10"}, "FAIL", "is of NVIDIA A10, the references are for H200-SXM"),
    ({"gpu": "NVIDIA H200"}, "PASS", ""),
    ({"uuid": "GPU-77777777-0000-0000-0000-000000000000"}, "INCONCLUSIVE", "which nobody saw on gpu1"),
)
def test_workers_of_an_inference_are_on_the_gpus_that_are_there(told, outcome, says, recorded_run):
    """Catches: a rate of an A10, or of a GPU that the node does not show, which PASSes as an H200's."""
    run = recorded_run("h200x4_interconnect")
    jobs = json.loads((run / "jobs.json").read_text())
    jobs["gpus"] = {"gpu1": "H200-SXM"}
    (run / "jobs.json").write_text(json.dumps(jobs))
    snapshot = (run / "inventory.json").read_text().replace('"withheld"', f'"{ONE}"')
    (run / "inventory.json").write_text(snapshot)
    for path in run.glob("raw/application.inference.gpu1.a1/worker.0.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), **told}))
    found = [m for m in gather(run)[0] if m.test == "resnet50_server"]
    problems = {m.problem.message for m in found if m.problem}
    kinds = {m.problem.kind for m in found if m.problem}
    assert kinds == {"FAIL": {"other-gpu"}, "PASS": set(), "INCONCLUSIVE": {"other"}}[outcome]
    assert all(says in problem for problem in problems)


@cases(
    "name, pattern, gpu, model, outcome, says",
    ("h200x4_nccl_healthy", "nccl_*.txt", "NVIDIA H100 80GB HBM3", "H200-SXM", "FAIL", "are for H200-SXM"),
    ("h200x4_nccl_healthy", "nvbandwidth.*.json", "NVIDIA A10", "H200-SXM", "FAIL", "are for H200-SXM"),
    ("h200_rate_5", "gpu_rate.*.jsonl", "NVIDIA H100 80GB HBM3", "H200-SXM", "FAIL", "are for H200-SXM"),
    ("h200_rate_5", "gp*", "NVIDIA A10", "H200-SXM", "FAIL", "gpu_rate.n1.jsonl is of NVIDIA A10"),
    ("h200_rate_5", "gpus.*.json", "NVIDIA A10", "H200-SXM", "FAIL", "nvidia-smi shows NVIDIA A10 on n1"),
    ("h200x2_lora", "lora.jsonl", "NVIDIA H100 80GB HBM3", "H200-SXM", "FAIL", "are for H200-SXM"),
    # Orders of earlier releases do not say the model: two witnesses contradict each other.
    (
        "h200_rate_5",
        "gpu_rate.*.jsonl",
        "NVIDIA H200 NVL",
        "",
        "INCONCLUSIVE",
        "nvidia-smi shows NVIDIA H200",
    ),
    ("h200x2_lora", "lora.jsonl", "NVIDIA A10", "", "INCONCLUSIVE", "the snapshot has NVIDIA H200"),
    ("h200x2_lora", "lora.jsonl", "NVIDIA H200", "H200-SXM", "PASS", ""),
    ("h200x2_lora", "lora.jsonl", "NVIDIA H200", "H200-of-ours", "PASS", ""),  # not known here
)
def test_another_gpu_than_the_references_are_for(name, pattern, gpu, model, outcome, says, recorded_run):
    """Catches: what a tool says of its GPU unread: an A10 that PASSes by the references of an H200."""
    run = recorded_run(name)
    for path in run.glob(f"raw/*/{pattern}"):
        path.write_text(path.read_text().replace("NVIDIA H200", gpu))
    jobs = json.loads((run / "jobs.json").read_text())
    jobs["gpus"] = {node: model for job in jobs["jobs"] for node in job["nodes"] if model}
    (run / "jobs.json").write_text(json.dumps(jobs))
    collect(run)
    verdict = judge_folder(run)
    assert verdict.outcome == outcome
    bad = [cell for cell in verdict.cells if cell.outcome == outcome != "PASS"]
    assert any(gpu in cell.reason and says in cell.reason for cell in bad) or outcome == "PASS"


@cases(
    "printed, instead, says",
    ("agg iters: 1 ", "agg iters: 50 ", "agg iters: 50, graph: 0"),
    ("graph: 0", "graph: 20", "agg iters: 1, graph: 20"),
    ("float     sum", "float     max", "it reduced by max, sum was planned"),
)
def test_nccl_ran_as_planned(printed, instead, says, recorded_run):
    """Catches: calls in one batch or one graph, whose rate passes as that of calls one by one."""
    run = recorded_run("h200x4_nccl_healthy")
    for path in run.glob("raw/*/nccl_all_reduce.r*.txt"):
        path.write_text(path.read_text().replace(printed, instead))
    problems = [m.problem for m in gather(run)[0] if m.test == "nccl_all_reduce"]
    assert any(problem and says in problem.message for problem in problems)


@cases(
    "printed, instead, says",
    (
        r"0000:00:07\]",
        "0000:00:17]",
        "rank 1 ran on the GPU 0000:00:17, which nvidia-smi does not show on n2",
    ),
    (r"on +n2 device", "on n9 device", "rank 1 ran on n9, which is none of n1, n2"),
    (r"nccl-library=22809", "nccl-library=21805", "it names NCCL 2.18.5, its log 2.28.9"),
)
def test_nccl_ran_where_other_witnesses_say(printed, instead, says, recorded_run):
    """Catches: figures of another host's GPUs, or of another NCCL, in every repeat alike, which PASS."""
    run = recorded_run("h200x2_nodes_healthy")
    for path in run.glob("raw/collective.nccl0*/nccl_all_reduce.r*.txt"):
        path.write_text(re.sub(printed, instead, path.read_text()))
    found = [m for m in gather(run)[0] if m.raw and "/collective.nccl0" in m.raw and m.unit == "GB/s"]
    assert found and all(m.problem and says in m.problem.message for m in found)


@cases(
    "key, value, says",
    ("taken", "2026-11-19T17:20:17+00:00", "a look of 2026-11-19 17:20:17, the job ran"),
    ("node", "gpu2", "is of gpu2: it says nothing of gpu1"),
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_look_at_the_gpus_is_of_this_job(key, value, says, when, recorded_run):
    """Catches: the state of healthy GPUs, kept from an earlier job or another node."""
    run = recorded_run("h200x4_nccl_healthy")
    for path in run.glob(f"raw/*/gpus.*.{when}.json"):
        with edited(path) as look:
            look[key] = value
    verdict, _ = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert says in verdict.reason


def test_what_is_said_of_a_foreign_folder_does_not_depend_on_the_place(run, tmp_path):
    """Catches: the run's own path in results.jsonl, so that an honest seal differs on another machine."""
    shutil.copytree(run / JOB, run / "raw/evil.a1")
    with edited(run / "raw/evil.a1/job.json") as job:
        job.update(test="evil", job="77")
    shutil.copytree(run, tmp_path / "elsewhere" / run.name)
    here, there = gather(run), gather(tmp_path / "elsewhere" / run.name)
    assert here == there
    assert str(tmp_path) not in repr(here)
    verdict, _ = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "raw/evil.a1: no such job was planned" in verdict.reason


def test_an_output_that_is_swapped_while_it_is_read_decides_nothing(run, monkeypatch):
    """Catches: PASS by figures of one reading, held against the job's list by the digest of another."""
    path = run / JOB / FORWARD
    honest = path.read_bytes()
    with edited(run / JOB / "job.json") as job:
        job["files"] = job_folder.note_contents(run / JOB)
    assert judged(run)[1].get(CELL) is None  # PASS
    forged = re.sub(rb"(?m)^( 65536 +300 +)[0-9.]+( +)[0-9.]+", rb"\g<1>0.99\g<2>0.99", honest)
    assert forged != honest
    path.write_bytes(forged)

    def swapped_back(file):
        if file == path:
            file.write_bytes(honest)
        return read_output(file)

    monkeypatch.setattr(job_folder, "read_output", swapped_back)
    measured = {m.cell: m for m in gather(run)[0]}[CELL]
    assert measured.problem and "was changed while the run was read" in measured.problem.message
