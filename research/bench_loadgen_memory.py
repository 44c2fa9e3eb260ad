"""LoadGen's pauses while it asks, with its memory taken before its clock runs and without.

`research/bench_loadgen_memory.py [RATE [SECONDS]]`: two workers that answer all they have every 2 ms, real
LoadGen (mlcommons-loadgen), 120,000 queries/s for 20 s, the same schedules with either. Each try is a process
of its own, since malloc's settings are for a whole process. It needs four CPUs to itself to say anything.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loadgen_harness.harness import SUMMARY, Harness, ServerRun
from loadgen_harness.heap import KeptMemory
from loadgen_harness.ring import STOP, Ring
from shakedown.benchmarks.inference.output import parse_loadgen

ANSWER_EVERY_S = 0.002
SEEDS = (1, 2)
TRIES = 2
DEFAULTS = ["120000", "20"]


def answer(name: str) -> None:
    """Answer a ring's queries, all that are there at once."""
    ring = Ring(name)
    while ring.state != STOP:
        head = ring.head
        if head > ring.done:
            time.sleep(ANSWER_EVERY_S)
            ring.done = head
        else:
            time.sleep(50e-6)
    ring.close()


def one_try(how: str, rate: float, seconds: float) -> None:
    """Make a run for each seed and print a line for each."""
    memory = KeptMemory() if how == "warm" else None
    rings = [Ring(), Ring()]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=answer, args=(ring.name,), daemon=True) for ring in rings]
    for worker in workers:
        worker.start()
    time.sleep(2)
    harness = Harness(rings, workers, samples=1024, memory=memory)
    for seed in SEEDS:
        wanted = ServerRun(rate, 15, 0.99, seconds, int(rate * seconds), seed)
        with tempfile.TemporaryDirectory() as folder:
            _, spent = harness.run(wanted, Path(folder))
            found = parse_loadgen((Path(folder) / SUMMARY).read_text(), file=Path(folder) / SUMMARY)
        told = spent.document()
        print(
            f"{how:>6} {seed:>5} {told['longest_ask_ms']:>16.1f} {told['longest_look_ms']:>17.1f}"
            f" {told['page_faults']:>12,.0f} {found.max_latency_ns / 1e6:>18.1f}",
            flush=True,
        )
    for ring in rings:
        ring.state = STOP
    for worker in workers:
        worker.join(5)
    for ring in rings:
        ring.close()


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["try"]:
        one_try(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
        return
    rate, seconds = (sys.argv[1:] + DEFAULTS[len(sys.argv) - 1 :])[:2]
    print("memory  seed  nothing asked ms  nothing looked ms  page faults  slowest answer ms")
    for _ in range(TRIES):
        for how in ("cold", "warm"):
            subprocess.run([sys.executable, __file__, "try", how, rate, seconds], check=True)


if __name__ == "__main__":
    main()
