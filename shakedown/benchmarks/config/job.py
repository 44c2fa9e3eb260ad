"""Read this node's settings back, one file for each NIC and for each target of the whole node; also which MAC
its kernel has for the addresses of a rail's other NICs, and how it sends there. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shakedown.onnode.counters import unwritable
from shakedown.onnode.journal import Clock, Journal, job, ran
from shakedown.onnode.noted import node_name
from shakedown.onnode.tcp_paths import Route, route
from shakedown.run import service

# An ordinary user cannot send ARP requests, but can have the kernel send them: a datagram to an address of
# the rail makes it look for the owner, and `ip neigh` says whom it found. An entry counts once its owner has
# answered (REACHABLE): a kernel keeps the MAC of a NIC that was swapped long ago, and calls it STALE.

_DISCARD_PORT = 9  # RFC 863: whoever listens there throws away what comes
# An old entry's owner is asked 5 s after it was used (arp(7), delay_first_probe_time), three times a second
# apart, and then everybody.
_WAIT_S = 12.0
_AGAIN_S = 1.0
_ANSWERED = {"REACHABLE", "PERMANENT", "NOARP"}
# A kernel keeps 512 neighbours of all its NICs before it forgets some (arp(7), gc_thresh2).
_MOST_KEPT, _MOST_PEERS = 512, 128


def on_rail(spec: Mapping[str, Any], rail: str) -> list[tuple[str, str]]:
    """Return address and node of every NIC on a rail, in the order of addresses, by the job's `spec.json`."""
    targets, expect = spec["targets"], spec["expect"]
    found = [
        (expect[node][name].get("ipv4"), node)
        for node, names in targets.items()
        for name, on in names.items()
        if on == rail
    ]
    return sorted((address, node) for address, node in found if isinstance(address, str))


