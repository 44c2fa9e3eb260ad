"""research/README.md: which published figure each script makes."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = {
    row[1]: row[2]
    for row in re.finditer(
        r"^\| `(\w+\.py)` \| (.*) \|.*\|$", (ROOT / "research/README.md").read_text(), re.M
    )
}


def test_each_script_has_a_row():
    """Catches: a script of which nobody knows what it is for, and a row of one that is gone."""
    scripts = {p.name for p in (ROOT / "research").glob("*.py") if "__main__" in p.read_text()}
    assert set(ROWS) == scripts


@pytest.mark.parametrize("script", ROWS)
def test_the_page_that_a_row_names_names_the_script(script):
    """Catches: a figure whose page does not say how to make it again."""
    for page in re.findall(r"\]\(\.\./([\w/-]+\.md)\)", ROWS[script]):
        assert script in (ROOT / page).read_text(), page
