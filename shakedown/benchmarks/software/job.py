"""Find and run every program of the site's software on this node, one file for each.

    srun --ntasks-per-node=1 python -m shakedown.benchmarks.software.job FOLDER

FOLDER/software.json says where each comes from. What one software does to the environment must not reach the
next, so each is looked at by a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from shakedown.benchmarks.software.probes import look
from shakedown.onnode.counters import unwritable
from shakedown.onnode.journal import Clock, Journal
from shakedown.onnode.noted import node_name
from shakedown.onnode.software import ordered, unusable, use

_SELF = "shakedown.benchmarks.software.job"


def main(argv: list[str]) -> int:
    """Look at every software of this node."""
    if len(argv) not in (2, 3):
        print("usage: python -m shakedown.benchmarks.software.job FOLDER [NAME]", file=sys.stderr)
        return 2
    folder, node = Path(argv[1]), node_name()
    if len(argv) == 3:
        return _one(folder, argv[2], folder / f"software.{node}.{argv[2]}.json")
    journal = Journal(folder, node)
    for name in ordered(folder):
        file, clock = f"software.{node}.{name}.json", Clock()
        status = subprocess.run([sys.executable, "-m", _SELF, str(folder), name], check=False).returncode
        try:
            document: dict[str, Any] = json.loads((folder / file).read_bytes())
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                return unwritable(node, folder, error)
            document = {"problem": {"kind": "other", "message": f"{node}: {name}: status {status}"}}
            (folder / file).write_text(json.dumps(document) + "\n", encoding="utf-8")
        journal.add(
            tool="software",
            test="software",
            file=file,
            nodes=[node],
            params={"program": name},
            exit_code=0,
            started=clock.started,
            duration_s=clock.seconds(),
            problem=document.get("problem"),
        )
    return 0


def _one(folder: Path, name: str, file: Path) -> int:
    """Write what one software says of itself."""
    document = look_at(folder, name, ordered(folder)[name])
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def look_at(folder: Path, name: str, source: dict[str, Any]) -> dict[str, Any]:
    """Return what one software says of itself, or its problem."""
    ready = use(source, name, folder)
    document: dict[str, Any] = {"schema": 1, "name": name, "from": source["from"]}
    if ready.problem:
        return {**document, "problem": ready.problem}
    try:
        return {**document, "found": look(name, ready.prefix, ready.interpreter, ready.program)}
    except LookupError as error:
        return {**document, "problem": unusable(name, source, str(error))}


if __name__ == "__main__":
    sys.exit(main(sys.argv))
