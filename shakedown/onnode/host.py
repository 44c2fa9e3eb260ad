"""What else works on this node's CPUs, and how it sends on its rails, as an ordinary user may read it.

Part of each reading of counters, before and after a job: beside another's program a good part is slow.
Whoever reads it later is `collect/surroundings.py`. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shakedown.onnode import tcp_paths
from shakedown.onnode.journal import ran
from shakedown.onnode.noted import node_name
from shakedown.onnode.pin import cpu_set
from shakedown.onnode.snapshot_probe import field, text
from shakedown.run.ownership import RAILS

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LEAST_S = 1.0  # of CPU time since a process began: with less it was no load on any job worth a word
MOST_OTHERS, _MOST_PEERS, _MOST_STRAYS = 64, 128, 8
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, linux/sched.h
_TOOL_S = 5.0
_LONGEST_BYTES = 65507  # of a datagram (RFC 768, in IPv4)
_LONG_S = 0.6  # a kernel answers a datagram at once; it may have to ask for the neighbour first
_ANSWER_S = 1.2  # the kernel asks a second time after 1 s (RFC 6298)
_ANSWERS = (0, errno.ECONNREFUSED)


def read_host(folder: Path, root: Path = Path("/")) -> dict[str, Any]:
    """Return this node's surroundings; FOLDER/rails.json has rail, netdev and address of the NICs."""
    try:
        planned = json.loads((folder / RAILS).read_bytes())
        mine = planned.pop(node_name())
    except (OSError, ValueError, KeyError):
        planned, mine = {}, []  # a job whose NICs nobody planned
    return {
        "at_s": round(time.monotonic(), 3),
        "cpus": os.cpu_count() or 1,
        "others": others(root),
        "queue_pairs": queue_pairs(root),
        "stolen_ms": stolen(root),
        "hot_ms": hot(root),
        "octets": octets(root),
        # How often a link went down or came up since its device is there.
        "carriers": {nic["netdev"]: told_of(nic["netdev"], "carrier_changes", root) for nic in mine},
        "serve": {nic["netdev"]: serve(nic["netdev"], root) for nic in mine},
        "astray": list(astray(mine, planned)),
        "answered": answered(mine, planned),
        "answered_long": answered_long(mine, planned),
    }


def stolen(root: Path) -> dict[str, int]:
    """Return by CPU the milliseconds since boot that the machine below kept back, where it did."""
    found = {}
    for line in text(str(root / "proc/stat")).splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(words) > 7 and int(words[7]):
            found[name[3:]] = int(words[7]) * 1000 // _TICKS_PER_S
    return found


