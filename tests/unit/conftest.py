"""Fast tests know no lab but their own."""

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_lab_of_this_user() -> Iterator[None]:
    """Look for labs in an empty folder: one that is up on this machine is nothing to a test."""
    with (
        tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_RUNTIME_DIR", folder)
        patch.setenv("XDG_STATE_HOME", f"{folder}/state")
        patch.delenv("SHAKEDOWN_LAB", raising=False)
        yield
