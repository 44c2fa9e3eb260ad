"""The pages that people write: short sentences, and no more words than somebody reads."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cases import cases

ROOT = Path(__file__).parents[3]
LONGEST_SENTENCE = 40
WORDS_IN_ALL = 40_000
WRITTEN_BY = "<!-- Written by docs/generate.py"

FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"(`+).+?\1", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
CELL = re.compile(r"(?<!\\)\|")
# A line with which a new heading or item begins: what stands before it is another sentence.
BEGINNING = re.compile(r"^\s*(?:#+|[-*+]|\d+\.|>)\s+")
SENTENCE_END = re.compile(r"[.!?][)\"'*_\]]*\s+")
WORD = re.compile(r"\w")


def hand_written() -> list[Path]:
    """Return the pages of the documentation that no program writes; `test_generated` holds the others."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return pages + [
        page for page in sorted((ROOT / "docs").rglob("*.md")) if not page.read_text().startswith(WRITTEN_BY)
    ]


def blocks(text: str) -> Iterator[str]:
    """Yield paragraphs, items, headings and cells of tables, each as one line without code blocks."""
    block: list[str] = []
    for line in [*COMMENT.sub("", FENCE.sub("\n\n", text)).splitlines(), ""]:
        cells = line.lstrip().startswith("|")
        if cells or not line.strip() or BEGINNING.match(line):
            yield " ".join(block)
            block = []
        if cells:
            yield from CELL.split(LINK.sub(r"\1", CODE.sub("Code", line)))
        elif line.strip():
            block.append(BEGINNING.sub("", line).strip())


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page. Code in a line is one word, and a link is its text."""
    for block in blocks(text):
        yield from SENTENCE_END.split(LINK.sub(r"\1", CODE.sub("Code", block)))


def words(sentence: str) -> int:
    """Return how many words a sentence has; a dash or an arrow by itself is none."""
    return sum(bool(WORD.search(word)) for word in sentence.split())


def too_long(text: str) -> list[str]:
    """Return the sentences of a page that are longer than a reader takes in once."""
    return [sentence for sentence in sentences(text) if words(sentence) > LONGEST_SENTENCE]


PAGES = hand_written()
LONG = " ".join(["word"] * (LONGEST_SENTENCE + 1))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_sentence_is_too_long_to_take_in_once(page):
    """Catches: a sentence of more than forty words, in prose, in an item or in a table's cell."""
    assert [f"{words(s)}: {s}" for s in too_long(page.read_text())] == []


def test_the_pages_that_people_write_do_not_grow_past_what_somebody_reads():
    """Catches: pages that repeat each other or keep their history, a few hundred words a change."""
    counted = {page.relative_to(ROOT).as_posix(): len(page.read_text().split()) for page in PAGES}
    longest = sorted(counted.items(), key=lambda item: -item[1])[:10]
    assert sum(counted.values()) <= WORDS_IN_ALL, longest


@cases(
    "page",
    f"{LONG}.",
    f"Short. {LONG}",
    f"- an item\n- {LONG}\n",
    f"1. {LONG.replace(' ', chr(10) + '   ', 1)}\n2. short\n",
    f"| a | b |\n|---|---|\n| short | {LONG} |\n",
    f"[{LONG}](page.md)",
    LONG.replace("word", "`a. b`"),
)
def test_a_long_sentence_is_seen_wherever_it_stands(page):
    """Catches: a count that passes over items, cells, links, or text that was broken into lines."""
    assert len(too_long(page)) == 1


@cases(
    "page",
    f"```\n{LONG}\n```\n",
    f"1. an item\n   ```yaml\n   {LONG}\n   ```\n",
    f"`{LONG}`",
    "[link](" + LONG.replace(" ", "/") + ")",
    "\n".join(["- five words in an item"] * 20),
    "| five words in a cell " * 20 + "|",
    "\n\n".join(["a paragraph of five words"] * 20),
    "Five words end with it. " * 20,
    "one - " * LONGEST_SENTENCE,
)
def test_what_is_no_long_sentence_is_none(page):
    """Catches: a count that takes code, a list or a table's row for one sentence."""
    assert too_long(page) == []


def test_generated_pages_are_not_counted():
    """Catches: a generated reference held to what holds for prose, or a page of prose left out."""
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "docs/README.md", "docs/reference/words.md", "docs/how-to/discover.md"} <= names
    assert not names & {"docs/reference/site.md", "docs/reference/commands.md"}
