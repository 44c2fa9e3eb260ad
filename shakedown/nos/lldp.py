"""LLDP neighbours, from lldpd's `json0` (Linux leaf, SONiC, Cumulus), EOS's JSON and NX-OS's blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shakedown.records.tool_text import Source


def neighbours(text: str, file: str | Path | None = None) -> dict[str, list[tuple[str, str]]]:
    """Return, for every local port, the (system, port) at the other end.

    More than one means that something between the two repeats LLDP frames. The neighbour's port is its
    description where it gives one (Linux hosts send the interface's name there), else its id.

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
        remote = _text(port, "descr") or _text(port, "id")
        local = interface.get("name")
        if isinstance(local, str) and name and remote:
            found.setdefault(local, []).append((name, remote))
    return found


def neighbours_eos(text: str, file: str | Path | None = None) -> dict[str, list[tuple[str, str]]]:
    """Return the same from EOS's `show lldp neighbors detail | json` (as Arista's ANTA reads it).

    Raises:
        BadInput: not that command's JSON.
    """
    source = Source(text, file)
    document = source.json()
    ports = document.get("lldpNeighbors") if isinstance(document, dict) else None
    if not isinstance(ports, dict):
        source.refuse("not EOS's LLDP: no object `lldpNeighbors`")
    found: dict[str, list[tuple[str, str]]] = {}
    for local, entry in ports.items():
        for one in entry.get("lldpNeighborInfo", []) if isinstance(entry, dict) else []:
            info = one.get("neighborInterfaceInfo", {}) if isinstance(one, dict) else {}
            remote = info.get("interfaceDescription") or info.get("interfaceId_v2") or info.get("interfaceId")
            name = one.get("systemName") or one.get("chassisId") if isinstance(one, dict) else None
            if isinstance(name, str) and isinstance(remote, str):
                found.setdefault(str(local), []).append((name, remote.strip('"')))
    return found


_NXOS_SILENT = {"null", "not advertised", ""}


def neighbours_nxos(text: str, file: str | Path | None = None) -> dict[str, list[tuple[str, str]]]:
    """Return the same from NX-OS's `show lldp neighbors detail`, one block a neighbour.

    Raises:
        BadInput: a block without a local port.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for block in re.split(r"(?m)^[ \t]*(?=Chassis id:)", text)[1:]:
        said = {
            key: "" if value.strip() in _NXOS_SILENT else value.strip()
            for key, value in re.findall(r"(?m)^\s*([A-Z][A-Za-z ]*?):[ \t]*(.*)$", block)
        }
        local = said.get("Local Port id", "")
        if not local:
            Source(text, file).refuse("not NX-OS's LLDP: a neighbour without local port")
        name = said.get("System Name") or said.get("Chassis id", "")
        remote = said.get("Port Description") or said.get("Port id", "")
        if name and remote:
            port = re.sub(r"^Eth(?=\d)", "Ethernet", local)
            found.setdefault(port, []).append((name, remote))
    return found


def _first(entry: Any, key: str) -> Any:  # noqa: ANN401  (a value of JSON)
    value = entry.get(key) if isinstance(entry, dict) else None
    return value[0] if isinstance(value, list) and value else {}


def _text(entry: Any, key: str) -> str:  # noqa: ANN401  (a value of JSON)
    value = _first(entry, key)
    text = value.get("value") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
