"""What commands share: arguments of the form NAME=VALUE, and the examples at the end of a command's help."""

from __future__ import annotations

from collections.abc import Iterable


def examples(*lines: str) -> str:
    """Return the epilog of a command's help; each line is one whole command."""
    # \b keeps the lines as they are.
    return "\b\n" + "\n".join(
        ["Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)]
    )


def assigned(
    arguments: Iterable[str], form: str, example: str, *, option: str = "", empty: bool = False
) -> dict[str, str]:
    """Return the values by name, in order; a value may hold commas and equals signs.

    Args:
        arguments: as they were given.
        form: what each must be, for the error: `PATH=RUN`.
        example: one that is right.
        option: that they were given with, for the error.
        empty: whether a value may be empty.

    Raises:
        BadInput: one is not of that form, or a name is given twice.
    """
    from shakedown.records.errors import BadInput

    found: dict[str, str] = {}
    said = f"{option} " if option else ""
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if not sign or not name.strip() or not (value or empty):
            raise BadInput(f"{said}{argument[:200]!r} is not {form}", fix=f"write {example}")
        if name in found:
            raise BadInput(f"{said}{name[:80]!r} is given twice", fix="give it once")
        found[name] = value
    return found
