"""Which nodes to take out of service and which to give back: the decision, and how Slurm is told."""

import fcntl
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from shakedown.collect.run import hold_against_raw
from shakedown.judge.judged import judge_run
from shakedown.judge.verdict import Judged
from shakedown.records.base import Outcome, Record
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import BadInput, loads
from shakedown.records.verdict import CellVerdict
from shakedown.records.wording import count, printable
from shakedown.records.writing import append_line, lock_file
from shakedown.run.folder import Run
from shakedown.slurm.client import PREFIX, NodeState, NotHere, Slurm

# A proposal rests on failed cells with at least two partners while those partners are well with others; an
# inconclusive result, or failures with only one partner, propose nothing. Nodes that someone else took out
# are never touched, in neither direction.

# So many different partners must agree before a node is blamed, and before it is believed to be well again.
PARTNERS = 2
_REASON_LENGTH = 200  # Slurm keeps more, but sinfo -R is read on a terminal


@dataclass(frozen=True)
class Policy:
    """How much may be taken out of service."""

    max_nodes: int = 2  # at one time, drained by us
    max_fraction: float = 0.1  # of all nodes, drained or down for whatever reason; one at least


class NodeEvidence(Record):
    """What a run says of one node."""

    node: str
    failed: tuple[str, ...]  # cells
    with_partners: tuple[str, ...]  # partners with which it failed and that are good with others
    passed_with: tuple[str, ...]  # partners with which everything passed
    open: int  # cells of the node that are neither passed nor failed
    alone: bool  # failed in a test of this node only, counters apart


class Action(Record):
    """One thing to do, or the reason why it is not done."""

    node: str
    action: Literal["drain", "undrain", "none"]
    reason: str  # what Slurm is told, or why nothing is done
    evidence: tuple[str, ...] = ()


def evidence(judged: Judged) -> dict[str, NodeEvidence]:
    """Return what a run says of each node that failed, passed or was left open somewhere."""
    cells: dict[str, list[tuple[tuple[str, ...], CellVerdict]]] = defaultdict(list)
    for block in judged.items:
        if not block.item.required:
            continue
        for (_, nodes, _, _), verdict in zip(block.item.cells(), block.cells, strict=True):
            if len(nodes) <= 2:  # a collective over more nodes names none
                for node in nodes:
                    cells[node].append((nodes, verdict))
    failing = {n: {v.cell for _, v in own if v.outcome is Outcome.FAIL} for n, own in cells.items()}
    partners = {node: _partners(node, own) for node, own in cells.items()}
    # The partners with which all of a node's cells passed.
    good = {node: {p for p, v in of.items() if v == {Outcome.PASS}} for node, of in partners.items()}
    found = {}
    for node, own in sorted(cells.items()):
        bad = sorted(p for p, verdicts in partners[node].items() if Outcome.FAIL in verdicts)
        found[node] = NodeEvidence(
            node=node,
            failed=tuple(sorted(failing[node])),
            with_partners=tuple(p for p in bad if good.get(p, set()) - {node}),
            passed_with=tuple(sorted(good[node])),
            open=sum(v.outcome in (Outcome.INCONCLUSIVE, Outcome.NOT_RUN) for _, v in own),
            # A counter tells where something was noticed, which is as often at the healthy end.
            alone=any(
                v.outcome is Outcome.FAIL and len(nodes) == 1 and "/counter." not in v.cell
                for nodes, v in own
            ),
        )
    return found


def _partners(node: str, own: Iterable[tuple[tuple[str, ...], CellVerdict]]) -> dict[str, set[Outcome]]:
    partners: dict[str, set[Outcome]] = defaultdict(set)
    for nodes, verdict in own:
        for other in nodes:
            if other != node:
                partners[other].add(verdict.outcome)
    return partners


def propose(
    run: str, found: Mapping[str, NodeEvidence], states: Mapping[str, NodeState], policy: Policy
) -> list[Action]:
    """Return what to drain, the nodes with the most failed cells first, and why the others are left."""
    suspects = sorted((e for e in found.values() if e.failed), key=lambda e: (-len(e.failed), e.node))
    taken = sum(s.ours for s in states.values())
    out = sum(bool(s.states & {"DRAIN", "DOWN", "FAIL"}) for s in states.values())
    actions = []
    for e in suspects:
        why_not = _not_to_drain(e, states)
        if not why_not and taken >= policy.max_nodes:
            why_not = f"{count(taken, 'node')} drained by us already, {policy.max_nodes} are allowed"
        if not why_not and out + 1 > max(1.0, policy.max_fraction * len(states)):
            why_not = (
                f"{out} of {count(len(states), 'node')} are out of service, {policy.max_fraction:.0%} may be"
            )
        if why_not:
            actions.append(Action(node=e.node, action="none", reason=why_not, evidence=e.failed[:20]))
            continue
        taken, out = taken + 1, out + 1
        told = printable(f"{PREFIX} {run}: {count(len(e.failed), 'cell')} failed, first {e.failed[0]}")
        actions.append(
            Action(node=e.node, action="drain", reason=told[:_REASON_LENGTH], evidence=e.failed[:20])
        )
    return actions


