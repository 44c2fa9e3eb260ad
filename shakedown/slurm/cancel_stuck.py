"""Cancels those of our jobs that wait for a node which has gone out of service since they were submitted.

Slurm would keep them until the node is mended, and ReFrame with them; ReFrame's own way out of this
(`slurm_job_cancel_reasons`) raises while the test waits, after which it never ends.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shakedown.records.errors import BadInput
from shakedown.slurm.client import Slurm, ask_nodes, parse_unusable

_EVERY_S = 10.0
# A node that is back within so many looks was only slow to answer.
_LOOKS = 3


@dataclass(eq=False)
class _Job:
    job_id: Callable[[], object]
    nodes: tuple[str, ...]
    reserved: bool
    looks: int = 0  # in a row that found its nodes out of service


@dataclass
class Pending:
    """Jobs that are about to be submitted, each with its nodes, watched by a thread of its own."""

    slurm: Slurm = field(default_factory=Slurm)
    cancelled: dict[str, str] = field(default_factory=dict)  # why, by job
    _jobs: list[_Job] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def watch(self, job_id: Callable[[], object], nodes: tuple[str, ...], *, reserved: bool) -> None:
        """Look after a job until it runs. `job_id` returns nothing before it is submitted."""
        with self._lock:
            self._jobs.append(_Job(job_id, nodes, reserved))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="pending")
                self._thread.start()

    def look(self) -> None:
        """Look once: forget jobs that run or ended, cancel those that wait in vain for the third time."""
        with self._lock:
            submitted = [(str(job_id), job) for job in self._jobs if (job_id := job.job_id())]
        if not submitted:
            return
        # Asked for by its id, a job that Slurm has forgotten would make squeue fail for all of them.
        waiting = set(
            self.slurm.ask("squeue", "--noheader", "--me", "--states=PENDING", "--format=%i").split()
        )
        # All nodes in one question, and none while nothing waits.
        nodes = dict.fromkeys(node for job_id, job in submitted if job_id in waiting for node in job.nodes)
        states = self.slurm.ask(*ask_nodes(nodes)) if nodes else ""
        for job_id, job in submitted:
            why = parse_unusable(states, job.nodes, reserved=job.reserved) if job_id in waiting else ""
            job.looks = job.looks + 1 if why else 0
            if job.looks >= _LOOKS:
                self.slurm.ask("scancel", job_id)
                self.cancelled[job_id] = why
            if job_id not in waiting or job_id in self.cancelled:
                with self._lock:
                    self._jobs.remove(job)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(_EVERY_S):
            try:
                self.look()
            except (BadInput, OSError, subprocess.SubprocessError):
                continue  # Slurm does not answer: the next look is soon
