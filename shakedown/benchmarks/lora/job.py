"""Start the trainer on every node, keep its logs, and say why it ended.

    python -m shakedown.benchmarks.lora.job FOLDER NODE,NODE... -- srun ... torch.distributed.run ...

FOLDER/spec.json is the job (its fields: options.py). The ranks' own logs become FOLDER/lora.jsonl, the
launcher's words go to FOLDER/lora.err, and one line to FOLDER/outputs.jsonl. Runs on the first node of the
job. The exit status is torchrun's: 0 trained (or diverged, which the log shows), all else no measurement.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shakedown.benchmarks.lora.settings import INSTALL, TrainingSpec
from shakedown.onnode.journal import Clock, Journal
from shakedown.onnode.software import ordered, origin
from shakedown.records.reading import BadInput
from shakedown.records.writing import write_aside

LOG, LAUNCHER_LOG = "lora.jsonl", "lora.err"
EXIT_MISSING = 127
_GRACE_S = 8.0  # once a rank has given its reason, the others end within seconds or not at all

# How torchrun tells which process failed first (torch.distributed.elastic.multiprocessing.errors).
# Three searches and not one expression: that would read the rest of the words from each "Root Cause" in them.
_ROOT_CAUSE = "Root Cause"
_RANK = re.compile(r"rank\s*+:\s*+(\d{1,9})")
_EXITCODE = re.compile(r"exitcode\s*+:\s*+(-?\d{1,9})")

_ENDED = re.compile(r"SignalException: Process \d+ got signal: (\d+)")


def trainer_command(
    settings: dict[str, Any], nodes: int, source: Path, folder: Path, python: str = "python3"
) -> list[str]:
    """Return the words of a shell that start torchrun on each node, `$`-variables for the job to fill in.

    The rendezvous is on the job's first node, at a port of the job's own, so that two jobs can share a node.
    """
    spec = TrainingSpec.from_json(settings)
    rendezvous = ["--standalone"]
    if nodes > 1:
        endpoint = '"$SLURMD_NODENAME:$((29500 + SLURM_JOB_ID % 1000))"'
        rendezvous = ["--rdzv-backend=c10d", '--rdzv-id="$SLURM_JOB_ID"', f"--rdzv-endpoint={endpoint}"]
    return [
        shlex.quote(python),
        "-m",
        "torch.distributed.run",
        f"--nnodes={nodes}",
        f"--nproc-per-node={spec.gpus_per_node}",
        "--max-restarts=0",
        *rendezvous,
        shlex.quote(str(source / "workloads" / "lora_trainer" / "launch.py")),
        shlex.quote(str(folder / "spec.json")),
        shlex.quote(str(folder)),
    ]


def given(spec: TrainingSpec) -> list[Path]:
    """Return the paths that the site gave; for a file its folder, because it may refer to files beside it."""
    paths = [Path(name) for name in (spec.model, spec.data) if name.startswith("/")]
    return [path.parent if path.suffix else path for path in paths]


def main(argv: list[str]) -> int:
    """Run the command in `argv` and record what came of it."""
    if len(argv) < 4 or argv[2] != "--":
        print("usage: python -m shakedown.benchmarks.lora.job FOLDER NODES -- COMMAND...", file=sys.stderr)
        return 2
    folder, nodes, command = Path(argv[0]), argv[1].split(","), argv[3:]
    try:
        spec = TrainingSpec.from_json(json.loads((folder / "spec.json").read_bytes()))
    except (BadInput, OSError, ValueError) as refused:
        print(refused, file=sys.stderr)
        return 2
    clock = Clock()
    source = ordered(folder).get("pytorch", {})
    kind, python = origin(source)
    python = source.get("python") or (python if kind == "path" else None)
    if kind != "container" and python and not Path(python).exists():
        code: int = EXIT_MISSING
        problem: dict[str, str] | None = {
            "kind": "missing-tool",
            "message": f"no training environment at {python}; install it with: {INSTALL}",
        }
    else:
        code = _run(command, folder)
        merge(folder, trained=code == 0)
        problem = None if code == 0 else reason(folder, code)
    Journal(folder).add(
        "trainer", "lora", LOG, nodes, clock, code if code >= 0 else None, problem, params=spec.params
    )
    return code if code >= 0 else 128 - code


def _run(command: list[str], folder: Path) -> int:
    """Run the launcher; once a rank has given its reason, give the others a moment and end them."""
    with (folder / LAUNCHER_LOG).open("ab") as err:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        # Slurm ends a job with SIGTERM to this process: pass it on, and still write the record.
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        deadline: float | None = None
        while True:
            try:
                return child.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                pass
            if deadline is None and (folder / "reason.json").exists():
                deadline = time.monotonic() + _GRACE_S
            if deadline is not None and time.monotonic() > deadline:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=_GRACE_S)
                child.kill()
                child.wait()
                return 75


def _records(path: Path) -> list[dict[str, Any]]:
    """Read one rank's log; the last line of a rank that was killed may be half a line."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                found.append(record)
    return found


