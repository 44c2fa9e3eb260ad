"""Send from GPU memory to GPU memory around the ring of all nodes, and from host memory beside it.

Also which GPU is nearest to each NIC. Standard library only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shakedown.benchmarks.perftest.mesh.driver import beside_mesh, drive
from shakedown.benchmarks.perftest.mesh.pair import Buffers
from shakedown.benchmarks.perftest.mesh.perftest import SYSFS
from shakedown.benchmarks.perftest.mesh.spec import Spec
from shakedown.benchmarks.perftest.mesh.store import NodeFiles
from shakedown.onnode.journal import ran
from shakedown.onnode.software import enter
from shakedown.onnode.topology_probe import names_on, pci
from shakedown.records.reading import BadInput
from shakedown.records.wording import printable
from shakedown.topology.distance import AMD, NEAREST_FIRST, NVIDIA, between, is_gpu

# The kind of job and the tool of its outputs.
NAME = "gpudirect"
HOST, NEAR, FAR = "host", "near", "far"


def perftests(operation: str) -> str:
    """Return perftest's own name of an operation."""
    return f"ib_{operation}_bw"


def test_of(perftests_name: str) -> str:
    """Return the test of the cells that perftest's program measures here."""
    return f"{NAME}_{perftests_name.split('_')[1]}"


def perftests_of(test: str) -> str:
    """Return perftest's program of a test."""
    return perftests(test.removeprefix(f"{NAME}_"))


def gpus_name(node: str) -> str:
    """Return the file in which a node notes which GPUs it found near and far of its NICs."""
    return f"gpus.{node}.json"


_VENDORS = {"cuda": NVIDIA, "rocm": AMD}


@dataclass(frozen=True)
class NearGpu:
    """A GPU as seen from one NIC."""

    # Its number in the order of PCI addresses, which CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA's own.
    index: int
    bdf: str  # its PCI address
    distance: str  # of nvidia-smi topo -m

    def told(self) -> dict[str, Any]:
        """Return it as the node notes it."""
        return asdict(self)


def gpus_of_nics(
    root: Path,  # above sys/
    rdma_devices: Mapping[str, str],  # RDMA device by rail
    interface: str,  # cuda or rocm
) -> tuple[dict[tuple[str, str], NearGpu], dict[tuple[str, str], str]]:
    """Return the near and the far GPU of each NIC, by rail, and why there is none."""
    devices = pci(root)
    by_device = {name: bdf for bdf, names in names_on(root, "infiniband").items() for name in names}
    functions = {entry["bdf"]: entry for entry in devices}
    gpus = sorted(
        (e for e in devices if is_gpu(e["class"], e["vendor"]) and e["vendor"] == _VENDORS[interface]),
        key=lambda entry: str(entry["bdf"]),
    )
    found: dict[tuple[str, str], NearGpu] = {}
    lacking: dict[tuple[str, str], str] = {}
    for rail, device in rdma_devices.items():
        nic = functions.get(by_device.get(device, ""))
        if nic is None or not gpus:
            what = f"{device} is on no PCI device" if nic is None else f"no GPU that {interface} can use"
            lacking |= {(rail, which): what for which in (NEAR, FAR)}
            continue
        seen = _seen_from(nic, gpus)
        near, far = min(seen, key=_far), max(seen, key=_far)
        found[rail, NEAR] = near
        if far.distance == near.distance:
            lacking[rail, FAR] = f"no GPU is farther from {device} than the nearest ({near.distance})"
        else:
            found[rail, FAR] = far
    return found, lacking


def _far(gpu: NearGpu) -> tuple[int, str]:
    return NEAREST_FIRST.index(next(d for d in NEAREST_FIRST if d == gpu.distance)), gpu.bdf


def _seen_from(nic: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> list[NearGpu]:
    return [
        NearGpu(
            index,
            gpu["bdf"],
            between(
                gpu["path"],
                nic["path"],
                one_root=bool(nic["root"]) and gpu["root"] == nic["root"],
                one_numa_node=nic["numa_node"] is not None and gpu["numa_node"] == nic["numa_node"],
            ).value,
        )
        for index, gpu in enumerate(gpus)
    ]


#     srun --ntasks-per-node=1 python -m shakedown.benchmarks.gpudirect.job FOLDER
#
# FOLDER/spec.json is the mesh's specification, and how GPU memory is reached beside it. The mesh's own
# drivers measure. A perftest without the interface, or a NIC without a GPU, leaves cells unmeasured with that
# reason.

_PROBE_S = 30.0


def main(arguments: list[str], *, sysfs: Path = SYSFS) -> int:
    """Run this node's part; returns the exit status."""
    # CUDA numbers the fastest GPU first unless told otherwise; numbers must be those of PCI addresses.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"

    def send(folder: Path, spec: Spec, digest: str, node: str, memory: Mapping[str, Any]) -> int:
        if memory.get("interface") not in ("cuda", "rocm") or memory.get("path") not in (
            "dma-buf",
            "peer-mem",
        ):
            fix = "restore the job's own file"
            raise BadInput("memory: no interface and path", fix=fix, file=folder / "spec.json")
        store = NodeFiles(folder, node, tool=NAME, test_of=test_of)
        buffers = _buffers(spec, node, memory, folder, sysfs.parent)
        return drive(spec, digest, node, folder, sysfs, store=store, buffers=buffers)

    return beside_mesh(NAME, "memory", arguments, send)


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
        run = ran([*ready.prefix, program, *words, "--version"], _PROBE_S, subprocess.STDOUT, LC_ALL="C")
        said = run.stdout[:65536] if run else ""
        if run and "ersion" not in said.partition("Usage")[0]:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            first = printable(" / ".join(lines[:2]))[:200]
            return f"{test} {' '.join(words)}: {first or f'exit status {run.returncode}'}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
