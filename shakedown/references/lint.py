"""What makes a reference worthless although it reads well: nothing can reach it, or everything passes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shakedown.records.base import Better
from shakedown.records.plan import Plan
from shakedown.records.wording import printable
from shakedown.references.catalogue import Entry, Profile
from shakedown.references.outside import names, reason_for


class LintRule(StrEnum):
    """What a finding is about."""

    UNREACHABLE = "unreachable"  # the gate or the value lies beyond the ceiling
    TOO_LOOSE = "too-loose"  # half of the rate, or one link at half rate, would pass
    NEVER_MATCHED = "never-matched"  # no item of the plan uses it
    DUPLICATE = "duplicate"
    MISSING_FIELD = "missing-field"
    UNKNOWN_FIELD = "unknown-field"
    UNIT_MISMATCH = "unit-mismatch"
    UNEXPLAINED = "unexplained"  # it does not gate and gives no reason
    STALE = "stale"  # outside_plan speaks of a reference that is not there
    INVALID = "invalid"


@dataclass(frozen=True, order=True)
class LintProblem:
    """One thing wrong, and where."""

    file: str
    line: int
    rule: LintRule
    message: str

    def __str__(self) -> str:
        return printable(f"{self.file}:{self.line}: {self.rule.value}: {self.message}")


def lint(profiles: Sequence[tuple[str, Profile]], plan: Plan | None = None) -> list[LintProblem]:
    """Return everything wrong with profiles that could be read, given with their file names."""
    findings = []
    located = [(file, entry) for file, profile in profiles for entry in profile.entries]
    for file, entry in located:
        for rule, message in (*_beyond_ceiling(entry), *_too_loose(entry), *_unexplained(entry)):
            findings.append(LintProblem(file, entry.line or 1, rule, f"{entry.id}: {message}"))
    findings += _among_each_other(located)
    for file, profile in profiles:
        findings += [LintProblem(file, 1, LintRule.STALE, message) for message in _stale(profile)]
    if plan is not None:
        used = {item.reference for item in plan.items}
        findings += [
            LintProblem(
                file, entry.line or 1, LintRule.NEVER_MATCHED, f"{entry.id}: plan {plan.run} never uses it"
            )
            for file, profile in profiles
            for entry in profile.entries
            if entry.gates and entry.id not in used and not reason_for(entry.id, profile.outside_plan)
        ]
    return sorted(findings)


def _beyond_ceiling(entry: Entry) -> Iterator[tuple[LintRule, str]]:
    reference = entry.reference()
    ceiling = reference.ceiling
    if ceiling is None:
        return
    higher = reference.better is Better.HIGHER
    for name, number in (("value", reference.value), ("gate", reference.gate)):
        if number > ceiling if higher else number < ceiling:
            yield (
                LintRule.UNREACHABLE,
                f"{name} {number:g} {entry.unit} lies {'above' if higher else 'below'} what physics allows, "
                f"{ceiling:.6g} ({reference.ceiling_source})",
            )


def half_rate(entry: Entry) -> float | None:
    """Return what a system with a fault of half the rate would measure, in the entry's unit; None: no such
    thing.

    If the value lies above what one link at half rate leaves of the ceiling, the link is what limits it, and
    that is the figure. Else something slower limits it, and half (or, for a time, double) the value stands
    for a fault.
    """
    value = entry.reference().value
    if value == 0:
        return None
    if entry.better is Better.LOWER:
        return 2 * value
    degraded = None if entry.ceiling is None else entry.ceiling.degraded_in_unit(entry.unit)
    return degraded if degraded is not None and degraded < value else value / 2


def _too_loose(entry: Entry) -> Iterator[tuple[LintRule, str]]:
    half = half_rate(entry)
    if not entry.gates or half is None:
        return
    gate = entry.reference().gate
    if gate <= half if entry.better is Better.HIGHER else gate >= half:
        fault = "double the time" if entry.better is Better.LOWER else "a link at half rate"
        yield LintRule.TOO_LOOSE, f"gate {gate:.6g} {entry.unit} lets {fault} pass ({half:.6g})"


def _unexplained(entry: Entry) -> Iterator[tuple[LintRule, str]]:
    if not entry.gates and not entry.note:
        yield LintRule.UNEXPLAINED, "gates: false needs a note that says why it must not decide"


def _stale(profile: Profile) -> Iterator[str]:
    """Yield what outside_plan lists in vain, or twice."""
    seen: set[str] = set()
    for row in (row for one in profile.outside_plan for row in one.rows):
        if not any(names(row, entry.id) for entry in profile.entries):
            yield f"outside_plan: no reference of this profile is named {row}"
        if row in seen:
            yield f"outside_plan: {row} is listed twice"
        seen.add(row)


def _among_each_other(located: Sequence[tuple[str, Entry]]) -> Iterator[LintProblem]:
    names: dict[str, str] = {}
    scopes: dict[tuple[object, ...], str] = {}
    units: dict[tuple[str, str], Entry] = {}
    for file, entry in located:
        place = f"{file}:{entry.line}"
        line = entry.line or 1
        if entry.id in names:
            yield LintProblem(file, line, LintRule.DUPLICATE, f"{entry.id}: name taken at {names[entry.id]}")
        names.setdefault(entry.id, place)
        # Profiles are alternatives to each other, so only within a file is an equal scope a contradiction.
        scope = (file, entry.test, entry.metric, *sorted((k, str(v)) for k, v in entry.scope.items()))
        if scope in scopes:
            message = f"{entry.id}: same test, metric and scope as {scopes[scope]}"
            yield LintProblem(file, line, LintRule.DUPLICATE, message)
        scopes.setdefault(scope, entry.id)
        first = units.setdefault((entry.test, entry.metric), entry)
        if (first.unit, first.better) != (entry.unit, entry.better):
            yield LintProblem(
                file,
                line,
                LintRule.UNIT_MISMATCH,
                f"{entry.id}: {entry.unit}, better {entry.better.value}; but {first.id} has {entry.test} "
                f"{entry.metric} in {first.unit}, better {first.better.value}",
            )
