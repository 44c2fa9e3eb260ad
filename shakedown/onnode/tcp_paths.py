"""Whether this node's interfaces and the way to its neighbours are as planned, before data go over TCP.

    srun --ntasks-per-node=1 python -m shakedown.onnode.tcp_paths FOLDER

FOLDER/spec.json says in `paths` which interfaces each node has: rail, netdev, address, MTU. Written is
FOLDER/tcp.NODE.json: what is wrong with an interface, which node's rail the kernel sends to over another one,
and which neighbour a rail does not lead to, not with packets of the planned size, or with no TCP. A
collective shows these only as a hang, as an error without node and rail, or not at all: a route around a dead
rail carries its traffic, and so does the one rail that a library chose. Neighbours are those of a ring.
Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shakedown.onnode.ethtool_stats import ask_kernel, attribute, attributes
from shakedown.onnode.journal import job
from shakedown.onnode.noted import leave, node_name
from shakedown.onnode.standing import once_a_node
from shakedown.records.wording import BLAMES

# Linux, netdevice(7) and ip(7): an interface's address; datagrams that are never cut, whatever the kernel
# knows of the way.
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
_IP_MTU_DISCOVER, _PMTUDISC_PROBE = 10, 3
HEADERS_BYTES = 28  # IPv4 and UDP
_BACKLOG = 64  # two neighbours connect, a few times each
_SHORT_BYTES = 64
# The neighbours' programs start within this time of each other; how often and how long a size is tried then.
_START_S, _TRIES, _WAIT_S = 15.0, 8, 0.15
_CONNECT_S = 1.2  # the kernel asks again after 1 s (RFC 6298)
_LINGER_S = 10.0  # a neighbour may wait for connections that do not come


def faults_of(
    path: Mapping[str, Any],  # `rail`, `netdev`, `ipv4` and `mtu_bytes`, as planned
    root: Path = Path("/"),  # of the file system
) -> str:
    """Return what is wrong with an interface itself, nothing if it is as planned."""
    name, folder = path["netdev"], root / "sys/class/net" / path["netdev"]
    if not folder.exists():
        return f"there is no {name}"
    said = []
    if (folder / "operstate").read_text(encoding="ascii").strip() == "down":
        said.append("it is down")
    elif (has := address(name)) != path["ipv4"]:
        said.append(f"it has {'the address ' + has if has else 'no address'}, {path['ipv4']} is planned")
    mtu = int((folder / "mtu").read_text(encoding="ascii"))
    if mtu != path["mtu_bytes"]:
        said.append(f"its MTU is {mtu} bytes, {path['mtu_bytes']} are planned")
    return "; ".join(said)


def address(netdev: str, what: int = _SIOCGIFADDR) -> str | None:
    """Return an interface's IPv4 address (or its netmask, if asked for `what`), None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            found = fcntl.ioctl(any_socket, what, struct.pack("256s", netdev.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def beside(netdev: str, ipv4: str) -> bool:
    """Whether an address is in an interface's own network."""
    own, mask = address(netdev), address(netdev, _SIOCGIFNETMASK)
    if own is None or mask is None:
        return False
    ours, bits, theirs = (int.from_bytes(socket.inet_aton(one), "big") for one in (own, mask, ipv4))
    return ours & bits == theirs & bits


class Route(NamedTuple):
    """How the kernel sends to an address: the interface, and what else its route says."""

    netdev: str
    gateway: str | None = None
    mtu_bytes: int | None = None  # None: the interface's
    own: bool = False  # the address is one of this node's own
    source: str | None = None  # the address it would send from; None: the one that was asked for


# linux/rtnetlink.h: the request, its answer, and attributes of both; RTN_LOCAL of a route's types.
_GET_ROUTE, _NEW_ROUTE, _LOCAL = 26, 24, 2
_TO, _FROM, _OUT, _GATEWAY, _SOURCE, _METRICS, _METRIC_MTU = 1, 2, 4, 5, 7, 8, 2


def route(to_ipv4: str, from_ipv4: str | None) -> Route | None:
    """Return what `ip route get TO from FROM` says; None where the kernel has no way, or does not answer."""
    ends = attribute(_TO, socket.inet_aton(to_ipv4))
    ends += attribute(_FROM, socket.inet_aton(from_ipv4)) if from_ipv4 else b""
    body = struct.pack("=8BI", socket.AF_INET, 32, 32 if from_ipv4 else 0, 0, 0, 0, 0, 0, 0) + ends
    try:
        return told_route(ask_kernel(socket.NETLINK_ROUTE, _GET_ROUTE, body))
    except (OSError, struct.error):
        return None


