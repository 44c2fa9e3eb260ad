"""What people write and that has a pattern is refused in words; sentences that blame have their witnesses."""

import ast
import importlib
import re
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

import shakedown
from shakedown.records import base
from shakedown.records.plan import Waiver
from shakedown.records.reading import read_evidence, refusal
from shakedown.records.wording import BLAMES, Blame, clipped
from tests.kit.cases import cases
from tests.kit.refusal import refused

ROOM = Path(shakedown.__file__).parent
# Documents of people; what our own programs write is refused as a whole.
WRITTEN = [
    *(ROOM / "intent").rglob("*.py"),
    *(path for path in (ROOM / "benchmarks").rglob("*.py") if "from pydantic import" in path.read_text()),
    *(ROOM / name for name in ("collect/server_watts.py", "daytwo/nightly/playbook.py", "records/plan.py")),
    ROOM / "records/base.py",
]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOM)))
def test_no_pattern_without_words(path):
    """Catches: a new key whose bad value is told as `String should match pattern '^...$'`."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") != "shape"]  # where it is used
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    raw = [
        call.lineno
        for call in calls
        if getattr(call.func, "id", getattr(call.func, "attr", "")) in ("Field", "StringConstraints")
        and any(keyword.arg == "pattern" for keyword in call.keywords)
    ]
    assert not raw, f"{path}:{raw}: use records.shapes.shape"


def test_every_example_is_right_and_no_words_hide_others():
    """Catches: an example that is refused itself, and one pattern with two descriptions."""
    for path in WRITTEN:
        importlib.import_module(".".join(("shakedown", *path.relative_to(ROOM).with_suffix("").parts)))
    known = list(base.known())
    assert len(known) > 15
    assert sum("benchmarks" in path.parts for path in WRITTEN) > 12
    for pattern, must_be, example in known:
        assert re.search(pattern, example), (pattern, example)
        TypeAdapter(Annotated[str, base.shape(pattern, must_be, example)]).validate_python(example)
    with pytest.raises(ValueError, match="two descriptions"):
        base.shape(known[0][0], "another", "x")


def test_a_waiver_of_a_wide_pattern_is_told_what_is_right():
    """Catches: a regular expression shown to who signs a waiver."""
    row = {"name": "a", "cells": "*", "reason": "why not", "owner": "A. Owner", "expires": "2030-01-01"}
    with pytest.raises(ValidationError) as found:
        Waiver.model_validate(row)
    said = str(refusal(found.value, Waiver))
    assert "cells: must be STAGE/TEST/METRIC/REST" in said
    assert "such as fabric/ib_write_bw/bandwidth/*n7*/rail2/* (got '*')" in said


REFUSED = (
    "exit status 1: Couldn't connect to 10.10.1.2:18603 / Unable to open file descriptor for socket "
    "connection / Unable to init the socket connection"
)


@cases(
    "most, left",
    (40, "exit status 1: Couldn't connect to..."),
    (80, "exit status 1: Couldn't connect to 10.10.1.2:18603..."),
    (120, REFUSED.rpartition(" / ")[0] + "..."),
    (200, REFUSED),
)
def test_a_cut_reason_keeps_what_the_tool_said(most, left):
    """Catches: a headline of `exit status 1...` where the tool named the address that did not answer."""
    assert clipped(REFUSED, most) == left
    assert len(left) <= most


def test_a_text_without_a_stop_is_cut_all_the_same():
    """Catches: a name of a thousand characters that fills the line."""
    assert clipped("x" * 1000, 20) == "x" * 17 + "..."


TWICE = '{"wrong": 3, "wrong": 0}'


@cases(
    "name, text, line",
    ("a.json", TWICE, ""),
    ("a.json", " " * 300 + TWICE, ""),
    ("a.json", "\ufeff" + TWICE, ""),
    ("a.json", '{"rows": [\n' + TWICE + "]}\n", ""),
    ("torch.jsonl", "a warning of a library\n" + TWICE + "\n", ":2"),
    ("torch.jsonl", "\n\n" + TWICE, ":3"),
    ("torch.jsonl", '{"a": 1}\n{"b": 1}\n  ' + TWICE + "\n", ":3"),
    ("all.txt", "# header\n[1,0]\n" + TWICE + "\r\n", ":3"),
)
def test_a_key_that_is_there_twice_is_refused_wherever_it_stands(tmp_path, name, text, line):
    """Catches: the last of two values taken, where a warning, spaces or a byte order mark lie before it."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    refused(f"{name}{line}: duplicate key 'wrong'", read_evidence, tmp_path / name)


@pytest.mark.parametrize("text", ["", "{", "[0] NCCL INFO\n", '{"a": 1}\n{"a": 2}\n', "[1,0] # nThread 1\n"])
def test_what_is_no_json_is_for_its_own_reader(tmp_path, text):
    """Catches: text refused that only begins as JSON does."""
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert read_evidence(tmp_path / "a.txt") == text.encode()


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


# Where causes are made: here each new sentence must say whom it blames, in BLAMES, or that it blames nobody,
# by a line of this list. No list of words decides that.
NOBODY = Path(__file__).with_name("sentences_that_blame_nobody.txt")
OF_CAUSES = (
    *(f"judge/localise/{n}.py" for n in ("causes", "doubts", "fit", "model", "pairs", "rare", "suspects")),
    *("judge/losses.py", "onnode/standing.py", "onnode/tcp_paths.py", "collect/surroundings.py"),
)


def test_no_sentence_is_forgotten_where_causes_are_made():
    """Catches: a new sentence that blames in words which nobody thought of."""
    trees = {name: ast.parse((ROOT / "shakedown" / name).read_text(encoding="utf-8")) for name in OF_CAUSES}
    said = {
        f"{name}: {text!r}" for name, tree in trees.items() for text in sentences(tree) if " " in text.strip()
    }
    known = set(NOBODY.read_text(encoding="utf-8").splitlines())
    assert not said - known, "put it into BLAMES, or, if it blames nobody, into the list"
    assert not known - said, "these are gone: take them out of the list"


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
