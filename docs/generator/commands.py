"""The page of the commands: options, example and exit statuses of each, read from the program itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import typer
from generator.text import code, made, table

from shakedown.commands.cli import app
from shakedown.records.reading import ExitStatus

# typer's own copy of click has no public name for these.
Command = Any
Parameter = Any
MEANS = {
    ExitStatus.PASS: "Pass; done",
    ExitStatus.FAIL: "Fail, or something was found",
    ExitStatus.BAD_INPUT: "Bad input, or an error of our own: one line on stderr names file, line and fix",
    ExitStatus.INCOMPLETE: "Inconclusive, incomplete or undecided",
}


def pages() -> dict[str, str]:
    """Return the page."""
    parts = [
        made("the commands"),
        "# Every command\n",
        "`shakedown COMMAND --help` says the same. Every command that prints a table has `--json`.\n",
        "## Exit statuses\n",
        "They mean the same everywhere; a command that has more to say of one says it below.\n",
        table(("status", "meaning"), [(str(status.value), f"{MEANS[status]}.") for status in ExitStatus]),
    ]
    for name, command in commands():
        parts += [f"## shakedown {name}\n", _command(command)]
    return {"docs/reference/commands.md": "\n".join(parts), "docs/reference/shakedown.1": _manual()}


def _manual() -> str:
    """Return the page for man(1): the help of each command, as the program prints it."""
    whole = typer.main.get_command(app)
    parts = ['.\\" Written by docs/generate.py from the commands.', ".TH SHAKEDOWN 1", ".SH NAME"]
    parts += ["shakedown \\- acceptance tests for RoCE GPU clusters", ".SH SYNOPSIS", "shakedown COMMAND"]
    for name, command in (("", whole), *commands()):
        words = f"shakedown {name}".strip()
        shown = command.get_help(typer.Context(command, info_name=words, terminal_width=78))
        # A line that begins with a dot or a quote would be a request.
        lines = (re.sub(r"^(?=[.'])", r"\\&", line) for line in shown.replace("\\", "\\e").splitlines())
        parts += [f".SH {(name or 'commands').upper()}", ".nf", *lines, ".fi"]
    return "\n".join(parts).replace("-", "\\-").replace("\\\\-", "\\-") + "\n"


def commands() -> Iterator[tuple[str, Command]]:
    """Yield every command that does something, by its words, as `mesh plan`."""
    yield from _leaves(typer.main.get_command(app), "")


def examples(command: Command) -> list[str]:
    """Return the examples of a command's help, one line each."""
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return [line for line in lines if line.startswith("shakedown ")]


def _leaves(command: Command, name: str) -> Iterator[tuple[str, Command]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word in sorted(inner):
        yield from _leaves(inner[word], f"{name} {word}".strip())


def _command(command: Command) -> str:
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    # An indented block is one of lines, not of prose.
    parts = [re.sub(r"(?m)^(?=  )", "    ", text) + "\n"]
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-")]
    if arguments:
        parts.append(table(("argument", "", "meaning"), map(_argument, arguments)))
    if options:
        parts.append(table(("option", "default", "meaning"), map(_option, options)))
    if lines := examples(command):
        parts.append("```\n" + "\n".join(lines) + "\n```\n")
    return "\n".join(parts)


def _argument(argument: Parameter) -> tuple[str, str, str]:
    name = (argument.metavar or argument.name) + "..." * (argument.nargs == -1)
    return code(name), "required" if argument.required else "optional", _meaning(argument)


def _option(option: Parameter) -> tuple[str, str, str]:
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    value = getattr(option.default, "value", option.default)
    default = "required" if option.required else "" if value in (None, "", False) else code(str(value))
    return names, default, _meaning(option) + " May be given several times." * bool(option.multiple)


def _meaning(parameter: Parameter) -> str:
    """Return the help, with the values where only some are allowed."""
    kind = parameter.type_descriptor.annotation
    choices = isinstance(kind, type) and issubclass(kind, StrEnum)
    return (parameter.help or "") + (f" One of {', '.join(map(code, kind))}." if choices else "")