def told_route(answer: bytes) -> Route | None:
    """Return the route in the kernel's answer, or None. Raises OSError: its interface is gone."""
    length, kind = struct.unpack_from("=IH", answer)
    if kind != _NEW_ROUTE:
        return None
    told = dict(attributes(answer[28:length]))  # after the headers of message and route
    if _OUT not in told:
        return None
    metrics = dict(attributes(told.get(_METRICS, b"")))
    mtu = struct.unpack("=I", metrics[_METRIC_MTU])[0] if _METRIC_MTU in metrics else None
    gateway, source = (socket.inet_ntoa(told[a]) if a in told else None for a in (_GATEWAY, _SOURCE))
    netdev = socket.if_indextoname(struct.unpack("=I", told[_OUT])[0])
    return Route(netdev, gateway, mtu, answer[23] == _LOCAL, source)


def astray(
    mine: Sequence[Mapping[str, Any]],  # this node's interfaces
    others: Mapping[str, Sequence[Mapping[str, Any]]],  # every other node's
    ask: Callable[[str, str | None], Route | None] = route,  # `route`
    *,
    sources: bool = False,  # also what it would send from, if a program does not say
) -> list[dict[str, str]]:
    """Return by rail and node which way the kernel takes that is not the planned one."""
    found = []
    for path in mine:
        for node, theirs in others.items():
            for end in theirs:
                way = ask(end["ipv4"], path["ipv4"]) if end["rail"] == path["rail"] else None
                free = ask(end["ipv4"], None) if sources and way and way.netdev == path["netdev"] else None
                if way is not None and free is not None and free.netdev == way.netdev:
                    way = way._replace(source=free.source)
                if way is not None and (words := _unlike(path, way)):
                    found.append({"rail": path["rail"], "to": node, "words": f"{end['ipv4']} {words}"})
    return found


def _unlike(path: Mapping[str, Any], way: Route) -> str:
    if way.own:
        return "is an address of this node too"
    if way.netdev != path["netdev"]:
        return f"is reached over {way.netdev}{f' and {way.gateway}' if way.gateway else ''}"
    if way.mtu_bytes is not None and way.mtu_bytes < path["mtu_bytes"]:
        return f"is reached by a route with an MTU of {way.mtu_bytes} bytes, {path['mtu_bytes']} are planned"
    if way.source not in (None, path["ipv4"]):
        return f"is sent to from {way.source}, {path['ipv4']} is planned"
    return ""


