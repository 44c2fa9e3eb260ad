"""The generated reference and the roles' pages: as their sources say, and whole."""

import subprocess
import sys
from pathlib import Path

import generate
import pytest
from generator import models
from generator import roles as of_roles
from generator.fields import rows

from shakedown.daytwo.nightly.playbook import NightlyConfig
from shakedown.references.catalogue import Profile, ReferenceEntry

ROOT = Path(__file__).parents[3]


TABLES = [
    *((prefix, model) for _, prefix, model in models.SITE),
    ("", Profile),
    ("references[].", ReferenceEntry),
    ("", NightlyConfig),
    *(("", model) for _, model in models.RUN),
]


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
def test_check_names_the_page_that_differs(tmp_path):
    """Catches: a check that passes whatever the files hold."""
    copy = tmp_path / "repository"
    copy.mkdir()
    for name in ("docs", "inventories", "playbooks", "roles", "shakedown"):
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
