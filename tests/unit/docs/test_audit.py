"""The audit's list against the profiles: figures, rows, tests."""

import ast
import functools
import re
from pathlib import Path

import pytest
from generator.audit import Item, publications

from shakedown.records.plan import ReferenceKind
from shakedown.references import files
from shakedown.references.files import profile_names

ROOT = Path(__file__).parents[3]


FOUND = publications()
ITEMS = [(one.profile, item) for one in FOUND for item in one.items]
# Profiles of demands that nobody published or measured elsewhere.
PRINTED = {ReferenceKind.COMPUTED, ReferenceKind.MEASURED, ReferenceKind.VENDOR}
load_profile = functools.cache(files.load_profile)


def rows(name: str) -> dict:
    """Rows of a profile by name."""
    return {entry.id: entry for entry in load_profile(name).entries}


@pytest.mark.parametrize(("name", "item"), ITEMS, ids=lambda part: getattr(part, "item", part))
def test_each_figure_is_its_rows(name, item):
    """Catches: a figure mistyped in a profile, or one held to another value than was printed."""
    for row, figure in item.figures.items():
        entry = rows(name)[row]
        printed = [float(n) for n in re.findall(r"\d+(?:\.\d+)?", entry.printed or "")]
        # Printed rates are cut to whole numbers where the row has more digits.
        assert entry.reference().value == figure or figure in printed or figure in map(int, printed), row


@pytest.mark.slow
def test_every_printed_row_is_in_the_list_once():
    """Catches: a new figure of a profile that the audit leaves out, or counts twice."""
    for name in profile_names():
        entries = rows(name)
        printed = {row for row, entry in entries.items() if entry.kind in PRINTED}
        listed = [
            row
            for one in FOUND
            if one.profile == name
            for i in one.items
            for row in i.rows_of(load_profile(name))
        ]
        assert printed <= set(listed), name
        figures = [row for one in FOUND if one.profile == name for item in one.items for row in item.figures]
        assert len(figures) == len(set(figures))


@pytest.mark.parametrize(("name", "item"), ITEMS, ids=lambda part: getattr(part, "item", part))
def test_each_state_is_what_the_rows_are(name, item):
    """Catches: a figure called judged whose row decides nothing; a row that nothing means."""
    entries = rows(name)
    mine = item.rows_of(load_profile(name))
    assert set(item.figures) <= entries.keys()
    if item.state in ("judged", "offered", "claimed"):
        assert all(entries[row].gates for row in mine), [row for row in mine if not entries[row].gates]
    for row in item.rows:
        assert any(re.fullmatch(row.replace("*", ".*"), name) for name in mine), row


@pytest.mark.parametrize("test", sorted({test for _, item in ITEMS for test in item.tests}))
def test_each_named_test_is_there(test):
    """Catches: an item held by a test that was renamed, or never written."""
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_what_is_called_judged_needs_a_test_and_what_is_not_a_reason():
    """Catches: `judged` by word alone; a figure left out without a word; a state such as `wrong`."""
    for state, more in (
        ("judged", {}),
        ("not held", {}),
        ("wrong", {"why": "x"}),
        ("told", {"tests": ["a.py"]}),
    ):
        with pytest.raises(ValueError, match=r"no test|no reason|Input should be|pattern"):
            Item.model_validate({"item": "x", "state": state, **more})
