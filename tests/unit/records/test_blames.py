"""Every sentence that blames has its witnesses in one table, or says likely and the next look."""

import ast
import re
from pathlib import Path

import pytest

from shakedown.records.wording import BLAMES, Blame
from tests.kit.cases import cases

ROOT = Path(__file__).parents[3]
ROOMS = ("judge", "benchmarks", "onnode", "evidence", "nos", "collect", "slurm")
BLAMING = re.compile(
    r"\blikely\b|at fault|dropped packets|lost packets|packets were lost|is owned by|stands still"
    r"|overtook|carries nothing|cable or|see its (?:clock|munge)|half rate|instead of RDMA|routing leaves it"
)
# What blames nobody, though a word of it does: file and a part of the sentence.
NO_BLAME = {
    ("judge/headline.py", "likely {}"): "what the hint's own blame says",
    ("judge/localise/causes.py", "how likely each is"): "the probabilities of all rivals",
    ("judge/words.py", "dropped packets"): "the name of a counter",
    ("judge/cells.py", "likely "): "what stands before a hint's cause",
    ("onnode/standing.py", "no rank stands still"): "says that none is named",
    ("benchmarks/gpu_rate/benchmark.py", "a GPU stands still"): "what a job is for",
}


def sentences(tree):
    """The texts of a module without its documentation, `{}` for what is filled in."""
    documented, parts = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, False):
            documented.add(node.body[0].value)
        if isinstance(node, ast.JoinedStr):
            parts |= set(node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documented | parts
        ):
            yield node.value


def test_no_sentence_blames_beside_the_table():
    """Catches: a sentence that names a part on one reading, written where no rule holds it to two."""
    found = []
    for room in ROOMS:
        for file in sorted((ROOT / "shakedown" / room).rglob("*.py")):
            name = file.relative_to(ROOT / "shakedown").as_posix()
            for text in sentences(ast.parse(file.read_text(encoding="utf-8"))):
                if (
                    text not in BLAMES
                    and BLAMING.search(text)
                    and not any(n == name and part in text for n, part in NO_BLAME)
                ):
                    found.append((name, text))
    assert not found


def test_every_blame_of_the_table_is_told_somewhere():
    """Catches: a row of the page that no sentence of a verdict is of."""
    texts = "".join(f.read_text(encoding="utf-8") for f in (ROOT / "shakedown").rglob("*.py"))
    for name in BLAMES:
        assert texts.count(f'"{name}"') >= 2, name


@cases(
    "says, witnesses, look",
    ("n2's NIC dropped packets", ("one",), "ethtool -S"),
    ("likely n2's NIC", ("one",), ""),
    ("n2's NIC", (), "ethtool -S"),
)
def test_a_blame_surer_than_its_readings_cannot_be_made(says, witnesses, look):
    """Catches: a sentence with one witness that leaves no doubt, or does not say where to look."""
    with pytest.raises(ValueError, match="one witness"):
        Blame(says, witnesses, "", look)


def test_one_witness_tells_the_command():
    """Catches: a doubt without the look that ends it."""
    assert Blame("likely {x}", ("one",), "", "look {x}").told(x="a") == "likely a (next: `look a`)"
    assert Blame("{x}", ("one", "two")).told(x="a") == "a"
