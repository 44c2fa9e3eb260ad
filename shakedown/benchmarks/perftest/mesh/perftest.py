"""perftest on a node: its RDMA devices, GIDs and version, and how it is started, watched and ended."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shakedown.benchmarks.perftest.mesh.spec import Nic, Operation, Spec
from shakedown.onnode.journal import now, ran
from shakedown.onnode.pin import cpu_set
from shakedown.records.wording import printable
from shakedown.records.writing import unused

SYSFS = Path("/sys")


class Unusable(Exception):  # noqa: N818  (it describes the rail)
    """A rail of this node cannot be measured; the text says why."""


@dataclass(frozen=True)
class RdmaDevice:
    """An RDMA device as it was found: what the measurement's argv needs, and where to run it."""

    nic: Nic
    gid_index: int
    # CPUs of the NIC's NUMA node (sysfs local_cpulist) that this process may use; empty: not known.
    cpus: frozenset[int]


def find_device(nic: Nic, gid_index: int | None, sysfs: Path = SYSFS) -> RdmaDevice:
    """Return the device behind `nic`; raises Unusable when it is not there, not up, or has no fitting GID."""
    port = sysfs / "class/infiniband" / nic.rdma_device / "ports/1"
    state = _text(port / "state")
    if state is None:
        raise Unusable(f"RDMA device {nic.rdma_device} does not exist")
    # "4: ACTIVE" (Linux, Documentation/ABI/stable/sysfs-class-infiniband)
    if not state.startswith("4:"):
        raise Unusable(f"{nic.rdma_device} port 1 is {state}")
    index = find_gid(nic, sysfs) if gid_index is None else gid_index
    local = cpu_set(_text(sysfs / "class/infiniband" / nic.rdma_device / "device/local_cpulist") or "")
    return RdmaDevice(nic, index, frozenset(local & os.sched_getaffinity(0)))


def find_gid(nic: Nic, sysfs: Path = SYSFS) -> int:
    """Return the index of the RoCE v2 GID made of the rail's IPv4 address; raises Unusable.

    RoCE v2 maps an IPv4 address to the GID ::ffff:a.b.c.d (InfiniBand Architecture Annex A17); sysfs shows
    GIDs, their types and netdevs side by side. No index is assumed: it depends on what else is configured.
    """
    port = sysfs / "class/infiniband" / nic.rdma_device / "ports/1"
    wanted = ipaddress.IPv6Address(f"::ffff:{nic.ipv4}")
    indices = sorted(int(p.name) for p in (port / "gids").glob("*") if p.name.isdigit())
    for index in indices:
        gid = _text(port / f"gids/{index}")
        # An empty entry of the table cannot be read, or is all zeros.
        if gid is None or _text(port / f"gid_attrs/types/{index}") != "RoCE v2":
            continue
        netdev = _text(port / f"gid_attrs/ndevs/{index}")
        try:
            matches = ipaddress.IPv6Address(gid) == wanted
        except ipaddress.AddressValueError:
            continue
        if matches and netdev in {None, nic.netdev}:
            return index
    raise Unusable(f"{nic.rdma_device} has no RoCE v2 GID of {nic.ipv4} on {nic.netdev}")


