"""Files of others read without trust, or refused in one line that names file, line and key, and the way out.

Plain files of a sane size, strict JSON, and exactly one record: a misspelt key reads the same everywhere,
`fabric.yml:3: fabric.roce: unknown key dcsp, did you mean dscp? -- mend the inventory`.
Standard library only, since compute nodes use this: what judges records imports pydantic when it is called.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import difflib
import errno
import hashlib
import json
import os
import re
import stat
import time
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from enum import IntEnum
from io import BufferedReader, FileIO
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from shakedown.records.wording import printable

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from shakedown.records.base import Record

M = TypeVar("M", bound="BaseModel")
R = TypeVar("R", bound="Record")

# A plan names every pair: 151 MB for the 8,386,560 pairs of 4,096 simulated nodes, 2.5 GB to read it.
LARGEST_DOCUMENT = 256 << 20
# NCCL's log of a node's eight ranks is a third of a megabyte; 64 MiB is redacted in two seconds.
LARGEST_OUTPUT = 64 << 20
# Nothing that drivers write or read is nested even half as deeply. Far below what Python's own limit allows,
# so that code that walks through the value, or only prints it, does not reach that limit either.
_DEEPEST = 32


class ExitStatus(IntEnum):
    """Exit status of every command."""

    PASS = 0
    FAIL = 1
    BAD_INPUT = 2  # bad input, or an error of our own
    INCOMPLETE = 3  # inconclusive, or something was not run


class BadInput(Exception):  # noqa: N818  (it names the input, which is at fault, not an error of ours)
    """Input that cannot be used. The command line prints it as one line and exits with status 2.

    Args:
        what: what is wrong, in words that quote the offending value.
        fix: what the user should do about it.
        file: the file the input came from, if any.
        line: the 1-based line in that file, if known.
    """

    def __init__(
        self, what: str, *, fix: str = "", file: str | Path | None = None, line: int | None = None
    ) -> None:
        self.what, self.fix, self.file, self.line = what, fix, file, line
        super().__init__(str(self))

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        fix = f" -- {self.fix}" if self.fix else ""
        # Outside text may hold newlines or terminal escapes; the promise is one printable line.
        text = f"{where}{self.what}{fix}"
        return printable(text)


def said_by_system(error: OSError) -> str:
    """Return what the system says of a file in one line, with the way out where its disk or quota is full."""
    words = ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
    if error.filename and error.errno in (errno.ENOSPC, errno.EDQUOT):
        words += " -- make room there, then start it again"
    return printable(words)


# How a file is opened and read.


_GIVEN_BACK_S = 5.0


def open_file(path: Path | str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file as os.open does, without waiting for a pipe, and not followed where it is a link.

    An NFS server, or who holds a lease on it (fcntl(2), F_SETLEASE), gives a file back on being asked: until
    then such an open says EAGAIN. Raises OSError.
    """
    until = time.monotonic() + _GIVEN_BACK_S
    while True:
        try:
            return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=dir_fd)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _open(path: Path, fix: str) -> FileIO | None:
    """Open a plain file for reading, or return None if there is none.

    A pipe would never end, and a link may lead anywhere, so both are refused; where others can put links into
    the path itself, `run.share` opens it. Raises BadInput: it is no plain file, or cannot be read; `fix` says
    what to do about it.
    """
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", fix=fix, file=path) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput("is not a plain file", fix=fix, file=path)
    return FileIO(descriptor)


def open_plain(path: Path) -> BufferedReader:
    """Open a plain file for reading; links, pipes and devices are refused."""
    file = _open(path, "a run holds plain files")
    if file is None:
        raise BadInput("does not exist", fix="name a complete run folder", file=path)
    return BufferedReader(file, 1 << 18)


def read_plain(path: Path, fix: str) -> bytes | None:
    """Return what a plain file holds, or None if there is none. Raises BadInput as `open_plain` does."""
    file = _open(path, fix)
    if file is None:
        return None
    with file:
        return file.readall()


def complete_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line) without empty ones and without a last one that was not finished."""
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        if line.strip():
            yield number, line


def holds_something(path: Path) -> bool:
    """Return whether this is a plain file that is not empty."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


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
        if seen[0].setdefault(path.absolute(), digest) != digest:
            seen[1].add(path.absolute())
            raise BadInput("was changed while it was read", fix="stop what writes there", file=path)
    return content


def read_output(path: Path) -> bytes:
    """Read what a tool or a job wrote below `raw/`, a plain file of at most 64 MiB. Raises BadInput."""
    return read_bytes(path, LARGEST_OUTPUT)


# JSON and records.


class DuplicateKeyError(ValueError):
    """One object has a key twice, so that it says two things."""


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of these pairs. Raises DuplicateKeyError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        raise DuplicateKeyError(f"duplicate key {next(k for k in names if names.count(k) > 1)[:80]!r}")
    return found


