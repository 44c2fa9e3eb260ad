"""The probe as one program for a bare node, and its answer put together again from numbered lines."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

from shakedown.onnode import discover_probe
from shakedown.records.errors import BadInput
from shakedown.records.untrusted import loads

_ONNODE = Path(discover_probe.__file__).parent
# A node with hundreds of PCI functions prints 150 kB; more than this was not printed by the probe.
_MOST_BYTES = 16_000_000
_LINE = re.compile(rf"{discover_probe.TAG} (\S{{1,128}}) (\d{{1,6}}) (\d{{1,6}}) ([A-Za-z0-9+/=]{{1,2000}})")

_PROGRAM = """\
import sys, types
package, onnode, probe = (types.ModuleType(name) for name in (
    "shakedown", "shakedown.onnode", "shakedown.onnode.topology_probe"))
for module in (package, onnode, probe):
    sys.modules[module.__name__] = module
onnode.topology_probe = probe
exec(compile({topology!r}, "topology_probe.py", "exec"), probe.__dict__)
exec(compile({discover!r}, "discover_probe.py", "exec"), {{"__name__": "__main__"}})
"""


def program() -> str:
    """Return the probe with what it needs, for `python3 -` on a node that has no Shakedown."""
    sources = {name: (_ONNODE / f"{name}_probe.py").read_text("utf-8") for name in ("topology", "discover")}
    return _PROGRAM.format(**sources)


def answers_in(text: str) -> dict[str, object]:
    """Return the document of every host whose lines are all there, from the mixed output of many.

    Raises:
        BadInput: a host's lines do not belong together, or hold no document.
    """
    pieces: dict[str, dict[int, str]] = {}
    wanted: dict[str, int] = {}
    for line in text.splitlines():
        match = _LINE.search(line)
        if match is None:
            continue  # a site's login scripts and Slurm print lines of their own
        host, number, many, piece = match[1], int(match[2]), int(match[3]), match[4]
        if wanted.setdefault(host, many) != many or pieces.setdefault(host, {}).get(number, piece) != piece:
            raise BadInput(
                f"{host[:80]!r} answered twice, and not alike", fix="is that name given to two nodes?"
            )
        pieces[host][number] = piece
    return {
        host: _document(host, (found[number] for number in sorted(found)))
        for host, found in pieces.items()
        if set(found) == set(range(1, wanted[host] + 1))
    }


def _document(host: str, pieces: Iterable[str]) -> object:
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode("".join(pieces), validate=True), _MOST_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise ValueError("it is too large or cut off")
        return loads(raw)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise BadInput(f"the answer of {host[:80]!r} cannot be read: {error}", fix="discover again") from None
