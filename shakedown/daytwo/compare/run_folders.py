"""The edge of a comparison: reads the run folders of both sides, and refuses what must not be compared."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shakedown.collect.run import hold_against_raw
from shakedown.daytwo.compare.paired_metrics import Comparison, ComparisonSettings, compare
from shakedown.judge.judged import judge_run
from shakedown.judge.verdict import Judged
from shakedown.plan.jobs import Jobs
from shakedown.records.base import Outcome, Stage
from shakedown.records.plan import Plan
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import BadInput
from shakedown.records.results import Component, Measurement, Snapshot
from shakedown.records.verdict import Cells
from shakedown.records.wording import count
from shakedown.run.folder import INVENTORY, Run

KINDS = ("node", "nic", "gpu", "drive", "cable", "switch", "software", "setting")
# Outcomes rather than parts: a link that trains at another rate is what a comparison should find.
STATES = frozenset({("nic", "speed_mbps")})
# MemTotal is what the kernel left over at this boot; a memory module is far more than this share.
_MEMORY_SHARE = 0.01

# One thing that is seen in several places: the inventory has a NIC's MTU, the config stage reads it back, and
# the kernel makes the RDMA MTU follow it (iboe_get_mtu in include/rdma/ib_addr.h).
_ALSO_SEEN_AS = {
    "nic.mtu_bytes": ("setting.mtu.host_bytes", "setting.mtu.rdma_bytes"),
    "setting.mtu.host_bytes": ("nic.mtu_bytes", "setting.mtu.rdma_bytes"),
}

PartKey = tuple[str, str, str]  # host, kind, name


@dataclass(frozen=True, order=True)
class Change:
    """One attribute that differs. None: the part was not there."""

    host: str
    kind: str
    name: str
    attribute: str
    before: str | None
    after: str | None

    @property
    def component(self) -> str:
        """What a person calls it: `nic.firmware`, `software.openmpi`, `node.kernel`."""
        part = self.name if self.kind == "software" else self.attribute
        return f"{self.kind}.{part}" if part else self.kind

    def __str__(self) -> str:
        old, new = (text if text is not None else "not there" for text in (self.before, self.after))
        name = f" {self.name}" if self.kind not in {"node", "switch"} else ""
        attribute = f" {self.attribute}" if self.attribute else ""
        return f"{self.host} {self.kind}{name}{attribute}: {old or 'nothing'} -> {new or 'nothing'}"


def differences(before: Snapshot, after: Snapshot) -> list[Change]:
    """Return every change between two snapshots of the same hosts, in order."""
    return sorted(part_differences(_parts(before.components), _parts(after.components)))


def part_differences(
    before: Mapping[PartKey, Mapping[str, str]], after: Mapping[PartKey, Mapping[str, str]]
) -> Iterator[Change]:
    """Yield every change between two sets of parts, given as attributes by (host, kind, name)."""
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            yield Change(*key, "", None if old is None else "there", None if new is None else "there")
            continue
        for attribute in old.keys() | new.keys():
            was, now = old.get(attribute), new.get(attribute)
            if was != now and (key[1], attribute) not in STATES and not _same_memory(attribute, was, now):
                yield Change(*key, attribute, was, now)


@dataclass(frozen=True)
class Named:
    """The component that was changed on purpose, as the user names it."""

    kind: str
    part: str | None  # an attribute, or the name of a piece of software; None: anything of the kind

    def covers(self, change: Change) -> bool:
        """Whether a change is the named one, or the same seen elsewhere."""
        if change.component in _ALSO_SEEN_AS.get(str(self), ()):
            return True
        if change.kind != self.kind:
            return False
        return self.part is None or self.part == (
            change.name if self.kind == "software" else change.attribute
        )

    def __str__(self) -> str:
        return self.kind if self.part is None else f"{self.kind}.{self.part}"


def named(text: str) -> Named:
    """Read `nic.firmware`, `software.openmpi` or `nic`. Raises BadInput."""
    kind, _, part = text.partition(".")
    if kind not in KINDS:
        raise BadInput(f"{text!r} names no component", fix=f"KIND or KIND.PART, KIND of {', '.join(KINDS)}")
    return Named(kind, part or None)


def _parts(components: Iterable[Component]) -> dict[PartKey, dict[str, str]]:
    return {(c.host, c.kind, c.name): c.attributes for c in components}


def _same_memory(attribute: str, was: str | None, now: str | None) -> bool:
    if attribute != "memory_kib" or not (was and now and was.isdecimal() and now.isdecimal()):
        return False
    return abs(int(was) - int(now)) <= _MEMORY_SHARE * max(int(was), int(now))


# What of a job's settings differs between two runs without changing the measurement: who takes part.
_WHO = frozenset({"nodes", "pairs", "targets", "expect"})


@dataclass(frozen=True)
class RunSide:
    """One run, read and judged."""

    folder: Path
    plan: Plan
    inventory: Snapshot
    judged: Judged
    settings: dict[tuple[str, str], str]  # (node, place and name of a setting): what was found
    problems: tuple[str, ...]
    jobs: Jobs | None


class TooMuchChanged(BadInput):
    """More than the named component changed; `changes` lists what."""

    def __init__(self, what: str, *, fix: str, changes: Sequence[str]) -> None:
        super().__init__(what, fix=fix)
        self.changes = tuple(changes)


def compare_folders(
    a: Path | Sequence[Path],
    b: Path | Sequence[Path],
    *,
    changed: Named | None,
    controls: tuple[str, ...] = (),
    canaries: tuple[str, ...] = (),
    settings: ComparisonSettings = ComparisonSettings(),  # noqa: B008  (frozen)
) -> Comparison:
    """Compare run B with run A, or several runs B with several A.

    Args:
        a: run folder before the change, or several.
        b: run folder after it, or several.
        changed: the component that was changed on purpose; None: nothing was.
        controls: nodes that were left alone; all that did not change if empty.
        canaries: nodes that were changed; each must show the change, and no other.
        settings: margin and false discovery rate.

    Raises:
        TooMuchChanged: something else changed too, or anything between the runs of one side.
        BadInput: the runs are not of one system, are the same, have no inventory, or contradict the options.
    """
    with no_cycle_search():
        earlier, later = ([_side(f) for f in ([side] if isinstance(side, Path) else side)] for side in (a, b))
        if not (earlier and later):
            raise BadInput("a side has no run", fix="name a run before the change and one after it")
        before, after = earlier[0], later[0]
        _one_system([*earlier, *later])
        for side in (earlier, later):
            for run in side[1:]:
                _repeat(side[0], run)
        changes = differences(before.inventory, after.inventory)
        changes += _setting_changes(before, after)
        meant = [c for c in changes if changed is not None and changed.covers(c)]
        _nothing_else([str(c) for c in changes if c not in meant] + _job_changes(before, after), changed)
        in_all = set.intersection(*(set(run.plan.nodes) for run in (*earlier, *later)))
        nodes = [n for n in before.plan.nodes if n in in_all]
        treated, untouched = _groups(nodes, meant, changed, controls, canaries)
        result = compare(
            [run.judged for run in earlier],
            [run.judged for run in later],
            names=(_names(earlier), _names(later)),
            changed=None if changed is None else str(changed),
            treated=treated,
            controls=untouched,
            settings=settings,
        )
    flaws = [f"A: {p}" for run in earlier for p in run.problems]
    flaws += [f"B: {p}" for run in later for p in run.problems]
    last, first = max(run.plan.created for run in earlier), min(run.plan.created for run in later)
    if last >= first:
        flaws.append(f"A was planned at {last}, not before B at {first}")
    missing = sorted({n for run in (*earlier, *later) for n in run.plan.nodes} - in_all)
    if missing:
        flaws.append(f"not in every plan: {', '.join(missing[:10])}")
    return result.model_copy(update={"notes": (*result.notes, *flaws)})


def _side(folder: Path) -> RunSide:
    run = Run(folder)
    hold_against_raw(run)
    inventory = run.inventory
    if inventory is None:
        raise BadInput(
            "the run has no inventory, so what changed is unknown",
            fix="make the run with playbooks/acceptance.yml, which notes it",
            file=folder / INVENTORY,
        )
    if inventory.run != run.plan.run:
        raise BadInput(f"is of run {inventory.run!r}", fix="restore the run's own", file=folder / INVENTORY)
    found: dict[tuple[str, str], str] = {}
    kept: list[Measurement] = []
    judged = judge_run(run, lambda m: kept.append(m) if m.stage is Stage.CONFIG or m.beside_others else None)
    for m in kept:
        if m.stage is Stage.CONFIG and m.test == "settings" and m.value is not None:
            place = f"{m.rail or m.params.get('target', '-')}/{m.params.get('setting', '-')}"
            found[m.nodes[0], place] = f"{m.value:g} wrong{f' ({m.detail})' if m.detail else ''}"
    jobs = run.jobs
    beside = {m.cell for m in kept if m.beside_others}
    for block in judged.cells.items if beside else ():
        _set_aside(block.cells, beside)
    problems = (
        [f"{run.plan.run}: {count(len(beside), 'value')} beside other programs left out"] if beside else []
    )
    return RunSide(folder, run.plan, inventory, judged.cells, found, (*run.problems, *problems), jobs)


def _set_aside(cells: Cells, beside: Collection[str]) -> None:
    """Let the cells of values beside something else decide nothing."""
    for i, verdict in enumerate(cells):
        if verdict.cell in beside:
            cells[i] = replace(verdict, outcome=Outcome.INCONCLUSIVE, rule="busy")


def _names(side: Sequence[RunSide]) -> str:
    return ", ".join(run.plan.run for run in side)


def _one_system(runs: Sequence[RunSide]) -> None:
    seen: set[str] = set()
    for run in runs:
        if run.plan.system != runs[0].plan.system:
            raise BadInput(
                f"is of system {run.plan.system!r}, A is of {runs[0].plan.system!r}",
                fix="compare runs of one cluster",
                file=run.folder,
            )
        if run.plan.run in seen:
            raise BadInput(f"both are run {run.plan.run!r}", fix="name each run once", file=run.folder)
        seen.add(run.plan.run)


def _repeat(first: RunSide, other: RunSide) -> None:
    """Refuse runs of one side between which anything changed: their spread would not be noise."""
    changes = [*differences(first.inventory, other.inventory), *_setting_changes(first, other)]
    found = [str(c) for c in changes] + _job_changes(first, other)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise TooMuchChanged(
            f"between {first.plan.run} and {other.plan.run}, runs of one side, changed: {found[0]}{more}",
            fix="give a side only runs between which nothing changed",
            changes=found,
        )


def _setting_changes(before: RunSide, after: RunSide) -> list[Change]:
    """Return the settings that were read back differently: drift that no inventory shows."""
    return [
        Change(key[0], "setting", (parts := key[1].partition("/"))[0], parts[2], found, after.settings[key])
        for key, found in sorted(before.settings.items())
        if key in after.settings and after.settings[key] != found
    ]


def _job_changes(before: RunSide, after: RunSide) -> list[str]:
    """Return what was measured differently: other sizes or lengths are another measurement."""
    if before.jobs is None or after.jobs is None:
        return []
    later = {job.name: job for job in after.jobs.jobs}
    return [
        f"job {job.name} {key}: {job.settings.get(key)!r:.80} -> {later[job.name].settings.get(key)!r:.80}"
        for job in before.jobs.jobs
        if job.name in later
        for key in sorted((job.settings.keys() | later[job.name].settings.keys()) - _WHO)
        if job.settings.get(key) != later[job.name].settings.get(key)
    ]


def _nothing_else(others: list[str], changed: Named | None) -> None:
    if not others:
        return
    allowed = "nothing was named as changed" if changed is None else f"more than {changed} changed"
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    raise TooMuchChanged(
        f"{allowed}: {others[0]}{more}",
        fix="compare runs between which one component changed, and name it with --changed",
        changes=others,
    )


def _groups(
    nodes: Sequence[str],
    meant: Sequence[Change],
    changed: Named | None,
    controls: tuple[str, ...],
    canaries: tuple[str, ...],
) -> tuple[list[str], list[str]]:
    """Return (changed nodes, untouched nodes). A change off the nodes, on a switch say, is every node's."""
    for name in (*controls, *canaries):
        if name not in nodes:
            raise BadInput(f"{name} is not a node of both runs", fix=f"name some of {', '.join(nodes[:10])}")
    if changed is None:
        return [n for n in nodes if n not in controls], list(controls)
    hosts = {c.host for c in meant}
    if not hosts:
        raise BadInput(
            f"{changed} did not change on any host", fix="was the upgrade made? is B the right run?"
        )
    upgraded = hosts & set(nodes) or set(nodes)
    if canaries and upgraded != set(canaries):
        odd = sorted(upgraded ^ set(canaries))
        raise BadInput(
            f"{changed} changed on {', '.join(sorted(upgraded))}, not on the canaries named",
            fix=f"mend what is said of {', '.join(odd[:10])}",
        )
    touched = sorted(upgraded & set(controls))
    if touched:
        raise BadInput(f"{changed} changed on {', '.join(touched)} too", fix="name only untouched controls")
    untouched = [n for n in nodes if n not in upgraded and (not controls or n in controls)]
    return [n for n in nodes if n in upgraded], untouched
