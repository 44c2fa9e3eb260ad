"""Each file of a recorded run's jobs taken away, emptied or replaced: nothing passes that rests on it.

A run of today has a list of what each job's folder held. Runs from before have not; theirs are missed where
they are evidence, and what may go unnoticed stands here with the reason.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shakedown.collect.run import collect
from shakedown.evidence.job_folder import note_contents
from shakedown.judge.judged import judge_folder
from shakedown.plan.jobs import Jobs, job_and_attempt
from shakedown.records.base import to_json
from shakedown.records.reading import read_record
from shakedown.records.results import JobRecord
from shakedown.records.verdict import Verdict
from shakedown.records.writing import write_aside
from shakedown.run import redact
from tests.kit.cases import cases

# The kinds of jobs of each, so that every kind of which there is a good run is here once.
RUNS = {"lab_healthy": ("settings", "mesh", "mpi_pingpong", "mpi_allreduce"), "h200_rate_2": ("gpu_rate",)}
RUNS |= {"h200_int8": ("inference", "copies", "pcie_path"), "h200x4_nccl_healthy": ("nccl", "gpu_node")}
RUNS |= {"h100x2_own_references": ("torch_collectives",), "h100x2_lora": ("lora",)}
# ReFrame's copies, from which nothing is read (docs/explanation/trust.md).
DECIDES_NOTHING = ("rfm_job.sh", "rfm_job.out")
# What decides no cell of a run from before there was a list, and why.
NO_EVIDENCE = {
    r".*\.err": "what a program or srun said beside its output; a failure stands in journal or job.json",
    r"journal\.[^.]+\.jsonl": "the mesh driver's events; each measurement has its line in outputs.*.jsonl",
    r"gpus\.[^.]+\.(before|after)\.json": "a look that stopped the job where it found something",
    r"gpus\.[^.]+\.samples\.csv": "says why a GPU was slow",
    r"gpu_rate\.[^.]+\.[^.]+\.out": "merged into gpu_rate.NODE.jsonl, which is read",
    r"tcp\.[^.]+\.json": "a look that stopped the job where it found something",
    r"warmup\.[^.]+\.json": "what a run before the measured one printed",
    r".*\.tuning\.(txt|log)": "which algorithm NCCL chose: told beside a value",
    r"loadgen\.g\d+\.\d+\.txt": "a probe of the search; the run that decides is named by search.gN.json",
    r"probes\.g\d+\.jsonl": "the search's steps, for people",
    r"worker\.\d+\.json": "how a GPU's process was started, for people",
}


@pytest.fixture(autouse=True)
def each_file_redacted_once(monkeypatch):
    """Keep what bytes are without secrets, half the time of reading a run: one file of it differs."""
    monkeypatch.setattr(redact, "redact_bytes", functools.cache(redact.redact_bytes))


def judged(run: Path) -> Verdict:
    """Collect and judge."""
    collect(run, [])
    return judge_folder(run)


def files_of(run: Path, kinds: tuple[str, ...]) -> Iterator[Path]:
    """Yield one file of each name, but for numbers and nodes, of one job of each of these kinds."""
    jobs = {job.name: job for job in read_record(run / "jobs.json", Jobs).jobs}
    seen = set()
    for path in sorted(run.glob("raw/*.a1/*")):
        spec = jobs[job_and_attempt(path.parent.name)[0]]
        alike = re.sub(r"(?<=\.)[^.,]*\d+(?=[.,])", "#", path.name)
        if path.name in ("job.json", *DECIDES_NOTHING):
            continue
        if spec.kind in kinds and (spec.kind, alike) not in seen:
            seen.add((spec.kind, alike))
            yield path


def others(run: Path, path: Path) -> Path | None:
    """Return a file of the same name of another job that holds something else, if there is one."""
    same = (other for other in sorted(run.glob(f"raw/*/{path.name}")) if other != path)
    return next((other for other in same if other.read_bytes() != path.read_bytes()), None)


def passed(verdict: Verdict) -> int:
    """Return how many cells passed, or are the first of their kind."""
    return verdict.outcomes["PASS"] + verdict.outcomes.get("BASELINE", 0)


def worse(now: Verdict, before: Verdict, path: Path) -> str:
    """Return why a loss is not told as it should be: fewer cells pass, none fails, and it is named."""
    if passed(now) >= passed(before):
        return "nothing was missed"
    if now.outcomes["FAIL"] > before.outcomes["FAIL"]:
        return "a part is blamed for it"
    return "" if any(path.name in cell.reason for cell in now.cells) else "no cell names it"


def changes(run: Path, path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what may become of a file."""
    yield "removed", path.unlink
    if path.stat().st_size:
        yield "emptied", lambda: path.write_bytes(b"")
    if (other := others(run, path)) is not None:
        yield f"that of {other.parent.name}", lambda: path.write_bytes(other.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_lost_file_is_missed(recorded_run, name):
    """Catches: any file of a job that is gone, cut off or another's, and its cells pass."""
    run = recorded_run(name)
    for record in sorted(run.glob("raw/*/job.json")):
        job = read_record(record, JobRecord).model_copy(update={"files": note_contents(record.parent)})
        write_aside(record, to_json(job))
    before, missed = judged(run), []
    files = [*files_of(run, RUNS[name]), next(run.glob("raw/*/files.json"))]
    for path in files:
        content = path.read_bytes()
        for what, change in changes(run, path):
            change()
            if why := worse(judged(run), before, path):
                missed.append(f"{path.relative_to(run)} {what}: {why}")
            path.write_bytes(content)
    assert not missed, "\n".join(missed)
    assert judged(run) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_evidence_is_missed_without_a_list_too(recorded_run, name):
    """Catches: a job's order, its nodes, their counters or an output of a run of an earlier release lost."""
    run = recorded_run(name)
    before, missed = judged(run), []
    for path in files_of(run, RUNS[name]):
        if any(re.fullmatch(pattern, path.name) for pattern in NO_EVIDENCE):
            continue
        content = path.read_bytes()
        for what, change in (c for c in changes(run, path) if c[0] in ("removed", "emptied")):
            change()
            why = worse(judged(run), before, path)
            # Of what a journal held nothing is left to name: its cells are not measured.
            if why and not (path.name.startswith("outputs.") and why == "no cell names it"):
                missed.append(f"{path.relative_to(run)} {what}: {why}")
            path.write_bytes(content)
    assert not missed, "\n".join(missed)


@cases("name", "nodes.txt", "spec.json", "counters.n1.after.json", "counters.n2.before.json")
def test_a_job_over_tcp_rests_on_its_order_its_nodes_and_their_counters(recorded_run, name):
    """Catches: files that no cell of such a job reads, removed, and it still passes."""
    run = recorded_run("h100x2_lora")
    assert judged(run).outcome == "PASS"
    (path,) = run.glob(f"raw/lora*/{name}")
    path.unlink()
    verdict = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert all(f"{name} is missing" in cell.reason for cell in verdict.cells), verdict.cells


def test_an_order_that_was_not_this_jobs_is_told(recorded_run):
    """Catches: a job that read other settings than were ordered."""
    run = recorded_run("h100x2_lora")
    (path,) = run.glob("raw/lora*/spec.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 7}))
    verdict = judged(run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "spec.json is not what was ordered" in verdict.cells[0].reason