class Ends:
    """Two sockets on every sound interface of this node: they answer the neighbours, and ask them."""

    def __init__(self, paths: Sequence[Mapping[str, Any]], port: int) -> None:
        self.port, self.sockets = port, dict[str, socket.socket]()
        self.doors = dict[str, socket.socket]()  # for connections; nobody need accept them
        self.answered: set[tuple[str, str, int]] = set()
        self.done: set[str] = set()
        self.deaf: list[str] = []
        self._news = threading.Condition()
        for path in paths:
            end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                never_cut(end)
                end.bind((path["ipv4"], port))
            except OSError:  # another program has the port there
                end.close()
                self.deaf.append(path["rail"])
                continue
            end.settimeout(0.1)
            self.sockets[path["rail"]] = end
            try:
                self.doors[path["rail"]] = socket.create_server((path["ipv4"], port), backlog=_BACKLOG)
            except OSError:
                self.deaf.append(path["rail"])
            threading.Thread(target=self._listen, args=(path["rail"], end), daemon=True).start()

    def _listen(self, rail: str, end: socket.socket) -> None:
        while True:
            try:
                text, (sender, _) = end.recvfrom(65536)
            except TimeoutError:
                continue
            except OSError:
                return
            # "?": a question, answered shortly with its size; "!": an answer; ".": the neighbour is done.
            if text[:1] == b"?":
                self._send(end, b"!%d" % len(text), sender)
                continue
            with self._news:
                if text[:1] == b"!" and text[1:].isdigit():
                    self.answered.add((rail, sender, int(text[1:])))
                elif text[:1] == b".":
                    self.done.add(sender)
                self._news.notify_all()

    def ask(self, rail: str, ipv4: str, size: int, tries: int) -> bool:
        """Return whether a neighbour answers a datagram of so many bytes."""
        key = (rail, ipv4, size)
        for _ in range(tries):
            if key in self.answered:
                return True
            if rail in self.sockets:
                self._send(self.sockets[rail], b"?".ljust(size), ipv4)
            with self._news:
                self._news.wait_for(lambda: key in self.answered, _WAIT_S)
        return key in self.answered

    def connects(self, rail: str, ipv4: str) -> bool | None:
        """Return whether TCP gets a connection to a neighbour; None: this end cannot try."""
        if rail not in self.doors:
            return None
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as call:
            call.settimeout(_CONNECT_S)
            try:
                call.bind((self.doors[rail].getsockname()[0], 0))
                call.connect((ipv4, self.port))
            except OSError:
                return False
        return True

    def leave(self, neighbours: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Say goodbye, and answer until the neighbours did, or have had their time."""
        until = time.monotonic() + _LINGER_S
        self._goodbye(neighbours)
        while not self._all_done(neighbours) and time.monotonic() < until:
            with self._news:
                self._news.wait_for(lambda: self._all_done(neighbours), _WAIT_S)
            self._goodbye(neighbours)
        for end in (*self.sockets.values(), *self.doors.values()):
            end.close()

    def _all_done(self, neighbours: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
        return all(self.done & {path["ipv4"] for path in paths} for paths in neighbours)

    def _goodbye(self, neighbours: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        for paths in neighbours:
            for path in paths:
                if path["rail"] in self.sockets:
                    self._send(self.sockets[path["rail"]], b".", path["ipv4"])

    def _send(self, end: socket.socket, text: bytes, ipv4: str) -> None:
        # No way, or larger than this interface sends: the answer is missing then.
        with contextlib.suppress(OSError):
            end.sendto(text, (ipv4, self.port))


def ways(ends: Ends, neighbour: str, paths: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return which rails do not lead to a neighbour, not with full packets, or with no TCP.

    Only a difference counts: where no rail answers at all, something may keep such datagrams back that lets
    TCP pass, and where none lets TCP pass to this port, a firewall may open only others.
    """
    until, short, tcp = time.monotonic() + _START_S, set[str](), set[str]()
    while not short | tcp and time.monotonic() < until:
        short = {path["rail"] for path in paths if ends.ask(path["rail"], path["ipv4"], _SHORT_BYTES, 1)}
        tcp = set() if short else {p["rail"] for p in paths if ends.connects(p["rail"], p["ipv4"])}
    found = []
    for path in paths:
        rail, full = path["rail"], path["mtu_bytes"] - HEADERS_BYTES
        way = {"rail": rail, "to": neighbour, "full_bytes": None}
        if short and not ends.ask(rail, path["ipv4"], _SHORT_BYTES, _TRIES):
            found.append(way)
        elif short and not ends.ask(rail, path["ipv4"], full, _TRIES):
            found.append({**way, "full_bytes": path["mtu_bytes"]})
        elif short or tcp:
            connected = rail in tcp or ends.connects(rail, path["ipv4"])
            tcp |= {rail} if connected else set()
            found += [{**way, "only": "datagrams" if short else ""}] if connected is False else []
    return [way for way in found if tcp or "only" not in way]


def neighbours_of(node: str, nodes: Sequence[str]) -> list[str]:
    """Return the nodes beside one in a ring of all."""
    at = nodes.index(node)
    return [name for name in dict.fromkeys((nodes[at - 1], nodes[(at + 1) % len(nodes)])) if name != node]


def port() -> int:
    """Return the port of this job: jobs that meet on a node each have their own."""
    return 20000 + int(os.environ.get("SLURM_JOB_ID") or 0) % 10000


def never_cut(end: socket.socket) -> None:
    """Send whole datagrams of this socket or none, whatever the kernel knows of the way. Raises OSError."""
    end.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)


def mac_of(netdev: str, root: Path = Path("/")) -> str:
    """Return an interface's hardware address; empty: there is none to read."""
    try:
        return (root / "sys/class/net" / netdev / "address").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def answering(table: Path = Path("/proc/net/arp")) -> dict[str, str]:
    """Return which hardware address answers for each IPv4 address on this node's networks (arp(7))."""
    try:
        rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    except (OSError, ValueError):
        return {}
    return {row[0]: row[3] for row in rows if len(row) > 3 and row[3] != "00:00:00:00:00:00"}


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Look at this node's interfaces and ways."""
    planned, node = spec["paths"], node_name()
    wrong = {path["rail"]: words for path in planned[node] if (words := faults_of(path))}
    ends = Ends([path for path in planned[node] if path["rail"] not in wrong], port())
    beside = neighbours_of(node, list(planned))
    lost = [way for name in beside for way in ways(ends, name, planned[name])]
    ends.leave([planned[name] for name in beside])
    others = {name: paths for name, paths in planned.items() if name != node}
    strays = astray([path for path in planned[node] if path["rail"] not in wrong], others)
    found = {"node": node, "interfaces": wrong, "ways": lost, "deaf": ends.deaf, "astray": strays}
    found |= {"macs": {path["rail"]: mac_of(path["netdev"]) for path in planned[node]}, "heard": answering()}
    leave(folder, f"tcp.{node}.json", found)
    return 0


