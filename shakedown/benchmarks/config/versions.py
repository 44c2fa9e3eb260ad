"""Versions that a published system was measured with, against what the run found: told, never judged."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.config.odd_parts import measured
from shakedown.benchmarks.software.output import last_attempt
from shakedown.nos.readings import load_reading
from shakedown.nos.registry import known
from shakedown.plan.draft import PlanDraft
from shakedown.records.base import Better, Stage
from shakedown.records.plan import Plan, PlanItem, Reference, ReferenceKind
from shakedown.records.reading import BadInput, read_evidence
from shakedown.records.results import Component, Measurement, RunProblem
from shakedown.run.folder import RAW, Run

# What a profile's `software` may name: of which of the site's programs, and which part of what it tells.
OF_PROGRAMS = {
    "cuda": (("pytorch", "cuda"),),
    "nccl": (("nccl_tests", "libnccl"), ("pytorch", "nccl")),
    "pytorch": (("pytorch", "version"),),
}
OF_SWITCHES = "switch_os"
_SWITCHES = "switches.config"
# NVIDIA's containers name themselves in PyTorch's version: 2.3.0a0+40ec155e58.nv24.03 is NGC 24.03.
_NGC = re.compile(r"\+[^+\n]*\bnv([0-9]{2}\.[0-9]{2})\b")
_LIBRARY = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)+)\Z")


def of_programs(folder: Path, node: str, what: str) -> list[str]:
    """Return the versions that a node's programs told of one part, such as `nccl`; none: nothing is known."""
    last = last_attempt(folder)
    told = []
    for program, part in OF_PROGRAMS[what] if last else ():
        assert last is not None
        try:
            found = json.loads(read_evidence(last / f"software.{node}.{program}.json"))["found"][part]
        except (BadInput, OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(found, str) and (version := _version(part, found[:300])):
            told.append(version)
    return told


def _version(part: str, found: str) -> str:
    if part == "libnccl":  # the file that the loader would take
        library = _LIBRARY.search(found)
        return library[1] if library else ""
    container = _NGC.search(found) if part == "version" else None
    if found == "none":  # of a build without it
        return ""
    return f"NGC {container[1]} ({found})" if container else found


def of_switch(folder: Path, switch: str, *, model: bool = False) -> str:
    """Return the version of a switch's system, or its model, by its config stage's reading, or nothing."""
    reading = folder / RAW / _SWITCHES / f"{switch}.after.json"
    try:
        read = load_reading(reading)
    except (BadInput, OSError):
        return ""
    system = known(read.nos)
    outputs = {label: output.stdout for label, output in read.outputs.items()}
    return system.says(system.model if model else system.version, outputs)


# Another version is no fault. But a figure that is missed, or beaten, is read differently when it was made
# with other firmware, so each version that the profile names is said to match or to differ, or to be unread.

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
NUMBER = re.compile(r"[0-9]+(?:[.-][0-9]+)*")


def plan_versions(draft: PlanDraft) -> None:
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


def _where(draft: PlanDraft, name: str, version: str) -> tuple[list[tuple[str, ...]], str | None]:
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


def _switches(draft: PlanDraft) -> tuple[str, ...]:
    return tuple(switch.name for switch in draft.site.switches) or draft.nodes


def version_measurements(run: Run) -> Iterator[Measurement]:
    """Yield whether each planned version differs on a node, both in words; nothing without a snapshot."""
    items = [item for item in run.plan.items if item.test == TEST and not item.not_run]
    found = run.snapshot if items else None
    if found is None:
        return  # the uniformity of the same snapshot says why it cannot be read
    try:
        nics_of = run.planned_jobs.nics
    except BadInput:
        return
    fabric = {(node, nic.netdev) for node, nics in nics_of.items() for nic in nics}
    parts = [part for part in found.components if part.kind != "nic" or (part.host, part.name) in fabric]
    for item in items:
        wanted = run.plan.references[item.reference].source.partition(": ")[2]
        for (node,) in item.nodes:
            nics = {netdev for host, netdev in fabric if host == node}
            versions, unread = _told(run.place, str(item.params["what"]), node, parts, nics)
            yield _compared(run.plan, item, node, wanted, versions, unread)


def _compared(
    plan: Plan, item: PlanItem, node: str, wanted: str, versions: list[str], unread: str
) -> Measurement:
    if unread:
        return measured(plan, item, node, None, "", RunProblem(kind="setup", message=unread))
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
    one, other = (NUMBER.search(text) for text in (published, found))
    if one is None or other is None:
        return published == found
    wanted, got = (re.split(r"[.-]", match[0]) for match in (one, other))
    return wanted == got or (cut and len(got) > 1 and wanted[: len(got)] == got)
