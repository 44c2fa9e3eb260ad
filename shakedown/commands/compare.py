"""`shakedown compare A B`: what an upgrade did, per metric and node."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.examples import examples
from shakedown.records.errors import ExitStatus

if TYPE_CHECKING:
    from shakedown.daytwo.compare.comparison import Comparison, MetricComparison


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "compare",
        epilog=examples("shakedown compare reports/runs/before reports/runs/after --changed nic.firmware"),
    )(compare)


def compare(
    a: Annotated[Path, typer.Argument(help="Run folder before the change.")],
    b: Annotated[Path, typer.Argument(help="Run folder after it.")],
    changed: Annotated[
        str | None,
        typer.Option(help="What was changed: nic.firmware, node.kernel, software.openmpi, nic, setting.mtu."),
    ] = None,
    control: Annotated[
        list[str] | None, typer.Option(help="An untouched node; default: all that did not change.")
    ] = None,
    canary: Annotated[list[str] | None, typer.Option(help="A changed node; the others must not be.")] = None,
    margin: Annotated[
        float, typer.Option(min=0.0001, max=0.5, help="Differences within this fraction count as equivalent.")
    ] = 0.01,
    q: Annotated[float, typer.Option(min=0.0001, max=0.2, help="False discovery rate.")] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Say what became better, equivalent, worse or undecided, per metric, and on which nodes.

    Paired per node. Refused with exit status 2 and a list when anything but the named component changed.
    Exit status 0: better or equivalent; 1: worse; 3: undecided.
    """
    from shakedown.daytwo.compare.comparison import Settings
    from shakedown.daytwo.compare.run_folders import TooMuchChanged, compare_folders
    from shakedown.daytwo.compare.snapshot_changes import named
    from shakedown.records.wording import printable

    try:
        result = compare_folders(
            a,
            b,
            changed=None if changed is None else named(changed),
            controls=tuple(control or ()),
            canaries=tuple(canary or ()),
            settings=Settings(margin, q),
        )
    except TooMuchChanged as refused:
        if as_json:
            print(json.dumps({"schema_version": 1, "refused": refused.what, "changes": refused.changes}))
        else:
            for change in refused.changes:
                print(printable(change))
        raise
    if as_json:
        sys.stdout.write(result.model_dump_json(indent=1) + "\n")
    else:
        show(result)
    return {"worse": ExitStatus.FAIL, "undecided": ExitStatus.INCOMPLETE}.get(
        result.decision, ExitStatus.PASS
    )


_COLOUR = {"better": "green", "equivalent": "green", "worse": "red", "undecided": "yellow"}


def show(result: Comparison) -> None:
    """Print the whole first, then every metric, the worst first, with its nodes."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from shakedown.records.wording import count, printable

    terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if terminal else 200)

    def say(text: str, label: str = "", style: str = "") -> None:
        # Text, not markup: names come from the cluster.
        console.print(Text(label, style=style) + Text(printable(text)), soft_wrap=not terminal)

    what = f"{result.changed} changed" if result.changed else "nothing changed"
    sizes = f"{count(len(result.nodes), 'node')}, {count(len(result.controls), 'untouched node')}"
    colour = f"bold {_COLOUR[result.decision]}"
    say(f"  {result.b} against {result.a}: {what} on {sizes}", result.decision.upper(), colour)
    for note in result.notes:
        say(f"note: {note}")
    for cell in result.newly_failing[:10]:
        say(f"passed in A and fails in B: {cell}")
    if len(result.newly_failing) > 10:
        say(f"... and {len(result.newly_failing) - 10} more (--json lists all)")
    table = Table(box=None, pad_edge=False)
    for title in ("decision", "metric", "shift", "95 % interval", "nodes", "untouched", "why"):
        table.add_column(title, overflow="fold")
    order = ("worse", "undecided", "better", "equivalent")
    for metric in sorted(result.metrics, key=lambda m: order.index(m.decision)):
        row = _row(metric)
        table.add_row(
            Text(metric.decision, style=_COLOUR[metric.decision]), *(Text(printable(cell)) for cell in row)
        )
    console.print(table)


def _row(metric: MetricComparison) -> tuple[str, ...]:
    interval = "-" if metric.low is None else f"{metric.low:+.2%} to {metric.high:+.2%}"
    why = metric.reason
    if metric.better:
        why += f"; better: {', '.join(s.node for s in metric.better[:5])}"
    untouched = str(metric.controls)
    if metric.control_shift is not None:
        untouched += f" ({metric.control_shift:+.2%})"
    shift = "-" if metric.shift is None else f"{metric.shift:+.2%}"
    return metric.metric, shift, interval, str(metric.pairs), untouched, why