def peers(
    spec: Mapping[str, Any], node: str, target: str, nics: list[tuple[str, str]] | None = None
) -> list[str]:
    """Return the addresses of the other nodes' NICs on a NIC's rail, by the job's own `spec.json`.

    `nics`: what `on_rail` returns of it, where somebody asks for many nodes.
    """
    targets, expect = spec["targets"], spec["expect"]
    own = targets[node]
    if nics is None:
        nics = on_rail(spec, own[target]) if own[target] is not None else []
    # With very many, those after this node in the round: each address is looked up by some node.
    mine = expect[node][target].get("ipv4") or ""
    most = min(_MOST_PEERS, _MOST_KEPT // max(sum(on is not None for on in own.values()), 1))
    others = [address for address, other in nics if other != node]
    return [*(a for a in others if a > mine), *(a for a in others if a <= mine)][:most]


class WantedNeighbours(NamedTuple):
    """Whom to look for on a NIC: its own address, and those of the others on its rail."""

    own: str
    addresses: list[str]


def neighbours(
    nics: Mapping[str, WantedNeighbours],
    table: Callable[[], str | None] | None = None,
    wait_s: float = _WAIT_S,
) -> dict[str, dict[str, str]] | None:
    """Return by NIC the MAC of each address whose owner answered; None if the kernel's table cannot be read.

    An address beyond a router has none. Takes no longer than `wait_s`, and ends once all have answered. One
    that has answered counts, though its entry may be old again, or forgotten, before the last one answers.
    """
    found: dict[str, dict[str, str]] = {netdev: {} for netdev in nics}
    deadline = time.monotonic() + wait_s
    while True:
        for wanted in nics.values():
            _poke(wanted)
        time.sleep(min(_AGAIN_S, wait_s / 4))
        text = table() if table else _ip("neigh")
        if text is None:
            return None
        for netdev, wanted in nics.items():
            known = read_table(text, netdev)
            found[netdev] |= {address: known[address] for address in wanted.addresses if address in known}
        if all(len(found[n]) == len(w.addresses) for n, w in nics.items()) or time.monotonic() > deadline:
            return found


def _poke(wanted: WantedNeighbours) -> None:
    for address in wanted.addresses:
        # No route, or no such address here: then there is no neighbour either.
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as poke:
            poke.bind((wanted.own, 0))
            poke.sendto(b"", (address, _DISCARD_PORT))


def _ip(*words: str) -> str | None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = ran(("ip", "-j", "-4", *words, "show"), 10, PATH=path, LC_ALL="C")
    return done.stdout if done and done.returncode == 0 else None


def read_table(text: str, netdev: str) -> dict[str, str]:
    """Read `ip -j neigh show`: the MAC by address of the NIC's neighbours that have answered."""
    try:
        entries = json.loads(text or "[]")
    except ValueError:
        return {}
    return {
        str(entry["dst"]): str(entry["lladdr"]).lower()
        for entry in entries
        if entry.get("dev") == netdev and "lladdr" in entry and _ANSWERED & set(entry.get("state", ()))
    }


_MOST_NAMED = 3


def routes(
    spec: Mapping[str, Any],
    node: str,
    target: str,
    ask: Callable[[str, str | None], Route | None] = route,
    holders: Callable[[], Mapping[str, str]] | None = None,
) -> list[dict[str, object]]:
    """Return how the kernel sends from a NIC to each other node's on its rail, those that go alike together.

    An address that is this node's own, too, is told with the interface that has it. What the kernel would
    send from is asked for without a source, as programs do.
    """
    targets, expect = spec["targets"], spec["expect"]
    own = expect[node][target].get("ipv4")
    found: dict[tuple[Route | None, str], list[str]] = {}
    for address, _ in (end for end in on_rail(spec, targets[node][target]) if end[1] != node):
        way = ask(address, own)
        if way and way.netdev == target and (free := ask(address, None)) and free.netdev == target:
            way = way._replace(source=free.source)
        found.setdefault((way, address if way and way.own else ""), []).append(address)
    has = (holders or _holders)() if any(way and way.own for way, _ in found) else {}
    told: list[dict[str, object]] = []
    for (way, mine), addresses in found.items():
        document = {**dict.fromkeys(Route._fields), "own": False, **(way._asdict() if way else {})}
        document |= {"netdev": has[mine]} if mine in has else {}
        told.append({**document, "of": len(addresses), "to": addresses[:_MOST_NAMED]})
    return told


def _holders() -> dict[str, str]:
    """Return this node's own addresses, each with the interface that has it."""
    try:
        links = json.loads(_ip("addr") or "[]")
    except ValueError:
        return {}
    return {
        str(one.get("local")): str(link.get("ifname")) for link in links for one in link.get("addr_info", ())
    }


#     srun --ntasks-per-node=1 python -m shakedown.benchmarks.config.job FOLDER
#
# Asks the service that roles/host_settings installed, which reads with the privileges that this job lacks.
# FOLDER/spec.json says which targets are wanted and on which rail each NIC is.

SOCKET = "/run/shakedown/settings.sock"
_TIMEOUT_S = 180.0  # a read-back takes a second on hardware and half a minute on an emulated node


def ask(path: str, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """Return the service's report on every target. Raises OSError or ValueError."""
    document = service.ask(path, timeout_s)
    if not isinstance(document.get("targets"), list):
        raise ValueError("the answer is no report")
    return document


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Write a file and a journal line for every wanted target of this node."""
    node = node_name()
    wanted: dict[str, str | None] = spec["targets"][node]
    clock = Clock()
    problem: dict[str, str] | None = None
    reports: dict[str, Any] = {}
    try:
        reports = {report["target"]: report for report in ask(SOCKET)["targets"]}
    except FileNotFoundError:
        # Not a fault of the node: nothing here is wrong, and nothing is known.
        problem = {
            "kind": "not-run",
            "message": f"{node}: {SOCKET} is not there: run the playbook that configures hosts, or say "
            "acceptance.config.settings_reader: false where nothing may be installed",
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        # A bad answer is in doubt.
        problem = {"kind": "setup", "message": f"{SOCKET}: {error}; run the playbook that configures hosts"}
    nics = {
        target: WantedNeighbours(str(spec["expect"][node][target].get("ipv4", "")), peers(spec, node, target))
        for target, rail in wanted.items()
        if rail is not None and target in reports
    }
    known = neighbours(nics) if nics else {}
    for target in nics:
        reports[target]["neighbours"] = None if known is None else known[target]
        reports[target]["routes"] = routes(spec, node, target)
    try:
        _write(folder, node, wanted, reports, clock, problem)
    except OSError as error:
        return unwritable(node, folder, error)
    return 1 if problem and problem["kind"] != "not-run" else 0


def _write(
    folder: Path,
    node: str,
    wanted: dict[str, str | None],
    reports: dict[str, Any],
    clock: Clock,
    problem: dict[str, str] | None,
) -> None:
    journal = Journal(folder, node)
    for target, rail in wanted.items():
        name = f"settings.{node}.{target}.json"
        report = reports.get(target)
        missing = {"kind": "setup", "message": f"the node has no wanted state for {target}"}
        document = {"schema": 1, "node": node, **report} if report else {}
        (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        journal.add(
            "settings",
            "settings",
            name,
            [node],
            clock,
            1 if problem else 0,
            problem or (None if report else missing),
            rail=rail,
            params={} if rail else {"target": target},
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
