"""Write a file on this node. FOLDER/spec.json is the order."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from shakedown.onnode.journal import Clock, Journal, job, watched
from shakedown.records.reading import ExitStatus


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Measure this node."""
    node = os.environ["SLURMD_NODENAME"]
    journal, clock, name = Journal(folder, node), Clock(), f"disk.{node}.txt"
    out = folder / name
    with tempfile.TemporaryDirectory() as place:
        words = ["dd", "if=/dev/zero", f"of={place}/file", "bs=1M", f"count={spec['size_mib']}"]
        code, why = watched(
            words, out.with_suffix(".out"), out, timeout_s=spec["timeout_s"], variables={"LC_ALL": "C"}
        )
    journal.add("disk", "disk", name, [node], clock, code, why)
    return ExitStatus.PASS if why is None else ExitStatus.INCOMPLETE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
