"""Which switch port each NIC is cabled to: by a table that a person has, else by LLDP."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shakedown.discover.answers import PORT_PATTERN, NodeAnswer
from shakedown.nos.lldp import neighbours
from shakedown.records.errors import BadInput
from shakedown.records.untrusted import read_plain

COLUMNS = ("node", "netdev", "leaf", "leaf_port")
_SWITCH = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")


class Cable(NamedTuple):
    """The far end of a NIC's cable."""

    leaf: str
    port: str


Cabling = dict[tuple[str, str], Cable]  # by node and netdev


def read_table(file: Path) -> Cabling:
    """Return the cabling in a CSV file with the columns node, netdev, leaf, leaf_port.

    Raises:
        BadInput: naming the line of a column that is missing, a name that is none, a NIC or port twice.
    """
    fix = f"begin with the line {','.join(COLUMNS)}"
    raw = read_plain(file, "give a CSV file")
    if raw is None:
        raise BadInput("no such file", fix="give a CSV file", file=file)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8 text", fix="save it as CSV", file=file) from None
    found: Cabling = {}
    ends: dict[Cable, int] = {}
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [word.strip() for word in next(reader, [])]
        if missing := [name for name in COLUMNS if name not in header]:
            raise BadInput(f"no column {', '.join(missing)}", fix=fix, file=file, line=1)
        for row in reader:
            if not any(word.strip() for word in row):
                continue
            line = reader.line_num
            if len(row) != len(header):
                raise BadInput(f"{len(row)} values, {len(header)} columns", fix=fix, file=file, line=line)
            values = dict(zip(header, (word.strip() for word in row), strict=True))
            for name in ("node", "netdev", "leaf"):
                if not _SWITCH.match(values[name]):
                    raise BadInput(
                        f"{name} {values[name][:64]!r} is no name",
                        fix="use letters, digits and ._-",
                        file=file,
                        line=line,
                    )
            if not re.match(PORT_PATTERN, values["leaf_port"]):
                raise BadInput(
                    f"leaf_port {values['leaf_port'][:64]!r} is no port",
                    fix="write it as the switch does",
                    file=file,
                    line=line,
                )
            key, cable = (values["node"], values["netdev"]), Cable(values["leaf"], values["leaf_port"])
            if key in found:
                raise BadInput(
                    f"{key[0]} {key[1]} is listed twice", fix="one NIC has one cable", file=file, line=line
                )
            if cable in ends:
                raise BadInput(
                    f"{cable.leaf} {cable.port} is listed twice, first on line {ends[cable]}",
                    fix="one port has one cable",
                    file=file,
                    line=line,
                )
            found[key], ends[cable] = cable, line
    except csv.Error as error:
        raise BadInput(f"is no CSV: {error}", fix=fix, file=file, line=reader.line_num) from None
    return found


def of_lldp(nodes: Mapping[str, NodeAnswer]) -> Cabling:
    """Return what LLDP tells: NICs with one neighbour whose names can be written down.

    A port with several neighbours says nothing of its cable: something between repeats the frames.
    """
    found: Cabling = {}
    for name, node in nodes.items():
        if not node.lldp.strip():
            continue
        try:
            heard = neighbours(node.lldp)
        except BadInput:
            continue  # lldpd answered with something else: as good as none
        for netdev, ends in heard.items():
            if len(set(ends)) == 1:
                leaf, port = ends[0][0].partition(".")[0], ends[0][1]
                if _SWITCH.match(leaf) and re.match(PORT_PATTERN, port):
                    found[name, netdev] = Cable(leaf, port)
    return found
