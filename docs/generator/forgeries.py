"""The page of what was tried against evidence: by whom, what came of it, and which test shows it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import yaml
from generator.text import code, made, table
from pydantic import Field

from shakedown.records.base import Record

PAGE = "docs/reference/forgeries.md"
SOURCE = Path(__file__).with_name("forgeries.yml")
TESTS = Path(__file__).resolve().parents[2] / "tests/unit"
KEY, USER = "a holder of a trusted key", "an ordinary user of a host"
# The tables of what is tried (functions or words, and the words that name each): its test, and who tries it.
# No words: it is harmless; `refused`: it is not let through.
SHARE, ON_IT = (
    "evidence/test_forgeries_on_the_share.py",
    "test_what_is_done_on_the_share_is_named_or_harmless",
)
BY_ANOTHER = "test_another_user_changes_nothing_on_the_share"
LISTS = {
    ("evidence/test_forgeries.py", "FORGERIES"): ("test_forgery_by_who_holds_a_key_is_named", KEY),
    ("evidence/test_forged_jobs.py", "FORGERIES"): ("test_forged_job_is_named", KEY),
    ("evidence/test_forged_jobs.py", "ACCOUNTS"): (
        "test_what_slurm_says_of_a_job_is_held_against_its_record",
        "the jobs' user",
    ),
    ("evidence/test_forgeries_of_two.py", "FORGERIES"): ("test_what_is_put_in_a_wrong_place_is_named", KEY),
    (SHARE, "OF_ANOTHER"): ("test_what_another_user_owns_is_not_opened", USER),
    (SHARE, "BEFORE_SIGNING"): ("test_a_node_signs_what_it_can_read", "root of another node"),
    (SHARE, "FIRST"): ("test_a_shared_folder_that_is_anothers_is_refused", USER),
    (SHARE, "LOCKED"): ("test_another_users_lock_keeps_nobody", USER),
}
OUTCOMES = ("named", "refused", "harmless", "possible")


class Tried(Record):
    """One thing that somebody tries."""

    actor: Annotated[str, Field(min_length=1)]
    what: Annotated[str, Field(min_length=1)]
    outcome: Literal["named", "refused", "harmless", "possible"]
    test: Annotated[str, Field(pattern=r"^[a-z0-9_/]+\.py::test_[a-z0-9_]+$")]
    says: str = ""  # what names it


class Place(Record):
    """A place on the share, and what names each thing that is done to it."""

    path: str
    done: dict[str, str]


class Source(Record):
    """The list that is kept by hand."""

    actors: dict[str, str]  # of a forgery that the tests list, where it is no holder of a key
    words: tuple[str, ...]  # that name several, for their anchors
    on_the_share: dict[str, Place]
    by_another_user: tuple[str, ...]
    rows: tuple[Tried, ...]


def source() -> Source:
    """Return the list. Raises pydantic's ValidationError for one that is not of its form."""
    return Source.model_validate(yaml.safe_load(SOURCE.read_text(encoding="utf-8")), strict=False)


def listed() -> Iterator[tuple[str, str, str, str]]:
    """Yield each forgery that the tests list: its name, what names it, its test, and who tries it."""
    for place, of in source().on_the_share.items():
        for action, words in of.done.items():
            yield f"{place}, {action}", words.strip(" :"), f"{SHARE}::{ON_IT}", "root of another node"
    for what in source().by_another_user:
        yield what.replace("{}", "RUN"), "refused", f"{SHARE}::{BY_ANOTHER}", USER
    for (file, table_), (test, actor) in LISTS.items():
        for node in ast.parse((TESTS / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == table_:
                assert isinstance(node.value, ast.Dict)
                for name, words in zip(node.value.keys, node.value.values, strict=True):
                    what = name.value if isinstance(name, ast.Constant) else ast.unparse(name or node)
                    yield str(what), _text(words), f"{file}::{test}", actor


def _text(words: ast.expr) -> str:
    parts = words.values if isinstance(words, ast.JoinedStr) else [words]
    return "".join(str(p.value) if isinstance(p, ast.Constant) else "FILE" for p in parts).strip(" :,")


def tried() -> list[Tried]:
    """Return all of them."""
    kept = source()
    return [
        Tried(
            actor=kept.actors.get(name, actor),
            what=name if " " in name else name.replace("_", " "),
            outcome="refused" if words == "refused" else "named" if words else "harmless",
            test=test,
            says="" if words == "refused" else words,
        )
        for name, words, test, actor in listed()
    ] + list(kept.rows)


def pages() -> dict[str, str]:
    """Return the page."""
    rows = tried()
    actors = sorted({row.actor for row in rows})
    counts = [(a, Counter(row.outcome for row in rows if row.actor == a)) for a in actors]
    parts = [
        made("docs/generator/forgeries.yml and the tables of tests/unit/evidence"),
        "# Who tried what, and what came of it\n",
        "Each line is shown by the test in its last column. What is possible all the same, and why:",
        "[What a signature proves](../explanation/trust.md).\n",
        table(("who", *OUTCOMES), [(a, *(str(count[o]) for o in OUTCOMES)) for a, count in counts]),
    ]
    for actor in actors:
        mine = [row for row in rows if row.actor == actor]
        parts += [
            f"## {actor[0].upper()}{actor[1:]}\n",
            table(
                ("what", "outcome", "what names it", "test"),
                [(row.what, row.outcome, code(row.says), code(f"tests/unit/{row.test}")) for row in mine],
            ),
        ]
    return {PAGE: "\n".join(parts)}