def _not_to_drain(e: NodeEvidence, states: Mapping[str, NodeState]) -> str:
    state = states.get(e.node)
    if state is None:
        return "Slurm does not know it"
    if state.drained:
        return f"is drained already: {state.reason or 'no reason given'}"
    if not e.alone and len(e.with_partners) < PARTNERS:
        seen = ", ".join(e.with_partners) or "none"
        return (
            f"failed with {len(e.with_partners)} partners that are well with others ({seen}), not {PARTNERS}"
        )
    return ""


def give_back(
    run: str,
    found: Mapping[str, NodeEvidence],
    states: Mapping[str, NodeState],
    drained_before: Mapping[str, str],
) -> list[Action]:
    """Return which nodes that we drained may be used again.

    `drained_before` names the run for which each was drained, from our own log: the retest must be another.
    """
    actions = []
    for name, state in sorted(states.items()):
        if not state.ours:
            continue
        e = found.get(name)
        why_not = ""
        if name not in drained_before:
            why_not = "our log does not say that we drained it"
        elif drained_before[name] == run:
            why_not = "this is the run for which it was drained"
        elif e is None:
            why_not = "was not retested"
        elif e.failed:
            why_not = f"failed again: {e.failed[0]}"
        elif e.open:
            why_not = f"{count(e.open, 'cell')} neither passed nor failed"
        elif len(e.passed_with) < PARTNERS:
            why_not = f"passed with {count(len(e.passed_with), 'partner')}, not {PARTNERS}"
        if why_not:
            actions.append(Action(node=name, action="none", reason=why_not))
        else:
            assert e is not None
            told = f"retest {run} passed with {', '.join(e.passed_with[:4])}"
            actions.append(Action(node=name, action="undrain", reason=told))
    return actions


# The log is one JSON line for what is about to be done and one for how it ended, so that a process that is
# killed in between leaves a line that says so.

_RESERVATION = "shakedown_"
_ANSWERS_WITHIN_S = 60


