"""What programs on the nodes write into their journals is what the controller takes."""

import re
from pathlib import Path

import pytest

from shakedown.records.results import RunProblem

SOURCE = Path(__file__).resolve().parents[3] / "shakedown"
# `{"kind": "busy", "message": ...}`, over one line or several.
_PROBLEM = re.compile(r'"kind": "([a-z-]+)",\s*"message"')
WRITTEN = sorted(
    (path.relative_to(SOURCE).as_posix(), kind)
    for path in SOURCE.rglob("*.py")
    for kind in set(_PROBLEM.findall(path.read_text(encoding="utf-8")))
)


@pytest.mark.parametrize(("program", "kind"), WRITTEN)
def test_a_problems_kind_is_one_that_is_read(program: str, kind: str) -> None:
    """Catches: a job's line that is refused as damaged, and with it what happened (`exit-status`)."""
    RunProblem.model_validate({"kind": kind, "message": program})


def test_programs_were_found() -> None:
    """Catches: a pattern that matches nothing any more, and so proves nothing."""
    assert len(WRITTEN) > 10
