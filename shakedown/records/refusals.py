"""How pydantic's findings become one line that names file, line and key, and how to mend it.

Every document from outside is refused by this one way, so that a misspelt key reads the same everywhere:
`fabric.yml:3: fabric.roce: unknown key dcsp, did you mean dscp? -- mend the inventory`.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from shakedown.records.base import words_of
from shakedown.records.errors import BadInput

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

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
    if isinstance(branch, type) and issubclass(branch, BaseModel):
        return {field.alias or name: field.annotation for name, field in branch.model_fields.items()}
    if isinstance(branch, type) and dataclasses.is_dataclass(branch):
        return dict(get_type_hints(branch, include_extras=True))
    return {}
