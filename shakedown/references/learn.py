"""Stand-ins for references that a first run is to make: no bound, and the unit that the test measures in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from shakedown.records.base import Better, Stage
from shakedown.records.plan import ReferenceKind
from shakedown.references.catalogue import Entry
from shakedown.references.files import load_profile, profile_names

_SOURCE = "none yet: this run is to make it"
# What comes out wrong or lost is never learnt: a first run with wrong sums must not make them the rule.
_WRONG = ("wrong", "nonfinite_steps")
# Stage, unit and direction.
Kind = tuple[Stage, str, Better]


def learnt_entry(
    test: str, metric: str, facts: Mapping[str, int | str], unpublished: Mapping[tuple[str, str], Kind]
) -> Entry | None:
    """Return the stand-in for a cell's reference, or None if there can be none.

    Of results that come out wrong none is allowed, whatever is learnt. The unit is that of the shipped
    profiles: of this test and metric, else of all tests of its family that have the metric
    (`nccl_broadcast` as `nccl_all_reduce`).

    Args:
        unpublished: what shipped profiles do not have, by test and metric (`Benchmark.measures`).
    """
    if (kind := unpublished.get((test, metric))) is not None:
        found = frozenset({kind})
    else:
        found = _kinds().get((test, metric)) or _kinds().get((test.partition("_")[0], metric), frozenset())
    if len(found) != 1:
        return None
    stage, unit, better = next(iter(found))
    wrong = metric in _WRONG
    words = ("learn", test, metric, *(str(facts[key]) for key in sorted(facts)))
    return Entry(
        id="-".join(words).replace("_", "-")[:128],
        stage=stage,
        test=test,
        metric=metric,
        value=0,
        limit=0,
        unit=unit,
        better=better,
        kind=ReferenceKind.CONTRACT if wrong else ReferenceKind.LEARN,
        source="arithmetic; none may be wrong" if wrong else _SOURCE,
    )


@cache
def _kinds() -> dict[tuple[str, str], frozenset[Kind]]:
    """Return stage, unit and direction by (test, metric) and by (family, metric), of all shipped profiles."""
    found: dict[tuple[str, str], set[Kind]] = {}
    for name in profile_names():
        for entry in load_profile(name).entries:
            for key in {entry.test, entry.test.partition("_")[0]}:
                found.setdefault((key, entry.metric), set()).add((entry.stage, entry.unit, entry.better))
    return {key: frozenset(kinds) for key, kinds in found.items()}
