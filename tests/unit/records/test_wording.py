"""How a long reason is cut."""

import pytest

from shakedown.records.wording import clipped

REFUSED = (
    "exit status 1: Couldn't connect to 10.10.1.2:18603 / Unable to open file descriptor for socket "
    "connection / Unable to init the socket connection"
)


@pytest.mark.parametrize(
    ("most", "left"),
    [
        (40, "exit status 1: Couldn't connect to..."),
        (80, "exit status 1: Couldn't connect to 10.10.1.2:18603..."),
        (120, REFUSED.rpartition(" / ")[0] + "..."),
        (200, REFUSED),
    ],
)
def test_a_cut_reason_keeps_what_the_tool_said(most, left):
    """Catches: a headline of `exit status 1...` where the tool named the address that did not answer."""
    assert clipped(REFUSED, most) == left
    assert len(left) <= most


def test_a_text_without_a_stop_is_cut_all_the_same():
    """Catches: a name of a thousand characters that fills the line."""
    assert clipped("x" * 1000, 20) == "x" * 17 + "..."
