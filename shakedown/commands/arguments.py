"""What commands share: how each is made, with examples at the end of its help, and arguments NAME=VALUE."""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperCommand

from shakedown.records.reading import BadInput
from shakedown.records.wording import printable

app = typer.Typer(
    name="shakedown",
    help="Acceptance tests for RoCE GPU clusters. Exit status: 0 pass, 1 fail, 2 bad input, 3 inconclusive.",
    add_completion=True,
    rich_markup_mode=None,  # plain help: rich would cost 0.2 s at every start
    pretty_exceptions_enable=False,
)

if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])


def group(name: str, words: str, *, epilog: str | None = None) -> typer.Typer:
    """Return a new group of commands, with its help."""
    made = typer.Typer(no_args_is_help=True, help=words, epilog=epilog)
    app.add_typer(made, name=name)
    return made


def command(
    *examples: str, of: typer.Typer = app, name: str | None = None, cls: type[TyperCommand] | None = None
) -> Callable[[F], F]:
    """Make a function a command; each example is one whole command. Tests run those that need no cluster."""
    # \b keeps the lines as they are.
    head = "Example:" if len(examples) == 1 else "Examples:"
    return of.command(name, cls=cls, epilog="\n".join(["\b", head, *(f"  {line}" for line in examples)]))


def console_of(width: int) -> "tuple[Console, Callable[..., None]]":
    """Return a console, so wide behind a pipe, and what prints a line on it, a label in a style before it."""
    from rich.console import Console
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if terminal else width)

    def say(text: str, label: str = "", style: str = "") -> None:
        # Text, not markup: names and messages come from the cluster.
        console.print(Text(label, style=style) + Text(printable(text)), soft_wrap=not terminal)

    return console, say


def assigned(
    arguments: Iterable[str],  # as they were given
    form: str,  # what each must be, for the error: `PATH=RUN`
    example: str,  # one that is right
    *,
    option: str = "",  # that they were given with, for the error
    empty: bool = False,  # whether a value may be empty
) -> dict[str, str]:
    """Return the values by name, in order; a value may hold commas and equals signs.

    Raises BadInput: one is not of that form, or a name is given twice.
    """
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
