"""The page of published figures: each with our reference, its gate, the plan's cells, or why it has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from generator.text import code, made, sentence, table

from shakedown.benchmarks.planning import make_plan, read_site
from shakedown.records.base import Better, params_text
from shakedown.records.plan import Plan, PlanItem, Reference, ReferenceKind
from shakedown.references.catalogue import Profile, ReferenceEntry, reason_for
from shakedown.references.files import load_catalogue, load_profile, profile_names

PAGE = "docs/reference/published.md"
HEAD = (
    "item",
    "published",
    "our reference",
    "gate",
    "cells of the plan",
    "how it is judged, or why it is not",
)
PRINTED = (ReferenceKind.MEASURED, ReferenceKind.VENDOR)
# Longer lists of nodes are counted, not named.
MAX_NODES_NAMED = 2


@dataclass(frozen=True)
class Use:
    """What the shipped inventories do with a reference: cells that decide, cells that are shown, and one.

    Attributes:
        not_run: why a shipped plan does not measure cells of it.
    """

    deciding: int = 0
    shown: int = 0
    first: str = ""
    not_run: str = ""

    def plus(self, item: PlanItem) -> Use:
        """Count another block of the plan."""
        first = self.first or code(f"{item.test}/{item.metric}") + _where(item)
        if item.required and not item.not_run:
            return Use(self.deciding + len(item), self.shown, first, self.not_run)
        return Use(self.deciding, self.shown + len(item), first, self.not_run or item.not_run or "")

    def text(self) -> str:
        """Return the count and the first cell."""
        count = self.deciding + self.shown
        return f"{count}: {self.first}" if count == 1 else f"{count}, the first {self.first}"


def pages(root: Path) -> dict[str, str]:
    """Return the page. Plans are made of every inventory under `root`."""
    plans = shipped_plans(root)
    profiles = [load_profile(name) for name in profile_names()]
    parts = [
        made("the profiles of references and the plans of the shipped inventories"),
        "# Every published figure, and how a site is held to it\n",
        "A profile's figures against the plan that `shakedown plan` makes of the inventory that ships with",
        "it. A cell FAILs when its value is worse than the gate, and when it is beyond the physical ceiling.",
        "Why the gates are where they are: `shakedown references show NAME`. What is wrong in the",
        "publications themselves: [Errata](errata.md). Profiles whose figures are all our own demands",
        "(contract, physical limit, baseline) have no table here. *Computed*: the publication does not",
        "print the figure, which is worked out from what stands beside it under *published*.\n",
    ]
    for profile in profiles:
        if any(entry.kind in PRINTED for entry in profile.entries):
            parts += _profile(profile, plans)
    return {PAGE: "\n".join(parts)}


def shipped_plans(root: Path) -> dict[str, tuple[tuple[str, ...], Plan]]:
    """Return profiles and plan of every shipped inventory, by its name."""
    found = {}
    for folder in sorted(path.parent for path in (root / "inventories").glob("*/hosts.yml")):
        site = read_site(folder)
        names = (site.fabric.profile, *site.acceptance.profiles)
        plan, _ = make_plan(site, load_catalogue(names), run=folder.name, created="2026-01-01T00:00:00Z")
        found[folder.name] = (tuple(str(name) for name in names), plan)
    return found


def _profile(profile: Profile, plans: Mapping[str, tuple[Sequence[str], Plan]]) -> list[str]:
    uses: dict[str, Use] = {}
    using = []
    for inventory, (names, plan) in plans.items():
        if profile.profile not in names:
            continue
        using.append(f"`inventories/{inventory}`")
        for item in plan.items:
            uses[item.reference] = uses.get(item.reference, Use()).plus(item)
    rows = [_row(entry, uses.get(entry.id), profile) for entry in profile.entries]
    rows += [
        (one.item, one.printed or "", "none", "none", "none", _outside(one.judged_by, one.why))
        for one in profile.outside_plan
        if one.item
    ]
    return [
        f"## {profile.profile}\n",
        f"{sentence(profile.title)} Published: {sentence(profile.published)}",
        f"Planned by {' and '.join(using) or 'no shipped inventory'}.\n",
        table(HEAD, rows),
    ]


def _row(entry: ReferenceEntry, use: Use | None, profile: Profile) -> tuple[str, ...]:
    reference = entry.reference()
    value = _number(reference.value, entry.unit)
    sign = "≥" if entry.better is Better.HIGHER else "≤"
    return (
        code(entry.id),
        entry.printed or (value if entry.kind in PRINTED else "not printed"),
        f"{value} ({entry.kind.value})",
        f"{sign} {_number(reference.gate, entry.unit)}" if entry.gates else "none",
        use.text() if use else "none",
        _judged(entry, reference, use, profile),
    )


def _judged(entry: ReferenceEntry, reference: Reference, use: Use | None, profile: Profile) -> str:
    if use is None:
        outside = reason_for(entry.id, profile.outside_plan)
        return _outside(outside.judged_by, outside.why) if outside else ""
    if not use.deciding and use.not_run:
        held = ", judged where this does not hold" if entry.gates else ""
        return f"NOT-RUN in the shipped inventory{held}: {sentence(use.not_run)}"
    if not use.deciding:
        return f"Shown, and decides nothing: {sentence(entry.note or 'not required')}"
    worse = "less" if entry.better is Better.HIGHER else "more"
    text = f"{worse.capitalize()} than the gate FAILs"
    if reference.ceiling is not None:
        more = "more" if entry.better is Better.HIGHER else "less"
        text += f"; {more} than {_number(reference.ceiling, entry.unit)} is impossible"
    return text + "."


def _outside(judged_by: str | None, why: str) -> str:
    return f"{code(judged_by)}: {sentence(why)}" if judged_by else f"Not judged: {sentence(why)}"


def _where(item: PlanItem) -> str:
    nodes: Iterable[str] = next(iter(item.nodes))
    names = tuple(nodes)
    where = " and ".join(names) if len(names) <= MAX_NODES_NAMED else f"{len(names)} nodes"
    ends = [str(end) for end in (item.rails[0], item.directions[0]) if end]
    if item.params:
        ends.append(params_text(item.params))
    return f" at {where}" + "".join(f", {end}" for end in ends)


def _number(number: float, unit: str) -> str:
    text = f"{number:.6g}"
    return text if unit == "1" else f"{text} {unit}"
