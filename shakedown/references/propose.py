"""References proposed from a run's own repeats, for a person to read, correct and sign.

A proposal is no reference: nothing here is used by a plan until a person has put it into a profile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from shakedown.records.base import Better, Param
from shakedown.records.results import Measurement
from shakedown.references.catalogue import SCOPE_KEYS
from shakedown.statistics.robust import median

# Fewer repeats say nothing about their spread.
MIN_SAMPLES = 3
# A bound closer to the value than this would measure the tool's resolution and chance.
FLOOR = 0.02
# Of a normal value the range of three repeats is 1.7 standard deviations in the mean: two ranges beyond the
# median are 3.4 of them.
RANGES = 2.0


def tolerance_of(samples: tuple[float, ...]) -> float:
    """Return the tolerance that repeats suggest: two ranges, at least the floor, rounded up to 0.005."""
    middle = median(samples)
    wide = RANGES * (max(samples) - min(samples)) / abs(middle) if middle else FLOOR
    return min(0.5, -(-max(wide, FLOOR) // 0.005) * 0.005)


def proposals(
    measurements: Iterable[Measurement],
    *,
    scope: Mapping[str, int | str],
    prefix: str,
    ceiling_gb_per_s: float | None = None,
) -> Iterator[dict[str, object]]:
    """Yield one entry, as a profile's file has it, for every measured value that has enough repeats.

    Args:
        measurements: a run's results; those that did not complete are left out.
        scope: facts beyond a cell's own parameters, such as `{"gpu": "H200-SXM"}`.
        prefix: what the names begin with.
        ceiling_gb_per_s: rate of the link behind every busbw; given to those of more than half of it.
    """
    for m in measurements:
        if m.value is None or m.value <= 0 or m.problem or m.state != "COMPLETED":
            continue
        if len(m.samples) < MIN_SAMPLES:
            continue
        facts: dict[str, Param] = {k: v for k, v in m.params.items() if k in SCOPE_KEYS}
        slack = tolerance_of(m.samples)
        spread = 100 * (max(m.samples) - min(m.samples)) / m.value
        words = [prefix, m.test, m.metric, *(str(facts[key]) for key in sorted(facts))]
        entry: dict[str, object] = {
            "id": re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words)),
            "stage": m.stage.value,
            "test": m.test,
            "metric": m.metric,
            "scope": {**scope, "nodes": len(m.nodes), **facts},
            "value": float(f"{m.value:.4g}"),
            "tolerance": round(slack, 4),
            "unit": m.unit,
            "better": m.better.value,
            "kind": "measured",
            "source": f"run {m.run}: median of {len(m.samples)} repeats, range {spread:.2g} %",
            "set_by": f"proposed: {RANGES:g} x the range of the repeats, at least {100 * FLOOR:g} %",
        }
        high = m.better is Better.HIGHER and m.unit == "GB/s" and ceiling_gb_per_s
        if high and m.value * (1 - slack) > high / 2:
            entry["ceiling"] = {"formula": "link", "gb_per_s": high}
        yield entry