def loads(raw: bytes | str) -> Any:  # noqa: ANN401  (whatever JSON holds, as json.loads)
    """Return parsed JSON.

    Raises ValueError: it is not JSON, not UTF-8, nested too deeply, or has a key twice in one object.
    """
    try:
        value = json.loads(raw, object_pairs_hook=distinct)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [child for item in level for child in _children(item)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _children(item: object) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []


# Made once: making one takes longer than reading a line. Numbers stay text, since Python refuses one of
# thousands of digits, and the keys behind it are looked at too.
_DISTINCT = json.JSONDecoder(object_pairs_hook=distinct, parse_int=str)
_JSON = re.compile(rb"\n[ \t\r]*[{\[][^\n]*")  # a line that may be JSON


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
    except DuplicateKeyError as twice:
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
        json.loads(content, object_pairs_hook=distinct, parse_constant=constant)
    except RecursionError:
        raise BadInput("is nested too deeply", fix="it is no record", file=path, line=line) from None
    except ValueError as error:
        raise BadInput(str(error)[:300], fix="write strict JSON", file=path, line=line) from None


# How pydantic's findings become one line.


# As much of a key, a value and of the whole sentence as a reader needs; all of them come from outside.
_KEY, _VALUE, _SENTENCE = 64, 80, 500
# Pydantic's words for a key that a model, or a dataclass, does not know.
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def refusal(
    error: ValidationError,  # what pydantic found
    # The model or type that was asked for, or a union of those that were; the known keys are read from it.
    model: object,
    *,
    file: str | Path | None = None,  # the file the document came from
    line: int | None = None,  # its 1-based line in that file
    fix: str = "correct or remove it",  # what the user should do about it
    about: str = "",  # what the document is not, put before the key: `not a counter file`
) -> BadInput:
    """Return the refusal of a document that its model does not take, to be raised."""
    what = explain(error, model)
    return BadInput(f"{about}: {what}" if about else what, fix=fix, file=file, line=line)


def read_as(
    model: type[M],
    text: str | bytes,
    *,
    file: str | Path | None = None,
    line: int | None = None,
    fix: str = "correct or remove it",
    about: str = "",
) -> M:
    """Return a JSON document as its model has it. Raises BadInput: the `refusal` with these words."""
    from pydantic import ValidationError

    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise refusal(error, model, file=file, line=line, fix=fix, about=about) from None


def explain(error: ValidationError, model: object) -> str:
    """Return one sentence about the first thing that is wrong: `key.path: what (got value)`.

    A misspelt key comes first: the key that is missing for it is only its consequence.
    """
    details = error.errors(include_url=False)
    # Of several models that one place tries in turn, the error names its own.
    model = next((b for b in _branches(model) if getattr(b, "__name__", "") == error.title), model)
    for detail in details:
        if detail["type"] in UNKNOWN:
            path, known = walk(model, detail["loc"][:-1])
            key = str(detail["loc"][-1])
            # Another branch of the union may know the key: then that branch was meant.
            if key not in known:
                return _sentence(path, unknown_key(key, known))
    first = details[0]
    return _sentence(walk(model, first["loc"])[0], _words(first))


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return what to say of an unknown key, with the nearest known one if one is near."""
    near = nearest(key, known)
    return f"unknown key {key[:_KEY]}" + (f", did you mean {near}?" if near else "")


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the known key that a misspelt one stands for, or an empty string if none is near."""
    return next(iter(difflib.get_close_matches(key, list(known), n=1)), "")


def _words(detail: ErrorDetails) -> str:
    from shakedown.records.base import words_of

    message = words_of(detail)
    # What is missing has no value; what the whole document says is in the file.
    given = "" if detail["type"] == "missing" or not detail["loc"] else repr(detail["input"])[:_VALUE]
    return f"{message} (got {given})" if given else message


def _sentence(path: Sequence[str], what: str) -> str:
    place = ".".join(part[:_KEY] for part in path)
    return (f"{place}: {what}" if place else what)[:_SENTENCE]


def walk(model: object, loc: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """Return the keys of a place without pydantic's own marks in it, and the keys known there.

    Pydantic names the branch of a union in a place, `fabric.Fabric.roce`; no file holds such a key.
    """
    here = list(_branches(model))
    path: list[str] = []
    for part in loc:
        below = [t for branch in here for t in _below(branch, part)]
        if below:
            here = [t for found in below for t in _branches(found)]
            path.append(str(part))
        elif Any in here or not here:
            path.append(str(part))
    return path, sorted({key for branch in here for key in _fields(branch)})


def _branches(model: object) -> Iterator[object]:
    """Yield the types that a type stands for: each branch of a union, without annotations."""
    if get_origin(model) is Annotated:
        yield from _branches(get_args(model)[0])
    elif get_origin(model) in (Union, types.UnionType):
        for branch in get_args(model):
            yield from _branches(branch)
    else:
        yield model


def _below(branch: object, part: int | str) -> Iterator[object]:
    """Yield the type of what lies under a key or index of a type; nothing if the type has no such key."""
    arguments = get_args(branch)
    origin = get_origin(branch)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        yield arguments[1]
    elif isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        if not isinstance(part, int):
            return
        fixed = origin is tuple and arguments[-1] is not Ellipsis
        if not fixed:
            yield arguments[0]
        elif part < len(arguments):
            yield arguments[part]
    elif (found := _fields(branch).get(str(part))) is not None:
        yield found


def _fields(branch: object) -> dict[str, object]:
    """Return the keys that a model or dataclass takes from a file, each with its type."""
    from pydantic import BaseModel

    if isinstance(branch, type) and issubclass(branch, BaseModel):
        return {field.alias or name: field.annotation for name, field in branch.model_fields.items()}
    if isinstance(branch, type) and dataclasses.is_dataclass(branch):
        return dict(get_type_hints(branch, include_extras=True))
    return {}
