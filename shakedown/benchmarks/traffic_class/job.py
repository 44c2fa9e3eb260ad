"""Send RoCE around the ring of all nodes, and count at each receiver what arrives.

    srun --ntasks-per-node=1 python -m shakedown.benchmarks.traffic_class.job FOLDER

FOLDER/spec.json is the mesh's specification, and what must arrive beside it. The mesh's own drivers send; a
cell that they could not measure is noted with the reason, which is no failure of this job.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from shakedown.benchmarks.perftest.mesh.driver import drive, read_spec_and
from shakedown.benchmarks.perftest.mesh.host import SYSFS
from shakedown.benchmarks.perftest.mesh.store import NodeFiles
from shakedown.benchmarks.traffic_class.names import NAME
from shakedown.benchmarks.traffic_class.watch import SOCKET, watching
from shakedown.records.errors import BadInput, ExitStatus


def main(arguments: list[str], *, sysfs: Path = SYSFS, service: str = SOCKET) -> int:
    """Run this node's part; returns the exit status."""
    if len(arguments) != 1:
        print("usage: python -m shakedown.benchmarks.traffic_class.job FOLDER", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    # SystemExit runs the `finally` clauses, which end what was started here.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder, node = Path(arguments[0]), os.environ.get("SLURMD_NODENAME", "")
    try:
        file = folder / "spec.json"
        spec, digest, _ = read_spec_and(file, "wanted")
        if node not in spec.nodes:
            raise BadInput(
                f"this node, SLURMD_NODENAME={node!r}, is not in the ring",
                fix="start it with srun",
                file=file,
            )
        status = drive(
            spec,
            digest,
            node,
            folder,
            sysfs,
            store=NodeFiles(folder, node, tool=NAME, test_of=lambda _perftests: NAME),
            watch=watching(folder, node, service),
        )
    except BadInput as refused:
        print(f"shakedown {NAME}: {refused}", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return ExitStatus.PASS if status == ExitStatus.INCOMPLETE else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
