"""Send from GPU memory to GPU memory around the ring of all nodes, and from host memory beside it.

    srun --ntasks-per-node=1 python -m shakedown.benchmarks.gpudirect.job FOLDER

FOLDER/spec.json is the mesh's specification, and how GPU memory is reached beside it. The mesh's own drivers
measure. A perftest without the interface, or a NIC without a GPU, leaves cells unmeasured with that reason.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shakedown.benchmarks.gpudirect.names import FAR, NAME, NEAR, gpus_name, test_of
from shakedown.benchmarks.gpudirect.nearest import gpus_of_nics
from shakedown.benchmarks.perftest.mesh.driver import drive, read_spec_and
from shakedown.benchmarks.perftest.mesh.host import SYSFS
from shakedown.benchmarks.perftest.mesh.pair import Buffers
from shakedown.benchmarks.perftest.mesh.spec import Spec
from shakedown.benchmarks.perftest.mesh.store import NodeFiles
from shakedown.onnode.software import enter
from shakedown.records.errors import BadInput, ExitStatus
from shakedown.records.wording import printable

_PROBE_S = 30.0


def main(arguments: list[str], *, sysfs: Path = SYSFS) -> int:
    """Run this node's part; returns the exit status."""
    if len(arguments) != 1:
        print(f"usage: python -m shakedown.benchmarks.{NAME}.job FOLDER", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    # SystemExit runs the `finally` clauses, which end what was started here.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # CUDA numbers the fastest GPU first unless told otherwise; numbers must be those of PCI addresses.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    folder, node = Path(arguments[0]), os.environ.get("SLURMD_NODENAME", "")
    try:
        file = folder / "spec.json"
        spec, digest, memory = _ordered(file)
        if node not in spec.nodes:
            raise BadInput(
                f"this node, SLURMD_NODENAME={node!r}, is not in the ring",
                fix="start it with srun",
                file=file,
            )
        return drive(
            spec,
            digest,
            node,
            folder,
            sysfs,
            store=NodeFiles(folder, node, tool=NAME, test_of=test_of),
            buffers=_buffers(spec, node, memory, folder, sysfs.parent),
        )
    except BadInput as refused:
        print(f"shakedown {NAME}: {refused}", file=sys.stderr)
        return ExitStatus.BAD_INPUT


def _ordered(file: Path) -> tuple[Spec, str, Mapping[str, Any]]:
    spec, digest, memory = read_spec_and(file, "memory")
    if memory.get("interface") not in ("cuda", "rocm") or memory.get("path") not in ("dma-buf", "peer-mem"):
        raise BadInput("memory: no interface and path", fix="restore the job's own file", file=file)
    return spec, digest, memory


def _buffers(spec: Spec, node: str, memory: Mapping[str, Any], folder: Path, root: Path) -> Buffers:
    """Return perftest's options for the near and the far GPU of each NIC; note which GPUs they are."""
    interface, path = memory["interface"], memory["path"]
    nics = {rail: nic.rdma_device for rail, nic in spec.nodes[node].rails.items()}
    gpus, lacking = gpus_of_nics(root, nics, interface)
    noted = [{"rail": rail, "memory": which, **gpu.told()} for (rail, which), gpu in gpus.items()]
    (folder / gpus_name(node)).write_text(json.dumps({"schema": 1, "node": node, "gpus": noted}) + "\n")
    tests = dict.fromkeys(operation.test for operation in spec.operations)
    if unable := _unable(tests, _words(interface, path, 0), folder):
        lacking |= {(rail, which): unable for rail in nics for which in (NEAR, FAR)}
    words = {key: _words(interface, path, gpu.index) for key, gpu in gpus.items() if key not in lacking}
    return Buffers(words, lacking)


def _words(interface: str, path: str, gpu: int) -> tuple[str, ...]:
    """Return the options of one side (perftest 4.5 and later; --use_rocm_dmabuf since 25.04)."""
    words = (f"--use_{interface}={gpu}",)
    # perftest refuses --use_cuda_dmabuf before --use_cuda.
    return (*words, f"--use_{interface}_dmabuf") if path == "dma-buf" else words


def _unable(tests: Iterable[str], words: tuple[str, ...], folder: Path) -> str:
    """Return in perftest's own words why it cannot use GPU memory; empty if it can, or is not there at all.

    It reads options in turn. One that it was built without ends it, with "Unsupported memory type" or
    "unrecognized option" (before 24.01); else --version answers, and no GPU is touched.
    """
    ready = enter(folder, "perftest")
    for test in tests:
        program = test if ready.prefix else shutil.which(test)
        if ready.problem or program is None:
            continue  # the drivers say so themselves
        try:
            run = subprocess.run(
                [*ready.prefix, program, *words, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_PROBE_S,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        said = run.stdout[:65536].decode(errors="replace")
        if "ersion" not in said.partition("Usage")[0]:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            first = printable(" / ".join(lines[:2]))[:200]
            return f"{test} {' '.join(words)}: {first or f'exit status {run.returncode}'}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
