"""Stands for the acceptance playbook: measures a plan out of thin air, with what FAKE_NIGHT asks to be wrong.

FAKE_NIGHT is JSON: `slow` nodes miss every gate; jobs whose names begin with `killed` give no value;
`hang` sleeps; `refused` is why the run is not made.
"""

import json
import os
import sys
import time
from pathlib import Path

from shakedown.plan.jobs import Jobs
from shakedown.records.plan import Plan, Reference
from shakedown.records.reading import read_record
from shakedown.records.results import Component, CounterReading, Measurement, RunProblem, Snapshot
from shakedown.run import folder as runs

KILLED = RunProblem(kind="killed", message="Slurm says PREEMPTED, exit code 0:15, 0 restarts")


def good(reference: Reference) -> float:
    """A value that passes and is possible."""
    if reference.gate == 0:
        return 0.0
    return reference.gate * (1.5 if reference.better == "higher" else 0.5)


def main() -> None:
    """Write the results of a run that was planned."""
    wrong = json.loads(os.environ.get("FAKE_NIGHT", "{}"))
    extra = json.loads(Path(sys.argv[sys.argv.index("-e") + 1].lstrip("@")).read_bytes())
    time.sleep(wrong.get("hang", 0))
    folder = Path(extra["run_root"]) / extra["run_id"]
    if "refused" in wrong:
        (folder / "refused.txt").write_text(f"{wrong['refused']}\n")
        sys.exit(2)
    plan = read_record(folder / "plan.json", Plan)
    jobs = read_record(folder / "jobs.json", Jobs)
    lost = [
        set(job.nodes) for job in jobs.jobs if any(job.name.startswith(k) for k in wrong.get("killed", ()))
    ]
    results, counters = [], []
    for item in plan.items:
        reference = plan.references[item.reference]
        for _, nodes, rail, direction in item.cells():
            if item.metric.startswith("counter."):
                name = item.metric.removeprefix("counter.")
                kind = "switch_port" if item.test == "switches" else "nic"
                counters.append(
                    CounterReading(
                        run=plan.run,
                        stage=item.stage,
                        test=item.test,
                        kind=kind,
                        device=nodes[0],
                        rail=rail,
                        port=str(item.params["port"]),
                        counter=name,
                        before=0,
                        after=int(good(reference)) + 1 if reference.better == "higher" else 0,
                    )
                )
                continue
            bad = set(nodes) & set(wrong.get("slow", ())) and item.stage != "config"
            dead = item.stage == "fabric" and any(set(nodes) <= members for members in lost)
            value = (
                reference.gate * (0.5 if reference.better == "higher" else 2.0) if bad else good(reference)
            )
            results.append(
                Measurement(
                    run=plan.run,
                    stage=item.stage,
                    test=item.test,
                    metric=item.metric,
                    unit=item.unit,
                    better=item.better,
                    nodes=nodes,
                    rail=rail,
                    direction=direction,
                    params=item.params,
                    value=None if dead else value,
                    state="PREEMPTED" if dead else "COMPLETED",
                    started=plan.created,
                    problem=KILLED if dead else None,
                )
            )
    runs.write_lines(folder / "results.jsonl", results)
    runs.write_lines(folder / "counters.jsonl", counters)
    parts = [Component(host=n, kind="nic", name="fab0", attributes={"firmware": "22.1"}) for n in plan.nodes]
    runs.write_inventory(folder, Snapshot(run=plan.run, taken=plan.created, components=tuple(parts)))


if __name__ == "__main__":
    main()
