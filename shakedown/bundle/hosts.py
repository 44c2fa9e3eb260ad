"""The machines of an order, from files that the customer has: a snapshot of the hosts or known_hosts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from shakedown.records.errors import BadInput
from shakedown.records.order import OrderedNode
from shakedown.records.reading import read_bytes, read_record
from shakedown.records.refusals import refusal
from shakedown.records.snapshot import Snapshot

_LARGEST = 16 << 20


@dataclass
class Hosts:
    """What files say of machines, by name."""

    machines: dict[str, str] = field(default_factory=dict)
    keys: dict[str, set[str]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def node(self, name: str) -> OrderedNode:
        """Return one machine. Raises BadInput: its host key is not known."""
        keys, where = self.keys.get(name), self.files[0] if len(self.files) == 1 else None
        if not keys:
            raise BadInput(
                f"has no host key of {name}", fix=f"add what ssh-keyscan -t ed25519 {name} prints", file=where
            )
        try:
            return OrderedNode(machine=self.machines.get(name) or None, host_keys=tuple(sorted(keys)))
        except ValidationError as error:
            raise refusal(error, OrderedNode, file=where or self.files[0]) from None


def read_hosts(files: Iterable[Path]) -> Hosts:
    """Read snapshots (`inventory.json`) and known_hosts files.

    Raises:
        BadInput: a file is neither, or two of them name different keys of a machine.
    """
    hosts = Hosts()
    for path in files:
        hosts.files.append(path)
        content = read_bytes(path, _LARGEST)
        machines, keys = _snapshot(path) if content.lstrip()[:1] == b"{" else _known_hosts(content, path)
        for name, found in keys.items():
            known = hosts.keys.setdefault(name, set())
            if known and not known & found:
                raise BadInput(f"has other host keys of {name} than the files before it", file=path)
            known |= found
        hosts.machines |= machines
    return hosts


def refuse_twins(nodes: dict[str, OrderedNode]) -> None:
    """Refuse machines that have a host key in common: what one of them signs, the other could have.

    Raises BadInput.
    """
    whose: dict[str, str] = {}
    for name, node in nodes.items():
        for key in node.host_keys:
            if (other := whose.setdefault(key, name)) != name:
                raise BadInput(
                    f"{other} and {name} have the same SSH host key: nobody can tell whose outputs they sign",
                    fix="make each a key of its own (ssh-keygen -A, after removing the copied ones)",
                )


def _snapshot(path: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    machines: dict[str, str] = {}
    keys: dict[str, set[str]] = {}
    for part in read_record(path, Snapshot).components:
        if part.kind == "node":
            machines[part.host] = part.attributes.get("machine_id", "")
            keys[part.host] = set(part.attributes.get("ssh_host_keys", "").split())
    return machines, keys


def _known_hosts(content: bytes, path: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    keys: dict[str, set[str]] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if words[0].startswith(("|", "@")) or len(words) < 3:
                raise ValueError("names are hashed or marked, or a word is missing")
            blob = base64.b64decode(words[2], validate=True)
        except ValueError as error:
            raise BadInput(
                f"not a line of known_hosts: {error}"[:200],
                fix="write NAME TYPE KEY, as ssh-keyscan prints it",
                file=path,
                line=number,
            ) from None
        print_ = "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
        for name in words[0].split(","):
            keys.setdefault(name, set()).add(print_)
    return {}, keys