def others(root: Path) -> list[dict[str, Any]] | None:
    """Return the processes of others than this job, those first that used the most CPU time.

    None where the node hides them (hidepid of proc(5)).
    """
    if not text(str(root / "proc/1/stat")):
        return None
    found = []
    for folder in (root / "proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if folder.name.isdigit() and (told := _process(folder)):
                found.append(told)
    return sorted(found, key=lambda one: -one["cpu_s"])[:MOST_OTHERS]


def _process(folder: Path) -> dict[str, Any] | None:
    stat, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
    fields = rest.split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    if cpu_s < _LEAST_S or int(fields[6]) & _KERNEL_THREAD or ours(folder):
        return None
    allowed = field(r"^Cpus_allowed_list:\s*(\S+)", text(str(folder / "status")))
    name = "".join(c if c.isprintable() else "?" for c in stat.partition("(")[2])[:40]
    about = {"pid": int(folder.name), "began": int(fields[19]), "uid": folder.stat().st_uid, "name": name}
    return {**about, "cpu_s": round(cpu_s, 2), "cpus": allowed[:400]}


def ours(folder: Path) -> bool:
    """Whether a process is of this job: by its environment, which only its own user reads, or its cgroup."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job:
        return folder.stat().st_uid == os.getuid()
    if f"/job_{job}/" in text(str(folder / "cgroup")) + "/":
        return True
    with contextlib.suppress(OSError):
        return f"SLURM_JOB_ID={job}".encode() in (folder / "environ").read_bytes().split(b"\0")
    return False


def queue_pairs(root: Path) -> dict[str, list[str]]:
    """Return by process the RDMA devices on which it has queue pairs; nothing where nobody tells."""
    asked = ("rdma", "-j", "resource", "show", "qp")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = ran(asked, _TOOL_S, PATH=path, LC_ALL="C") if root == Path("/") else None
    found: dict[str, set[str]] = {}
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        for one in json.loads(done.stdout) if done and done.returncode == 0 else ():
            if type(one.get("pid")) is int:
                found.setdefault(str(one["pid"]), set()).add(str(one.get("ifname"))[:64])
    return {pid: sorted(devices) for pid, devices in found.items()}


def hot(root: Path) -> dict[str, int]:
    """Return by CPU the milliseconds since boot that heat slowed it down (x86, Linux 5.6); none: not told."""
    found = {}
    for folder in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle"):
        told = [text(str(file)) for file in folder.glob("*_throttle_total_time_ms")]
        if most := max((int(one) for one in told if one.isdigit()), default=0):
            found[folder.parent.name[3:]] = most
    return found


def octets(root: Path) -> dict[str, tuple[int, int]]:
    """Return by network device the bytes that it received and sent since it is there."""
    found = {}
    for folder in sorted((root / "sys/class/net").glob("*")):
        told = [text(str(folder / f"statistics/{way}_bytes")) for way in ("rx", "tx")]
        if folder.name != "lo" and all(one.isdigit() for one in told):
            found[folder.name[:64]] = (int(told[0]), int(told[1]))
    return found


def told_of(netdev: str, what: str, root: Path = Path("/")) -> int:
    """Return a number that sysfs has of a network device; 0 also where nobody tells."""
    told = text(str(root / "sys/class/net" / netdev / what))
    return int(told) if told.isdigit() else 0


def serve(netdev: str, root: Path) -> list[int]:
    """Return the CPUs that a NIC's interrupts come to, or else those beside it; none: it does not say."""
    device = root / "sys/class/net" / netdev / "device"
    lists = (
        text(str(root / "proc/irq" / path.name / "effective_affinity_list"))
        or text(str(root / "proc/irq" / path.name / "smp_affinity_list"))
        for path in device.glob("msi_irqs/*")
    )
    return sorted(set[int]().union(*map(cpu_set, lists)) or cpu_set(text(str(device / "local_cpulist"))))


def astray(
    mine: Sequence[Mapping[str, Any]],  # this node's NICs: rail, netdev and address
    planned: Mapping[str, Sequence[Mapping[str, Any]]],  # those of each other node
) -> Iterator[dict[str, str]]:
    """Yield how this kernel sends to others' addresses on each rail where that is not the planned way."""
    sound = []
    for nic in ({**nic, "mtu_bytes": told_of(nic["netdev"], "mtu")} for nic in mine):
        if words := tcp_paths.faults_of(nic) or _on_another(nic, mine):
            yield {"rail": nic["rail"], "to": "", "words": words[:300]}
        else:
            sound.append(nic)
    names = sorted(planned)
    after = [name for name in names if name > node_name()]
    some = dict.fromkeys([*after, *names][:_MOST_PEERS])  # with very many, those after this one in the round
    strays = tcp_paths.astray(sound, {n: planned[n] for n in some}, _as_planned, sources=True)
    yield from strays[:_MOST_STRAYS]


def _on_another(nic: Mapping[str, Any], mine: Sequence[Mapping[str, Any]], root: Path = Path("/")) -> str:
    """Say over which other rail's NIC this one lies, as a macvlan does; a VLAN is a network of its own."""
    device = root / "sys/class/net" / nic["netdev"]
    if "DEVTYPE=vlan" in text(str(device / "uevent")):
        return ""
    below = [one for one in mine if one is not nic and (device / f"lower_{one['netdev']}").exists()]
    words = [f"it is no NIC of its own: it lies on {one['netdev']}, which is {one['rail']}" for one in below]
    return "".join(words[:1])


def _as_planned(to_ipv4: str, from_ipv4: str | None) -> tcp_paths.Route | None:
    """Return the kernel's way; None where another NIC in the same network may as well have it."""
    way = tcp_paths.route(to_ipv4, from_ipv4)
    other = from_ipv4 is not None and way is not None and tcp_paths.address(way.netdev) != from_ipv4
    if way and other and not way.own and not way.gateway:
        return None if tcp_paths.beside(way.netdev, to_ipv4) else way
    return way


def _ways_beside(
    mine: Sequence[Mapping[str, Any]], planned: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any], dict[str, str]]]:
    """Return the ways to the nodes beside this one on each rail: its NIC, the other's, their names."""
    return [
        (nic, end, {"rail": nic["rail"], "to": node})
        for nic in mine
        for node in tcp_paths.neighbours_of(node_name(), sorted({*planned, node_name()}))
        for end in planned[node]
        if end["rail"] == nic["rail"]
    ]


