"""Is a mesh with a bad status complete but for nodes that died?

    python -m shakedown.benchmarks.perftest.mesh.completeness OUTDIR

After a node dies, srun's status says nothing about what the others measured; their journals do. Exit status
0: every driver finished, or a partner that finished names it as lost. 1: the job cannot be used. The cells of
a lost node have no value in any case.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from shakedown.benchmarks.perftest.mesh.driver import read_spec
from shakedown.benchmarks.perftest.mesh.store import events, journal_path
from shakedown.records.program import ended
from shakedown.records.reading import BadInput


def lost_nodes(folder: Path, nodes: Iterable[str]) -> list[str] | None:
    """Return which of a mesh's nodes died, in order; None if one neither finished nor was named as lost.

    Raises BadInput: a journal is no plain file, or has a line that is no event.
    """
    nodes = tuple(nodes)
    ended: set[str] = set()
    dropped: set[str] = set()
    for node in nodes:
        whole, named = _journal(journal_path(folder, node))
        if whole:
            ended.add(node)
            dropped |= named
    lost = [node for node in nodes if node not in ended]
    return lost if ended and dropped.issuperset(lost) else None


def _journal(path: Path) -> tuple[bool, set[str]]:
    """Return whether a driver finished its last start, and which partners it dropped."""
    whole, named = False, set()
    for _, entry in events(path):
        event = entry["event"]
        whole = event == "end" or (whole and event != "start")
        if event == "dropped":
            named.add(str(entry.get("dropped")))
    return whole, named


def main(arguments: list[str]) -> int:
    """Say which nodes were lost; see the module."""
    if len(arguments) != 1:
        print("usage: python -m shakedown.benchmarks.perftest.mesh.completeness OUTDIR", file=sys.stderr)
        return 2
    try:
        folder = Path(arguments[0])
        lost = lost_nodes(folder, read_spec(folder / "spec.json")[0].nodes)
    except BadInput as refused:
        print(f"shakedown mesh: {refused}", file=sys.stderr)
        return 2
    if lost is None:
        print("shakedown mesh: not every driver finished", file=sys.stderr)
        return 1
    print(f"shakedown mesh: complete except for {', '.join(lost)}" if lost else "shakedown mesh: complete")
    return 0


if __name__ == "__main__":
    ended(lambda: main(sys.argv[1:]))
