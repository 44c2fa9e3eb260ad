"""All-reduce over MPI, checked; one JSON object a line: a header, then a row for every size.

    srun --mpi=pmix python -m shakedown.benchmarks.mpi.allreduce --min 8 --max 1048576 --iterations 10

It proves that MPI over the fabric works and adds right; on hosts without GPUs it is the collective stage.
Every rank contributes values that no other rank has, so a rank left out or counted twice changes the sum.
busbw = algbw x 2(n-1)/n, as in nccl-tests' PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time

FLOAT_BYTES = 4


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--min", type=int, default=8, help="smallest message, bytes")
    parser.add_argument("--max", type=int, default=1 << 20, help="largest message, bytes")
    parser.add_argument("--factor", type=int, default=8, help="growth from one size to the next")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    chosen = parser.parse_args()
    if not FLOAT_BYTES <= chosen.min <= chosen.max or chosen.factor < 2 or chosen.iterations < 1:
        parser.error("need 4 <= --min <= --max, --factor >= 2, --iterations >= 1")
    return chosen


def main() -> int:
    """Run the sweep. A wrong sum is a result, and the exit status tells of none: its row does."""
    import numpy as np
    from mpi4py import MPI

    chosen = options()
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    hosts = world.gather(platform.node())
    sizes = []
    size = chosen.min
    while size <= chosen.max:
        sizes.append(size // FLOAT_BYTES * FLOAT_BYTES)
        size *= chosen.factor
    counts = {"iterations": chosen.iterations, "warmup": chosen.warmup}
    if rank == 0:
        library = MPI.Get_library_version().splitlines()[0].strip(chr(0))
        write({"type": "header", "mpi": library, "hosts": hosts, "sizes": sizes, **counts})
    for size in sizes:
        # Small integers: float32 adds them exactly in any order.
        base = np.arange(size // FLOAT_BYTES, dtype=np.float32) % 97
        mine = base + np.float32(rank * 128)
        wanted = ranks * base + np.float32(128 * sum(range(ranks)))
        got = np.empty_like(mine)
        for _ in range(chosen.warmup):
            world.Allreduce(mine, got)
        got[:] = -1
        world.Barrier()
        begin = time.perf_counter()
        for _ in range(chosen.iterations):
            world.Allreduce(mine, got)
        mean_s = (time.perf_counter() - begin) / chosen.iterations
        slowest_s = world.allreduce(mean_s, op=MPI.MAX)
        wrong = int(world.allreduce(int(np.count_nonzero(got != wanted))))
        if rank == 0:
            algbw = size / slowest_s / 1e9
            write(
                {
                    "type": "row",
                    "size_bytes": size,
                    "time_us": slowest_s * 1e6,
                    "algbw_gb_per_s": algbw,
                    "busbw_gb_per_s": algbw * 2 * (ranks - 1) / ranks,
                    "wrong": wrong,
                }
            )
    return 0


def write(record: dict[str, object]) -> None:
    """Print one line now: what was measured before a hang is kept."""
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    sys.exit(main())
