"""How cells without a reference are refused: each with the entry that misses it by least, all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from shakedown.records.errors import BadInput


class MissingReference(BadInput):
    """No entry fits a planned cell. A cell without a reference could only pass by not being looked at.

    `test`, `metric` and `facts` say of which cell; empty if it is of none.
    """

    test: str = ""
    metric: str = ""
    facts: Mapping[str, object] = MappingProxyType({})

    @classmethod
    def of(cls, test: str, metric: str, facts: Mapping[str, object], *, fix: str) -> MissingReference:
        """Return the refusal of one cell, by what is known of it."""
        refused = cls(f"no reference for {test} {metric} {scope_text(facts)}", fix=fix)
        refused.test, refused.metric, refused.facts = test, metric, facts
        return refused


# What there is beside writing the references by hand.
_PHYSICAL = "or take floors derived from ceilings (acceptance.profiles: [physical])"
_LEARN = ", or let a first run make them (shakedown plan --learn)"
# Of so many kinds of cell each is told with its nearest entry; with more it is no line that a person reads.
_TOLD = 5
_ALL = " (shakedown plan --learn lists all)"


def all_missing(missing: Sequence[MissingReference], *, learn: bool = False) -> MissingReference:
    """Return one refusal that tells of several cells: five kinds in full, sizes of one kind together.

    `learn`: the run was to learn, and cannot learn these: nothing says in which unit they are.
    """
    offer = _PHYSICAL if learn else _PHYSICAL + _LEARN
    if len(missing) == 1:
        return MissingReference(missing[0].what, fix=f"{missing[0].fix}; {offer}")
    alike: dict[tuple[str, str, str], list[MissingReference]] = {}
    for one in missing:
        facts = scope_text({key: value for key, value in one.facts.items() if key != "size_bytes"})
        alike.setdefault((one.test, one.metric, facts), []).append(one)
    told = []
    for (test, metric, facts), group in list(alike.items())[:_TOLD]:
        sizes = sorted(size for one in group if isinstance(size := one.facts.get("size_bytes"), int))
        span = f" size_bytes={sizes[0]}" if sizes else ""
        more = f" to {sizes[-1]} ({len(sizes)} sizes)" if len(sizes) > 1 else ""
        cell = f"{test} {metric} {facts}{span}{more}" if test else group[0].what
        told.append(f"{cell}: {group[0].fix}")
    if left := len(alike) - len(told):
        tests = dict.fromkeys(test for test, _, _ in list(alike)[_TOLD:])
        told.append(f"and {left} more of {', '.join(tests)}{'' if learn else _ALL}")
    return MissingReference(f"{len(missing)} cells have no reference: {'; '.join(told)}", fix=offer)


def scope_text(facts: Mapping[str, object]) -> str:
    """Return facts as a person writes them: `gpu=H200 nodes=2`."""
    return " ".join(f"{key}={value}" for key, value in sorted(facts.items())) or "(no scope)"
