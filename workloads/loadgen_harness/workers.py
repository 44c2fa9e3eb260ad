"""The worker processes: started once, each near its GPU, used by every run of the search."""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing as mp
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from loadgen_harness.ring import FAILED, READY, STOP, Ring
from loadgen_harness.worker import Backend, serve
from shakedown.records.program import no_cycle_search


@dataclass(frozen=True)
class Worker:
    """One worker: its ring, its process and the file in which it says what it found."""

    ring: Ring
    process: SpawnProcess
    notes: Path


def cpus_near(numa_node: int, root: Path = Path("/")) -> set[int]:
    """Return the CPUs of a NUMA node; an empty set where the node is not known."""
    try:
        text = (root / f"sys/devices/system/node/node{numa_node}/cpulist").read_text(encoding="ascii")
    except OSError:
        return set()
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return found


def numa_of_gpu(index: int, root: Path = Path("/")) -> int:
    """Return the NUMA node of a CUDA device according to sysfs; -1 where it is not known."""
    import torch

    found = torch.cuda.get_device_properties(index)
    address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    try:
        return int((root / "sys/bus/pci/devices" / address / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return -1


def gpu_of(index: int) -> dict[str, str]:
    """Return the name of a CUDA device, and its UUID as nvidia-smi writes it."""
    import torch

    uuid = f"GPU-{str(torch.cuda.get_device_properties(index).uuid).removeprefix('GPU-')}"
    return {"gpu": torch.cuda.get_device_name(index), "uuid": uuid}


def _backend(settings: dict[str, Any], place: int) -> Backend:
    if settings["model"] == "tiny":
        from loadgen_harness.tiny import Tiny

        return Tiny(samples=settings["samples"], max_batch=settings["max_batch"], pace_us=settings["pace_us"])
    from loadgen_harness.resnet50 import TorchBackend

    return TorchBackend(
        device="cpu" if settings["device"] == "cpu" else f"cuda:{place}",
        weights=settings.get("weights"),
        samples=settings["samples"],
        max_batch=settings["max_batch"],
        slots=settings["slots"],
        threads=settings["threads"],
        engine=settings.get("engine", "cudnn"),
        image_file=settings.get("images"),
    )


def checked(weights: str, wanted: str) -> str:
    """Return the weights' checksum. Raises ValueError for others than planned, before hours are spent."""
    with Path(weights).open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted:
        raise ValueError(f"{weights} has sha256 {found}, planned {wanted}")
    return found


def work(place: int, ring_name: str, notes: str, settings: dict[str, Any]) -> None:
    """Body of a worker process."""
    ring = Ring(ring_name)
    found: dict[str, Any] = {"worker": place}
    parent = mp.parent_process()
    try:
        if settings["device"] == "cuda":
            found |= {"numa_node": numa_of_gpu(place), **gpu_of(place)}
            # Before any memory is taken: pinned pages lie where their first toucher runs.
            if near := cpus_near(found["numa_node"]) & os.sched_getaffinity(0):
                os.sched_setaffinity(0, near)
        if settings.get("labels"):
            found["weights_sha256"] = checked(settings["weights"], settings["weights_sha256"])
        backend = _backend(settings, place)
        if hasattr(backend, "profile"):
            found["engine"] = backend.engine  # type: ignore[attr-defined]
            found["profile"] = backend.profile()
        if settings.get("labels"):
            found["accuracy"] = backend.accuracy(settings["images"], settings["labels"])  # type: ignore[attr-defined]
        Path(notes).write_text(json.dumps(found), encoding="utf-8")
        with no_cycle_search():  # as in the harness
            serve(
                ring,
                backend,
                hold_s=settings["hold_ms"] * 1e-3,
                poll_s=settings["poll_us"] * 1e-6,
                wanted=lambda: parent is None or parent.is_alive(),
            )
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"[:1500]
        Path(notes).write_text(json.dumps(found), encoding="utf-8")
        ring.state = FAILED
    finally:
        ring.close()


@contextlib.contextmanager
def workers(count: int, folder: Path, settings: dict[str, Any]) -> Iterator[list[Worker]]:
    """Start workers and wait until all are ready; stop them at the end.

    Raises:
        RuntimeError: one failed to start, or did not within `start_timeout_s`.
    """
    context = mp.get_context("spawn")
    started: list[Worker] = []
    try:
        for place in range(count):
            ring, notes = Ring(), folder / f"worker.{place}.json"
            process = context.Process(target=work, args=(place, ring.name, str(notes), settings), daemon=True)
            process.start()
            started.append(Worker(ring, process, notes))
        deadline = time.monotonic() + float(settings.get("start_timeout_s", 300))
        for place, worker in enumerate(started):
            while worker.ring.state != READY:
                if worker.ring.state == FAILED or not worker.process.is_alive():
                    raise RuntimeError(f"worker {place} did not start: {error_of(worker)}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"worker {place} did not start in time")
                time.sleep(0.02)
        yield started
    finally:
        for worker in started:
            worker.ring.state = STOP
        for worker in started:
            worker.process.join(10)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.ring.close()


def notes_of(worker: Worker) -> dict[str, Any]:
    """Return what a worker wrote about itself."""
    try:
        found = json.loads(worker.notes.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def error_of(worker: Worker) -> str:
    """Return why a worker failed."""
    return str(notes_of(worker).get("error") or f"it ended with {worker.process.exitcode}")
