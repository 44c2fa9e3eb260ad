"""LoadGen on one side, the workers' rings on the other: makes one Server run and keeps LoadGen's own summary.

LoadGen calls back for queries; each goes to the worker with the fewest unanswered queries. A second thread
reports what workers have answered, in lists. The callbacks take interpreter time for every query, so the
workers are processes.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg

from loadgen_harness.heap import KeptMemory, page_faults
from loadgen_harness.ring import FAILED, Ring
from loadgen_harness.time_breakdown import Pauses, Stopwatch, TimeBreakdown
from shakedown.records.program import no_cycle_search

SUMMARY, DETAIL = "mlperf_log_summary.txt", "mlperf_log_detail.txt"


class WorkerLostError(RuntimeError):
    """A worker died or failed while queries were under way."""


@dataclass(frozen=True)
class ServerRun:
    """The settings of one Server run."""

    target_qps: float
    latency_ms: float
    percentile: float  # 0.99
    min_duration_s: float
    min_queries: int
    seed: int  # of the schedule: runs that confirm must not repeat the same arrivals


class Harness:
    """Queries for workers, until closed."""

    def __init__(
        self,
        rings: Sequence[Ring],
        processes: Sequence[BaseProcess],
        *,
        samples: int,
        memory: KeptMemory | None = None,
        poll_s: float = 100e-6,
    ) -> None:
        """`processes` are the workers', in the order of the rings; `samples` the images that they hold.

        `memory` is warmed for every run; without it LoadGen's memory comes while queries are timed.
        """
        self.rings = rings
        self.processes = processes
        self.samples = samples
        self.memory = memory
        self.reported = [ring.done for ring in rings]
        self.heads = [ring.head for ring in rings]
        self.poll_s = poll_s
        self.pauses = Pauses()
        self.lost: str = ""
        self._answers: threading.Thread | None = None
        self._stop = threading.Event()
        # A thread that waits for the interpreter gets it after this time. The default, 5 ms, is too long.
        sys.setswitchinterval(1e-4)

    # ---- what LoadGen calls ----

    def _issue(self, ids: list[int], samples: list[int]) -> None:
        rings, heads, done = self.rings, self.heads, self.reported
        self.pauses.ask.tick()
        if len(rings) == 1:
            rings[0].put(ids, samples)
            heads[0] += len(ids)
            return
        least = min(range(len(rings)), key=lambda i: heads[i] - done[i])
        rings[least].put(ids, samples)
        heads[least] += len(ids)

    def _flush(self) -> None:
        pass

    def _report(self) -> None:
        # Responses are used again: to make one takes longer than to hand it over, and LoadGen copies them.
        responses: list[Any] = []
        rings, reported = self.rings, self.reported
        while not self._stop.is_set():
            self.pauses.look.tick()
            moved = False
            for place, ring in enumerate(rings):
                done = ring.done
                if done > reported[place]:
                    ids = ring.span(reported[place], done)
                    responses += [lg.QuerySampleResponse(0, 0, 0) for _ in ids[len(responses) :]]
                    for response, query in zip(responses, ids, strict=False):
                        response.id = query
                    lg.QuerySamplesComplete(responses[: len(ids)])
                    reported[place] = done
                    moved = True
            if not moved:
                if sum(self.heads) > sum(reported):  # a query is under way: not the time before or after
                    self.pauses.faults.look(page_faults())
                time.sleep(self.poll_s)
                if not self.lost and (lost := self._who_is_lost()):
                    self.lost = lost
                if self.lost:
                    # LoadGen waits for ever for answers that will not come; such a run is never used.
                    self._answer_everything()

    def _who_is_lost(self) -> str:
        for place, (ring, process) in enumerate(zip(self.rings, self.processes, strict=True)):
            if ring.state == FAILED or not process.is_alive():
                return f"worker {place} is lost"
        return ""

    def _answer_everything(self) -> None:
        for place, ring in enumerate(self.rings):
            head = ring.head
            if head > self.reported[place]:
                ids = ring.span(self.reported[place], head)
                lg.QuerySamplesComplete([lg.QuerySampleResponse(i, 0, 0) for i in ids])
                self.reported[place] = head

    # ---- runs ----

    def run(self, wanted: ServerRun, folder: Path) -> tuple[float, TimeBreakdown]:
        """Make one Server run; LoadGen's summary ends up in the folder.

        Returns its wall time in seconds, and where the time went.

        Raises:
            WorkerLostError: a worker failed; whatever the summary says, it counts for nothing.
        """
        settings = lg.TestSettings()
        settings.scenario = lg.TestScenario.Server
        settings.mode = lg.TestMode.PerformanceOnly
        settings.server_target_qps = wanted.target_qps
        settings.server_target_latency_ns = int(wanted.latency_ms * 1e6)
        settings.server_target_latency_percentile = wanted.percentile
        settings.min_duration_ms = int(wanted.min_duration_s * 1e3)
        settings.min_query_count = wanted.min_queries
        settings.qsl_rng_seed = settings.sample_index_rng_seed = settings.schedule_rng_seed = wanted.seed
        settings.performance_sample_count_override = self.samples
        # Queries that are due already come in one call: the schedule is LoadGen's, the calls are fewer.
        settings.server_coalesce_queries = True
        output = lg.LogOutputSettings()
        output.outdir = str(folder)
        output.copy_summary_to_stdout = False
        log = lg.LogSettings()
        log.log_output = output
        log.enable_trace = False
        if self.memory:
            self.memory.warm(max(wanted.min_queries, wanted.target_qps * wanted.min_duration_s))
        self.pauses = Pauses()
        begin, watch = time.monotonic(), Stopwatch(self.rings)
        # Python's search for cycles stops the process for up to 80 ms. Near the peak the queue that it leaves
        # takes seconds to drain: 1 % of the queries of 20 s are late, and short probes see none of it.
        with no_cycle_search(), self._answering():
            sut = lg.ConstructFastSUT(self._issue, self._flush)
            library = lg.ConstructQSL(self.samples, self.samples, lambda _: None, lambda _: None)
            try:
                lg.StartTestWithLogSettings(sut, library, settings, log)
            finally:
                lg.DestroyQSL(library)
                lg.DestroyFastSUT(sut)
        if self.lost:
            raise WorkerLostError(self.lost)
        wall_s = time.monotonic() - begin
        return wall_s, watch.breakdown(wall_s, self.pauses)

    def offline_qps(self, seconds: float) -> float:
        """Return how many samples/s the workers answer when the queue is never empty: an upper bound."""
        chunk, begin = 512, time.perf_counter()
        start = [ring.done for ring in self.rings]
        ids = [0] * chunk
        while (now := time.perf_counter()) - begin < seconds:
            for ring in self.rings:
                if ring.head - ring.done < 16 * chunk:
                    ring.put(ids, [(ring.head + k) % self.samples for k in range(chunk)])
            if lost := self._who_is_lost():
                raise WorkerLostError(lost)
            time.sleep(self.poll_s)
        answered = sum(ring.done - first for ring, first in zip(self.rings, start, strict=True))
        elapsed = now - begin
        while any(ring.done < ring.head for ring in self.rings):
            if lost := self._who_is_lost():
                raise WorkerLostError(lost)
            time.sleep(self.poll_s)
        self.reported = [ring.done for ring in self.rings]
        self.heads = [ring.head for ring in self.rings]
        return answered / elapsed

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        self._stop.clear()
        self._answers = threading.Thread(target=self._report, daemon=True)
        self._answers.start()
        try:
            yield
        finally:
            self._stop.set()
            self._answers.join()
