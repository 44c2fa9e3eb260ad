"""The edge of a comparison: reads the run folders of both sides, and refuses what must not be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shakedown.daytwo.compare.paired_metrics import Comparison, ComparisonSettings, compare
from shakedown.daytwo.compare.snapshot_changes import Change, Named, differences
from shakedown.judge.judged import judge_run
from shakedown.judge.verdict import Judged
from shakedown.plan.jobs import Jobs
from shakedown.records.base import Stage
from shakedown.records.errors import BadInput
from shakedown.records.plan import Plan
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import read_record
from shakedown.records.results import Measurement, Snapshot
from shakedown.run.folder import INVENTORY, JOBS, Run

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
    inventory = run.inventory()
    if inventory is None:
        raise BadInput(
            "the run has no inventory, so what changed is unknown",
            fix="make the run with playbooks/acceptance.yml, which notes it",
            file=folder / INVENTORY,
        )
    if inventory.run != run.plan.run:
        raise BadInput(f"is of run {inventory.run!r}", fix="restore the run's own", file=folder / INVENTORY)
    found: dict[tuple[str, str], str] = {}
    judged = judge_run(run, keep=True)
    for m in judged.measurements:
        if m.stage is Stage.CONFIG and m.test == "settings" and m.value is not None:
            found[m.nodes[0], _place(m)] = f"{m.value:g} wrong{f' ({m.detail})' if m.detail else ''}"
    jobs = read_record(folder / JOBS, Jobs) if (folder / JOBS).is_file() else None
    return RunSide(folder, run.plan, inventory, judged.cells, found, tuple(run.problems), jobs)


def _place(m: Measurement) -> str:
    return f"{m.rail or m.params.get('target', '-')}/{m.params.get('setting', '-')}"


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
