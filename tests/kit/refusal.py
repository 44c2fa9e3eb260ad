"""Refusals."""

from collections.abc import Callable
from typing import Any

import pytest

from shakedown.records.reading import BadInput


def refused(words: str, call: Callable[..., object], *given: Any, **named: Any) -> None:
    """Hold that a call refuses what it is given as bad input, in such words (a pattern)."""
    with pytest.raises(BadInput, match=words):
        call(*given, **named)
