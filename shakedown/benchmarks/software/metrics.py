"""Whether each software runs on a node, and whether it is the same there as on the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from shakedown.benchmarks.base.metrics import Output, Value
from shakedown.benchmarks.software.order import SoftwareOrder
from shakedown.records.base import Better
from shakedown.records.errors import BadInput

MISSING, ODD = "missing", "odd"
_NONE = "nothing"  # in the place of a part that a node lacks
_FIX = "it was written by this run's job: run it again"


def software(output: Output[SoftwareOrder]) -> Iterator[Value]:
    """Yield that it ran here, and how many of its parts differ from most nodes'. Raises BadInput."""
    name = str(output.record.params["program"])
    mine = _parts(output.text)
    if mine is None:
        raise BadInput("no record of a software", file=output.file, fix=_FIX)
    yield MISSING, 0.0, "1", Better.LOWER, {}, _words(mine)
    seen = {node: found for node in output.order.nodes if (found := _of(output, node, name))}
    odd = []
    for part in sorted({*mine, *(key for found in seen.values() for key in found)}):
        here, values = mine.get(part, _NONE), {node: found.get(part, _NONE) for node, found in seen.items()}
        ranked = Counter(values.values()).most_common(2)
        if len(ranked) < 2 or (ranked[0][0] == here and ranked[0][1] > ranked[1][1]):
            continue  # alike, or of the majority
        theirs = [f"{value} on {node}" for node, value in values.items() if value != here]
        odd.append(f"{part} is {here} on {output.node}, {', '.join(theirs[:3])}")
    yield ODD, float(len(odd)), "1", Better.LOWER, {}, "; ".join(odd) or _words(mine)


def _of(output: Output[SoftwareOrder], node: str, name: str) -> dict[str, str] | None:
    """Return what another node says of the same software; None: nothing, and its own cell says why."""
    try:
        return _parts(output.folder.text(f"software.{node}.{name}.json"))
    except (BadInput, OSError):
        return None


def _parts(text: str) -> dict[str, str] | None:
    try:
        found = json.loads(text).get("found")
    except (ValueError, AttributeError):
        return None
    if (
        not isinstance(found, dict)
        or not found
        or not all(isinstance(value, str) for value in found.values())
    ):
        return None
    return {str(key)[:64]: value[:300] for key, value in found.items()}


def _words(parts: dict[str, str]) -> str:
    return ", ".join(f"{part} {value}" for part, value in sorted(parts.items()) if value)
