"""What a job leaves in its folder, for tests that write such a folder of their own."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shakedown.evidence.job_folder import given
from shakedown.plan.jobs import Jobs, job_and_attempt
from shakedown.records.reading import read_record

# What Slurm says of it. Outputs carry the time of their fixture, or of the machine that runs the test: all
# lie within.
ENDED = {"state": "COMPLETED", "exit_code": "0:0", "started": "2020-01-01T00:00:00Z", "duration_s": 1e9}


def write_job(folder: Path, **changes: object) -> Path:
    """Write job.json as the guard does, of the job that the folder is named for; return the folder."""
    name = folder.name.rpartition(".a")[0]
    about = {"schema": 1, "run": "r1", "stage": name.partition(".")[0], "test": name, "job": "7"}
    about |= {"nodes": ["n1"]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps({**about, **ENDED, **changes}))
    return folder


def output(tool: str, file: str, *nodes: str, **more: object) -> dict[str, Any]:
    """Return the line of a journal about an output that came about well."""
    ended = {"exit_code": 0, "started": "2026-01-01T00:00:00Z", "duration_s": 1.0}
    return {
        "schema": 1,
        "tool": tool,
        "test": tool,
        "file": file,
        "nodes": list(nodes or ("n1",)),
        **ended,
        **more,
    }


def write_outputs(raw: Path, lines: Iterable[object], node: str = "") -> None:
    """Write the journal of a job's outputs, or of one node's."""
    name = f"outputs.{node}.jsonl" if node else "outputs.jsonl"
    (raw / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_counters(raw: Path, nodes: Iterable[str], octets: int, taken: tuple[str, str]) -> None:
    """Write counters of the lab's two NICs a node that grew by so many bytes between two times."""
    for node in nodes:
        for when, at, count in (("before", taken[0], 0), ("after", taken[1], octets)):
            counted = dict.fromkeys(("netdev.rx_bytes", "netdev.tx_bytes"), count)
            counted |= dict.fromkeys(("rdma.sent_pkts", "rdma.rcvd_pkts"), count // 4096)
            nics = [
                {"device": f"rxe{rail}", "netdev": f"fab{rail}", "counters": counted} for rail in range(2)
            ]
            told = {"schema": 1, "node": node, "when": when, "taken": at, "boot_id": "b", "devices": nics}
            (raw / f"counters.{node}.{when}.json").write_text(json.dumps(told))


def leave_the_rest(run: Path) -> None:
    """Write what every job leaves into the folders of a run's jobs; beside its order, what is not there."""
    jobs = read_record(run / "jobs.json", Jobs)
    specs = {spec.name: spec for spec in jobs.jobs}
    for record in run.glob("raw/*/job.json"):
        folder, job = record.parent, json.loads(record.read_text())
        spec = specs[job_and_attempt(folder.name)[0]]
        files = {"nodes.txt": "".join(f"{node}\n" for node in job["nodes"]), **given(jobs, spec)}
        for node in spec.nodes:
            for when in ("before", "after"):
                files[f"counters.{node}.{when}.json"] = json.dumps(
                    {"schema": 1, "node": node, "when": when, "devices": []}
                )
        for name, text in files.items():
            if name in ("spec.json", "software.json") or not (folder / name).exists():
                (folder / name).write_text(text)