def look(folder: Path, spec: Mapping[str, Any]) -> dict[str, str] | None:
    """Have every node of this job look where data go over TCP; return what is wrong, as a record has it."""
    if not (paths := spec.get("paths")):
        return None
    # What no node could say is no reason to measure nothing.
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            once_a_node(len(paths), "shakedown.onnode.tcp_paths", str(folder)),
            timeout=90,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    return problem(folder, paths)


def problem(folder: Path, paths: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str] | None:
    """Return what the nodes found, as a record's problem, or None.

    A way counts if both its ends could speak: a node that said nothing may not have answered either.
    """
    names = {(node, path["rail"]): path["netdev"] for node, mine in paths.items() for path in mine}
    heard: dict[str, list[str]] = {}
    macs: dict[str, dict[str, str]] = {}
    answers: dict[str, dict[str, str]] = {}
    wrong: dict[tuple[str, str], str] = {}
    strays: dict[tuple[str, str], list[dict[str, str]]] = {}
    lost: dict[tuple[str, frozenset[str], int | str | None], list[str]] = {}  # who sent it
    for node in paths:
        try:
            seen = json.loads((folder / f"tcp.{node}.json").read_bytes())
        except (OSError, ValueError):
            continue
        heard[node] = seen["deaf"]
        macs[node], answers[node] = seen.get("macs", {}), seen.get("heard", {})
        wrong |= {(node, rail): words for rail, words in seen["interfaces"].items()}
        for stray in seen.get("astray", ()):  # not of an older release's programs on the nodes
            strays.setdefault((node, stray["rail"]), []).append(stray)
        for way in seen["ways"]:
            key = (way["rail"], frozenset((node, way["to"])), way["full_bytes"] or way.get("only") or None)
            lost.setdefault(key, []).append(node)
    ours = {mac: node for node, own in macs.items() for mac in own.values() if mac}
    said = [
        BLAMES["interface"].told(node=node, netdev=names[node, rail], rail=rail, words=words)
        for (node, rail), words in wrong.items()
    ]
    for (node, rail), several in strays.items():
        more = f" and {len(several) - 1} more" if len(several) > 1 else ""
        of = {"netdev": names[node, rail], "owner": several[0]["to"], "words": several[0]["words"] + more}
        said.append(BLAMES["way-strays"].told(node=node, rail=rail, **of))
    for (rail, ends, full), senders in lost.items():
        # An interface or a route that is wrong itself explains it.
        explained = wrong.keys() | strays.keys()
        if all(node in heard and rail not in heard[node] and (node, rail) not in explained for node in ends):
            pair = " and ".join(sorted(ends))
            # Whoever answers for a neighbour's address got what was meant for it.
            for node, to in ((a, b) for a in sorted(ends) for b in sorted(ends - {a})):
                address = next((path["ipv4"] for path in paths[to] if path["rail"] == rail), "")
                other, right = answers[node].get(address, ""), macs[to].get(rail, "")
                if full is None and other and right and other != right:
                    owner = ours.get(other, f"somebody with the hardware address {other}")
                    of = {"address": address, "rail": rail, "owner": to, "other": owner, "node": node}
                    said.append(BLAMES["two-owners"].told(**of))
                    break
            else:
                said.append(_lost_way(rail, full, ends, senders, pair))
    return {"kind": "environment", "message": "; ".join(said)[:500]} if said else None


def _lost_way(
    rail: str, full: int | str | None, ends: frozenset[str], senders: Sequence[str], pair: str
) -> str:
    blame = BLAMES["no-tcp" if full == "datagrams" else "long-packets" if full else "rail-silent"]
    # A long question has a short answer: of long packets it is known who sent them.
    (to,) = ends - set(senders) if len(senders) == 1 else ("",)
    way = f" (from {senders[0]} to {to} alone)" if full and to else ""  # of a connection: who asked
    return blame.told(rail=rail, full=full, pair=pair, way=way)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
