"""The table of switch cases: every system has every case, and every test that it names is there."""

import ast
from pathlib import Path

import pytest
from generator.switch_cases import SYSTEMS, cases

from shakedown.nos import registry

ROOT = Path(__file__).parents[3]


def test_every_vendors_system_is_a_column():
    """Catches a system added without its cases."""
    assert set(SYSTEMS) == set(registry.SYSTEMS) - {"linux"}


@pytest.mark.parametrize("entry", cases(), ids=lambda entry: entry["case"])
def test_a_case_has_a_test_or_a_reason_for_every_system(entry):
    """Catches an empty cell, and a test that was renamed or taken away under the table."""
    assert set(entry) == {"case", *SYSTEMS}
    for system in SYSTEMS:
        held = entry[system]
        if isinstance(held, dict):
            assert set(held) == {"none"} and len(held["none"]) > 20, (system, held)
            continue
        file, _, name = held.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        function = next(
            (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name), None
        )
        assert function, held
        # A test over several systems must be given this one, by its name or by a list of all.
        given = "".join(ast.unparse(one) for one in function.decorator_list)
        if "'nos'" in given:
            lists = {
                target.id: ast.unparse(one.value)
                for one in tree.body
                if isinstance(one, ast.Assign)
                for target in one.targets
                if isinstance(target, ast.Name)
            }
            named = given + "".join(text for name, text in lists.items() if name in given)
            assert f"'{system}'" in named or "SYSTEMS" in given, (system, held)
