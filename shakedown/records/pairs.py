"""Pairs of some nodes, named by the nodes alone: the 8,386,560 pairs of 4,096 nodes fill 150 MB."""

from collections.abc import Iterator
from itertools import combinations, islice
from typing import Annotated

from pydantic import Field, field_validator

from shakedown.records.base import Name, Record
from shakedown.records.wording import natural_key

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


class PairsAcross(Record):
    """Every two nodes of different groups, in the order of all the nodes: what crosses from group to group.

    It is iterated over, counted and asked like `AllPairs`.
    """

    # The groups; each node is in one.
    pairs_across: Annotated[tuple[Annotated[tuple[Name, ...], Field(min_length=1)], ...], Field(min_length=2)]

    @field_validator("pairs_across")
    @classmethod
    def _each_once(cls, groups: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        names = [name for group in groups for name in group]
        if len(names) > MOST_NODES:
            raise ValueError(f"names {len(names)} nodes, more than {MOST_NODES}")
        if len(set(names)) < len(names):
            raise ValueError("names a node twice")
        return groups

    def groups(self) -> dict[str, int]:
        """Return the number of each node's group, in the order in which pairs name the nodes."""
        of = {name: number for number, group in enumerate(self.pairs_across) for name in group}
        return dict(sorted(of.items(), key=lambda one: natural_key(one[0])))

    def __iter__(self) -> Iterator[tuple[str, ...]]:  # type: ignore[override]  # not pydantic's fields
        of = self.groups()
        return (pair for pair in combinations(of, 2) if of[pair[0]] != of[pair[1]])

    def __len__(self) -> int:
        sizes = [len(group) for group in self.pairs_across]
        return (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2

    def __getitem__(self, place: int) -> tuple[str, ...]:
        """Return one pair by its place. Raises IndexError."""
        if not 0 <= place < len(self):
            raise IndexError(place)
        return next(islice(iter(self), place, None))

    def __contains__(self, pair: object) -> bool:
        if not (isinstance(pair, tuple) and len(pair) == 2):
            return False
        of = self.groups()
        if not all(name in of for name in pair) or of[pair[0]] == of[pair[1]]:
            return False
        return natural_key(pair[0]) < natural_key(pair[1])


def apart(one: AllPairs | PairsAcross, other: AllPairs | PairsAcross) -> bool:
    """Return whether two blocks of pairs have none in common, without naming the pairs.

    They have one if two nodes are in different groups of both; in `AllPairs` every node is a group.
    """
    mine, theirs = _groups(one), _groups(other)
    both = {(mine[name], theirs[name]) for name in mine.keys() & theirs.keys()}
    return len({a for a, _ in both}) <= 1 or len({b for _, b in both}) <= 1


def _groups(block: AllPairs | PairsAcross) -> dict[str, int]:
    if isinstance(block, AllPairs):
        return {name: number for number, name in enumerate(block.all_pairs_of)}
    return {name: number for number, group in enumerate(block.pairs_across) for name in group}
