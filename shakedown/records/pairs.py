"""All pairs of some nodes, named by the nodes alone: the 8,386,560 pairs of 4,096 nodes fill 150 MB."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice
from typing import Annotated

from pydantic import Field, field_validator

from shakedown.records.base import Name, Record

# More nodes than any fabric joins; a plan that names more would keep its reader busy for hours.
MOST_NODES = 16_384


class AllPairs(Record):
    """Every two of these nodes once, in their order: what a full mesh measures.

    It is iterated over, counted and asked like the tuple of pairs that it stands for.
    """

    # The nodes, each once.
    all_pairs_of: Annotated[tuple[Name, ...], Field(min_length=2, max_length=MOST_NODES)]

    @field_validator("all_pairs_of")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError("names a node twice")
        return names

    def __iter__(self) -> Iterator[tuple[str, ...]]:  # type: ignore[override]  # not pydantic's fields
        return combinations(self.all_pairs_of, 2)

    def __len__(self) -> int:
        count = len(self.all_pairs_of)
        return count * (count - 1) // 2

    def __getitem__(self, place: int) -> tuple[str, ...]:
        """Return one pair by its place. Raises IndexError."""
        if not 0 <= place < len(self):
            raise IndexError(place)
        return next(islice(self, place, None))

    def __contains__(self, pair: object) -> bool:
        if not (isinstance(pair, tuple) and len(pair) == 2):
            return False
        place = {name: number for number, name in enumerate(self.all_pairs_of) if name in pair}
        return len(place) == 2 and place[pair[0]] < place[pair[1]]
