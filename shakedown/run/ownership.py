"""Which node of a job wrote a file of its folder, by the journals and by the file's name.

The node that signs its outputs and whoever checks the signatures must agree on it, so both ask here. Standard
library only: nodes use this.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

from shakedown.records.reading import BadInput, read_output

# What only this job's programs may know; the submit host writes it, and removes it when the job has ended.
SECRET = "session.secret"  # noqa: S105  (a file's name)
CONTENTS = "files.json"  # what a job's folder held when the job had ended (evidence/job_folder.py)
# What the submit host and Slurm's own script write, some of it while the nodes sign.
_OF_SUBMIT = ("job.json", CONTENTS, "slurm.txt", SECRET)
# What the submit host leaves for the nodes before a job is submitted; they sign it with what they write.
RAILS = "rails.json"  # rail, netdev and address of every NIC of its nodes (onnode/host.py)
BEFORE_IT_RUNS = ("spec.json", "software.json", RAILS)
_OF_REFRAME = "rfm_job."
# What srun and the job's script said: the one of ReFrame's copies that is read, for which tasks failed. The
# submit host's chain has its digest.
STDERR = "rfm_job.err"
_LEAST_OF_A_RECORD = len('{"file":""}')
_MOST_PARTS = 64  # of a file's name between dots; a node's name is not behind more
MANIFEST, LINK = "signed.{node}.json", "signed.{node}.link.json"


def is_of_nodes(file: str) -> bool:
    """Return whether a file of a job's folder is one that nodes write and sign."""
    return not (
        file in _OF_SUBMIT
        # A dot: what is being written aside, and `.nfs...`, a removed file that somebody still has open.
        or file.startswith((_OF_REFRAME, "signed.", "."))
        or file.endswith((".partial", ".new"))
        or "/" in file
    )


def writers(
    files: Iterable[str],  # names in the job's folder
    nodes: Iterable[str],  # of the job
    # The files that a node's journal, `outputs.NODE.jsonl`, names, by node.
    journals: Mapping[str, Iterable[str]],
) -> dict[str, str]:
    """Return whose each file is; an empty name: of the job's first node that is left."""
    claimed = {file: node for node, named in journals.items() for file in named}
    # n1 is a part of n1.rack2's name: the longest decides.
    rank = {node: (-len(node), number) for number, node in reversed(list(enumerate(nodes)))}

    def by_name(file: str) -> str:
        parts = file.split(".")[:_MOST_PARTS]
        spans = (".".join(parts[a:b]) for a, b in combinations(range(len(parts) + 1), 2))
        return min((span for span in spans if span in rank), key=rank.__getitem__, default="")

    return {file: claimed.get(file) or by_name(file) for file in files if is_of_nodes(file)}


def _named_by(journal: Path, read: Callable[[Path], bytes]) -> Iterator[str]:
    """Yield the files that a node's journal names. A damaged line, as of a node that died, names none."""
    try:
        content = read(journal)
    except (BadInput, OSError):
        return
    for line in io.BytesIO(content) if b'"file"' in content else ():
        if len(line) < _LEAST_OF_A_RECORD:  # whoever grew it may have made millions
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("file"), str):
            yield record["file"]


def journals_of(
    folder: Path, nodes: Iterable[str], read: Callable[[Path], bytes] = read_output
) -> dict[str, list[str]]:
    """Return what the journals of a job's nodes name, by node; `read` opens them."""
    return {node: list(_named_by(folder / f"outputs.{node}.jsonl", read)) for node in nodes}
