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
    names = [name for name, _, _ in forgeries.listed()]
    assert len(names) == len(set(names)) and set(forgeries.source().actors) <= set(names)
    assert len(TRIED) >= 122 and {row.outcome for row in TRIED} == set(forgeries.OUTCOMES)
    for file in forgeries.LISTS:
        assert any(test.startswith(f"{file}::") for _, _, test in forgeries.listed()), file
    assert f"({Path('..') / Path(forgeries.PAGE).relative_to('docs')})" in TRUST.read_text()
