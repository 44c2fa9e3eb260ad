"""Propose references from runs, learn them, and write ReFrame's."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from shakedown.intent.tcp_rules import ALL_TCP, ROCE
from shakedown.records.base import Better, Param, Stage, params_text
from shakedown.records.plan import Plan, Reference, ReferenceKind
from shakedown.records.results import Measurement
from shakedown.references.catalogue import SCOPE_KEYS, ReferenceEntry, ScopeValue, Span
from shakedown.references.files import load_profile, profile_names
from shakedown.statistics.robust import median

# A proposal is no reference: nothing here is used by a plan until a person has put it into a profile.

MIN_SAMPLES = 3  # fewer repeats say nothing about their spread
FLOOR = 0.02  # a bound closer to the value than this would measure the tool's resolution and chance
# Of a normal value the range of three repeats is 1.7 standard deviations in the mean: two ranges beyond the
# median are 3.4 of them.
RANGES = 2.0
UNSIGNED = "proposed:"  # what `set_by` begins with until a person has put a name there


def tolerance_of(samples: tuple[float, ...]) -> float:
    """Return the tolerance that repeats suggest: two ranges, at least the floor, rounded up to 0.005."""
    middle = median(samples)
    wide = RANGES * (max(samples) - min(samples)) / abs(middle) if middle else FLOOR
    return min(0.5, -(-max(wide, FLOOR) // 0.005) * 0.005)


def proposals(
    # A run's results; those that did not complete, or beside something else, are left out.
    measurements: Iterable[Measurement],
    *,
    scope: Mapping[str, int | str],  # facts beyond a cell's own parameters, such as `{"gpu": "H200-SXM"}`
    prefix: str,  # what the names begin with
    # Rate of the link behind every busbw; given to those of more than half of it.
    ceiling_gb_per_s: float | None = None,
) -> Iterator[dict[str, object]]:
    """Yield one entry, as a profile's file has it, for every value that has enough repeats.

    Cells that differ in nodes, rail or direction alone are one reference: their values count as repeats.
    """
    alike: dict[tuple[object, ...], tuple[dict[str, Param], list[Measurement]]] = {}
    for one in measurements:
        if one.value is None or one.value <= 0 or one.problem or one.state != "COMPLETED":
            continue
        if one.beside_others:
            continue
        facts = facts_of(one)
        key = (one.stage, one.test, one.metric, len(one.nodes), params_text(facts))
        alike.setdefault(key, (facts, []))[1].append(one)
    for facts, group in alike.values():
        m = group[0]
        samples = tuple(x for one in group for x in (one.samples or (one.value or 0.0,)))
        if len(samples) < MIN_SAMPLES:
            continue
        value = m.value if len(group) == 1 and m.value else median(samples)
        slack = tolerance_of(samples)
        spread = 100 * (max(samples) - min(samples)) / value
        words = [prefix, m.test, m.metric, *(str(facts[key]) for key in sorted(facts.keys() - {"nodes"}))]
        told = (
            f"{len(samples)} repeats" if len(group) == 1 else f"{len(samples)} values of {len(group)} cells"
        )
        entry: dict[str, object] = {
            "id": re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words)),
            "stage": m.stage.value,
            "test": m.test,
            "metric": m.metric,
            "scope": {**scope, **facts},
            "value": float(f"{value:.4g}"),
            "tolerance": round(slack, 4),
            "unit": m.unit,
            "better": m.better.value,
            "kind": "measured",
            "source": f"run {m.run}: median of {told}, range {spread:.2g} %",
            "set_by": f"{UNSIGNED} {RANGES:g} x the range of the repeats, at least {100 * FLOOR:g} %",
        }
        high = m.better is Better.HIGHER and m.unit == "GB/s" and ceiling_gb_per_s
        if high and value * (1 - slack) > high / 2:
            entry["ceiling"] = {"formula": "link", "gb_per_s": high}
        yield entry


def facts_of(m: Measurement) -> dict[str, Param]:
    """Return what of a cell a reference's scope may hold, as planning gives it.

    A parameter of another type is something else by the same name: `gpu: 0` is a GPU's number, no model.
    """
    facts = {k: v for k, v in m.params.items() if type(v) is SCOPE_KEYS.get(k)}
    # Of a TCP fabric that is measured by itself the name is what planning tells it by.
    if m.params.get("network", ROCE) not in (ROCE, ALL_TCP):
        facts["configuration"] = m.params["network"]
    if m.test.startswith("ib_"):  # of perftest every cell is a pair, whatever the number of nodes
        return {**facts, "route": "cross-rail" if m.rail and ">" in m.rail else "same-rail"}
    return {"nodes": len(m.nodes), **facts}


def profile_of(name: str, plan: Plan, entries: list[dict[str, object]]) -> dict[str, object]:
    """Return a whole profile, as its file has it, of entries proposed from a run."""
    return {
        "schema": 1,
        "profile": name,
        "title": f"{plan.system}, as run {plan.run} measured it",
        "published": "nowhere; proposed from a run of this site",
        "audit": f"proposed from run {plan.run} of {plan.created}; to be read, and signed in set_by",
        "references": entries,
    }


_SOURCE = "none yet: this run is to make it"
# What comes out wrong or lost is never learnt: a first run with wrong sums must not make them the rule.
_WRONG = ("wrong", "nonfinite_steps")
Kind = tuple[Stage, str, Better]  # stage, unit and direction


def learnt_entry(
    test: str, metric: str, facts: Mapping[str, int | str], unpublished: Mapping[tuple[str, str], Kind]
) -> ReferenceEntry | None:
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
    return ReferenceEntry(
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


INDEX = "scope_key"  # the one index level: a test attribute that holds `scope_key` of the test's own scope


def scope_key(scope: Mapping[str, ScopeValue]) -> str:
    """Return a scope as one word: `gpus=6,size_bytes=4`, or `any`."""

    def text(value: ScopeValue) -> str:
        if isinstance(value, Span):
            return f"{'' if value.min is None else value.min}..{'' if value.max is None else value.max}"
        return str(value)

    return ",".join(f"{key}={text(scope[key])}" for key in sorted(scope)) or "any"


def reframe_references(entries: Iterable[ReferenceEntry]) -> dict[str, dict[str, object]]:
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
