"""LoadGen's memory: taken before its clock runs, not while queries are timed."""

import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import mlperf_loadgen as lg
import pytest

from loadgen_harness import main as main_module
from loadgen_harness.harness import Harness, ServerRun, WorkerLostError
from loadgen_harness.ring import Ring
from loadgen_harness.time_breakdown import Rise

# malloc's settings are for a whole process, so each try has its own. 256 MiB are 65,536 pages of 4 KiB or 128
# of 2 MiB; a thread, because LoadGen's own allocate.
ALLOCATE = """
import ctypes, sys, threading
from loadgen_harness.heap import KeptMemory, page_faults
memory = KeptMemory() if sys.argv[1] == "warm" else None
if memory:
    assert memory.kept
    memory.warm(1_000_000)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
found = []
def use():
    for _ in range(2):
        before, place = page_faults(), libc.malloc(256 << 20)
        ctypes.memset(place, 1, 256 << 20)
        libc.free(place)
        found.append(page_faults() - before)
thread = threading.Thread(target=use)
thread.start()
thread.join()
print(*found)
"""


def faults(how: str) -> list[int]:
    """Return the page faults of two allocations of 256 MiB, one after the other, in a fresh process."""
    done = subprocess.run([sys.executable, "-c", ALLOCATE, how], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
def test_what_was_warmed_costs_no_page_fault():
    """Catches an allocator that gives memory back, or maps anew what is large or another thread's."""
    assert min(faults("cold")) >= 128, "this test sees no page fault at all"
    assert max(faults("warm")) < 64


def test_a_counter_is_read_from_the_first_look():
    """Catches page faults of the schedule's making counted as LoadGen's while queries were timed."""
    rise = Rise()
    assert rise.count == 0
    for value in (70_000, 70_000, 70_012):
        rise.look(value)
    assert rise.count == 12


class Alive:
    """A worker's process that lives."""

    def is_alive(self) -> bool:
        """Say so."""
        return True


@pytest.fixture
def answered():
    """A harness whose worker answers at once."""
    ring, over = Ring(), threading.Event()

    def answer() -> None:
        while not over.is_set():
            ring.done = ring.head
            time.sleep(0.001)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield lambda memory: Harness([ring], [Alive()], samples=64, memory=memory)
    over.set()
    thread.join()
    ring.close()


def test_every_run_is_warmed_for_its_queries_before_its_clock_runs(answered, monkeypatch, tmp_path):
    """Catches a run that takes its memory while queries are timed, and one warmed for another rate."""
    seen: list[object] = []
    harness = answered(SimpleNamespace(warm=seen.append))
    start = lg.StartTestWithLogSettings
    monkeypatch.setattr(lg, "StartTestWithLogSettings", lambda *a: (seen.append("clock"), start(*a)))
    run = ServerRun(
        target_qps=3000, latency_ms=500, percentile=0.99, min_duration_s=0.5, min_queries=200, seed=1
    )
    _, breakdown = harness.run(run, tmp_path)
    assert seen == [1500, "clock"]
    harness.run(ServerRun(300, 500, 0.99, 0.5, 200, 1), tmp_path)
    assert seen[2:] == [200, "clock"]
    assert breakdown.document()["page_faults"] == breakdown.page_faults >= 0


def test_the_search_warms_its_runs(monkeypatch, tmp_path):
    """Catches a search whose runs all begin with cold memory."""
    given: list[object] = []

    def harness(*_, memory, **__):
        given.append(memory)
        raise WorkerLostError("no run is wanted")

    monkeypatch.setattr(main_module, "KeptMemory", lambda: "memory")
    monkeypatch.setattr(main_module, "Harness", harness)
    monkeypatch.setattr(main_module, "workers", lambda *_: nullcontext([]))
    monkeypatch.setattr(sys, "argv", ["main", str(tmp_path)])
    (tmp_path / "spec.json").write_text('{"gpus": [1], "samples": 1}')
    assert main_module.main() == 3
    assert given == ["memory"]
