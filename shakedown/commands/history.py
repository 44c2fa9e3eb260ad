"""`shakedown history`: every node and metric over the nights, with alarms, steps and inventory changes."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command, group
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import count, in_unit, printable

if TYPE_CHECKING:
    from shakedown.daytwo.history.alarms_and_steps import HistoryChange
    from shakedown.daytwo.history.report import NodeHistory

StoreOption = Annotated[Path, typer.Option("--store", help="The history's folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Html = Annotated[Path | None, typer.Option(help="Write a page too: one file that needs nothing else.")]
Since = Annotated[str | None, typer.Option(help="First day to show, as 2026-11-20.")]
DEFAULT_STORE = Path("reports/history")


_history = group("history", "Every node and metric over the nights.")


@command("shakedown history ingest reports/runs/before reports/runs/after", of=_history)
def ingest(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    store: StoreOption = DEFAULT_STORE,
    at: Annotated[
        str | None, typer.Option(help="When the run was really made, if its clock was wrong.")
    ] = None,
) -> int:
    """Add runs to the history. A run that is there already is skipped; a refused one stays where it is.

    Exit status 2 if a run was refused, with a line for each; the others are added all the same.
    """
    from shakedown.daytwo.history.ingest import ingest as take_in

    if at is not None and len(runs) != 1:
        raise BadInput("--at is for one run", fix="ingest them one by one")
    when = None if at is None else _moment(at)
    refused = 0
    for run in runs:
        try:
            print(take_in(store, run, now=datetime.now(UTC), at=when))
        except BadInput as reason:
            print(f"shakedown: {reason}", file=sys.stderr)
            refused += 1
    return ExitStatus.BAD_INPUT if refused else ExitStatus.PASS


@command("shakedown history show --node n1 --metric ib_write_bw --html n1.html", of=_history)
def show(
    node: Annotated[str, typer.Option(help="The node.")],
    store: StoreOption = DEFAULT_STORE,
    metric: Annotated[str, typer.Option(help="Only metrics with this in their name.")] = "",
    since: Since = None,
    html: Html = None,
    as_json: Json = False,
) -> int:
    """Show one node: each metric night by night, alarms, steps, and what was changed when.

    Exit status 0: no standing alarm; 1: there is one; 3: part of the history cannot be read.
    """
    from shakedown.daytwo.history.report import node_history, page
    from shakedown.records.writing import write_aside

    found = node_history(store, node, metric=metric, since=None if since is None else _moment(since))
    if html is not None:
        write_aside(html, page(found).encode())
    if as_json:
        sys.stdout.write(json.dumps(found.document(), indent=1) + "\n")
    else:
        _show_node(found)
    return _status(found.findings, found.problems)


@command("shakedown history fleet --html fleet.html", of=_history)
def fleet(
    store: StoreOption = DEFAULT_STORE,
    metric: Annotated[str, typer.Option(help="Only metrics with this in their name; all if empty.")] = "",
    since: Since = None,
    html: Html = None,
    worst: Annotated[int, typer.Option(min=0, help="How many findings to list, worst first.")] = 30,
    as_json: Json = False,
) -> int:
    """Show alarms and steps of all nodes, with the inventory changes that they coincide with.

    Exit status 0: no standing alarm; 1: there is one; 3: part of the history cannot be read.
    """
    from shakedown.daytwo.history.report import fleet_history, fleet_page
    from shakedown.records.writing import write_aside

    found = fleet_history(store, metric=metric, since=None if since is None else _moment(since))
    if html is not None:
        write_aside(html, fleet_page(store, found).encode())
    if as_json:
        sys.stdout.write(json.dumps(found.document(), indent=1) + "\n")
        return _status(found.findings, found.problems)
    standing = sum(f.standing for f in found.findings)
    earlier = count(len(found.findings) - standing, "earlier alarm or step")
    sizes = (
        f"{count(len(found.metrics), 'metric')} of {count(found.nodes, 'node')}, {count(found.runs, 'run')}"
    )
    print(f"{count(standing, 'standing alarm')}, {earlier} in {sizes}")
    print(found.rate)
    for problem in found.problems:
        print(printable(f"problem: {problem}"))
    for line in found.groups():
        print(printable(line))
    for finding in found.findings[:worst]:
        print(printable(sentence(finding, with_metric=True)))
    if len(found.findings) > worst:
        print(f"... and {len(found.findings) - worst} more (--worst, --json)")
    return _status(found.findings, found.problems)


@command("shakedown history compact --keep-days 800", of=_history)
def compact(
    store: StoreOption = DEFAULT_STORE,
    keep_days: Annotated[
        int | None, typer.Option(min=31, help="Drop months that are older than this; without it, drop none.")
    ] = None,
) -> int:
    """Merge settled months into one file each, and drop older ones if told to. Run folders stay."""
    from shakedown.daytwo.history.ingest import compact as merge

    done = merge(store, now=datetime.now(UTC), keep_days=keep_days)
    for line in done or ["nothing to do"]:
        print(line)
    return ExitStatus.PASS


def sentence(finding: HistoryChange, *, with_metric: bool = False) -> str:
    """Return a finding in words."""
    kind: str = finding.kind
    if kind != "step":
        kind = kind.upper() if finding.standing else f"{kind}, over"
    what = f" {finding.metric}" if with_metric else ""
    text = (
        f"{kind}: {finding.node}{what} {finding.shift:+.2%} on {finding.time[:10]} "
        f"({finding.before:.6g} -> {in_unit(f'{finding.after:.6g}', finding.unit)})"
    )
    return text + "".join(f"; coincides with {c}" for c in finding.coincides[:3])


def _show_node(found: NodeHistory) -> None:
    from shakedown.report.text import text as line

    print(printable(f"{found.node}: {len(found.series)} metrics, {found.system}"))
    for problem in found.problems:
        print(printable(f"problem: {problem}"))
    for series in found.series:
        usable = [v for v in series.values.tolist() if not math.isnan(v)]
        last = in_unit(f"{usable[-1]:.6g}", series.unit) if usable else "no value"
        print(printable(f"{line(series.values.tolist())}  {series.metric}  {last}, {len(usable)} nights"))
        for finding in found.findings:
            if finding.metric == series.metric:
                print(printable(f"    {sentence(finding)}"))
    for event in found.events:
        print(printable(f"changed between {event.since} and {event.until}: {event.change}"))


def _status(findings: list[HistoryChange], problems: list[str]) -> ExitStatus:
    if any(f.standing for f in findings):
        return ExitStatus.FAIL
    return ExitStatus.INCOMPLETE if problems else ExitStatus.PASS


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{text!r} is no time", fix="write 2026-11-20 or 2026-11-20T02:00:00Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