def merge(folder: Path, *, trained: bool) -> None:
    """Make one log of the ranks' own: header, steps in order, and a summary if the job finished.

    Of a step that was trained twice, because a job was resumed in the same folder, the last counts.
    """
    header: dict[str, Any] | None = None
    steps: dict[tuple[int, int], dict[str, Any]] = {}
    hosts: dict[int, str] = {}
    # Of the rank that took the longest; what it did between its steps.
    elapsed_s, aside_s = 0.0, 0.0
    paths = sorted(folder.glob("rank.*.jsonl"))
    for path in paths:
        for record in _records(path):
            kind = record.get("type")
            if kind == "header":
                header = record
            elif kind == "place":
                hosts[record["rank"]] = record["node"]
            elif kind == "step":
                steps[record["step"], record["rank"]] = record
            elif kind == "end":
                elapsed_s, aside_s = max(
                    (elapsed_s, aside_s), (record["elapsed_s"], record.get("aside_s", 0.0))
                )
    if header is None:
        return
    header["hosts"] = [hosts[rank] for rank in sorted(hosts)]
    if (1, 0) in steps:
        header.pop("resumed_from", None)
    lines = [header, *(steps[key] for key in sorted(steps))]
    if trained and steps:
        lines.append(_summary(steps, elapsed_s, aside_s))
    write_aside(folder / LOG, "".join(json.dumps(line) + "\n" for line in lines).encode())
    for path in paths:
        path.unlink()  # every line of it is in the job's log


def _summary(
    steps: dict[tuple[int, int], dict[str, Any]], elapsed_s: float, aside_s: float
) -> dict[str, Any]:
    first = [steps[key] for key in sorted(steps) if key[1] == 0]
    time_s = sum(step["step_time_s"] for step in first)
    samples, tokens = sum(step["samples"] for step in first), sum(step["tokens"] for step in first)
    summary = {
        "type": "summary",
        "steps": first[-1]["step"],
        "elapsed_s": elapsed_s or time_s,
        "aside_s": aside_s,
        "samples": samples,
        "tokens": tokens,
        "samples_per_s": samples / time_s,
        "tokens_per_s": tokens / time_s,
    }
    return summary | ({"final_loss": first[-1]["loss"]} if "loss" in first[-1] else {})


def _root_causes(words: str) -> Iterator[tuple[int, int]]:
    """Yield rank and exit status of each process that torchrun says failed first."""
    at = words.find(_ROOT_CAUSE)
    while at >= 0 and (rank := _RANK.search(words, at)) and (status := _EXITCODE.search(words, rank.end())):
        yield int(rank[1]), int(status[1])
        at = words.find(_ROOT_CAUSE, status.end())


def reason(folder: Path, code: int) -> dict[str, str]:
    """Return why the trainer gave no result: a death by signal, a rank's own reason, or the first failure.

    A rank whose partner is killed complains of a broken connection; what it says is a consequence, so an
    error that it did not expect yields to a death by signal (but SIGTERM, with which torchrun ends the rest).
    """
    words = (folder / LAUNCHER_LOG).read_text(encoding="utf-8", errors="replace")
    died = list(_root_causes(words))
    killed = [(rank, status) for rank, status in died if status < 0 and status != -signal.SIGTERM]
    given: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        said = json.loads((folder / "reason.json").read_bytes())
        given = {"kind": str(said["kind"]), "message": str(said["message"])}
    if given and not (killed and given["kind"] == "other"):
        return given
    for rank, status in killed or died:
        how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        kind = "killed" if status < 0 else "other"
        return {"kind": kind, "message": f"rank {rank} on {_host(folder, rank)}: {how}"}
    if ended := _ENDED.search(words):
        return {
            "kind": "killed",
            "message": f"ended from outside by signal {ended[1]}: cancelled, or out of time",
        }
    how = f"exit status {code}" if code > 0 else f"signal {-code}"
    return {
        "kind": "killed" if code < 0 else "other",
        "message": f"the launcher: {how}: {words.strip()[-500:]}",
    }


def _host(folder: Path, rank: int) -> str:
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
        first = (folder / LOG).read_text(encoding="utf-8").split("\n", 1)[0]
        return str(json.loads(first)["hosts"][rank])
    return "an unknown node"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
