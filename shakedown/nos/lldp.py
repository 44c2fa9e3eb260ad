"""LLDP neighbours from lldpd's `json0`, which a Linux leaf, SONiC and Cumulus print alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shakedown.records.tool_text import Source


def neighbours(text: str, file: str | Path | None = None) -> dict[str, list[tuple[str, str]]]:
    """Return, for every local port, the (system, port) at the other end.

    More than one means that something between the two repeats LLDP frames.

    Raises:
        BadInput: not lldpd's JSON.
    """
    source = Source(text, file)
    document = source.json()
    found: dict[str, list[tuple[str, str]]] = {}
    top = document.get("lldp") if isinstance(document, dict) else None
    if not isinstance(top, list):
        source.refuse("not lldpd's json0: no list `lldp`")
    for interface in (one for part in top if isinstance(part, dict) for one in part.get("interface", [])):
        port = _first(interface, "port")
        name = _text(_first(interface, "chassis"), "name") or _text(_first(interface, "chassis"), "id")
        kind = _first(port, "id")
        named = isinstance(kind, dict) and kind.get("type") == "ifname"
        remote = remote_port(_text(port, "id"), _text(port, "descr"), named=named)
        local = interface.get("name")
        if isinstance(local, str) and name and remote:
            found.setdefault(local, []).append((name, remote))
    return found


def remote_port(port_id: str, description: str, *, named: bool) -> str:
    """Return what the other end calls its port.

    A Linux host gives its MAC address for an id and the interface's name for a description. A switch gives
    the name for an id (`named`: the id is said to be an interface's name), and its description is what a
    person wrote there: `to spine0`.
    """
    return port_id if named and port_id else description or port_id


def _first(entry: Any, key: str) -> Any:  # noqa: ANN401  (a value of JSON)
    value = entry.get(key) if isinstance(entry, dict) else None
    return value[0] if isinstance(value, list) and value else {}


def _text(entry: Any, key: str) -> str:  # noqa: ANN401  (a value of JSON)
    value = _first(entry, key)
    text = value.get("value") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
