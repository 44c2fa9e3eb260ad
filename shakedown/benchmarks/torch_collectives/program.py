"""Collectives through PyTorch, one process a GPU, as a second opinion beside nccl-tests.

    srun --ntasks-per-node=GPUS PYTHON -m shakedown.benchmarks.torch_collectives.program FOLDER

FOLDER/spec.json says what to run. Rank 0 prints JSON lines: a header, then a row for every size and for the
one-large-against-many-small comparison. busbw = algbw x 2(n-1)/n for all_reduce, x (n-1)/n for all_gather and
reduce_scatter, x 1 for broadcast; sizes are those of nccl-tests' PERFORMANCE.md (the gathered or unreduced
buffer). Every element is checked: rank r gives r+1 everywhere.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

FLOAT_BYTES = 4
WARMUP = 5


def busbw_factor(operation: str, ranks: int) -> float:
    """Return busbw over algbw (nccl-tests, doc/PERFORMANCE.md)."""
    return {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(operation, (ranks - 1) / ranks)


def burst_iterations(iterations: int) -> int:
    """Return how often one large message, or as many small ones, are timed."""
    return max(2, iterations // 4)


def main() -> int:
    """Run everything; exit 1 if any element was wrong."""
    import torch
    import torch.distributed as dist

    spec = json.loads((Path(sys.argv[1]) / "spec.json").read_bytes())
    rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    gpu = spec["backend"] == "nccl"
    device = torch.device("cuda", int(os.environ["SLURM_LOCALID"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    # Later than the job's own watchdog: PyTorch's ends a rank that waits, and a healthy node would be named.
    patience = timedelta(seconds=spec["timeout_s"] + 120)
    dist.init_process_group(
        spec["backend"], init_method=rendezvous(), rank=rank, world_size=ranks, timeout=patience
    )
    told: list[Any] = [None] * ranks
    dist.all_gather_object(told, (platform.node(), *(gpu_of(torch, device) if gpu else ("", ""))))
    hosts, names, uuids = ([one[part] for one in told] for part in range(3))
    if rank == 0:
        library = ".".join(map(str, torch.cuda.nccl.version())) if gpu else "gloo"
        write(
            {
                "type": "header",
                "torch": torch.__version__,
                "library": library,
                "backend": spec["backend"],
                "ranks": ranks,
                "hosts": hosts,
                **({"gpus": names, "uuids": uuids} if gpu else {}),
                "iterations": spec["iterations"],
            }
        )

    def clock(run: Callable[[], object], iterations: int) -> float:
        """Return the slowest rank's mean time of one run, in seconds."""
        for _ in range(WARMUP):
            run()
        settle()
        dist.barrier()
        settle()
        begin = time.perf_counter()
        for _ in range(iterations):
            run()
        settle()
        elapsed = torch.tensor(
            [(time.perf_counter() - begin) / iterations], dtype=torch.float64, device=device
        )
        dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
        return float(elapsed.item())

    def settle() -> None:
        if gpu:
            torch.cuda.synchronize()

    total_wrong = 0
    for operation in spec["operations"]:
        for size in spec["sizes"]:
            run, check = prepare(torch, dist, operation, size, rank, ranks, device)
            wrong = torch.tensor([check()], dtype=torch.int64, device=device)
            dist.all_reduce(wrong)
            total_wrong += int(wrong.item())
            seconds = clock(run, spec["iterations"])
            if rank == 0:
                row(operation, size, 1, seconds, ranks, int(wrong.item()))
            del run, check
    if spec["many"]:
        for messages in (1, spec["many"]):
            size = spec["large_bytes"] // messages
            buffer = torch.zeros(size // FLOAT_BYTES, device=device)

            def burst(buffer: Any = buffer, messages: int = messages) -> None:  # noqa: ANN401
                for _ in range(messages):
                    dist.all_reduce(buffer)

            seconds = clock(burst, burst_iterations(spec["iterations"]))
            if rank == 0:
                row("all_reduce", size, messages, seconds, ranks, None)
    dist.destroy_process_group()
    return 1 if total_wrong else 0


def gpu_of(torch: Any, device: Any) -> tuple[str, str]:  # noqa: ANN401
    """Return what CUDA calls a GPU, and its UUID as nvidia-smi writes it; old PyTorch tells none."""
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return torch.cuda.get_device_name(device), f"GPU-{uuid.replace('GPU-', '')}" if uuid else ""


def prepare(
    torch: Any,  # noqa: ANN401
    dist: Any,  # noqa: ANN401
    operation: str,
    size: int,
    rank: int,
    ranks: int,
    device: Any,  # noqa: ANN401
) -> tuple[Callable[[], object], Callable[[], int]]:
    """Return a function that runs the operation, and one that runs it once and counts wrong elements."""
    count = size // FLOAT_BYTES
    everyone = float(ranks * (ranks + 1) // 2)
    if operation == "all_reduce":
        buffer = torch.zeros(count, device=device)

        def check() -> int:
            buffer.fill_(rank + 1.0)
            dist.all_reduce(buffer)
            return int((buffer != everyone).sum().item())

        return lambda: dist.all_reduce(buffer), check
    if operation == "broadcast":
        buffer = torch.zeros(count, device=device)

        def check() -> int:
            buffer.fill_(rank + 1.0)
            dist.broadcast(buffer, 0)
            return int((buffer != 1.0).sum().item())

        return lambda: dist.broadcast(buffer, 0), check
    part = torch.zeros(count // ranks, device=device)
    whole = torch.zeros(count // ranks * ranks, device=device)
    if operation == "all_gather":
        due = torch.arange(1, ranks + 1, device=device).repeat_interleave(count // ranks)

        def check() -> int:
            part.fill_(rank + 1.0)
            dist.all_gather_into_tensor(whole, part)
            return int((whole != due).sum().item())

        return lambda: dist.all_gather_into_tensor(whole, part), check

    def check_part() -> int:
        whole.fill_(rank + 1.0)
        dist.reduce_scatter_tensor(part, whole)
        return int((part != everyone).sum().item())

    return lambda: dist.reduce_scatter_tensor(part, whole), check_part


def rendezvous() -> str:
    """Return the rendezvous of the ranks: the job's first node, at a port that follows from the job's id."""
    first = os.environ.get("SHAKEDOWN_FIRST_NODE", "127.0.0.1")
    return f"tcp://{first}:{20000 + int(os.environ['SLURM_JOB_ID']) % 20000}"


def row(operation: str, size: int, messages: int, seconds: float, ranks: int, wrong: int | None) -> None:
    """Print one result."""
    algbw = size * messages / seconds / 1e9
    busbw = algbw * busbw_factor(operation, ranks)
    shape = {"type": "row", "operation": operation, "size_bytes": size, "messages": messages}
    rates = {"time_us": seconds * 1e6, "algbw_gb_per_s": algbw, "busbw_gb_per_s": busbw}
    write({**shape, **rates, "wrong": wrong})


def write(record: dict[str, object]) -> None:
    """Print one line now: what was measured before a hang is kept."""
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    sys.exit(main())
