"""Read and check reference files."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from shakedown.intent.places import At, Lines, parse_strict
from shakedown.records.base import Better, words_of
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput, unknown_key
from shakedown.records.wording import printable
from shakedown.references.catalogue import Catalogue, Profile, ReferenceEntry, names, reason_for

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


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


def _beyond_ceiling(entry: ReferenceEntry) -> Iterator[tuple[LintRule, str]]:
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


def half_rate(entry: ReferenceEntry) -> float | None:
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


def _too_loose(entry: ReferenceEntry) -> Iterator[tuple[LintRule, str]]:
    half = half_rate(entry)
    if not entry.gates or half is None:
        return
    gate = entry.reference().gate
    if gate <= half if entry.better is Better.HIGHER else gate >= half:
        fault = "double the time" if entry.better is Better.LOWER else "a link at half rate"
        yield LintRule.TOO_LOOSE, f"gate {gate:.6g} {entry.unit} lets {fault} pass ({half:.6g})"


def _unexplained(entry: ReferenceEntry) -> Iterator[tuple[LintRule, str]]:
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


def _among_each_other(located: Sequence[tuple[str, ReferenceEntry]]) -> Iterator[LintProblem]:
    names: dict[str, str] = {}
    scopes: dict[tuple[object, ...], str] = {}
    units: dict[tuple[str, str], ReferenceEntry] = {}
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


# A file holds the profile's header and `references`, a list of groups. A group's fields hold for each of its
# `rows`; a row adds fields and scope keys and may not restate one. A group without rows is one entry.

PROFILES = Path(__file__).parent / "profiles"
SCHEMA = 1
_HEADER = frozenset(Profile.model_fields) - {"entries"} | {"schema", "references"}
_ENTRY = frozenset(ReferenceEntry.model_fields) - {"line"}

Report = Callable[[LintRule, At, str], None]


def profile_path(name: str | Path) -> Path:
    """Return the file of a profile given by name (`tolly_xe9680_z9664f`) or path.

    Raises BadInput: there is none.
    """
    path = Path(name)
    if path.suffix in (".yml", ".yaml"):
        if not path.is_file():
            raise BadInput(f"no profile at {path}", fix="give the path of an existing file")
        return path
    found = PROFILES / f"{name}.yml"
    if path.name != str(name) or not found.is_file():
        known = ", ".join(profile_names())
        raise BadInput(f"no profile named {str(name)!r}", fix=f"use one of {known}, or a file")
    return found


def profile_names() -> list[str]:
    """Return the names of the shipped profiles."""
    return sorted(path.stem for path in PROFILES.glob("*.yml"))


def load_profile(name: str | Path) -> Profile:
    """Read a profile that must be in order.

    Raises BadInput: it is not; names file, line and the first thing wrong.
    """
    path = profile_path(name)
    profile, findings = read_profile(path)
    if findings or profile is None:
        first = min(findings)
        raise BadInput(first.message, fix=f"see shakedown references lint {path}", file=path, line=first.line)
    return profile


def load_catalogue(names: Iterable[str | Path]) -> Catalogue:
    """Read profiles into one catalogue.

    Raises BadInput: as `load_profile`, or a reference name occurs twice.
    """
    return Catalogue(load_profile(name) for name in names)


def read_profile(path: Path) -> tuple[Profile | None, list[LintProblem]]:
    """Read a profile and everything wrong with it. Entries that cannot be used are left out of the profile.

    Raises BadInput: the file cannot be read, or is not YAML of mappings, lists and plain values.
    """
    document, lines = parse_strict(path)
    findings: list[LintProblem] = []

    def wrong(rule: LintRule, at: At, message: str) -> None:
        findings.append(LintProblem(str(path), _line(lines, at), rule, message))

    if not isinstance(document, dict):
        raise BadInput(
            "a profile is a mapping", fix="start with schema: 1 and profile: NAME", file=path, line=1
        )
    for key in document:
        if key not in _HEADER:
            wrong(LintRule.UNKNOWN_FIELD, (key,), f"header: {unknown_key(str(key), _HEADER)}")
    if document.get("schema") != SCHEMA or isinstance(document.get("schema"), bool):
        wrong(LintRule.INVALID, ("schema",), f"schema must be {SCHEMA}, not {document.get('schema')!r}")
    entries = []
    for at, raw in _rows(document.get("references"), wrong):
        entry = _entry(at, raw, lines, wrong)
        if entry is not None:
            entries.append(entry)
    header = {k: v for k, v in document.items() if k in Profile.model_fields and k != "entries"}
    try:
        return Profile.model_validate(header | {"entries": entries}), findings
    except ValidationError as error:
        for detail in error.errors():
            if detail["loc"][:1] != ("entries",) or not findings:
                wrong(_rule(detail), _at((), detail, lines), _message(detail))
        return None, findings


def _rows(groups: object, wrong: Report) -> Iterator[tuple[At, dict[str, Any]]]:
    """Yield (path, fields) of every entry, groups spread over their rows."""
    if not isinstance(groups, list):
        wrong(LintRule.MISSING_FIELD, ("references",), "references must be a list")
        return
    for number, group in enumerate(groups):
        at: At = ("references", number)
        if not isinstance(group, dict):
            wrong(LintRule.INVALID, at, "a reference is a mapping")
            continue
        if "rows" not in group:
            yield at, group
            continue
        shared = {k: v for k, v in group.items() if k != "rows"}
        rows = group["rows"]
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            wrong(LintRule.INVALID, (*at, "rows"), "rows must be a list of mappings, one at least")
            continue
        for index, row in enumerate(rows):
            here = (*at, "rows", index)
            scopes = [part.get("scope", {}) for part in (shared, row)]
            mergeable = all(isinstance(scope, dict) for scope in scopes)
            twice = sorted(str(k) for k in shared.keys() & row.keys() if k != "scope" or not mergeable)
            if mergeable:
                twice += sorted(f"scope {k}" for k in scopes[0].keys() & scopes[1].keys())
            for name in twice:
                wrong(LintRule.DUPLICATE, here, f"{name} is given in the group and again in the row")
            merged = shared | row | ({"scope": scopes[0] | scopes[1]} if mergeable else {})
            yield here, merged


def _entry(at: At, raw: dict[str, Any], lines: Lines, wrong: Report) -> ReferenceEntry | None:
    name = raw.get("id", "entry without id")
    unknown = [key for key in raw if key not in _ENTRY]
    for key in unknown:
        wrong(LintRule.UNKNOWN_FIELD, _place(at, key, lines), f"{name}: {unknown_key(str(key), _ENTRY)}")
    try:
        entry = ReferenceEntry.model_validate(
            {k: v for k, v in raw.items() if k in _ENTRY} | {"line": _line(lines, at)}
        )
    except ValidationError as error:
        for detail in error.errors():
            wrong(_rule(detail), _at(at, detail, lines), f"{name}: {_message(detail)}")
        return None
    return None if unknown else entry


def _rule(detail: ErrorDetails) -> LintRule:
    if detail["type"] == "missing":
        return LintRule.MISSING_FIELD
    if detail["type"] == "extra_forbidden":
        return LintRule.UNKNOWN_FIELD
    return LintRule.UNIT_MISMATCH if "unit mismatch" in detail["msg"] else LintRule.INVALID


def _message(detail: ErrorDetails) -> str:
    where = " ".join(str(part) for part in detail["loc"] if part not in ("float", "int", "str"))
    text = words_of(detail)
    if detail["type"] == "missing":
        return f"{where} is missing"
    if detail["type"] == "extra_forbidden":
        return f"unknown key {where}"
    given = f", not {detail['input']!r:.80}" if detail["type"] != "value_error" and where else ""
    return f"{where}: {text}{given}" if where else text


def _at(at: At, detail: ErrorDetails, lines: Lines) -> At:
    """Return the path of the value that an error is about: the longest that stands in the file."""
    return _place(at, detail["loc"][0], lines) if detail["loc"] else at


def _place(at: At, key: Hashable, lines: Lines) -> At:
    # A field of a row may stand in its group: ("references", 3, "rows", 0) -> ("references", 3).
    for base in (at, at[:2]):
        if (*base, key) in lines:
            return (*base, key)
    return at


def _line(lines: Lines, at: At) -> int:
    while at and at not in lines:
        at = at[:-1]
    return lines.get(at, 1)
