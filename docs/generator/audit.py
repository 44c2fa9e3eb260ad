"""The page of the audit: every published figure, what holds a site to it, and what does not."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

import yaml
from generator.text import code, made, sentence, table
from pydantic import Field, TypeAdapter, model_validator

from shakedown.records.base import Record
from shakedown.references.catalogue import Profile
from shakedown.references.files import load_profile

PAGE = "docs/reference/audit.md"
SOURCE = Path(__file__).with_name("audit.yml")
HEAD = ("item", "printed", "held", "rows of the profile", "by which test, and how far")
State = Literal["judged", "offered", "claimed", "calculated", "told", "not held"]
STATES = {
    "judged": "a shipped plan measures it, and cells of a run FAIL by it",
    "offered": "a site that names the profile is held to it; no shipped plan is",
    "claimed": "`shakedown sweeps` FAILs by it",
    "calculated": "`shakedown ceiling` gives it",
    "told": "shown beside the results, decides nothing",
    "not held": "no site is held to it",
}
# Longer lists of rows are counted.
_ROWS_NAMED = 3


class Item(Record):
    """An item of a publication: its printed figures by the row that has each, and what holds a site to it."""

    item: Annotated[str, Field(min_length=1)]
    figures: dict[str, float] = Field(default_factory=dict)
    # Rows of no printed figure, with * for any letters.
    rows: tuple[str, ...] = ()
    state: State
    tests: tuple[Annotated[str, Field(pattern=r"^[a-z0-9_/]+\.py::test_[a-z0-9_]+$")], ...] = ()
    why: str = ""

    @model_validator(mode="after")
    def _shown(self) -> Item:
        if self.state in ("judged", "offered", "claimed", "calculated") and not self.tests:
            raise ValueError(f"{self.item}: {self.state}, and no test shows it")
        if self.state in ("told", "not held") and not (self.why or self.tests):
            raise ValueError(f"{self.item}: {self.state}, and no reason")
        return self

    def rows_of(self, profile: Profile) -> list[str]:
        """Return the rows that this item means, in the profile's order.

        With `*`, judged are those that gate alone, and told the others.
        """
        apart = {"judged": True, "told": False}
        return [
            entry.id
            for entry in profile.entries
            if entry.id in self.figures
            or entry.id in self.rows
            or (
                any(fnmatchcase(entry.id, row) for row in self.rows)
                and apart.get(self.state, entry.gates) is entry.gates
            )
        ]


class Publication(Record):
    """What one publication prints."""

    publication: str
    profile: str
    items: tuple[Item, ...] = Field(min_length=1)


def publications() -> tuple[Publication, ...]:
    """Return the list. Raises pydantic's ValidationError for one that is not of its form."""
    loaded = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return TypeAdapter(tuple[Publication, ...]).validate_python(loaded)


def pages() -> dict[str, str]:
    """Return the page."""
    found = publications()
    of_state = {state: [i for one in found for i in one.items if i.state == state] for state in STATES}
    counts = [(k, v, len(of_state[k]), sum(len(i.figures) for i in of_state[k])) for k, v in STATES.items()]
    parts = [
        made("docs/generator/audit.yml"),
        "# The audit: every published figure, and what holds a site to it\n",
        "The figures were read from the publications once more, apart from the profiles; a test compares the",
        "two, and finds every row of a profile here. How each row is judged, cell by cell:",
        "[Published figures](published.md). What the publications print wrong: [Errata](errata.md).\n",
        table(("held", "meaning", "items", "printed figures"), [tuple(map(str, row)) for row in counts]),
    ]
    for one in found:
        profile = load_profile(one.profile)
        rows = [_row(item, profile) for item in one.items]
        parts += [
            f"## {sentence(one.publication).rstrip('.')}\n",
            f"Profile `{one.profile}`.\n",
            table(HEAD, rows),
        ]
    return {PAGE: "\n".join(parts)}


def _row(item: Item, profile: Profile) -> tuple[str, ...]:
    rows = item.rows_of(profile)
    named = ", ".join(code(row) for row in rows[:_ROWS_NAMED])
    more = f" and {len(rows) - _ROWS_NAMED} more" if len(rows) > _ROWS_NAMED else ""
    tests = ", ".join(code(test) for test in item.tests)
    return (
        item.item,
        ", ".join(f"{figure:g}" if figure < 1e5 else f"{figure:.0f}" for figure in item.figures.values())
        or "no figure",
        item.state,
        named + more or "none",
        ". ".join(part for part in (tests, sentence(item.why)) if part),
    )
