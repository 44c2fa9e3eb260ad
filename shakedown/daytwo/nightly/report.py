"""What a night has to say: one record, and the text that a person reads in the morning."""

from __future__ import annotations

from typing import Literal

from shakedown.daytwo.drain.proposals import Action
from shakedown.daytwo.history.alarms_and_steps import HistoryChange
from shakedown.records.base import Outcome, Record
from shakedown.records.wording import NOT_REQUIRED, count, number, printable


class Night(Record):
    """One night, for file, mail and webhook."""

    schema_version: Literal[1] = 1
    system: str
    run: str
    started: str
    ended: str
    outcome: Outcome
    reason: str
    measured: int
    planned: int
    nodes: tuple[str, ...]  # measured tonight
    not_idle: dict[str, str]  # node: what Slurm says of it
    shares: int
    nights_to_cover: int
    overdue: tuple[str, ...]  # node slot, beyond twice the nights that a round takes
    failed: tuple[str, ...]  # reasons of cells, each with its place, worst first
    alarms: tuple[HistoryChange, ...]  # standing
    actions: tuple[Action, ...]
    acted: bool
    problems: tuple[str, ...]

    @property
    def calm(self) -> bool:
        """Whether the night needs no attention."""
        return self.outcome == "PASS" and not (self.alarms or self.overdue or self.problems)


def subject(night: Night) -> str:
    """Return one line: the outcome, and what else needs a look."""
    parts = [f"{night.outcome} {night.system} {night.run}"]
    parts += [count(len(night.alarms), "standing alarm")] if night.alarms else []
    drained = [a.node for a in night.actions if a.action == "drain"]
    if drained:
        parts.append(f"{'drained' if night.acted else 'to drain'}: {', '.join(drained)}")
    parts += [count(len(night.problems), "problem")] if night.problems else []
    return printable(", ".join(parts))


def text(night: Night) -> str:
    """Return the morning's text."""
    lines = [
        subject(night),
        night.reason,
        f"{night.measured} of {night.planned} cells measured on {count(len(night.nodes), 'node')} in "
        f"{count(night.shares, 'group')}, {night.started} to {night.ended}",
        f"every node x rail x test has its turn in {count(night.nights_to_cover, 'idle night')}",
    ]
    if night.not_idle:
        some = ", ".join(f"{n} ({s})" for n, s in list(night.not_idle.items())[:10])
        more = len(night.not_idle) - 10
        lines.append(f"not idle: {some}{f' and {more} more' if more > 0 else ''}")
    for title, found in (
        ("problems", night.problems),
        ("did not pass", [c for c in night.failed if not c.endswith(NOT_REQUIRED)][:20]),
        ("alarms", [_alarm(f) for f in night.alarms[:20]]),
        ("overdue", night.overdue[:20]),
        ("drain", [f"{a.node}: {a.action}: {a.reason}" for a in night.actions[:20]]),
        ("decides nothing", [c for c in night.failed if c.endswith(NOT_REQUIRED)][:20]),
    ):
        if found:
            lines += ["", f"{title}:", *(f"  {line}" for line in found)]
    if night.actions and not night.acted:
        lines.append("  (proposals only: Slurm was not changed)")
    return "\n".join(printable(line) for line in lines) + "\n"


def _alarm(f: HistoryChange) -> str:
    cause = f"; coincides with {f.coincides[0]}" if f.coincides else ""
    slow = "drifts, " if f.kind == "drift" else ""
    return (
        f"{f.node} {f.metric} {slow}{f.shift:+.2%} since {f.time[:10]} "
        f"({number(f.before, f.unit)} -> {number(f.after, f.unit)} {f.unit}){cause}"
    )


def metrics(night: Night) -> str:
    """Return the night for the node exporter's textfile collector."""
    from datetime import datetime

    from shakedown.report.prometheus import family

    system = {"system": night.system}
    ended = datetime.fromisoformat(night.ended).timestamp()
    outcomes = [o.value for o in Outcome if o not in (Outcome.WAIVED, Outcome.BASELINE)]  # no night's
    drained = [a for a in night.actions if a.action == "drain"]
    return "".join(
        (
            family(
                "shakedown_nightly_outcome",
                "1 for the outcome of the last night, 0 for the three others.",
                ((system | {"outcome": o}, int(o == night.outcome)) for o in outcomes),
            ),
            family("shakedown_nightly_end_seconds", "When it ended, Unix time.", [(system, ended)]),
            family("shakedown_nightly_cells_planned", "Cells planned.", [(system, night.planned)]),
            family("shakedown_nightly_cells_measured", "Cells measured.", [(system, night.measured)]),
            family("shakedown_nightly_nodes", "Nodes measured.", [(system, len(night.nodes))]),
            family("shakedown_nightly_nodes_not_idle", "Nodes left out.", [(system, len(night.not_idle))]),
            family("shakedown_nightly_overdue", "Slots of nodes overdue.", [(system, len(night.overdue))]),
            family("shakedown_nightly_problems", "Its problems.", [(system, len(night.problems))]),
            family("shakedown_nightly_alarms", "Standing alarms.", [(system, len(night.alarms))]),
            family(
                "shakedown_nightly_to_drain", "Nodes drained, or proposed to be.", [(system, len(drained))]
            ),
            family(
                "shakedown_nightly_alarm_shift",
                "Relative shift of a standing alarm, negative for worse.",
                ((system | {"node": f.node, "metric": f.metric}, f.shift) for f in night.alarms),
            ),
        )
    )