def answered(
    mine: Sequence[Mapping[str, Any]],  # this node's NICs: rail, netdev and address
    planned: Mapping[str, Sequence[Mapping[str, Any]]],  # those of each other node
) -> list[dict[str, str]]:
    """Return by rail which nodes beside this one answer there, as a kernel does also where nobody listens.

    A rail whose switch drops everything has its link up: only asking shows it. Silence on all rails
    says nothing, as a firewall may keep it; that of one that answered before the job, or on another, does.
    """
    found: list[dict[str, str]] = []
    calls: _Calls = []
    for nic, end, pair in _ways_beside(mine, planned):
        call = _bound(nic, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            call.bind((nic["ipv4"], 0))
            said = call.connect_ex((end["ipv4"], tcp_paths.port()))
            if said == errno.EINPROGRESS:
                calls.append((call, pair))
                continue
            found += [pair] if said in _ANSWERS else []
        call.close()
    return found + _heard(calls, select.POLLOUT, _ANSWER_S)


def answered_long(
    mine: Sequence[Mapping[str, Any]], planned: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[dict[str, str]]:
    """Return the same of datagrams as long as the interface sends, that no kernel cuts.

    A kernel that gets one where nobody listens says so (RFC 1122, 4.1.3.1), to who sent it alone.
    """
    calls: _Calls = []
    for nic, end, pair in _ways_beside(mine, planned):
        call = _bound(nic, socket.SOCK_DGRAM)
        try:
            tcp_paths.never_cut(call)
            call.bind((nic["ipv4"], 0))
            call.connect((end["ipv4"], tcp_paths.port()))
            whole = min(told_of(nic["netdev"], "mtu") - tcp_paths.HEADERS_BYTES, _LONGEST_BYTES)
            call.send(bytes(max(1, whole)))
        except OSError:
            call.close()
        else:
            calls.append((call, pair))
    return _heard(calls, select.POLLIN, _LONG_S)


_Calls = list[tuple[socket.socket, dict[str, str]]]  # what was asked, and of whom on which rail


def _bound(nic: Mapping[str, Any], kind: socket.SocketKind) -> socket.socket:
    """Return a socket that sends over one NIC alone; before Linux 5.7 root alone may: routes decide there."""
    call = socket.socket(socket.AF_INET, kind)
    call.setblocking(False)
    with contextlib.suppress(OSError):
        call.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic["netdev"].encode())
    return call


def _heard(calls: _Calls, event: int, seconds: float) -> list[dict[str, str]]:
    """Return who answered within so many seconds, and close what asked."""
    found: list[dict[str, str]] = []
    ready, left = select.poll(), {call.fileno(): (call, of) for call, of in calls}
    for number in left:
        ready.register(number, event)
    until = time.monotonic() + seconds
    while left and (left_s := until - time.monotonic()) > 0:
        for number, _ in ready.poll(left_s * 1000):
            ready.unregister(number)
            call, pair = left.pop(number)
            found += [pair] if call.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in _ANSWERS else []
            call.close()
    for call, _ in left.values():
        call.close()
    return found
