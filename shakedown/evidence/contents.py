"""What a job's folder must hold: what the job was given, and what was there when it had ended.

`files.json` lists the latter, and `job.json` names that list's digest. A file that is lost, cut off or of
another job afterwards is told by it, whatever the file is: whether a cell's reader would miss it or not. It
shows what happened by mistake; who changes a run on purpose writes the list anew as well, and only an order's
signatures show that.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from shakedown.plan.jobs import JobSpec
from shakedown.records.reading import LARGEST_OUTPUT, BadInput, read_evidence, read_output
from shakedown.run.chain import digest
from shakedown.run.ownership import BEFORE_IT_RUNS, CONTENTS, STDERR, is_of_nodes
from shakedown.run.redact import redact, redact_bytes
from shakedown.run.secret_kinds import MASK
from shakedown.run.share import Share

_LIST = TypeAdapter(dict[str, str | None], config=ConfigDict(strict=True))
MISSING, OTHER = "is missing", "is not what was ordered"
CHANGED = "is not what it was when the job had ended"

SPEC, SOFTWARE = BEFORE_IT_RUNS
NODES = "nodes.txt"  # the nodes that a job's script runs on, one a line, as it notes them when it begins


def given(spec: JobSpec) -> dict[str, str]:
    """Return what a job's programs read of their order, by file."""
    files = {SPEC: json.dumps(spec.settings, indent=1) + "\n"}
    if spec.software:
        sources = {name: source.model_dump(by_alias=True) for name, source in spec.software.items()}
        files[SOFTWARE] = json.dumps(sources, indent=1) + "\n"
    return files


def unlike_given(folder: Path, spec: JobSpec) -> dict[str, str]:
    """Return which files that a job was given are missing from its folder, or not what they were."""
    found = {}
    for name, text in given(spec).items():
        # As secrets' names are gone from it: a target is called `environment`.
        due, how = json.loads(redact(text)), ""
        try:
            had = json.loads(redact_bytes(read_evidence(folder / name)))
        except (BadInput, OSError, ValueError, RecursionError):
            how = OTHER if (folder / name).exists() else MISSING
        else:
            if name == SOFTWARE and isinstance(had, dict) and had.keys() == due.keys():
                # A later release may know more of a source than the one that wrote this.
                due = {key: {k: v for k, v in of.items() if k in (had[key] or ())} for key, of in due.items()}
            how = OTHER if had != due else ""
        if how:
            found[name] = how
    return found


def note_contents(folder: Path) -> str:
    """Write the list of a job's files with their SHA-256, once secrets are gone; return the list's own.

    A file that is larger than anybody reads stands there without a digest.

    Raises:
        OSError: a file cannot be read, or the list cannot be written.
    """
    share, found = Share(folder.parents[1]), dict[str, str | None]()
    for name in share.names(folder):
        if not is_of_nodes(name) and name != STDERR:  # nothing is read from what else is there
            continue
        path = folder / name
        try:
            with share.open(path, os.O_RDONLY) as file:
                small = os.fstat(file).st_size <= LARGEST_OUTPUT
        except OSError:
            continue  # a link, a folder, a pipe: no output
        found[name] = digest(share.read(path)) if small else None
    content = (json.dumps(found, indent=0) + "\n").encode()
    share.write(folder / CONTENTS, content)
    return _digest(content)


def departed(folder: Path, due: str | None) -> dict[str, str]:
    """Return the files of a job's folder that are not what they were when it had ended, and how.

    Args:
        folder: the job's.
        due: the list's digest, as `job.json` has it; None: the job was run before there was a list.
    """
    if due is None:
        return {}
    try:
        content = read_evidence(folder / CONTENTS)
        if _digest(content) != due:
            return {CONTENTS: CHANGED}
        noted = _LIST.validate_json(content)
    except (BadInput, OSError, ValidationError):
        return {CONTENTS: MISSING if not (folder / CONTENTS).exists() else CHANGED}
    return {name: how for name, one in noted.items() if (how := _how(folder, name, one))}


def _how(folder: Path, name: str, due: str | None) -> str:
    path = folder / name
    if path.name != name or not path.is_file():
        return MISSING
    if due is None:
        return ""
    try:
        content = read_output(path)
    except (BadInput, OSError):
        return CHANGED
    # A later release finds secrets that the one of the day did not.
    same = _digest(content) == due or (content != b"" and MASK.encode() in content)
    return "" if same or _digest(redact_bytes(content)) == due else CHANGED


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
