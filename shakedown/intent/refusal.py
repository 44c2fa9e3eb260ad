"""Problems of an inventory in one line: whose they are, where they stand, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from shakedown.intent import places
from shakedown.intent.rules import Contradiction, Problem
from shakedown.records.errors import BadInput
from shakedown.records.refusals import UNKNOWN, nearest, walk
from shakedown.records.shapes import words_of

# What a person reads of a value of another kind; pydantic's own words are Python's.
_KEYS = "must be keys with values (KEY: VALUE)"
_WORDS = {
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": _KEYS,
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "string_type": "must be one text",
    "bool_type": "must be true or false",
    "too_short": "must not be empty",
}
# Enough to mend an inventory by; the rest shows when these are gone.
_MOST = 5


def refuse(found: Sequence[tuple[str | None, Problem]], inventory: Path) -> BadInput:
    """Return the refusal of an inventory: (host or None, problem) each, at least one.

    What several hosts have in common is said once, with their names. File and line are the first one's.
    """
    hosts: dict[Problem, list[str]] = {}
    same: dict[tuple[str, str], Problem] = {}
    for host, problem in found:
        first = same.setdefault((problem.what, problem.fix), problem)
        hosts.setdefault(first, []).extend([host] if host and host not in hosts.get(first, []) else [])
    said = []
    for problem, names in hosts.items():
        text = f"{span(names)}: {problem}" if names else str(problem)
        other = places.find(inventory, problem.other) if problem.other and inventory.exists() else None
        said.append(f"{text} (the other place: {other[0].name}:{other[1]})" if other else text)
    first, names = next(iter(hosts.items()))
    place = places.find(inventory, first.key, names[0] if names else None) if inventory.exists() else None
    more = f"; and {len(said) - _MOST} more" if len(said) > _MOST else ""
    file, line = place or (inventory, None)
    return BadInput("; ".join(said[:_MOST]) + more, file=file, line=line)


def span(names: Iterable[str]) -> str:
    """Return names in short: `n1..n8, login`; names whose last number runs on are drawn together."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _follows(one: str, other: str) -> bool:
    a, b = (re.fullmatch(r"(.*?)(\d{1,9})", name) for name in (one, other))
    return a is not None and b is not None and a[1] == b[1] and int(a[2]) + 1 == int(b[2])


def problems_of(error: ValidationError, model: type[BaseModel], at: tuple[str, ...]) -> list[Problem]:
    """Return what a model refused, in words: unknown keys with the nearest known one first.

    `at` is the path of the model's own variable. A key that is missing because it is misspelt is said once.
    """
    unknown: list[Problem] = []
    others: list[Problem] = []
    instead: set[tuple[str | int, ...]] = set()
    for detail in error.errors(include_url=False):
        loc = detail["loc"]
        if detail["type"] in UNKNOWN:
            path, known = walk(model, loc[:-1])
            near = nearest(str(loc[-1]), known)
            instead.update([(*loc[:-1], near)] if near else [])
            what = f"{_dotted((*at, *path))}: unknown key {str(loc[-1])[:80]!r}"
            unknown.append(Problem((*at, *loc), what, f"use {near}" if near else "take it out"))
    unions = {d["loc"][:n] for d in error.errors(include_url=False) for n in range(1, len(d["loc"]) - 1)}
    for detail in error.errors(include_url=False):
        loc = detail["loc"]
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Contradiction):
            others += cause.problems
        elif detail["type"] == "missing" and loc not in instead:
            others.append(Problem((*at, *loc), f"{_dotted((*at, *loc))} is missing", "add it"))
        elif detail["type"] not in ("missing", *UNKNOWN):
            if (
                detail["type"] == "literal_error"
                and loc[:-1] in unions
                and str(loc[-1]).startswith("literal[")
            ):
                continue  # the word instead of a block that is there, and is wrong inside
            text = _WORDS.get(detail["type"]) or words_of(detail)
            given = detail["input"]
            value = f" {given!r:.80}" if isinstance(given, str | int | float | None) else ""
            # Without pydantic's own marks, which no file holds.
            place = _dotted((*at, *walk(model, loc)[0]))
            named = f"{place}{value}: " if place else ""  # of the whole site, not of one key
            others.append(Problem((*at, *loc), f"{named}{text}", "correct it"))
    return [*unknown, *others]


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(str(part)[:80] for part in path)
