"""The list of what was tried against evidence is that of the tests."""

import ast
from pathlib import Path

import pytest
from generator import forgeries

TRIED = forgeries.tried()
TRUST = Path(__file__).parents[3] / "docs/explanation/trust.md"


@pytest.mark.parametrize("test", sorted({row.test for row in TRIED}))
def test_each_named_test_is_there(test):
    """Catches: a line of the table that a renamed or deleted test shows."""
    file, _, name = test.partition("::")
    tree = ast.parse((forgeries.TESTS / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_table_is_whole():
    """Catches: a forgery of the tests that the page leaves out; an actor of one that is gone; fewer than
    there were; a page on trust that does not say where they stand."""
    listed = list(forgeries.listed())
    names = [name for name, *_ in listed]
    assert len(names) == len(set(names)) and set(forgeries.source().actors) <= set(names)
    assert {row.outcome for row in TRIED} == set(forgeries.OUTCOMES)
    for actor in (forgeries.KEY, forgeries.USER, "root of another node"):
        assert sum(row.actor == actor for row in TRIED) >= 40, actor
    for (file, _), (test, _) in forgeries.LISTS.items():
        assert any(shown == f"{file}::{test}" for _, _, shown, _ in listed), file
    assert f"({Path('..') / Path(forgeries.PAGE).relative_to('docs')})" in TRUST.read_text()
