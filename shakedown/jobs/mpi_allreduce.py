"""All-reduce over MPI, checked, printed in the table of nccl-tests.

    srun --mpi=pmix python -m shakedown.jobs.mpi_allreduce --min 8 --max 1048576 --iterations 10

It proves that MPI over the fabric works and adds right; on hosts without GPUs it is the collective stage.
Every rank contributes values that no other rank has, so a rank left out or counted twice changes the sum.
busbw = algbw x 2(n-1)/n, as in nccl-tests' PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
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
    """Run the sweep; exit 1 if any sum was wrong."""
    import numpy as np
    from mpi4py import MPI

    chosen = options()
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    hosts = world.gather(platform.node())
    if rank == 0:
        print(f"# shakedown mpi_allreduce {MPI.Get_library_version().splitlines()[0].strip(chr(0))}")
        for r, host in enumerate(hosts or []):
            print(f"#  Rank {r:2d} on {host}")
        print("#       size         count      type   redop    root     time   algbw   busbw  #wrong")
        print("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)        ")
    total_wrong = 0
    size = chosen.min
    while size <= chosen.max:
        count = size // FLOAT_BYTES
        # Small integers: float32 adds them exactly in any order.
        mine = (np.arange(count, dtype=np.float32) % 97) + np.float32(rank * 128)
        wanted = ranks * (np.arange(count, dtype=np.float32) % 97) + np.float32(128 * sum(range(ranks)))
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
        total_wrong += wrong
        if rank == 0:
            algbw = count * FLOAT_BYTES / slowest_s / 1e9
            busbw = algbw * 2 * (ranks - 1) / ranks
            print(
                f"{size:12d} {count:13d} {'float':>9} {'sum':>7} {-1:7d} {slowest_s * 1e6:8.2f} "
                f"{algbw:7.4f} {busbw:7.4f} {wrong:7d}",
                flush=True,
            )
        size *= chosen.factor
    if rank == 0:
        print(f"# Out of bounds values : {total_wrong} {'OK' if total_wrong == 0 else 'FAILED'}")
    return 1 if total_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
