"""No regular expression of the package takes more than linear time, whatever it is given."""

import ast
import importlib
import pkgutil
import re
import re._parser as expressions  # type: ignore[import-not-found]
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shakedown
from shakedown.nos import system

PACKAGE = Path(shakedown.__file__).parent
METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "split")
LENGTH, MOST_CPU_S = 100_000, 0.3  # quadratic time takes a minute
FILLERS = (" ", "9", '"', "a", "\n", "\\", "=", ":", ".", "-", "\t", "x9 ", "a=1 ", "1,")
SOURCES = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def compiled(value: object) -> Iterator[re.Pattern[str]]:
    """Yield the patterns in a module's value."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for each in (*value, *value.values()):
            yield from compiled(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from compiled(each)
    elif isinstance(value, type) and value.__module__.startswith("shakedown"):
        for name, each in vars(value).items():
            if not name.startswith("__") and not isinstance(each, type):
                yield from compiled(each)


def of_modules() -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Yield where a compiled pattern stands, the pattern, and the name that it has there."""
    for module in pkgutil.walk_packages([str(PACKAGE)], "shakedown."):
        if module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ModuleNotFoundError as missing:  # of the training or inference environment
            if (missing.name or "").startswith("shakedown"):
                raise
            continue
        for name, value in vars(loaded).items():
            for pattern in compiled(value):
                yield module.name, pattern, name


def of_calls() -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Yield the patterns that stand in calls, `re.sub(r"...", ...)`, with the function's name."""
    for path, source in SOURCES.items():
        if not re.search(rf"\bre\s*\.\s*({'|'.join(METHODS)})\b", source):
            continue  # nothing to find, and a tree takes long to make
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in METHODS
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                where = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
                yield where, re.compile(node.args[0].value), node.func.attr


def usage() -> dict[tuple[str, str], set[str]]:
    """Return by which methods patterns are called, by module and name; under "" as well, for all modules."""
    called = re.compile(rf"\b([A-Za-z_]\w*)(?:\[[^]\n]*\])?\.({'|'.join(METHODS)})\(")
    found: dict[tuple[str, str], set[str]] = {}
    for path, source in SOURCES.items():
        where = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for name, method in called.findall(source):
            found.setdefault((where, name), set()).add(method)
            found.setdefault(("", name), set()).add(method)
    return found


def used_as(where: str, name: str) -> list[str]:
    """Return the methods that a pattern of this name, or a call, is used with.

    A private name is its module's own: `_FIELD` of another module says nothing of this one. One that its
    module does not call itself (it hands it on) counts with the methods of all that are named so.
    """
    if name in METHODS:
        return [name]
    own = USAGE.get((where.removesuffix(".__init__"), name)) if name.startswith("_") else None
    return sorted(own or USAGE.get(("", name), {"search"}))


USAGE = usage()


def literals(parsed: Any) -> Iterator[str]:
    """Yield the runs of fixed letters in a pattern, and what all of it begins with in its first spellings."""
    run = ""
    for operation, argument in parsed:
        kind = str(operation)
        if kind == "LITERAL":
            run += chr(argument)
            continue
        if run:
            yield run
        run = ""
        for inner in argument if isinstance(argument, tuple | list) else (argument,):
            for part in inner if isinstance(inner, list) else (inner,):
                if isinstance(part, expressions.SubPattern):
                    yield from literals(part)
    if run:
        yield run


def shortest(parsed: Any, filler: str) -> str:
    """Return a text like one that a pattern takes, with the filler for all that is not fixed in it."""
    text = ""
    for operation, argument in parsed:
        kind = str(operation)
        if kind == "LITERAL":
            text += chr(argument)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, _, inner = argument
            text += shortest(inner, filler) * max(1, min(least, 8))
        elif kind == "SUBPATTERN":
            text += shortest(argument[-1], filler)
        elif kind == "ATOMIC_GROUP":
            text += shortest(argument, filler)
        elif kind == "BRANCH":
            text += shortest(argument[1][0], filler)
        elif kind in ("IN", "ANY", "NOT_LITERAL"):
            text += filler
    return text


def hostile(pattern: re.Pattern[str]) -> list[str]:
    """Return texts that a pattern almost takes, again and again."""
    parsed = expressions.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    runs = {run for run in literals(parsed) if run.strip()}
    whole = {shortest(parsed, filler) for filler in ("9", "a", " ")}
    starts = sorted(
        {text[: max(1, len(text) * part // 4)] for text in whole if text for part in (1, 2, 3, 4)}
    )
    pieces = sorted(runs, key=lambda run: (-len(run), run))[:4] + starts[:8]
    found = {filler * LENGTH for filler in FILLERS}
    for piece in pieces:
        found |= {piece * LENGTH, f"{piece} " * LENGTH, piece + " " * LENGTH, piece + "9" * LENGTH}
        found |= {piece + '"' * LENGTH, piece + "a" * LENGTH, f"{piece}\n" * LENGTH}
    return sorted({text[:LENGTH] + "\0" for text in found})


def seconds(pattern: re.Pattern[str], method: str, text: str) -> float:
    """Return the processor time that a pattern takes over a text."""
    started = time.process_time()
    if method == "sub":
        pattern.sub("", text)
    elif method == "finditer":
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, method)(text)
    return time.process_time() - started


ALL = {
    (pattern.pattern, pattern.flags, method): (where, name, pattern)
    for where, pattern, name in (*of_modules(), *of_calls())
    if isinstance(pattern.pattern, str)
    for method in used_as(where, name)
}


def test_all_are_found():
    """Catches: a hunt that looks at a few of the expressions only."""
    written = sum(source.count("re.compile(") for source in SOURCES.values())
    assert len({where for where, _, _ in ALL.values()}) > 60
    assert len({key[:2] for key in ALL}) >= 0.8 * written


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "pattern"),
    [
        pytest.param(key[2], pattern, id=f"{where}-{name}-{key[2]}")
        for key, (where, name, pattern) in sorted(ALL.items(), key=lambda item: item[1][:2])
    ],
)
def test_no_expression_takes_more_than_linear_time(method, pattern):
    """Catches: 10 kB of a torchrun's words that took 3.8 s to read, 100 kB of them for ever."""
    for text in hostile(pattern):
        took = seconds(pattern, method, text[:3_000])  # so that a bad one fails, and not for hours
        assert took < MOST_CPU_S / 3, (text[:60], took)
        took = seconds(pattern, method, text[:20_000])
        assert took < MOST_CPU_S, (text[:60], took)
        took = seconds(pattern, method, text)
        if took >= MOST_CPU_S:  # a busy machine's may be slow once
            took = seconds(pattern, method, text)
        assert took < MOST_CPU_S, (text[:60], took)


def test_classes_of_a_switch_are_read_in_linear_time_wherever_they_are_looked_for():
    """Catches: a list of 8,000 classes that a search took 2.6 s over; the hunt asks only how it is used."""
    assert seconds(system._CLASSES, "search", "1," * 20_000 + "x") < MOST_CPU_S
    assert system.numbers("TC0-2,5") == {0, 1, 2, 5} and not system.numbers("1,2 x")