def perftest_versions(spec: Spec, prefix: tuple[str, ...] = ()) -> dict[str, str | None]:
    """Return the version of every test in the specification; None: the program is missing.

    `prefix`: words that enter the container which holds the programs.
    """
    versions: dict[str, str | None] = {}
    for test in dict.fromkeys(operation.test for operation in spec.operations):
        versions[test] = None
        program = test if prefix else shutil.which(test)
        if program is None:
            continue
        try:
            run = subprocess.run(
                [*prefix, program, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=spec.start_timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        found = re.search(rb"[Vv]ersion:?\s*([0-9A-Za-z.+-]{1,32})", run.stdout)
        if prefix and run.returncode and not found:
            continue  # the container did not start, or has no such program
        versions[test] = found.group(1).decode() if found else "unknown"
    return versions


def listening_ports(pid: int | None, proc: Path = Path("/proc")) -> set[int]:
    """Return the TCP ports on which process `pid` itself listens (proc(5): state 0A is LISTEN); None: any."""
    inodes: set[str] = set()
    try:
        for fd in (proc / str(pid) / "fd").iterdir() if pid is not None else ():
            found = re.match(r"socket:\[(\d+)\]", str(fd.readlink()))
            if found:
                inodes.add(found.group(1))
    except OSError:
        return set()
    ports: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in (_text(proc / str(pid or "self") / "net" / table) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and (pid is None or fields[9] in inodes):
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def port_in_use(ipv4: str, port: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a client that connects to this node's address and port would already find a listener."""
    # proc(5): the address as the kernel's 32-bit word in host byte order, in hexadecimal.
    own = f"{int.from_bytes(ipaddress.IPv4Address(ipv4).packed, sys.byteorder):08X}"
    for table, addresses in (("tcp", {own, "0" * 8}), ("tcp6", {"0" * 32})):
        for line in (_text(proc / "net" / table) or "").splitlines()[1:]:
            fields = line.split()
            address, _, number = fields[1].rpartition(":") if len(fields) > 3 else ("", "", "")
            if number and fields[3] == "0A" and int(number, 16) == port and address in addresses:
                return True
    return False


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


# Whether a perftest server that waits for RDMA-CM (-R) is ready: it opens no TCP port.
#
# `rdma resource show cm_id` lists it (iproute2, res-cmid.c: `state LISTEN ... src-addr 0.0.0.0:18600`). Where
# that tool is missing or shows no listener, a server counts as ready a while after it has opened the RDMA-CM
# device: what it does after that takes microseconds. Standard library only.

_DEVICE = "/dev/infiniband/rdma_cm"
_SETTLED_S = 1.0
_TOOL_S = 5.0
_EVERY_S = 0.25  # a look at the tool takes a process


class CmListener:
    """Watches one server until it listens."""

    def __init__(self) -> None:
        self._opened: float | None = None
        self._looked = -_EVERY_S

    def listens(self, port: int, pid: int | None, proc: Path = Path("/proc")) -> bool:
        """Return whether a server listens on a port of RDMA-CM; `pid` None: a container hides it."""
        now = time.monotonic()
        if now - self._looked >= _EVERY_S:
            self._looked = now
            if port in listening_by_cm(_resources()):
                return True
        if self._opened is None and (pid is None or _has_open(pid, proc)):
            self._opened = now
        return self._opened is not None and now - self._opened >= _SETTLED_S


def listening_by_cm(text: str) -> set[int]:
    """Return the ports on which something listens, from what `rdma resource show cm_id` prints."""
    lines = (line for line in text.splitlines() if re.search(r"\bstate LISTEN\b", line))
    return {int(found[1]) for line in lines if (found := re.search(r"\bsrc-addr \S+:(\d{1,5})\b", line))}


def _resources() -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = ran(["rdma", "resource", "show", "cm_id"], _TOOL_S, subprocess.DEVNULL, PATH=path, LC_ALL="C")
    return done.stdout[: 1 << 20] if done else ""


def _has_open(pid: int, proc: Path) -> bool:
    try:
        return any(str(fd.readlink()) == _DEVICE for fd in (proc / str(pid) / "fd").iterdir())
    except OSError:
        return False


# perftest counts CPU cycles and finds their rate by a regression over 200 short waits. Where the fit is bad,
# on a busy host or in a busy virtual machine, it takes 0 Hz and goes on (get_clock.c; --CPU-freq keeps it
# from giving up): all traffic passed, and the table says 0 Gb/s, or inf microseconds. The standard library
# only: compute nodes use this too.

CLOCK_UNKNOWN = "perftest could not tell the rate of its CPU's clock and printed no usable number"
_WARNING = "Correlation coefficient r^2: "
# Blanks of its own line only: `\s` would go on to the end of the file from each of a million empty lines.
_ROW = re.compile(
    r"^[^\S\n]*+[0-9]++[^\S\n]++[0-9]++[^\S\n]++(?:0\.0++[^\S\n]++0\.0++[^\S\n]++0\.0+|-?(?:inf|nan)\s)",
    re.MULTILINE,
)


def clock_unknown(text: str) -> bool:
    """Whether an output is one of those. A rate of 0 without perftest's warning is a rate of 0."""
    return _WARNING in text and _ROW.search(text) is not None


# The text output is kept and not `--out_json`: the text names units, side and GIDs, the JSON has neither unit
# nor side and no more digits (linux-rdma/perftest, perftest_parameters.c, write_bw_report_to_file).

_POLL_S = 0.02
_KILL_WAIT_S = 5.0


def argv(
    spec: Spec,
    operation: Operation,
    device: RdmaDevice,
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

    Raises OSError: the program cannot be started.
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
        """Exit status, negative for a signal of others; None: it did not end on its own."""
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
