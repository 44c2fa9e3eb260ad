"""Whether two hosts of the inventory are two machines: nothing that identifies a machine may be on both.

Two names for one machine measure it against itself, through no cable at all, and pass as two.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import combinations

from shakedown.records.names import natural_key
from shakedown.records.snapshot import Component, Snapshot

# What a running machine has to itself: attribute of the node, and how it is called. One boot is one machine.
BOOT = "boot_id"
_OF_NODE = {
    "machine_id": "machine id",
    BOOT: "boot id",
    "serial": "serial number",
    "board_serial": "serial number of the board",
}
_OF_NIC = {"mac": "MAC address", "node_guid": "RDMA node GUID"}
# What vendors leave in a serial number that nobody set.
_NO_SERIAL = re.compile(
    r"(?i)|none|n/?a|unknown|not (specified|available|applicable|provided)|default string"
    r"|to be filled by o\.?e\.?m\.?|(system|chassis|base ?board|board) serial number"
    r"|0+|x+|\.+|0?123456789|invalid"
)
_NO_ADDRESS = re.compile(r"[0:.-]*")
# Nodes that boot one image have one SSH host key on purpose: it proves nothing alone, and is only named.
_KEYS = "ssh_host_keys"
# A NIC of the machine itself; the BMC's gadget on USB has one address in every server of a vendor.
_ON_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
CLONED = "cloned images: give each its own (rm /etc/machine-id && systemd-machine-id-setup, then reboot)"


def shared_identities(inventory: Snapshot, nodes: Collection[str]) -> Iterator[tuple[str, int | None, str]]:
    """Yield (host, how many of its identities another of `nodes` has too, which) for every host seen.

    None instead of a number: the snapshot tells nothing by which the machine could be known.
    """
    parts_of = _by_host(inventory, nodes)
    known = {host: _identities(parts) for host, parts in parts_of.items()}
    keys = {host: {p.attributes.get(_KEYS, "") for p in parts} - {""} for host, parts in parts_of.items()}
    texts: dict[str, list[str]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for pair in combinations(sorted(known, key=natural_key), 2):
        both = known[pair[0]] & known[pair[1]]
        if not both:
            continue
        words = _words(pair, dict(sorted(both)), keys=bool(keys[pair[0]] & keys[pair[1]]))
        for host in pair:
            texts[host].append(words)
            counts[host] += len(both)
    for host in sorted(known, key=natural_key):
        if not known[host]:
            told = f"the snapshot of {host} has no machine id, boot id, serial number, MAC or node GUID"
            yield host, None, f"{told}: nothing tells it from another machine"
        else:
            yield host, counts[host], "; ".join(texts[host][:3])


def _by_host(inventory: Snapshot, nodes: Collection[str]) -> dict[str, list[Component]]:
    found: dict[str, list[Component]] = {}
    for part in inventory.components:
        if part.host in nodes:
            found.setdefault(part.host, []).append(part)
    return found


def _identities(parts: list[Component]) -> set[tuple[str, str]]:
    """Return (kind, value) of everything that only this machine may have."""
    found: set[tuple[str, str]] = set()
    for part in parts:
        values = part.attributes
        if part.kind == "node":
            for key in _OF_NODE:
                value = values.get(key, "").strip()
                if value and not ("serial" in key and _NO_SERIAL.fullmatch(value)):
                    found.add((key, value))
        elif part.kind == "nic" and _ON_PCI.match(values.get("pci", "")):
            found |= _addresses(values)
    return found


def _addresses(values: dict[str, str]) -> set[tuple[str, str]]:
    one_each = ((key, value) for key in _OF_NIC for value in values.get(key, "").lower().split())
    return {(key, value) for key, value in one_each if not _NO_ADDRESS.fullmatch(value)}


def _words(pair: tuple[str, str], both: dict[str, str], *, keys: bool) -> str:
    """Say what two hosts share, and what that means."""
    names = {**_OF_NODE, **_OF_NIC}
    what = ", ".join(
        f"same {names[kind]}{f' {both[kind]}' if kind in _OF_NIC else ''}" for kind in names if kind in both
    ) + (", same SSH host keys" if keys else "")
    who = " and ".join(pair)
    if BOOT in both:
        return f"{who} are one machine: {what}"
    if set(both) == {"machine_id"}:
        # MACs and boot differ: two machines made from one image.
        return f"{who} have the {what}, but nothing else in common: {CLONED}"
    return f"{who} look like one machine: {what}"
