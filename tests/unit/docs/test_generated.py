"""The generated reference and the roles' pages: as their sources say, and whole."""

import ast
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import generate
import pytest
import yaml
from generator import models, published
from generator import roles as of_roles
from generator.fields import rows
from generator.switch_cases import STEPS, SYSTEMS, cases, matrix, of_system

from shakedown.daytwo.nightly.playbook import NightlyConfig
from shakedown.nos import registry
from shakedown.references.catalogue import Profile, ReferenceEntry
from shakedown.references.files import load_profile
from tests.unit.docs.test_prose import hand_written

ROOT = Path(__file__).parents[3]


TABLES = [*((prefix, model) for _, prefix, model in models.SITE), ("", Profile)]
TABLES += [("references[].", ReferenceEntry), ("", NightlyConfig), *(("", model) for _, model in models.RUN)]


@pytest.fixture(scope="module")
def pages():
    """Every page as the sources say, by name."""
    return generate.pages()


@pytest.mark.slow
def test_the_pages_are_what_their_sources_say(pages):
    """Catches: a key, an option or a role's variable that was changed without `make docs`."""
    stale = [
        name for name in pages if not (ROOT / name).is_file() or (ROOT / name).read_text() != pages[name]
    ]
    assert not stale, "run make docs"


@pytest.mark.slow
def test_what_says_that_it_was_generated_was(pages):
    """Catches: a page of prose that says so, and is held to nothing that holds for prose."""
    says = {p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md") if p not in hand_written()}
    assert says == {name for name in pages if name.startswith("docs/") and name.endswith(".md")}


@pytest.mark.slow
def test_check_names_the_page_that_differs(tmp_path):
    """Catches: a check that passes whatever the files hold."""
    copy = tmp_path / "repository"
    copy.mkdir()
    for name in (
        "docs",
        "inventories",
        "playbooks",
        "requirements",
        "research",
        "roles",
        "shakedown",
        "tests",
    ):
        (copy / name).symlink_to(ROOT / name)
    (copy / "docs").unlink()
    subprocess.run(["cp", "-r", ROOT / "docs", copy / "docs"], check=True)
    page = copy / "docs/reference/roles.md"
    page.write_text(page.read_text() + "by hand\n")
    program = [sys.executable, copy / "docs/generate.py", "--check"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "docs/reference/roles.md is not what its sources say: run make docs\n"


@pytest.mark.parametrize(("prefix", "model"), TABLES, ids=lambda part: getattr(part, "__name__", part))
def test_every_key_has_a_meaning(prefix, model):
    """Catches: a new key that neither its model nor docs/generator/meanings.yml explains."""
    empty = [key for key, _, _, meaning in models.keys(model, prefix) if not meaning]
    assert empty == []


def test_no_meaning_is_left_of_a_key_that_is_gone():
    """Catches: a meaning that stays behind when its key is renamed, and then explains nothing."""
    paths = [row.path for prefix, model in TABLES for row in rows(model, prefix)]
    paths += ["profile", *(row.path for one in models.FORMULAS for row in rows(one, ""))]
    ends = {".".join(path.split(".")[at:]) for path in paths for at in range(path.count(".") + 1)}
    assert sorted(set(models.MEANINGS) - ends) == []


def test_every_role_has_a_page():
    """Catches: a role without an argument specification, which the generator would leave out silently."""
    roles = {path.name for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir()}
    assert {name.split("/")[1] for name in of_roles.pages(ROOT) if name.startswith("roles/")} == roles


def row(profile: str, name: str, use: published.Use) -> tuple[str, ...]:
    """The page's row of a reference that shipped plans use so."""
    found = load_profile(profile)
    (entry,) = (entry for entry in found.entries if entry.id == name)
    return published._row(entry, use, found)


def test_what_is_worked_out_is_not_called_published():
    """Catches: a gate of our own arithmetic, shown to the reader as a figure of the report."""
    one = published.Use(deciding=1, first="x")
    _, printed, ours, *_ = row("pt_r7615_bcm57508", "pt-a-sendrecv-256m", one)
    assert (printed, ours) == ("83 % less time than B", "5.882 GB/s (computed)")
    _, printed, ours, *_ = row("primergy_cdi", "primergy-h100nvl-none-1gpu", one)
    assert (printed, ours) == ("63,594 queries/s", "9.57 GB/s (computed)")


def test_a_figure_that_is_not_measured_says_what_is_missing():
    """Catches: power that "decides nothing" by its note, where the plan has no access to the BMCs."""
    bmc = published.Use(shown=1, first="x", not_run="no access to the servers' BMCs")
    said = row("pt_r7615_bcm57508", "pt-a-power-sendrecv-large", bmc)[-1]
    assert said.startswith("NOT-RUN in the shipped inventory, judged where this does not hold: No access to")
    told = row("tolly_xe9680_z9664f", "tolly-link-sent", published.Use(shown=1, first="x"))[-1]
    assert told.startswith("Shown, and decides nothing: ")


def test_every_vendors_system_is_a_column():
    """Catches a system added without its cases."""
    assert set(SYSTEMS) == set(registry.SYSTEMS) - {"linux"}


@functools.cache
def _parsed(file):
    """A test file as Python has it."""
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def _lists(file):
    """What the names of a test file stand for, as text."""
    return {
        target.id: ast.unparse(one.value)
        for one in _parsed(file).body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }


@functools.cache
def _given(held):
    """What a test that is there is given, with the lists in it."""
    file, _, name = held.partition("::")
    path = ROOT / "tests" / file
    function = next(
        (one for one in _parsed(path).body if isinstance(one, ast.FunctionDef) and one.name == name), None
    )
    assert function, held
    given = named = "".join(ast.unparse(one) for one in function.decorator_list)
    lists: dict[str, str] = {}
    for one in (*path.parent.glob("test_*.py"), path):  # one takes another's lists
        lists |= _lists(one)
    for _ in range(2):  # a list may be made from another
        named += "".join(text for name, text in lists.items() if re.search(rf"\b{name}\b", named))
    return given, named


def _takes(held, system):
    """Hold that a test is there, and takes this system, by its name or by a list of all."""
    given, named = _given(held)
    # A test over several systems must be given this one, by its name or by a list of all.
    if "'nos'" not in given:
        return
    assert f"'{system}'" in named or "SYSTEMS" in given, (system, held)


@pytest.mark.parametrize("entry", cases(), ids=lambda entry: entry["case"])
def test_a_case_has_a_test_or_a_reason_for_every_system(entry):
    """Catches an empty cell, and a test that was renamed or taken away under the table."""
    assert set(entry) == {"case", *SYSTEMS}
    for system in SYSTEMS:
        held = entry[system]
        if isinstance(held, dict):
            assert set(held) == {"none"} and len(held["none"]) > 20, (system, held)
            continue
        _takes(held, system)


@pytest.mark.parametrize("what", matrix())
def test_a_cell_of_the_matrix_has_a_test_or_a_reason_or_is_said(what):
    """Catches a step that is forgotten, a cell that is held and cannot be had, and a test that is gone."""
    assert set(matrix()[what]) == set(STEPS)
    for step, cell in matrix()[what].items():
        named = [one for kind in cell.values() for systems in kind.values() for one in systems.split()]
        assert len(named) == len(set(named)) and set(named) <= set(SYSTEMS), (what, step)
        for system in SYSTEMS:
            for held in of_system(cell, "held", system):
                _takes(held, system)


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


def test_every_list_of_names_stands_where_the_page_says_and_meets_a_name_that_nobody_has():
    """Catches: a list that moved or was renamed, and what is said of its next name held by no test."""
    lists = yaml.safe_load((ROOT / "docs/generator/tools.yml").read_text())["lists"]
    tests = "\n".join(path.read_text() for path in (ROOT / "tests/unit").rglob("test_*.py"))
    for name, one in lists.items():
        where, _, attribute = one["where"].partition(":")
        assert hasattr(importlib.import_module(where), attribute), name
        assert f"\ndef {one['test']}(" in tests, name
