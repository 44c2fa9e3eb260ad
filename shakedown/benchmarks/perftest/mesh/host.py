"""What this node has: RDMA devices, their GIDs, perftest and its version. Reads only, mostly sysfs."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from shakedown.benchmarks.perftest.mesh.spec import Nic, Spec

SYSFS = Path("/sys")


class Unusable(Exception):  # noqa: N818  (it describes the rail)
    """A rail of this node cannot be measured; the text says why."""


@dataclass(frozen=True)
class Device:
    """An RDMA device as it was found: what the measurement's argv needs, and where to run it."""

    nic: Nic
    gid_index: int
    # CPUs of the NIC's NUMA node (sysfs local_cpulist) that this process may use; empty: not known.
    cpus: frozenset[int]


def find_device(nic: Nic, gid_index: int | None, sysfs: Path = SYSFS) -> Device:
    """Return the device behind `nic`; raises Unusable when it is not there, not up, or has no fitting GID."""
    port = sysfs / "class/infiniband" / nic.rdma_device / "ports/1"
    state = _text(port / "state")
    if state is None:
        raise Unusable(f"RDMA device {nic.rdma_device} does not exist")
    # "4: ACTIVE" (Linux, Documentation/ABI/stable/sysfs-class-infiniband)
    if not state.startswith("4:"):
        raise Unusable(f"{nic.rdma_device} port 1 is {state}")
    index = find_gid(nic, sysfs) if gid_index is None else gid_index
    local = _cpus(_text(sysfs / "class/infiniband" / nic.rdma_device / "device/local_cpulist") or "")
    return Device(nic, index, local & frozenset(os.sched_getaffinity(0)))


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


def _cpus(text: str) -> frozenset[int]:
    """Return the CPUs of a list like `0-3,8` (cpuset(7), "List format")."""
    cpus: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and (not high or high.isdigit()):
            cpus.update(range(int(low), int(high or low) + 1))
    return frozenset(cpus)