@dataclass(frozen=True)
class Drainer:
    """What may be done, and how."""

    slurm: Slurm
    log: Path
    act: bool = False  # False: nothing is told to Slurm, only logged as a dry run
    policy: Policy = field(default_factory=Policy)
    user: str = "root"  # who may use a node that is retested

    def after_run(self, folder: Path) -> list[Action]:
        """Propose from a run, and do it if told to: drain what failed, give back what passed its retest."""
        run, found = _evidence(folder)
        with self._only_one():
            states = self._states(found)
            actions = propose(run, found, states, self.policy)
            actions += give_back(run, found, states, self._drained_for())
            for action in actions:
                self._do(run, action)
        return actions

    def _states(self, nodes: Iterable[str]) -> dict[str, NodeState]:
        """Return Slurm's nodes; in a dry run without its commands, all of the run as if in service."""
        try:
            return self.slurm.nodes()
        except NotHere:
            if self.act:
                raise
            print("Slurm was not asked (no scontrol here): all nodes count as in service", file=sys.stderr)
            return {node: NodeState(node, frozenset({"IDLE"})) for node in nodes}

    def begin_retest(self, node: str, partners: Sequence[str]) -> str:
        """Make a drained node of ours usable for us alone, with its partners; return the reservation's name.

        Raises BadInput: it is not ours, there are not two partners, or a partner is out of service.
        """
        with self._only_one():
            states = self.slurm.nodes()
            state = states.get(node)
            if state is None or not state.ours or node not in self._drained_for():
                said = "Slurm does not know it" if state is None else state.reason or "it is not drained"
                raise BadInput(
                    f"{node} was not drained by us: {said}",
                    fix="the person who drained it must give it back",
                    file=self.log,
                )
            if len(set(partners) - {node}) < PARTNERS:
                raise BadInput(
                    f"{len(set(partners))} partners for {node}", fix=f"name {PARTNERS}, known good"
                )
            for partner in partners:
                other = states.get(partner)
                if other is None or other.drained or "DOWN" in other.states:
                    raise BadInput(f"{partner} is not in service", fix="choose another partner")
            name = f"{_RESERVATION}{re.sub(r'[^A-Za-z0-9]', '_', node)}"
            if not self.act:
                self._write(
                    node=node, action="begin-retest", reason=f"with {', '.join(partners)}", step="dry-run"
                )
                return name
            # Reserved before it is resumed, so that no other user's job starts on it.
            self._step(node, "reserve", name, lambda: self.slurm.reserve(name, (node, *partners), self.user))
            self._step(node, "resume", f"for its retest in {name}", lambda: self.slurm.resume(node))
            self._wait_for(node)
        return name

    def _wait_for(self, node: str) -> None:
        """Wait until a resumed node answers slurmctld again, which pings it a moment later."""
        deadline = time.monotonic() + _ANSWERS_WITHIN_S
        while "NOT_RESPONDING" in self.slurm.nodes()[node].states:
            if time.monotonic() > deadline:
                raise BadInput(
                    f"{node} does not answer Slurm",
                    fix=f"shakedown drain end-retest {node} --act drains it again",
                )
            time.sleep(1)

    def end_retest(self, node: str, folder: Path | None) -> Action:
        """Judge a retest: give the node back, or drain it again. Without a run it is drained again."""
        name = f"{_RESERVATION}{re.sub(r'[^A-Za-z0-9]', '_', node)}"
        with self._only_one():
            run, found = ("no run", {}) if folder is None else _evidence(folder)
            drained_for = self._drained_for()
            if node not in drained_for:
                raise BadInput(f"{node} was not drained by us", fix="see the log", file=self.log)
            states = self.slurm.nodes()
            # In its retest it is in service for us alone; it is judged as the drained node that it was.
            was = states[node].__class__(node, states[node].states | {"DRAIN"}, PREFIX)
            action = give_back(run, found, {node: was}, drained_for)[0]
            if not self.act:
                self._write(
                    node=node, action=f"end-retest: {action.action}", reason=action.reason, step="dry-run"
                )
                return action
            if action.action != "undrain":
                told = f"{PREFIX} {drained_for[node]}: retest {run}: {action.reason}"[:200]
                if not states[node].drained:
                    self._step(
                        node, "drain", told, lambda: self.slurm.drain(node, told), run=drained_for[node]
                    )
            else:
                self._write(node=node, action="undrain", reason=action.reason, step="done", run=run)
            self._step(node, "release", name, lambda: self.slurm.release(name))
        return action

    def leftovers(self) -> list[str]:
        """Return our reservations that are still there: retests that were cut off."""
        return sorted(name for name in self.slurm.reservations() if name.startswith(_RESERVATION))

    def _do(self, run: str, action: Action) -> None:
        node, what, reason = action.node, action.action, action.reason
        if what == "none" or not self.act:
            step = "left" if what == "none" else "dry-run"
            self._write(node=node, action=what, reason=reason, step=step, run=run)
            return
        # Someone may have acted since: what Slurm says now decides.
        now = self.slurm.nodes().get(node)
        if now is None or (now.drained if what == "drain" else not now.ours):
            self._write(node=node, action=what, reason="someone else acted first", step="left", run=run)
        elif what == "drain":
            self._step(node, what, reason, lambda: self.slurm.drain(node, reason), run=run)
        else:
            self._step(node, what, reason, lambda: self.slurm.resume(node), run=run)

    def _step(self, node: str, action: str, reason: str, do: Any, run: str = "") -> None:  # noqa: ANN401
        self._write(node=node, action=action, reason=reason, step="begin", run=run)
        try:
            do()
        except BadInput as refused:
            self._write(node=node, action=action, reason=str(refused), step="failed", run=run)
            raise
        self._write(node=node, action=action, reason=reason, step="done", run=run)

    def _write(self, **entry: str) -> None:
        line = {"time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), **entry}
        append_line(self.log, json.dumps(line).encode())

    def _drained_for(self) -> dict[str, str]:
        """Return the run for which each node was drained last, and not given back since."""
        found: dict[str, str] = {}
        for entry in _entries(self.log):
            if entry.get("step") != "done":
                continue
            if entry["action"] == "drain":
                found[entry["node"]] = entry.get("run", "")
            elif entry["action"] == "undrain":
                found.pop(entry["node"], None)
        return found

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with lock_file(self.log.with_suffix(".lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _evidence(folder: Path) -> tuple[str, dict[str, NodeEvidence]]:
    with no_cycle_search():
        run = Run(folder)
        hold_against_raw(run)
        found = evidence(judge_run(run).cells)
    return run.plan.run, found


def broken_lines(content: bytes) -> set[int]:
    """Return the numbers, from 1, of lines of a drain log that are no entries; empty ones are left out."""
    broken = set()
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            if line:
                _entry(line)
        except ValueError:
            broken.add(number)
    return broken


def _entries(log: Path) -> list[dict[str, str]]:
    """Return the log's entries; a last line that was cut off is no entry. Raises BadInput for other flaws."""
    if not log.exists():
        return []
    lines = log.read_text(encoding="utf-8").split("\n")
    found = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            found.append(_entry(line))
        except ValueError:
            raise BadInput(
                "is no entry of the drain log", fix=f"run shakedown mend {log}", file=log, line=number
            ) from None
    return found


def _entry(line: str | bytes) -> dict[str, str]:
    """Return one line of the drain log. Raises ValueError if it is no entry."""
    try:
        entry = loads(line)
        _ = entry["node"], entry["action"], entry["step"]
        return {key: str(entry[key]) for key in entry}
    except (KeyError, TypeError) as error:
        raise ValueError("no entry") from error
