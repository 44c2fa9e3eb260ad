"""The chain of a run's jobs, `raw/chain.jsonl`: which there were, in what order, and what Slurm says of each.

A line names the one before by its digest, so that no job can be taken out, put in or written anew later
without every line after it being written anew as well. Where the submit host signs, as an order that names it
asks, the last line's signature stands for all.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from shakedown.records.reading import LARGEST_OUTPUT
from shakedown.run.ownership import STDERR
from shakedown.run.redact import redact, redact_bytes

CHAIN, ACCOUNT, JOB = "chain.jsonl", "slurm.txt", "job.json"
FIRST = "0" * 64


def add(
    raw: Path,  # the run's folder of raw files
    folder: str,  # the job's in it, with its `job.json`
    order: str,  # digest of the order
    account: str,  # what Slurm says of the job; may be empty
    # Returns `link` and `signature` for two digests, the order's and the line's; raises OSError or
    # ValueError. The line is written all the same then, and says why it is not signed.
    sign: Callable[[str], dict[str, str]] | None = None,
) -> None:
    """Add a job that has ended, and keep Slurm's own record of it beside its outputs.

    Raises OSError: the files cannot be written.
    """
    (raw / folder / ACCOUNT).write_text(redact(account), encoding="utf-8")
    with (raw / CHAIN).open("a+b") as chain:
        fcntl.flock(chain, fcntl.LOCK_EX)
        chain.seek(0)
        lines = chain.read().splitlines()
        line = json.dumps(
            {
                "schema": 1,
                "number": len(lines) + 1,
                "before": hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST,
                "order": order,
                "folder": folder,
                "job": digest(raw / folder / JOB),
                "account": digest(raw / folder / ACCOUNT),
                "stderr": _stderr(raw / folder / STDERR),
                "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
        signed: dict[str, str] = {}
        if sign is not None:
            try:
                signed = sign(order + hashlib.sha256(line.encode()).hexdigest())
            except (OSError, ValueError) as error:
                signed = {"unsigned": " ".join(str(error).split())[:300]}
        chain.write(json.dumps({"line": line, **signed}).encode() + b"\n")
        chain.flush()
        os.fsync(chain.fileno())


def _stderr(path: Path) -> str | None:
    """Return the digest of what the job said; None if there is nothing, or more than anybody reads."""
    try:
        return digest(path) if path.stat().st_size <= LARGEST_OUTPUT else None
    except FileNotFoundError:
        return None


def digest(path: Path) -> str:
    """Return the SHA-256 of a file as it is once secrets are gone from it."""
    return hashlib.sha256(redact_bytes(path.read_bytes())).hexdigest()
