"""References as ReFrame 4.10 reads them: its external reference file (`reference = {'$ref': FILE}`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from shakedown.records.base import Better
from shakedown.records.plan import Reference
from shakedown.references.catalogue import Entry, ScopeValue, Span

# The one index level: a test attribute that holds `scope_key` of the test's own scope.
INDEX = "scope_key"


def scope_key(scope: Mapping[str, ScopeValue]) -> str:
    """Return a scope as one word: `gpus=6,size_bytes=4`, or `any`."""

    def text(value: ScopeValue) -> str:
        if isinstance(value, Span):
            return f"{'' if value.min is None else value.min}..{'' if value.max is None else value.max}"
        return str(value)

    return ",".join(f"{key}={text(scope[key])}" for key in sorted(scope)) or "any"


def reframe_references(entries: Iterable[Entry]) -> dict[str, dict[str, object]]:
    """Return the content of a ReFrame reference file: class -> scope -> metric -> [value, lower, upper,
    unit].

    A class is the test's name in CamelCase (`nccl_all_reduce` -> `NcclAllReduce`). ReFrame has no place for
    kind and source, and silently finds no reference where a key is missing: the verdict is therefore made
    from ours, and a ReFrame test that uses this sets `require_reference=True`. Entries that do not gate are
    left out.
    """
    classes: dict[str, dict[str, object]] = {}
    for entry in entries:
        if not entry.gates:
            continue
        name = "".join(word.capitalize() for word in entry.test.split("_"))
        scopes = classes.setdefault(name, {"$index": [INDEX]})
        # ReFrame takes keys for regular expressions when none is equal.
        metrics = scopes.setdefault(re.escape(scope_key(entry.scope)), {})
        assert isinstance(metrics, dict)
        metrics[entry.metric] = _tuple(entry.reference())
    return classes


def _tuple(reference: Reference) -> list[object]:
    """Return [value, lower, upper, unit]; bounds are fractions of the value, or absolute when it is zero."""

    def bound(number: float | None) -> float | None:
        if number is None:
            return None
        return number if reference.value == 0 else round((number - reference.value) / abs(reference.value), 6)

    worst, best = bound(reference.gate), bound(reference.ceiling)
    bounds = [worst, best] if reference.better is Better.HIGHER else [best, worst]
    return [reference.value, *bounds, reference.unit]
