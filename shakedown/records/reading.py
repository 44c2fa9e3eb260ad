"""Files of a run read without trust: plain, of a sane size, strict JSON, and exactly one record.

Whatever is wrong is refused in one line that names file, line and key (`BadInput`).
"""

import codecs
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path
from typing import NoReturn, TypeVar

from shakedown.records import untrusted
from shakedown.records.base import Record
from shakedown.records.errors import BadInput
from shakedown.records.refusals import read_as

# A plan names every pair: 151 MB for the 8,386,560 pairs of 4,096 simulated nodes, 2.5 GB to read it.
LARGEST_DOCUMENT = 256 << 20
# NCCL's log of a node's eight ranks is a third of a megabyte; 64 MiB is redacted in two seconds.
LARGEST_OUTPUT = 64 << 20

R = TypeVar("R", bound=Record)

# Made once: making one takes longer than reading a line. Numbers stay text, since Python refuses one of
# thousands of digits, and the keys behind it are looked at too.
_DISTINCT = json.JSONDecoder(object_pairs_hook=untrusted.distinct, parse_int=str)
_JSON = re.compile(rb"\n[ \t\r]*[{\[][^\n]*")  # a line that may be JSON


def open_plain(path: Path) -> BufferedReader:
    """Open a plain file for reading; links, pipes and devices are refused."""
    file = untrusted.open_plain(path, "a run holds plain files")
    if file is None:
        raise BadInput("does not exist", fix="name a complete run folder", file=path)
    return BufferedReader(file, 1 << 18)


# What was read of each file, by digest, and the files that said something else when they were read again.
_SEEN: ContextVar[tuple[dict[Path, bytes], set[Path]] | None] = ContextVar("_SEEN", default=None)


@contextlib.contextmanager
def one_reading() -> Iterator[set[Path]]:
    """Refuse any file that is read again and says something else; yield the set that such files get into.

    Else a file that is swapped all the time is judged by one content and held against its digest by another.
    """
    changed: set[Path] = set()
    token = _SEEN.set(({}, changed))
    try:
        yield changed
    finally:
        _SEEN.reset(token)


def read_bytes(path: Path, most: int = LARGEST_DOCUMENT) -> bytes:
    """Read a plain file of at most so many bytes. Raises BadInput."""
    with open_plain(path) as file:
        # Asked first: a sparse file of 8 GiB costs nothing on disk, and all of it in memory.
        too_large = os.fstat(file.fileno()).st_size > most
        content = b"" if too_large else file.read(most + 1)
    if too_large or len(content) > most:
        raise BadInput(f"is larger than {most} bytes", fix="it is no record of a run", file=path)
    if (seen := _SEEN.get()) is not None:
        digest = hashlib.sha256(content).digest()
        if seen[0].setdefault(path, digest) != digest:
            seen[1].add(path)
            raise BadInput("was changed while it was read", fix="stop what writes there", file=path)
    return content


def read_output(path: Path) -> bytes:
    """Read what a tool or a job wrote below `raw/`, a plain file of at most 64 MiB. Raises BadInput."""
    return read_bytes(path, LARGEST_OUTPUT)


def read_evidence(path: Path, most: int = LARGEST_OUTPUT) -> bytes:
    """Read what decides something and may be JSON, or lines of it; no key is twice in one object.

    Parsers take the last of two: `"exit_code": 1, "exit_code": 0` would be a success. Whether it is JSON at
    all is its own reader's to say. Raises BadInput as `read_output` does.
    """
    content = read_bytes(path, most)
    begins = content.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if path.suffix != ".jsonl" and begins in (b"{", b"[") and _is_whole(content, path, None):
        return content
    # Below a line of something else too: readers pass over a library's warning.
    lines, number, told = b"\n" + content, 1, 0
    for line in _JSON.finditer(lines):
        number, told = number + lines.count(b"\n", told, line.start()), line.start()
        _is_whole(line.group(), path, number)
    return content


def _is_whole(content: bytes, path: Path, line: int | None) -> bool:
    """Return whether this is one JSON document. Raises BadInput for a key that is there twice."""
    try:
        _DISTINCT.decode(content.decode("utf-8-sig"))
    except untrusted.DuplicateKeyError as twice:
        again = "run the job again: what says two things is no evidence"
        raise BadInput(str(twice), fix=again, file=path, line=line) from None
    except (ValueError, RecursionError):
        return False
    return True


def read_record(path: Path, kind: type[R]) -> R:
    """Read a file that holds one record. Raises BadInput."""
    content = read_bytes(path)
    strict_json(content, path, None)
    record = read_as(kind, content, file=path)
    if "schema_" not in record.model_fields_set:
        refuse_schema(path, None)
    return record


def refuse_schema(path: Path, line: int | None) -> NoReturn:
    """Refuse a record that does not say which release wrote it. Raises BadInput."""
    raise BadInput("schema: missing", fix='add "schema": 1', file=path, line=line)


def strict_json(content: bytes, path: Path, line: int | None) -> None:
    """Refuse what the validator lets pass: duplicate keys, NaN and infinities. Raises BadInput."""

    def constant(token: str) -> NoReturn:
        raise ValueError(f"{token} is no JSON number")

    try:
        json.loads(content, object_pairs_hook=untrusted.distinct, parse_constant=constant)
    except RecursionError:
        raise BadInput("is nested too deeply", fix="it is no record", file=path, line=line) from None
    except ValueError as error:
        raise BadInput(str(error)[:300], fix="write strict JSON", file=path, line=line) from None
