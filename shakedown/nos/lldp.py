"""Neighbours that switches heard by LLDP."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from shakedown.nos.system import refuse_error_text
from shakedown.records.tool_text import TextSource

_MAC = re.compile(r"(?i)([0-9a-f]{4}\.){2}[0-9a-f]{4}|([0-9a-f]{2}[:-]){5}[0-9a-f]{2}|")


def neighbours(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return, for every local port, the (system, port) at the other end.

    More than one means that something between the two repeats LLDP frames. Raises BadInput: not lldpd's JSON.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for local, name, remotes in _heard(text):
        found.setdefault(local, []).append((name, remotes[0]))
    return found


def by_every_name(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the same, with one entry for each name that the other end gives its port.

    Raises BadInput: not lldpd's JSON.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for local, name, remotes in _heard(text):
        add_neighbour(found, local, name, remotes)
    return found


def add_neighbour(
    found: dict[str, list[tuple[str, str]]], local: str, name: str, remotes: Iterable[str]
) -> None:
    """Add a neighbour to those of a port, once for each name of its own port. Without a name it is nobody."""
    if name:
        found.setdefault(local, []).extend((name, remote) for remote in remotes)


def _heard(text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (local port, system, its port's names) of every neighbour."""
    source = TextSource(text)
    document = source.json(by="lldpcli -f json0 show neighbors")
    top = document.get("lldp") if isinstance(document, dict) else None
    if not isinstance(top, list):
        source.refuse("not lldpd's json0: no list `lldp`")
    for interface in (one for part in top if isinstance(part, dict) for one in part.get("interface", [])):
        port = _first(interface, "port")
        name = _text(_first(interface, "chassis"), "name") or _text(_first(interface, "chassis"), "id")
        kind = _first(port, "id")
        named = isinstance(kind, dict) and kind.get("type") == "ifname"
        remotes = remote_ports(_text(port, "id"), _text(port, "descr"), named=named)
        local = interface.get("name")
        if isinstance(local, str) and name and remotes:
            yield local, name, remotes


def is_mac(port_id: str) -> bool:
    """Whether a port's id is a MAC address, in any of the usual spellings, or nothing."""
    return bool(_MAC.fullmatch(port_id))


def remote_ports(port_id: str, description: str, *, named: bool) -> tuple[str, ...]:
    """Return what the other end calls its port, the likeliest name first.

    A Linux host gives its MAC address for an id and the interface's name for a description. A switch gives
    the name for an id (`named`: the id is said to be an interface's name), and its description is what a
    person wrote there: `to spine0`. An id of another kind is a name that the switch has beside its own:
    SONiC gives a port's alias, and for a description what a person wrote or else its name
    (sonic-buildimage, dockers/docker-lldp/lldpmgrd).
    """
    if named and port_id:
        return (port_id,)
    names = (description, "" if is_mac(port_id) else port_id)
    return tuple(dict.fromkeys(name for name in names if name)) or ((port_id,) if port_id else ())


def _first(entry: Any, key: str) -> Any:  # noqa: ANN401  (a value of JSON)
    value = entry.get(key) if isinstance(entry, dict) else None
    return value[0] if isinstance(value, list) and value else {}


def _text(entry: Any, key: str) -> str:  # noqa: ANN401  (a value of JSON)
    value = _first(entry, key)
    text = value.get("value") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


# OS9 puts a heading over the neighbours of each port, which counts them; OS10 has none.

_HEADING = re.compile(r"(?m)^[ \t]*Local Interface \S+ \S+ has (\d{1,4}) neighbors?[ \t\r]*$")
_END = re.compile(r"(?m)^[ \t]*-{60,}[ \t\r]*$")  # under each neighbour
_SILENT = {"not advertised", ""}


def dell_neighbours(
    text: str,  # what the command printed
    *,
    system: str,  # `OS9` or `OS10`, for messages
) -> dict[str, list[tuple[str, str]]]:
    """Return LLDP neighbours, one block each.

    Raises BadInput: an error message, a block that is cut short, or fewer blocks than the headings count.
    """
    refuse_error_text(text, "neighbours")
    blocks = re.split(r"(?m)^[ \t]*(?=Remote Chassis ID Subtype:)", text)
    above = blocks[0].strip(" \t\r\n-=")
    if above and not _HEADING.match(above):
        TextSource(text).refuse(f"not {system}'s LLDP: something stands before the first neighbour")
    counted = [int(number) for number in _HEADING.findall(text)]
    if counted and sum(counted) != len(blocks) - 1:
        TextSource(text).refuse(
            f"{system}'s LLDP is cut short: {len(blocks) - 1} neighbours of {sum(counted)}"
        )
    found: dict[str, list[tuple[str, str]]] = {}
    for block in blocks[1:]:
        said: dict[str, str] = {}
        # A line that ends: half a name at the end of an output that was cut short has none. The first counts:
        # what a neighbour wrote into its description follows, and may be many lines.
        for key, value in re.findall(r"(?m)^[ \t]*([A-Z][A-Za-z ]*?):[ \t]*(.*)\n", block):
            said.setdefault(key, "" if value.strip().lower() in _SILENT else value.strip())
        local = said.get("Local Port ID", "")
        # OS9 leaves the line of a name out where the neighbour sent none; the end is always there.
        if not local or not _END.search(block):
            TextSource(text).refuse(f"{system}'s LLDP is cut short: a neighbour without local port or end")
        name = said.get("Remote System Name") or said.get("Remote Chassis ID", "")
        named = said.get("Remote Port Subtype", "").lower().startswith("interface name")
        about = said.get("Remote Port Description", "")
        add_neighbour(found, local, name, remote_ports(said.get("Remote Port ID", ""), about, named=named))
    return found
