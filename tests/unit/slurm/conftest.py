"""Tests with a submit host take turns (submit_host.py), and begin before all others."""

import pytest
from submit_host import SubmitHost, end_turn


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give those tests the time of another one's turn, and let one worker begin with them.

    Workers share what is left at the end: all would wait for these tests' turns then, and have nothing else.
    """
    ours = [
        item for item in items if getattr(getattr(item, "module", None), "SubmitHost", None) is SubmitHost
    ]
    for item in ours:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))
    items[:] = ours + [item for item in items if item not in set(ours)]


@pytest.fixture(autouse=True)
def turn():
    """End the turn of a test that had a submit host."""
    yield
    end_turn()
