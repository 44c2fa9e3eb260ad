"""One night, from idle nodes to the report: what `shakedown nightly run` and the timer's service do.

A night that is cut off anywhere leaves files that say so: no result that was not measured, and the slots
that were not covered stay first in line.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat, ValidationError

from shakedown.benchmarks.planning import read_site
from shakedown.daytwo.draining import Action, Drainer, Policy
from shakedown.daytwo.history.alarms_and_steps import HistoryChange
from shakedown.daytwo.nightly.plan import (
    Share,
    Tonight,
    alone_slots,
    check,
    choose,
    covered_slots,
    never_at_night,
    nightly_plan,
    nights_to_cover,
    site_tonight,
    slot_costs,
)
from shakedown.daytwo.nightly.playbook import NightlyConfig, measure
from shakedown.daytwo.nightly.report import Night
from shakedown.intent.site import Site
from shakedown.judge.judged import judge_folder
from shakedown.records.base import Document, Outcome, to_json
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import BadInput
from shakedown.records.verdict import Verdict
from shakedown.records.writing import lock_file, write_aside
from shakedown.references.of_site import catalogue_of_site
from shakedown.run.folder import JOBS, Run, write_plan, write_verdict
from shakedown.slurm.client import NodeState, Slurm

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_AHEAD_S = 3600  # a time that lies further ahead than this was written while a clock was wrong


class Rotation(Document):
    """When each slot of each node was covered last, in Unix time (`rotation.json`)."""

    first: FiniteFloat  # when the rotation began: slots never covered have waited since then
    covered: dict[str, dict[str, FiniteFloat]]


@dataclass(frozen=True)
class Nightly:
    """The nightly of one site."""

    config: NightlyConfig

    @property
    def state(self) -> Path:
        """The folder of everything that lasts."""
        return Path(self.config.state)

    @property
    def history(self) -> Path:
        """The history's folder."""
        return self.state / "history"

    def run(self, now: datetime, only: tuple[str, ...] = (), wanted: Tonight | None = None) -> Night:
        """Make a night; `only` names nodes that are measured with each other instead of the idle ones.

        `wanted`: the part of the site that this night is for. Raises BadInput: another night is running, the
        inventory or Slurm cannot be read, the budget is too small for a test, or no night measures anything
        of what is wanted.
        """
        with self._lock():
            problems: list[str] = []
            whole = read_site(Path(self.config.inventory))
            site = site_tonight(whole, wanted or Tonight())
            costs, alone = slot_costs(site, self.config.group, self.config.node_tests_s), alone_slots(site)
            if not costs:
                raise BadInput("no night measures anything of that", fix="widen --rails or --stage")
            check(costs, budget_s=self.config.budget_s, group=self.config.group)
            states = Slurm(self.config.over).nodes()
            idle, not_idle = _idle(site, states, self.config.exclude)
            covered = self._covered(now, problems)
            if only:
                not_idle = {n: s for n, s in not_idle.items() if n not in only}
                having = {slot: tuple(n for n in only if n in alone.get(slot, only)) for slot in costs}
                shares = [Share(slot, nodes) for slot, nodes in having.items() if nodes]
            else:
                shares = choose(
                    idle,
                    costs,
                    covered.covered,
                    budget_s=self.config.budget_s,
                    group=self.config.group,
                    seed=int(now.timestamp()) // 86400,
                    alone=alone,
                )
            run = f"night-{now.strftime('%Y%m%dT%H%M%SZ')}"
            folder = self.state / "runs" / run
            about: dict[str, Any] = {
                "system": site.fabric.system,
                "run": run,
                "started": now.strftime(_TIME),
                "not_idle": not_idle,
                "nights_to_cover": nights_to_cover(costs, budget_s=self.config.budget_s),
                "never": never_at_night(whole),
                "acted": self.config.drain.act,
            }
            if not shares:
                about |= {"overdue": self._overdue(site, covered, costs, now), "problems": tuple(problems)}
                return Night(**about, ended=_now(), reason="fewer than two nodes are idle")
            plan, jobs, slots = nightly_plan(
                site,
                catalogue_of_site(site, Path(self.config.inventory)),
                shares,
                run=run,
                created=now.strftime(_TIME),
                inventory=Path(self.config.inventory),
                whole=whole,
            )
            write_plan(folder, plan)
            write_aside(folder / JOBS, to_json(jobs))
            (folder / "raw").mkdir()
            problems += measure(self.config, folder, plan)
            verdict = self._judge(folder, problems)
            self._cover(folder, slots, covered, now, problems)
            alarms = self._remember(folder, now, problems)
            actions = self._drain(folder, problems)
            self._tidy(now, problems)
            return Night(
                **about,
                ended=_now(),
                outcome=verdict.outcome if verdict else Outcome.NOT_RUN,
                reason=verdict.reason if verdict else "the run could not be judged",
                measured=verdict.coverage.measured if verdict else 0,
                planned=verdict.coverage.planned if verdict else 0,
                nodes=plan.nodes,
                shares=len(shares),
                overdue=self._overdue(site, covered, costs, now),
                failed=tuple(c.reason for c in verdict.cells) if verdict else (),
                alarms=tuple(alarms),
                actions=tuple(actions),
                problems=tuple(problems),
            )

    def _judge(self, folder: Path, problems: list[str]) -> Verdict | None:
        from shakedown.collect.run import collect

        try:
            if not (folder / "results.jsonl").exists():  # the playbook was ended before it did this
                collect(folder)
            verdict = judge_folder(folder)
            write_verdict(folder, verdict)
        except (BadInput, OSError) as error:
            problems.append(f"verdict: {error}")
            return None
        return verdict

    def _remember(self, folder: Path, now: datetime, problems: list[str]) -> list[HistoryChange]:
        """Take the run into the history; return the standing alarms."""
        from shakedown.daytwo.history.ingest import compact, ingest
        from shakedown.daytwo.history.report import fleet_history

        try:
            ingest(self.history, folder, now=datetime.now(UTC))
            compact(self.history, now=now, keep_days=self.config.keep_history_days)
        except (BadInput, OSError) as error:
            problems.append(f"history: {error}")
        if not self.history.is_dir():
            return []
        try:
            found = fleet_history(self.history)
        except (BadInput, OSError) as error:
            problems.append(f"history: {error}")
            return []
        problems += [f"history: {p}" for p in found.problems]
        return [f for f in found.findings if f.standing]

    def _drain(self, folder: Path, problems: list[str]) -> list[Action]:
        asked = self.config.drain
        drainer = Drainer(
            Slurm(self.config.over),
            self.state / "drain.jsonl",
            asked.act,
            Policy(asked.max_nodes, asked.max_fraction),
        )
        try:
            # The one that this night measures in is not cut off.
            own = {option.removeprefix("--reservation=") for option in self.config.access}
            left = [name for name in drainer.leftovers() if name not in own]
            problems += [
                f"{name}: a retest was cut off: shakedown drain end-retest NODE --act" for name in left
            ]
            return drainer.after_run(folder)
        except (BadInput, OSError) as error:
            problems.append(f"drain: {error}")
            return []

    def _covered(self, now: datetime, problems: list[str]) -> Rotation:
        path = self.state / "rotation.json"
        try:
            found = Rotation.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return Rotation(first=now.timestamp(), covered={})
        except (OSError, ValidationError):
            problems.append("rotation.json cannot be read: all slots count as never covered")
            return Rotation(first=now.timestamp(), covered={})
        # What a clock that was ahead wrote would keep a slot last in line, and never overdue, for years.
        latest = now.timestamp() + _AHEAD_S
        past = {n: {s: t for s, t in of.items() if t <= latest} for n, of in found.covered.items()}
        ahead = sorted(n for n, of in found.covered.items() if len(past[n]) < len(of))
        if ahead:
            problems.append(
                f"rotation.json has nights of {', '.join(ahead[:5])} that are yet to come, so a clock was "
                "wrong: these slots count as never covered"
            )
        return Rotation(first=min(found.first, now.timestamp()), covered=past)

    def _cover(
        self, folder: Path, slots: dict[str, str], covered: Rotation, now: datetime, problems: list[str]
    ) -> None:
        """Note what was measured: a slot whose job was preempted stays first in line."""
        try:
            with no_cycle_search():
                run = Run(folder)
                for node, slot in covered_slots(slots, run.measurements()):
                    covered.covered.setdefault(node, {})[slot] = now.timestamp()
            write_aside(self.state / "rotation.json", to_json(covered))
        except (BadInput, OSError) as error:
            problems.append(f"rotation: {error}")

    def _overdue(
        self, site: Site, covered: Rotation, costs: dict[str, float], now: datetime
    ) -> tuple[str, ...]:
        """Return what was not measured for twice the nights that a round takes."""
        limit = timedelta(days=2 * nights_to_cover(costs, budget_s=self.config.budget_s)).total_seconds()
        return tuple(
            f"{node} {slot}"
            for node in site.nics
            if node not in self.config.exclude
            for slot in costs
            if node in alone_slots(site).get(slot, site.nics)
            and now.timestamp() - covered.covered.get(node, {}).get(slot, covered.first) > limit
        )

    def _tidy(self, now: datetime, problems: list[str]) -> None:
        """Remove runs that are older than wanted; their values stay in the history."""
        oldest = f"night-{(now - timedelta(days=self.config.keep_runs_days)).strftime('%Y%m%dT%H%M%SZ')}"
        for folder in sorted((self.state / "runs").glob("night-*")):
            if folder.name < oldest:
                try:
                    shutil.rmtree(folder)
                except OSError as error:
                    problems.append(f"{folder.name}: {error.strerror}")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.state.mkdir(parents=True, exist_ok=True)
        with lock_file(self.state / "nightly.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BadInput("another night is still running", fix="wait for it", file=self.state) from None
            yield


def _idle(
    site: Site, states: dict[str, NodeState], exclude: tuple[str, ...]
) -> tuple[list[str], dict[str, str]]:
    """Return the site's nodes that are idle and nothing else, and of the others what Slurm says."""
    idle, others = [], {}
    for node in site.nics:
        state = states.get(node)
        if node in exclude:
            others[node] = "excluded"
        elif state is None:
            others[node] = "unknown to Slurm"
        elif state.states == {"IDLE"}:
            idle.append(node)
        else:
            others[node] = "+".join(sorted(state.states)) + (f": {state.reason}" if state.reason else "")
    return idle, others


def _now() -> str:
    return datetime.now(UTC).strftime(_TIME)
