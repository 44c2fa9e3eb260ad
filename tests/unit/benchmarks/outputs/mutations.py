"""Eight ways in which a captured output is damaged, by a seed that is the same every time."""

import random
import re
from collections.abc import Callable, Iterator

FOREIGN = "slurm_script: line 12: module: command not found"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _any_line(text: str, random_: random.Random) -> tuple[list[str], int]:
    lines = _lines(text)
    return lines, random_.randrange(len(lines))


def cut_at_a_line(text: str, random_: random.Random) -> str:
    """The last lines are missing."""
    lines, at = _any_line(text, random_)
    return "".join(lines[:at])


def cut_in_a_line(text: str, random_: random.Random) -> str:
    """The file ends in the middle of a line."""
    lines, at = _any_line(text, random_)
    return "".join(lines[:at]) + lines[at][: random_.randrange(len(lines[at]))]


def drop_a_line(text: str, random_: random.Random) -> str:
    """A line is missing."""
    lines, at = _any_line(text, random_)
    return "".join(lines[:at] + lines[at + 1 :])


def double_a_line(text: str, random_: random.Random) -> str:
    """A line is there twice."""
    lines, at = _any_line(text, random_)
    return "".join(lines[: at + 1] + lines[at:])


def swap_two_lines(text: str, random_: random.Random) -> str:
    """Two lines have changed places."""
    lines, at = _any_line(text, random_)
    other = random_.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]
    return "".join(lines)


def _any_digit(text: str, random_: random.Random) -> int:
    return random_.choice([match.start() for match in re.finditer(r"[0-9]", text)])


def change_a_digit(text: str, random_: random.Random) -> str:
    """A digit is another."""
    at = _any_digit(text, random_)
    return text[:at] + random_.choice([x for x in "0123456789" if x != text[at]]) + text[at + 1 :]


def drop_a_digit(text: str, random_: random.Random) -> str:
    """A digit is missing."""
    at = _any_digit(text, random_)
    return text[:at] + text[at + 1 :]


def insert_a_foreign_line(text: str, random_: random.Random) -> str:
    """Another program wrote a line of its own."""
    lines, at = _any_line(text, random_)
    return "".join([*lines[:at], FOREIGN + "\n", *lines[at:]])


CUTS: tuple[Callable[[str, random.Random], str], ...] = (cut_at_a_line, cut_in_a_line, drop_a_line)
OTHERS = (double_a_line, swap_two_lines, insert_a_foreign_line)
DIGITS = (change_a_digit, drop_a_digit)


def mutations(name: str, text: str, kind: Callable[[str, random.Random], str], number: int) -> Iterator[str]:
    """Yield damaged texts of a file, `number` at most, none that is the text itself."""
    random_ = random.Random(f"{name} {kind.__name__}")
    seen = {text}
    for _ in range(number):
        damaged = kind(text, random_)
        if damaged not in seen:
            seen.add(damaged)
            yield damaged
