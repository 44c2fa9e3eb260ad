"""What a text of a document must look like, in words with an example instead of a regular expression.

A key that people write has its `pattern` from `shape`, so a value that it refuses is told in one sentence
everywhere: `must be NAME/VERSION, such as openmpi/4.1.6`. Each pattern has its words once, here or beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WORDS: dict[str, tuple[str, str]] = {}  # by pattern: what is right, and an example of it


def shape(pattern: str, must_be: str, example: str, **limits: Any) -> Any:  # noqa: ANN401  (as pydantic's Field)
    """Return pydantic's Field of a text of this pattern; `limits` are further ones, such as `max_length`.

    Raises:
        ValueError: the pattern has other words already, which would hide these.
    """
    if _WORDS.setdefault(pattern, (must_be, example)) != (must_be, example):
        raise ValueError(f"two descriptions of {pattern}")
    return Field(pattern=pattern, **limits)


def words_of(detail: ErrorDetails) -> str:
    """Return what one of pydantic's findings says, in plain words where it is about a pattern."""
    if detail["type"] == "string_pattern_mismatch":
        must_be, example = _WORDS.get(str(detail.get("ctx", {}).get("pattern")), ("", ""))
        if must_be:
            return f"must be {must_be}, such as {example}"
    return detail["msg"].removeprefix("Value error, ")


def known() -> Iterator[tuple[str, str, str]]:
    """Yield each pattern that has words, with them and the example."""
    for pattern, (must_be, example) in _WORDS.items():
        yield pattern, must_be, example


# Of several rooms. Paths end up in argv.
PlainPath = Annotated[
    str,
    shape(
        r"^/[A-Za-z0-9_./+-]+$",
        "an absolute path of letters, digits and _ . / + -",
        "/opt/perftest/bin",
        max_length=400,
    ),
]
# As its switch names it: Ethernet1/1, hundredGigE 1/1.
PortName = Annotated[
    str, shape(r"^[A-Za-z][A-Za-z0-9_.:/ -]{0,63}$", "a port's name as its switch has it", "Ethernet1/1")
]
