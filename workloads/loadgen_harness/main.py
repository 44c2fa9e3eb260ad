"""Find the peak rate of ResNet50 behind LoadGen for every number of GPUs that the plan asks for.

    srun python -m loadgen_harness.main FOLDER

FOLDER/spec.json holds the settings. Every LoadGen run leaves its own summary and a line in a journal; a
search that was killed reads the journal and goes on. For each number of GPUs, FOLDER/search.gN.json says what
was done and FOLDER/outputs.jsonl which cells it measures.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from loadgen_harness.harness import SUMMARY, Harness, ServerRun, WorkerLostError
from loadgen_harness.heap import KeptMemory
from loadgen_harness.journal import Journal
from loadgen_harness.search import End, Limits, Step, next_step, wasted_s
from loadgen_harness.watch import GpuWatch
from loadgen_harness.workers import Worker, error_of, notes_of, workers
from shakedown.benchmarks.inference.output import LoadGenResult, parse_loadgen
from shakedown.onnode.journal import now, of_order
from shakedown.onnode.noted import node_name
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.writing import write_aside

TEST = "resnet50_server"
PERCENTILE = 0.99
# LoadGen calls a run VALID only if 99 % hold with 99 % confidence (early stopping): 0.99^n <= 0.01 takes 459
# queries of which none is late, and more with each late one. A slow server needs longer probes for that.
PROBE_QUERIES = 1000


def search(harness: Harness, gpus: int, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Search for the peak of the harness's workers; every run is kept.

    Raises:
        WorkerLostError: a worker failed during a run.
        BadInput: LoadGen's result is INVALID for another reason than the latency bound.
    """
    journal = Journal(folder, gpus, settings)
    offline = journal.offline_qps or harness.offline_qps(float(settings["warmup_s"]))
    journal.offline(offline)
    limits = Limits(
        start_qps=0.92 * offline,
        resolution=settings["resolution"],
        confirmations=settings["confirmations"],
        floor_qps=max(1.0, 0.1 * offline),
    )
    while isinstance(step := next_step(journal.runs, limits), Step):
        one_run(harness, step, journal, folder, settings)
    assert isinstance(step, End)
    return {
        "schema": 1,
        "gpus": gpus,
        "model": settings["model"],
        "weights": "random" if not settings.get("weights") else "file",
        "offline_qps": offline,
        "peak_qps": step.peak_qps,
        "reason": step.reason,
        "wasted_s": round(wasted_s(journal.runs), 3),
        "spent_s": round(sum(run.wall_s for run in journal.runs), 3),
        "runs": journal.entries(),
    }


def one_run(
    harness: Harness, step: Step, journal: Journal, folder: Path, settings: dict[str, Any]
) -> LoadGenResult:
    """Make one LoadGen run and keep its summary."""
    full = step.kind == "confirm"
    name = journal.begin(step)
    wanted = ServerRun(
        target_qps=step.target_qps,
        latency_ms=settings["latency_ms"],
        percentile=PERCENTILE,
        min_duration_s=settings["confirm_s" if full else "probe_s"],
        min_queries=settings["confirm_queries"] if full else PROBE_QUERIES,
        seed=len(journal.entries()),
    )
    scratch = folder / "loadgen"
    scratch.mkdir(exist_ok=True)
    wall_s, breakdown = harness.run(wanted, scratch)
    text = (scratch / SUMMARY).read_text(encoding="utf-8", errors="replace")
    (folder / name).write_text(text, encoding="utf-8")
    result = parse_loadgen(text, file=name)
    if not result.valid and not (result.min_duration and result.min_queries):
        raise BadInput("LoadGen calls the run INVALID, and not for its latency", file=name)
    journal.end(step, result, wall_s, breakdown)
    p99 = (result.percentile_ns(99.0) or 0) / 1e6
    print(
        f"{journal.gpus} GPUs: {step.kind} {step.target_qps:,.0f} queries/s: "
        f"{'met' if result.valid else 'missed'}, p99 {p99:.2f} ms, {wall_s:.1f} s; {breakdown}",
        flush=True,
    )
    return result


def measure(
    gpus: int, found: list[Worker], folder: Path, settings: dict[str, Any], memory: KeptMemory
) -> bool:
    """Search for one number of GPUs and write its document and journal line; False if it is no good."""
    started, begin = now(), time.monotonic()
    problem: dict[str, str] | None = None
    document: dict[str, Any] = {"schema": 1, "gpus": gpus, "runs": []}
    harness = Harness(
        [w.ring for w in found], [w.process for w in found], samples=settings["samples"], memory=memory
    )
    watched = [str(notes_of(worker).get("uuid")) for worker in found if settings["device"] == "cuda"]
    with GpuWatch(folder / f"gpu.g{gpus}.csv", watched) as watch:
        try:
            document = search(harness, gpus, folder, settings)
        except WorkerLostError as lost:
            why = "; ".join(
                error_of(w) for w in found if not w.process.is_alive() or notes_of(w).get("error")
            )
            problem = {"kind": "killed", "message": f"{lost}: {why}"[:1900]}
        except BadInput as refused:
            problem = {"kind": "other", "message": str(refused)[:1900]}
    if watch.problem:
        problem = problem or {"kind": "missing-tool", "message": watch.problem}
    document["workers"] = [notes_of(worker) for worker in found]
    note(gpus, folder, document, problem, started, time.monotonic() - begin)
    print(f"{gpus} GPUs: {problem['message'] if problem else document['reason']}", flush=True)
    return problem is None and document.get("peak_qps") is not None


def note(
    gpus: int,
    folder: Path,
    document: dict[str, Any],
    problem: dict[str, str] | None,
    started: str,
    took_s: float,
) -> None:
    """Write a search's document and its line in the journal; an earlier start's line goes."""
    document["node"] = node_name()
    name = f"search.g{gpus}.json"
    write_aside(folder / name, (json.dumps(document, indent=1) + "\n").encode())
    record = {
        "schema": 1,
        "tool": "inference",
        "test": TEST,
        "file": name,
        "nodes": [document["node"]],
        "params": {"gpus": gpus},
        "exit_code": 1 if problem else 0,
        "started": started,
        "duration_s": round(took_s, 3),
        "problem": problem,
        **of_order(),
    }
    journal = folder / "outputs.jsonl"
    # A search that goes on after a kill says again what it had found before: one line for a cell.
    before = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    others = [line for line in before if f'"file": "{name}"' not in line]
    write_aside(journal, "".join(f"{line}\n" for line in [*others, json.dumps(record)]).encode())


def main() -> int:
    """Run every search of the spec; 0 if each found a peak, 3 if one did not, 2 for a bad spec."""
    if len(sys.argv) != 2:
        print("usage: python -m loadgen_harness.main FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    settings = json.loads((folder / "spec.json").read_bytes())
    # Slurm ends a job with SIGTERM: leave through `finally`, so that no worker stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    memory = KeptMemory()
    good = True
    try:
        with workers(max(settings["gpus"]), folder, settings) as found:
            for gpus in settings["gpus"]:
                good &= measure(gpus, found[:gpus], folder, settings, memory)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        for gpus in settings["gpus"]:
            document = {
                "schema": 1,
                "gpus": gpus,
                "runs": [],
                "peak_qps": None,
                "reason": "no worker started",
            }
            note(gpus, folder, document, {"kind": "setup", "message": str(error)[:1900]}, now(), 0.0)
        return ExitStatus.INCOMPLETE
    finally:
        shutil.rmtree(folder / "loadgen", ignore_errors=True)
    return 0 if good else ExitStatus.INCOMPLETE


if __name__ == "__main__":
    sys.exit(main())
