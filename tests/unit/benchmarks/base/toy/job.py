"""Write a file on this node. FOLDER/spec.json is the order."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from shakedown.onnode.journal import Clock, Journal, watched
from shakedown.records.errors import ExitStatus


def main(argv: list[str]) -> int:
    """Measure this node."""
    folder, node = Path(argv[1]), os.environ["SLURMD_NODENAME"]
    spec = json.loads((folder / "spec.json").read_bytes())
    journal, clock, name = Journal(folder, node), Clock(), f"disk.{node}.txt"
    out = folder / name
    with tempfile.TemporaryDirectory() as place:
        words = ["dd", "if=/dev/zero", f"of={place}/file", "bs=1M", f"count={spec['size_mib']}"]
        code, why = watched(
            words, out.with_suffix(".out"), out, timeout_s=spec["timeout_s"], variables={"LC_ALL": "C"}
        )
    journal.add(
        tool="disk",
        test="disk",
        file=name,
        nodes=[node],
        exit_code=code,
        started=clock.started,
        duration_s=clock.seconds(),
        params={},
        problem=why,
    )
    return ExitStatus.PASS if why is None else ExitStatus.INCOMPLETE


if __name__ == "__main__":
    sys.exit(main(sys.argv))
