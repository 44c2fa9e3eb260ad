"""Starting, watching and ending perftest: argv lists only, own processes only.

The text output is kept and not `--out_json`: the text names units, side and GIDs, the JSON has neither unit
nor side and no more digits (linux-rdma/perftest, perftest_parameters.c, write_bw_report_to_file).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from shakedown.benchmarks.perftest.mesh.host import Device, listening_ports
from shakedown.benchmarks.perftest.mesh.rdma_cm import CmListener
from shakedown.benchmarks.perftest.mesh.spec import Operation, Spec
from shakedown.benchmarks.perftest.output_clock import clock_unknown
from shakedown.onnode.journal import now
from shakedown.records.untrusted import unused
from shakedown.records.wording import printable

_POLL_S = 0.02
_KILL_WAIT_S = 5.0


def argv(
    spec: Spec,
    operation: Operation,
    device: Device,
    port: int,
    server: str | None,
    *,
    both: bool = False,
    buffer: Sequence[str] = (),
) -> list[str]:
    """Return the command line of one side; `server` is the IPv4 address that a client connects to.

    Both sides get the same options, as perftest wants them. `--report_gbits`, since its MB/s are MiB/s.
    `both`: both sides send at once, and what is printed is the sum. `buffer`: the options of this side's
    memory, which each side has of its own.
    """
    words = [
        operation.test,
        f"--ib-dev={device.nic.rdma_device}",
        "--ib-port=1",
        f"--gid-index={device.gid_index}",
        f"--mtu={spec.mtu}",
        f"--tclass={spec.tclass}",
        f"--port={port}",
        "--all" if operation.sizes else f"--size={operation.size_bytes}",
        "--CPU-freq",
    ]
    if operation.rdma_cm:
        # The traffic class is then the host's own (configfs rdma_cm, default_roce_tos).
        words.remove(f"--tclass={spec.tclass}")
        words.append("--rdma_cm")
    if spec.qp_timeout is not None:
        words.append(f"--qp-timeout={spec.qp_timeout}")
    if operation.duration_s is not None:
        words.append(f"--duration={operation.duration_s}")
    else:
        words.append(f"--iters={operation.iterations}")
    if both:
        words.append("--bidirectional")
    if not operation.is_latency:
        words += ["--report_gbits", f"--qp={operation.qps}"]
    words += buffer
    return [*words, server] if server is not None else words


class Perftest:
    """One perftest process and its output file.

    Args:
        words: the command line.
        output: where stdout and stderr go.
        prefix: words before it that enter a container; the program is then not this process's own child.
        cpus: CPUs to run on (the NIC's NUMA node); empty: wherever this process may.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(
        self, words: list[str], output: Path, cpus: frozenset[int], prefix: tuple[str, ...] = ()
    ) -> None:
        self.words, self.output, self._contained = words, output, bool(prefix)
        self._by_cm = CmListener() if "--rdma_cm" in words else None
        self.started = now()
        self.killed = False
        self._begin = time.monotonic()
        self._end: float | None = None
        before = os.sched_getaffinity(0)
        with output.open("wb") as sink:
            try:
                # A child inherits the affinity of the thread that starts it.
                if cpus:
                    os.sched_setaffinity(0, cpus)
                self._process = subprocess.Popen(
                    [*prefix, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    start_new_session=self._contained,
                    env={**os.environ, "LC_ALL": "C"},
                )
            finally:
                if cpus:
                    os.sched_setaffinity(0, before)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        if self._end is None and self._process.poll() is not None:
            self._end = time.monotonic()
        return self._end is not None

    @property
    def exit_code(self) -> int | None:
        """Exit status, negative for a signal of others; None: it never ended by itself."""
        return None if self.killed or not self.ended else self._process.returncode

    @property
    def duration_s(self) -> float:
        """Seconds it has run."""
        return (self._end if self._end is not None else time.monotonic()) - self._begin

    def listens_on(self, port: int) -> bool:
        """Whether this very process listens on a TCP port; of a container, whether anything does.

        Nothing listened there before it was started, and a container may hide its processes.
        """
        pid = None if self._contained else self._process.pid
        if port in listening_ports(pid):
            return True
        return self._by_cm is not None and self._by_cm.listens(port, pid)

    def kill(self) -> None:
        """End the process if it has not ended; one that is stuck in the kernel is left behind."""
        if self.ended:
            return
        self.killed = True
        if self._contained:
            # What starts the container passes SIGTERM on, and cannot pass on SIGKILL.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            wait_until_ended([self], _KILL_WAIT_S)
        self._process.kill()
        wait_until_ended([self], _KILL_WAIT_S)

    def without_clock(self) -> bool:
        """Whether it ended well and printed no number, for want of a clock."""
        if self.exit_code != 0:
            return False
        try:
            return clock_unknown(self.output.read_bytes()[:65536].decode(errors="replace"))
        except OSError:
            return False

    def set_aside(self, number: int) -> None:
        """Rename the output, overwriting no other, because the program is started again."""
        self.output.replace(unused(self.output.with_suffix(f".noclock{number}.txt")))

    def last_words(self) -> str:
        """Return what it complained about, else the end of its output, as one printable line."""
        try:
            text = self.output.read_bytes()[:65536].decode(errors="replace")
        except OSError:
            return ""
        # stdout goes to a file and is written at the end, so stderr is what stands before the first ruler.
        lines = [line.strip() for line in text.partition("\n----")[0].splitlines()]
        complaints = [line for line in lines if line and line[0] not in "*-" and "WARNING" not in line]
        ending = [line.strip() for line in text.splitlines() if line.strip(" *-\t")][-3:]
        return printable(" / ".join(complaints[:3] or ending))[:300]


def wait_until_ended(runs: Iterable[Perftest], timeout_s: float) -> None:
    """Wait until all have ended or the time is over."""
    waiting = list(runs)
    deadline = time.monotonic() + timeout_s
    while waiting := [run for run in waiting if not run.ended]:
        if time.monotonic() >= deadline:
            return
        time.sleep(_POLL_S)


def wait_until_listening(runs: dict[int, Perftest], timeout_s: float) -> set[int]:
    """Wait until each server listens on its port (the key), has ended, or the time is over.

    Returns:
        The ports that are listened on.
    """
    deadline = time.monotonic() + timeout_s
    ready: set[int] = set()
    while True:
        ready |= {port for port, run in runs.items() if port not in ready and run.listens_on(port)}
        waiting = [port for port, run in runs.items() if port not in ready and not run.ended]
        if not waiting or time.monotonic() >= deadline:
            return ready
        time.sleep(_POLL_S)
