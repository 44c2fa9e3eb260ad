"""One JSON file that holds what is known of a lab, replaced whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lab.errors import LabError

T = TypeVar("T")


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write the file aside, then rename it: a reader sees the old or the new state."""
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(document, indent=2) + "\n")
    aside.replace(path)


def read(
    path: Path, parse: Callable[[Mapping[str, Any]], T], *, schema: int, what: str, fix: str
) -> T | None:
    """What ``parse`` makes of the document in ``path``, None when there is no file.

    :class:`LabError` when it is another document: it says that the file is not ``what``, and ``fix``.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        document = json.loads(text)
        if document["schema"] != schema:
            raise ValueError(f"schema {document['schema']!r}")
        return parse(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{path} is no {what} ({error!r})", fix=fix) from error
