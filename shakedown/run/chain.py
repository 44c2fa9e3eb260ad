"""The chain of a run's jobs, `raw/chain.jsonl`: which there were, in what order, and what Slurm says of each.

A line names the one before by its digest, so that no job can be taken out, put in or written anew later
without every line after it being written anew as well. Where the submit host signs, as an order that names it
asks, the last line's signature stands for all.
"""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from shakedown.run.ownership import STDERR
from shakedown.run.share import Share

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
    from shakedown.run.redact import redact  # a fifth of a second, which not every reader needs

    share, job = Share(raw.parent), raw / folder
    share.write(job / ACCOUNT, redact(account).encode())

    def line_after(lines: list[bytes]) -> bytes:
        line = json.dumps(
            {
                "schema": 1,
                "number": len(lines) + 1,
                "before": hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST,
                "order": order,
                "folder": folder,
                "job": digest(share.read(job / JOB)),
                "account": digest(share.read(job / ACCOUNT)),
                "stderr": _stderr(share, job / STDERR),
                "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
        signed: dict[str, str] = {}
        if sign is not None:
            try:
                signed = sign(order + hashlib.sha256(line.encode()).hexdigest())
            except (OSError, ValueError) as error:
                signed = {"unsigned": " ".join(str(error).split())[:300]}
        return json.dumps({"line": line, **signed}).encode()

    share.append(raw / CHAIN, line_after)


def _stderr(share: Share, path: Path) -> str | None:
    """Return the digest of what the job said; None if there is nothing, or what nobody reads."""
    try:
        return digest(share.read(path))
    except OSError:
        return None


def digest(content: bytes) -> str:
    """Return the SHA-256 of what a file holds once secrets are gone from it."""
    from shakedown.run.redact import redact_bytes

    return hashlib.sha256(redact_bytes(content)).hexdigest()
