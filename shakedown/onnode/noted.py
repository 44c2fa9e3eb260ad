"""What this node wrote of a job under an order, noted on the node itself the moment it was complete.

Outputs lie on a share that root of any node can write to. A note lies on this node's own disk, where it
cannot, so that `attest` finds what was changed between the writing and the signing. Without an order nothing
is noted. The node's signing service makes the folder for it, one for each user, where only root makes any:
nobody can take its name first. Standard library only: jobs use this.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import stat
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from shakedown.records.writing import write_aside
from shakedown.run import service

ORDER = "SHAKEDOWN_ORDER"  # the environment variable that jobs of an order have, beside journal.NONCE
PLACE = Path("/run/shakedown/notes")  # NOTES of the signing service; below it a folder for each user
_ASK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Notes:
    """What a node noted of a job."""

    # The last digest of each output, and of each journal those of its lines, in order.
    files: dict[str, str] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)

    def differ(self, name: str, content: bytes) -> bool:
        """Return whether a file is not what was noted; what was never noted does not differ."""
        due = self.files.get(name)
        if due is not None and hashlib.sha256(content).hexdigest() != due:
            return True
        lines = self.lines.get(name)
        # Counted first: whoever grew it may have made millions.
        return lines is not None and (
            content.count(b"\n") != len(lines) or [_digest(line) for line in io.BytesIO(content)] != lines
        )


def note(folder: Path, *names: str) -> None:
    """Note that files of a job's folder are complete as they are now; those that are not there are none."""
    if os.environ.get(ORDER):
        there = [name for name in names if (folder / name).is_file()]
        _append(folder, *({"file": name, "sha256": _digest_of(folder / name)} for name in there))


def leave(folder: Path, name: str, document: object) -> Path:
    """Write a JSON file of a job whole or not at all, note it, and return where it is. Raises OSError."""
    write_aside(folder / name, (json.dumps(document, indent=1) + "\n").encode())
    note(folder, name)
    return folder / name


def note_line(journal: Path, line: bytes) -> None:
    """Note a line that was appended to a journal, with its line break."""
    if os.environ.get(ORDER):
        _append(journal.parent, {"journal": journal.name, "sha256": _digest(line)})


def notes_of(folder: Path) -> Notes:
    """Return what this node noted of the job; nothing where it noted nothing.

    Raises:
        OSError: the notes cannot be read.
        ValueError: they are damaged.
    """
    notes, mine = Notes(), _own_folder()
    if mine is None:
        return notes
    try:
        handle = os.open(mine / _name(folder), os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return notes
    with os.fdopen(handle, encoding="utf-8") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:  # there was no room left
                raise ValueError(f"a note of what was written is damaged in {file.name}") from None
            if "file" in entry:
                notes.files[entry["file"]] = entry["sha256"]
            else:
                notes.lines.setdefault(entry["journal"], []).append(entry["sha256"])
    return notes


def forget(folder: Path) -> None:
    """Remove the notes of a job that this node has signed."""
    if mine := _own_folder():
        (mine / _name(folder)).unlink(missing_ok=True)


def _append(folder: Path, *entries: dict[str, str]) -> None:
    """Write notes. A place that is full costs no measurement: it is said."""
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    try:
        if mine := _own_folder() or _made():
            with os.fdopen(os.open(mine / _name(folder), flags, 0o600), "ab") as file:
                file.write(text.encode())
    except OSError as error:
        print(f"{node_name()}: what it wrote could not be noted in {PLACE}: {error}", file=sys.stderr)


def _own_folder() -> Path | None:
    """Return the folder of this user's notes; None: there is none that is this user's alone."""
    mine = PLACE / str(os.getuid())
    try:
        seen = mine.lstat()
    except OSError:
        return None
    alone = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077
    return mine if alone else None


def _made() -> Path | None:
    """Have the signing service make the folder; None on a host that has no such service, and signs nothing.

    Raises OSError: the service did not.
    """
    if service.signer() is None:
        return None
    _asked(os.environ[ORDER])
    if (mine := _own_folder()) is None:
        raise OSError("the signing service made no folder there")
    return mine


@cache  # a service that does not answer is waited for once
def _asked(order: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        service.sign(order + service.TRIAL, timeout_s=_ASK_TIMEOUT_S)


def _name(folder: Path) -> str:
    # In a lab of namespaces several nodes have one disk.
    return f"{os.environ.get('SLURM_JOB_ID', '')}.{node_name()}.{folder.name}.jsonl"


def node_name() -> str:
    """Return Slurm's name of this node; `hostname` can differ from it."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
