"""Jinja2 filter for switches with an indented configuration: what is missing, too much, and to be typed.

A configuration is a set of paths: `("interface Ethernet1", "mtu 9000")`. Wanted and found are compared as
such sets, so that order, indentation and separators do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Path = tuple[str, ...]

# A list of DSCPs on one line is the same as one line each: `qos map dscp 24 26 to traffic-class 3`.
_DSCP_LIST = re.compile(r"(?P<head>qos map dscp) (?P<list>[\d ,-]+) (?P<tail>to traffic-class \d+)")


def paths(text: str) -> list[Path]:
    """Every line of a configuration with the lines it stands under, in order. Separators are dropped."""
    found: list[Path] = []
    stack: list[tuple[int, str]] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(("!", "#")) or line in ("end", "exit"):
            continue
        indent = len(raw) - len(raw.lstrip())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        for one in _single(" ".join(line.split())):
            found.append((*(above for _, above in stack), one))
        stack.append((indent, line))
    return found


def _single(line: str) -> Iterable[str]:
    match = _DSCP_LIST.fullmatch(line)
    if not match:
        return [line]
    numbers: list[int] = []
    for part in re.split(r"[ ,]+", match["list"].strip()):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return [f"{match['head']} {number} {match['tail']}" for number in numbers]


def compare(wanted: str, found: str, owned: list[str]) -> dict[str, Any]:
    """Compare two configurations.

    Args:
        wanted: what the switch must have.
        found: its running configuration.
        owned: regular expressions on `" / "`-joined paths. What they match is ours alone: if it is found and
            not wanted, it is too much. Everything else on the switch is left alone.

    Returns:
        differences (one line each, for people), commands (to type in configuration mode) and `wanted` and
        `found` (the lines that concern us).
    """
    want, have = paths(wanted), paths(found)
    missing = [path for path in want if path not in set(have)]
    extra = [path for path in have if path not in set(want) and any(re.search(o, _text(path)) for o in owned)]
    # A section that goes takes its lines along; a line that is typed anew under a new value needs no "no".
    extra = [path for path in extra if path[:-1] not in set(extra)]
    ours = [path for path in have if path in set(want) or path in set(extra)]
    return {
        "differences": [f"lacks: {_text(p)}" for p in missing] + [f"too much: {_text(p)}" for p in extra],
        "commands": _commands([(*path[:-1], f"no {path[-1]}") for path in extra]) + _commands(missing),
        "wanted": [_text(path) for path in want],
        "found": [_text(path) for path in ours],
    }


def _text(path: Path) -> str:
    return " / ".join(path)


def _commands(lines: list[Path]) -> list[str]:
    """Type each line where it belongs, leaving every section by `exit`: not every CLI climbs by itself."""
    commands: list[str] = []
    here: Path = ()
    for path in lines:
        above = path[:-1]
        common = 0
        while common < min(len(here), len(above)) and here[common] == above[common]:
            common += 1
        commands += ["exit"] * (len(here) - common)
        commands += above[common:]
        commands.append(path[-1])
        here = above
        # The line may itself open a section: then the next lines stand below it.
        if any(other[: len(path)] == path and len(other) > len(path) for other in lines):
            here = path
    return commands + ["exit"] * len(here)


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {"roce_switch_cli_compare": compare}
