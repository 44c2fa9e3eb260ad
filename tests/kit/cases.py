"""Rows of a test."""

from collections.abc import Callable, Sequence

import pytest


def cases(
    names: str, *rows: object, ids: Sequence[str] | Callable[[object], str] | None = None
) -> pytest.MarkDecorator:
    """Run a test once for each row, which gives the arguments `names`: parametrize without brackets."""
    return pytest.mark.parametrize(names, rows, ids=ids)
