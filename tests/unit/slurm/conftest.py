"""Tests with a submit host take turns: a run that one of them starts is another site's run to the next.

All submit hosts are this machine and measure n1 and n2, so `shakedown.slurm.under_way` would rightly refuse.
"""

import fcntl
import tempfile
from pathlib import Path

import pytest
from submit_host import SubmitHost

_TURN = Path(tempfile.gettempdir()) / "shakedown-tests-submit-host.lock"


def _has_submit_host(module: object) -> bool:
    return getattr(module, "SubmitHost", None) is SubmitHost


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give those tests the time of another one's turn."""
    for item in items:
        if _has_submit_host(getattr(item, "module", None)) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(autouse=True)
def turn(request):
    """Wait until no other worker has a submit host."""
    if not _has_submit_host(request.module):
        yield
        return
    with _TURN.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
