"""Folders short enough for unix sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary folder with a short path; pytest's own are too long for the lab's sockets."""
    with tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp") as folder:
        yield Path(folder)
