"""What a profile's source publishes beside its references: what no plan can hold, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, model_validator

from shakedown.records.base import Record

Text = Annotated[str, Field(min_length=1, strict=True)]


class OutsidePlan(Record):
    """Published figures outside the plan: rows of the profile, or an item that no row stands for."""

    # Rows of the profile: a name, or with a final `*` all that begin so.
    rows: tuple[Text, ...] = ()
    # What is published, where no row stands for it; `printed` is the figure.
    item: Text | None = None
    printed: Text | None = None
    # What holds a site to it, where that is not a run's verdict.
    judged_by: Text | None = None
    # Why no cell is held to it.
    why: Text

    @model_validator(mode="after")
    def _rows_or_item(self) -> OutsidePlan:
        if bool(self.rows) == bool(self.item):
            raise ValueError("give rows, or item with printed; not both")
        if (self.item is None) != (self.printed is None):
            raise ValueError("item and printed belong together")
        return self

    def lists(self, name: str) -> bool:
        """Whether a reference of this name is meant."""
        return any(names(row, name) for row in self.rows)


class Erratum(Record):
    """A figure that its source prints wrong, and the arithmetic that shows it."""

    where: Text  # in the publication
    printed: Text
    # Numbers, + - * / and brackets; a test works it out and compares the result with `right`.
    arithmetic: Text
    right: Annotated[float, Field(strict=True, allow_inf_nan=False)]
    unit: Text
    note: Text


def names(row: str, name: str) -> bool:
    """Whether a row of the list means a reference: `pt-b-*` means all that begin with `pt-b-`."""
    return name.startswith(row[:-1]) if row.endswith("*") else name == row


def reason_for(name: str, outside: Iterable[OutsidePlan]) -> OutsidePlan | None:
    """Return the most exact entry of the list that means a reference, or None."""
    found = [(len(row), one) for one in outside for row in one.rows if names(row, name)]
    return max(found, key=lambda pair: pair[0])[1] if found else None
