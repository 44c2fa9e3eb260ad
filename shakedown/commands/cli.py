"""The `shakedown` command: gathers the commands and turns refused input into one line and exit status 2."""

import copy
import functools
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command, get_command_name
from typer.models import CommandInfo, TyperInfo

from shakedown.commands.arguments import app
from shakedown.records.program import outlive_readers
from shakedown.records.reading import BadInput, ExitStatus, said_by_system
from shakedown.records.wording import printable

DEBUG = "SHAKEDOWN_DEBUG"  # environment variable: 1 shows the traceback of an internal error


def _version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("shakedown")
    except PackageNotFoundError:  # the submit host has the files only
        found = "(version unknown: not installed as a package)"
    print(f"shakedown {found}")
    raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    # A callback keeps this a group of commands, however few of them are registered.
    return


def _word(info: CommandInfo | TyperInfo) -> str:
    """Return the word that calls a command, or a group of them."""
    return info.name or (get_command_name(info.callback.__name__) if info.callback else "")


app.registered_commands.sort(key=_word)
app.registered_groups.sort(key=_word)


@functools.cache
def _program(first: str) -> Callable[..., object]:
    """Return the program for words that begin with `first`: that command alone, or all if it is none.

    Typer makes every option of every command it is given, 0.1 s for all of them at each start.
    """
    alone = copy.copy(app)
    alone.registered_commands = [info for info in app.registered_commands if _word(info) == first]
    alone.registered_groups = [info for info in app.registered_groups if _word(info) == first]
    return get_command(alone if alone.registered_commands or alone.registered_groups else app)


_TYPERS_INTERRUPT = 130  # what typer makes of Ctrl-C: a shell's status for it, and no word


def _complain(words: str) -> ExitStatus:
    with suppress(OSError):  # the exit status says it too
        if os.environ.get(DEBUG) == "1" and not isinstance(sys.exception(), BadInput | TyperException):
            traceback.print_exc()
        print(f"shakedown: {words}", file=sys.stderr)
    return ExitStatus.BAD_INPUT


def _run(words: list[str]) -> int:
    """Run a command and return its exit status; whatever it raises is one line and status 2."""
    try:
        status = _program(words[0])(words, standalone_mode=False)
        if status == _TYPERS_INTERRUPT:
            raise KeyboardInterrupt
        sys.stdout.flush()  # here, where a full disk can still be reported as an error
    except BadInput as refused:
        return _complain(str(refused))
    except TyperException as usage:
        message = usage.format_message()  # empty when the help itself was printed
        return _complain(f"{message} -- see shakedown --help") if message else ExitStatus.BAD_INPUT
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted")
    except OSError as error:
        return _complain(said_by_system(error))
    except Exception as error:  # Python's own exit status would be 1, which means FAIL
        said = printable(f"{type(error).__name__}: {error}")
        how = f"report it (CONTRIBUTING.md, Report a bug); the traceback is with {DEBUG}=1"
        return _complain(f"internal error: {said} -- {how}")
    return status if isinstance(status, int) else ExitStatus.PASS


def main() -> None:
    """Entry point."""
    outlive_readers()
    status = _run(sys.argv[1:] or ["--help"])
    with suppress(
        OSError
    ):  # what a refused command had printed; failing at its end, Python would exit with 120
        sys.stdout.flush()
    sys.exit(status)
