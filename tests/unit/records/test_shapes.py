"""Every key that people write and that has a pattern is refused in words, with an example that is right."""

import ast
import importlib
import re
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

import shakedown
from shakedown.records import base
from shakedown.records.plan import Waiver
from shakedown.records.refusals import refusal

ROOM = Path(shakedown.__file__).parent
# Documents of people; what our own programs write is refused as a whole.
WRITTEN = [
    *(ROOM / "intent").rglob("*.py"),
    *(path for path in (ROOM / "benchmarks").rglob("*.py") if "from pydantic import" in path.read_text()),
    *(ROOM / name for name in ("collect/server_watts.py", "daytwo/nightly/playbook.py", "records/plan.py")),
    ROOM / "records/base.py",
]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOM)))
def test_no_pattern_without_words(path):
    """Catches: a new key whose bad value is told as `String should match pattern '^...$'`."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") != "shape"]  # where it is used
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    raw = [
        call.lineno
        for call in calls
        if getattr(call.func, "id", getattr(call.func, "attr", "")) in ("Field", "StringConstraints")
        and any(keyword.arg == "pattern" for keyword in call.keywords)
    ]
    assert not raw, f"{path}:{raw}: use records.shapes.shape"


def test_every_example_is_right_and_no_words_hide_others():
    """Catches: an example that is refused itself, and one pattern with two descriptions."""
    for path in WRITTEN:
        importlib.import_module(".".join(("shakedown", *path.relative_to(ROOM).with_suffix("").parts)))
    known = list(base.known())
    assert len(known) > 15
    assert sum("benchmarks" in path.parts for path in WRITTEN) > 12
    for pattern, must_be, example in known:
        assert re.search(pattern, example), (pattern, example)
        TypeAdapter(Annotated[str, base.shape(pattern, must_be, example)]).validate_python(example)
    with pytest.raises(ValueError, match="two descriptions"):
        base.shape(known[0][0], "another", "x")


def test_a_waiver_of_a_wide_pattern_is_told_what_is_right():
    """Catches: a regular expression shown to who signs a waiver."""
    row = {"name": "a", "cells": "*", "reason": "why not", "owner": "A. Owner", "expires": "2030-01-01"}
    with pytest.raises(ValidationError) as found:
        Waiver.model_validate(row)
    said = str(refusal(found.value, Waiver))
    assert "cells: must be STAGE/TEST/METRIC/REST" in said
    assert "such as fabric/ib_write_bw/bandwidth/*n7*/rail2/* (got '*')" in said
