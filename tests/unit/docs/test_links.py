"""The documentation's links and the paths that it names."""

import re
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.run import ran

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A word in backticks that begins with a folder of the repository, down to a file or folder.
PLACE = re.compile(
    r"(?<![\w./-])((?:docs|inventories|lab|playbooks|reframe_tests|requirements|roles|shakedown|tests|workloads)"
    r"/[\w./-]*[\w])(?![\w*{]|/?[A-Z<])"
)
# Names that stand for one of the reader's own: inventories/SITE, reports/runs/RUN.
PLACEHOLDER = re.compile(r"[/_][A-Z]{2,}\b")


def tracked(*patterns: str) -> list[Path]:
    """Return files of the repository, new ones included."""
    listed = ran(
        "git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns, cwd=ROOT, check=True
    )
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


PAGES = [page for page in tracked("*.md") if "tests/runs" not in page.as_posix()]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page):
    """Catches: a page that was moved or renamed while others still link to its old place."""
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        place = (page.parent / target) if target else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_in_backticks_exists(page):
    """Catches: prose that names a module or test which has moved or gone."""
    text = page.read_text()
    words = "\n".join(re.findall(r"`([^`\n]+)`", FENCE.sub("", text)) + FENCE.findall(text))
    gone = [
        name for name in PLACE.findall(words) if not PLACEHOLDER.search(name) and not (ROOT / name).exists()
    ]
    assert gone == []


def test_every_page_named_in_code_exists():
    """Catches: a comment or docstring that sends the reader to a page which is no longer there."""
    gone = []
    for file in tracked("*.py", "*.yml", "*.toml", "*.cfg", "*.sh", "*.j2", "Makefile"):
        for name in re.findall(r"(?<![\w./-])docs/[\w/-]+\.(?:md|png|svg)", file.read_text(errors="replace")):
            if not (ROOT / name).exists() and "interop" not in name:
                gone.append(f"{file.relative_to(ROOT)}: {name}")
    assert gone == []


def test_the_architecture_names_every_room_in_order():
    """Catches: a room that the page does not know, or an order that the import contract contradicts."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [room for contract in contracts if contract["type"] == "layers" for room in contract["layers"]]
    text = (ROOT / "docs/explanation/architecture.md").read_text().partition("| room | what it is |")[2]
    table = [line for line in text.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    named = [room for line in table for room in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(named) == sorted(layers)
    for lower, higher in pairwise(named):
        assert layers.index(lower) > layers.index(higher) or _one_line(table, lower, higher), (lower, higher)


def _one_line(table: list[str], *rooms: str) -> bool:
    return any(all(f"`{room}`" in line for room in rooms) for line in table)


def test_a_file_is_read_in_one_sitting_and_a_folder_at_a_glance():
    """Catches: a file of the product that outgrows 500 lines, a folder that outgrows 20 files."""
    files = list((ROOT / "shakedown").rglob("*.py"))
    long = {p.name: lines for p in files if (lines := len(p.read_text().splitlines())) > 500}
    full = {folder.name: n for folder, n in Counter(p.parent for p in files).items() if n > 20}
    assert (long, full) == ({}, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tables_have_a_row_a_line(page):
    """Catches: a table whose rows were reflowed as if they were prose."""
    for block in FENCE.sub("", page.read_text()).split("\n\n"):
        if block.startswith("| "):
            assert all(line.startswith("|") and line.endswith("|") for line in block.strip().splitlines())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_numbered_step_begins_a_line(page):
    """Catches: steps that were reflowed as if they were prose, so that the second vanishes in the first."""
    for line in FENCE.sub("", page.read_text()).splitlines():
        assert line.startswith("|") or not re.search(r"[.:] [2-9]\. [A-Z`]", line), line


def test_the_picture_of_the_house_names_every_room():
    """Catches: a room of shakedown/ that the page of the architecture does not know."""
    rooms = {path.parent.name for path in (ROOT / "shakedown").glob("*/__init__.py")}
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    lines = page.partition("| room |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {room for line in lines for room in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert named == rooms
