"""Versions that a published system was measured with, against what the run's snapshot found: never judged.

Another version is no fault. But a figure that is missed, or beaten, is read differently when it was made with
other firmware, so each version that the profile names is said to match or to differ, or to be unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.config.odd_parts import measured
from shakedown.benchmarks.config.versions_told import OF_PROGRAMS, OF_SWITCHES, of_programs, of_switch
from shakedown.nos.registry import known
from shakedown.plan.draft import Draft
from shakedown.plan.jobs import Jobs
from shakedown.records.base import Better, Stage
from shakedown.records.errors import BadInput
from shakedown.records.plan import Plan, PlanItem, Reference, ReferenceKind
from shakedown.records.reading import read_record
from shakedown.records.results import Measurement, Problem
from shakedown.records.snapshot import Component, Snapshot
from shakedown.run.folder import INVENTORY, JOBS

TEST, METRIC = "versions", "differs"
# What a profile's `software` may name and a snapshot has: kind of component, attribute.
READ = {
    "os": ("node", "os"),
    "gpu_driver": ("gpu", "driver_version"),
    "ofed": ("nic", "driver_version"),
    "nic_firmware": ("nic", "firmware"),
}
# Drivers print fewer parts of their version than the package has.
_CUT = ("ofed",)
_NUMBER = re.compile(r"[0-9]+(?:[.-][0-9]+)*")


def plan_versions(draft: Draft) -> None:
    """Plan a cell that decides nothing for every version that the fabric's own profile names."""
    profile = draft.site.fabric.profile
    for name, version in draft.catalogue.software.get(profile, {}).items():
        reference = Reference(
            id=f"versions.{name}",
            value=0,
            limit=0,
            unit="1",
            better=Better.LOWER,
            kind=ReferenceKind.MEASURED,
            source=f"profile {profile}: {version}",
            note="told, never decides",
        )
        nodes, why = _where(draft, name, version)
        draft.references[reference.id] = reference
        draft.items.append(
            PlanItem(
                stage=Stage.CONFIG,
                test=TEST,
                metric=METRIC,
                unit=reference.unit,
                better=reference.better,
                nodes=tuple(nodes),
                params={"what": name},
                reference=reference.id,
                required=False,
                not_run=why,
            )
        )


def _where(draft: Draft, name: str, version: str) -> tuple[list[tuple[str, ...]], str | None]:
    """Return of which nodes or switches a version is told; or, of all of them at once, why it is not."""
    unread = f"published is {version}; nothing that says its version is read here"
    if name == OF_SWITCHES:
        readable: list[tuple[str, ...]] = [
            (switch.name,) for switch in draft.site.switches if known(switch.nos).version
        ]
        return (readable, None) if readable else ([_switches(draft)], unread)
    programs = {program for program, _ in OF_PROGRAMS.get(name, ())}
    if name in READ or programs & draft.site.software.keys():
        return [(node,) for node in draft.nodes], None
    if programs:
        unread += f" (software.{' or software.'.join(sorted(programs))} is not given)"
    return [draft.nodes], unread


def _switches(draft: Draft) -> tuple[str, ...]:
    return tuple(switch.name for switch in draft.site.switches) or draft.nodes


def version_measurements(plan: Plan, folder: Path) -> Iterator[Measurement]:
    """Yield whether each planned version differs on a node, both in words; nothing without a snapshot."""
    items = [item for item in plan.items if item.test == TEST and not item.not_run]
    if not items or not (folder / INVENTORY).exists():
        return
    try:
        found = read_record(folder / INVENTORY, Snapshot)
        fabric = {
            (node, nic.netdev) for node, nics in read_record(folder / JOBS, Jobs).nics.items() for nic in nics
        }
    except BadInput:
        return  # the uniformity of the same snapshot says why it cannot be read
    parts = [part for part in found.components if part.kind != "nic" or (part.host, part.name) in fabric]
    for item in items:
        wanted = plan.references[item.reference].source.partition(": ")[2]
        for (node,) in item.nodes:
            nics = {netdev for host, netdev in fabric if host == node}
            versions, unread = _told(folder, str(item.params["what"]), node, parts, nics)
            yield _compared(plan, item, node, wanted, versions, unread)


def _compared(
    plan: Plan, item: PlanItem, node: str, wanted: str, versions: list[str], unread: str
) -> Measurement:
    if unread:
        return measured(plan, item, node, None, "", Problem(kind="setup", message=unread))
    cut = item.params["what"] in _CUT
    differs = any(not same(wanted, version, cut=cut) for version in versions)
    detail = f"published {wanted}, found {', '.join(versions)}"
    return measured(plan, item, node, int(differs), detail)


def _told(
    folder: Path, what: str, node: str, parts: list[Component], nics: set[str]
) -> tuple[list[str], str]:
    """Return the versions that a node or switch told, and, if one is missing, which; else an empty text.

    `nics`: the node's NICs under test, by netdev.
    """
    if what == OF_SWITCHES:
        version = of_switch(folder, node)
        return [version] if version else [], (
            "" if version else f"the reading of {node} does not say its system's version"
        )
    if what in OF_PROGRAMS:
        versions = of_programs(folder, node, what)
        return versions, "" if versions else f"no program of {node} told its version of {what}"
    kind, attribute = READ[what]
    seen = dict.fromkeys(nics if kind == "nic" else (), "") | {
        part.name: part.attributes.get(attribute, "")
        for part in parts
        if (part.host, part.kind) == (node, kind)
    }
    told = sorted({version for version in seen.values() if version})
    if not told:
        return told, f"the snapshot has no {attribute} of a {kind} of {node}"
    silent = ", ".join(sorted(name for name, version in seen.items() if not version))
    return told, f"the snapshot has no {attribute} of {silent} of {node}" if silent else ""


def same(published: str, found: str, *, cut: bool = False) -> bool:
    """Whether two versions are one, by their first numbers; `cut`: what is found may lack the last parts.

    `MLNX_OFED 24.01-0.3.3.1` is what mlx5_core calls 24.01-0.3.3.
    """
    one, other = (_NUMBER.search(text) for text in (published, found))
    if one is None or other is None:
        return published == found
    wanted, got = (re.split(r"[.-]", match[0]) for match in (one, other))
    return wanted == got or (cut and len(got) > 1 and wanted[: len(got)] == got)
