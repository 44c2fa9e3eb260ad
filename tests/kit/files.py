"""Files of a run that tests change in place."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def edited(path: Path) -> Iterator[Any]:
    """A JSON document that is written back as it was changed."""
    document = json.loads(path.read_text())
    yield document
    path.write_text(json.dumps(document))


def lines_of(path: Path) -> list[Any]:
    """Return the documents of a file with a line of JSON each."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, documents: Iterable[object]) -> None:
    """Write documents, a line of JSON each."""
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))


def replace_in(path: Path, old: str, new: str) -> None:
    """Change words of a file that must be there."""
    text = path.read_text()
    assert old in text, f"{path.name} has no {old!r}"
    path.write_text(text.replace(old, new))


def script(path: Path, text: str) -> Path:
    """Write a program that can be run; return it."""
    path.write_text(text)
    path.chmod(0o755)
    return path
