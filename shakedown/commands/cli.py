"""The `shakedown` command: gathers the commands and turns refused input into one line and exit status 2."""

from __future__ import annotations

import sys

import typer
from typer.exceptions import TyperException

from shakedown.records.errors import BadInput, ExitStatus

app = typer.Typer(
    name="shakedown",
    help="Acceptance tests for RoCE GPU clusters. Exit status: 0 pass, 1 fail, 2 bad input, 3 inconclusive.",
    add_completion=False,
    rich_markup_mode=None,  # plain help: rich would cost 0.2 s at every start
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    # A callback keeps this a group of commands, however few of them are registered.
    return


def _register() -> None:
    # Command modules import only typer at the top; what is slow is imported when a command runs.
    from shakedown.commands import COMMAND_MODULES

    if app.registered_commands:
        return  # main was called before, in this process
    for module in COMMAND_MODULES:
        module.register(app)


def main() -> None:
    """Entry point."""
    _register()
    try:
        status = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except BadInput as refused:
        print(f"shakedown: {refused}", file=sys.stderr)
        sys.exit(ExitStatus.BAD_INPUT)
    except TyperException as usage:
        if message := usage.format_message():  # empty when the help itself was printed
            print(f"shakedown: {message} -- see shakedown --help", file=sys.stderr)
        sys.exit(ExitStatus.BAD_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        print("shakedown: interrupted", file=sys.stderr)
        sys.exit(ExitStatus.BAD_INPUT)
    except OSError as error:
        print(f"shakedown: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        sys.exit(ExitStatus.BAD_INPUT)
    sys.exit(status if isinstance(status, int) else 0)
