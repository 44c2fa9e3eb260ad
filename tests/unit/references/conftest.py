"""A profile to plant faults in, and the command to run over it."""

from pathlib import Path

import pytest

PROFILE = (Path(__file__).parent / "profiles/conftest.yml").read_text()


@pytest.fixture
def write(tmp_path):
    """Write the example with one text replaced by another (which must occur), and return its path."""

    def write(old="", new=""):
        assert old in PROFILE
        path = tmp_path / "example.yml"
        path.write_text(PROFILE.replace(old, new) if old else PROFILE)
        return path

    return write
