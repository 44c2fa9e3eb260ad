"""References from one's own fleet: what its history says that a healthy node reaches."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shakedown.records.base import Better
from shakedown.records.wording import number
from shakedown.references.catalogue import SCOPE_KEYS, Entry
from shakedown.statistics.robust import MAD_TO_SIGMA, median, resolution

# So many robust standard deviations below the median lies the gate: of normal values one in 3.5 million.
SIGMAS = 5.0
# Less than this is no tolerance: tools, temperatures and seasons differ by as much.
SMALLEST_TOLERANCE = 0.005


@dataclass(frozen=True)
class Seen:
    """All values of one test, metric and parameters: nodes, rails and sides together."""

    entry: Entry  # the reference that they were judged by
    params: Mapping[str, str]
    values: tuple[float, ...]
    nodes: int
    nights: int
    first: str
    last: str


def proposal(system: str, seen: Seen, inventory: str) -> dict[str, object]:
    """Return one reference as the profile's file holds it.

    The value is the median, the tolerance `SIGMAS` robust standard deviations (1.4826 MAD), rounded up.
    Scope and ceiling are those of the reference in force, narrowed to the system and the parameters.
    """
    middle = median(seen.values)
    mad = median([abs(v - middle) for v in seen.values])
    sigma = max(mad, resolution(seen.values[:300])) / MAD_TO_SIGMA
    tolerance = math.ceil(1000 * max(SIGMAS * sigma / abs(middle), SMALLEST_TOLERANCE)) / 1000
    entry = seen.entry
    scope = {**entry.model_dump()["scope"], "system": system, **_scope(seen.params)}
    name = "-".join([system, entry.test, entry.metric, *(f"{v}" for _, v in sorted(seen.params.items()))])
    found: dict[str, object] = {
        "id": re.sub(r"[^A-Za-z0-9.+-]", "-", name)[:120],
        "stage": entry.stage.value,
        "test": entry.test,
        "metric": entry.metric,
        "scope": scope,
        "value": float(f"{middle:.6g}"),
        "tolerance": min(tolerance, 0.999),
        "unit": entry.unit,
        "better": entry.better.value,
        "kind": "baseline",
        "source": (
            f"own history, {seen.first} to {seen.last}: n = {len(seen.values)} values of {seen.nodes} "
            f"nodes in {seen.nights} nights, median {number(middle)} {entry.unit}, robust CV "
            f"{sigma / abs(middle):.2%}; {inventory}"
        ),
    }
    if entry.ceiling is not None:
        found["ceiling"] = entry.ceiling.model_dump(mode="json", exclude_none=True)
    looser = _looser(entry, middle, min(tolerance, 0.999))
    if looser:
        found["note"] = looser
    return found


def _scope(params: Mapping[str, str]) -> dict[str, int | str]:
    return {
        key: int(value) if SCOPE_KEYS[key] is int else value
        for key, value in params.items()
        if key in SCOPE_KEYS and (SCOPE_KEYS[key] is str or value.isdecimal())
    }


def _looser(entry: Entry, middle: float, tolerance: float) -> str:
    """Say so if the proposed gate would let pass what the present one refuses."""
    present = entry.reference().gate
    higher = entry.better is Better.HIGHER
    gate = middle * (1 - tolerance) if higher else middle * (1 + tolerance)
    if (gate < present) if higher else (gate > present):
        return (
            f"LOOSER than {entry.id}: gate {number(gate)}, now {number(present)}; know why before you take it"
        )
    return ""


def header(system: str, profile: str, notes: Sequence[str]) -> dict[str, object]:
    """Return the head of the profile."""
    return {
        "schema": 1,
        "profile": profile,
        "title": f"What {system} reached by itself",
        "published": "nowhere; from this site's own nights",
        "audit": " ".join(("Proposed by shakedown references baseline, taken over by a person.", *notes)),
    }
