"""Which nodes to take out of service, and which to give back: a pure decision over evidence and what Slurm
says.

A proposal rests on failed cells with at least two partners while those partners are well with others; an
inconclusive result, or failures with only one partner, propose nothing. Nodes that someone else took out are
never touched, in neither direction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shakedown.judge.verdict import Judged
from shakedown.records.base import Outcome, Record
from shakedown.records.verdict import CellVerdict
from shakedown.records.wording import count, printable
from shakedown.slurm.nodes import PREFIX, NodeState

# So many different partners must agree before a node is blamed, and before it is believed to be well again.
PARTNERS = 2
_REASON_LENGTH = 200  # Slurm keeps more, but sinfo -R is read on a terminal


@dataclass(frozen=True)
class Policy:
    """How much may be taken out of service."""

    max_nodes: int = 2  # at one time, drained by us
    max_fraction: float = 0.1  # of all nodes, drained or down for whatever reason; one at least


class Evidence(Record):
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


def evidence(judged: Judged) -> dict[str, Evidence]:
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
    good = _well_with_others(cells)
    found = {}
    for node, own in sorted(cells.items()):
        partners = _partners(node, own)
        bad = sorted(p for p, verdicts in partners.items() if Outcome.FAIL in verdicts)
        found[node] = Evidence(
            node=node,
            failed=tuple(sorted(failing[node])),
            with_partners=tuple(p for p in bad if good.get(p, set()) - {node}),
            passed_with=tuple(sorted(p for p, v in partners.items() if v == {Outcome.PASS})),
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


def _well_with_others(
    cells: Mapping[str, Sequence[tuple[tuple[str, ...], CellVerdict]]],
) -> dict[str, set[str]]:
    """Return for each node the partners with which all of its cells passed."""
    return {
        node: {p for p, verdicts in _partners(node, own).items() if verdicts == {Outcome.PASS}}
        for node, own in cells.items()
    }


def propose(
    run: str, found: Mapping[str, Evidence], states: Mapping[str, NodeState], policy: Policy
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


def _not_to_drain(e: Evidence, states: Mapping[str, NodeState]) -> str:
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
    found: Mapping[str, Evidence],
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
