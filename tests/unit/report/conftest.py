"""Figures that many pages of these tests have in common."""

import functools
from collections.abc import Iterator

import pytest

from shakedown.report import charts, html

_drawn = functools.cache(charts.draw)


@pytest.fixture(scope="module", autouse=True)
def figures_drawn_once() -> Iterator[None]:
    """Draw each figure once: thirty pages have the same two, and Matplotlib takes 0.1 s for each of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "_draw", _drawn)
        yield


@pytest.fixture
def figures_drawn_anew(monkeypatch) -> None:
    """Draw every figure each time."""
    monkeypatch.setattr(html, "_draw", charts.draw)
