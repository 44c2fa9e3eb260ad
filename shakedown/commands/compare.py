"""`shakedown compare`: what an upgrade did, per metric and node."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from shakedown.commands.arguments import command, console_of
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import count, printable

if TYPE_CHECKING:
    from shakedown.daytwo.compare.paired_metrics import Comparison, MetricComparison


class _ManyRuns(TyperCommand):
    """Takes `--before A1 A2 A3` for `--before A1 --before A2 --before A3`, which is all that click knows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (its click is private)
        """Spread the options out, then read them."""
        return super().parse_args(ctx, spread_out(args, ("--before", "--after")))


def spread_out(args: list[str], options: tuple[str, ...]) -> list[str]:
    """Return the arguments with one option before each of its values."""
    found: list[str] = []
    option, values = "", 0
    for arg in args:
        if arg in options or arg.startswith("-"):
            if option and not values:
                found.append(option)  # without a value: click says so
            option, values = (arg if arg in options else ""), 0
            if not option:
                found.append(arg)
        elif option:
            found += [option, arg]
            values += 1
        else:
            found.append(arg)
    return [*found, option] if option and not values else found


@command("shakedown compare reports/runs/before reports/runs/after --changed nic.firmware", cls=_ManyRuns)
def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Two run folders: before the change and after it.")
    ] = None,
    before: Annotated[
        list[Path] | None, typer.Option(help="Run folders before the change, several behind one option.")
    ] = None,
    after: Annotated[list[Path] | None, typer.Option(help="Run folders after it, likewise.")] = None,
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

    Paired per node. Several runs a side show how far a run is from the next; without them, only untouched
    nodes do. Refused with exit status 2 and a list when anything but the named component changed.
    Exit status 0: better or equivalent; 1: worse; 3: undecided.
    """
    from shakedown.daytwo.compare.paired_metrics import ComparisonSettings
    from shakedown.daytwo.compare.run_folders import TooMuchChanged, compare_folders, named

    earlier, later = _sides(runs or [], before or [], after or [])
    try:
        result = compare_folders(
            earlier,
            later,
            changed=None if changed is None else named(changed),
            controls=tuple(control or ()),
            canaries=tuple(canary or ()),
            settings=ComparisonSettings(margin, q),
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


def _sides(runs: list[Path], before: list[Path], after: list[Path]) -> tuple[list[Path], list[Path]]:
    if len(runs) == 2 and not (before or after):
        return runs[:1], runs[1:]
    if runs or not (before and after):
        raise BadInput(
            "it takes a run before and a run after",
            fix="shakedown compare A B, or --before A1 A2 A3 --after B1 B2 B3",
        )
    return before, after


_COLOUR = {"better": "green", "equivalent": "green", "worse": "red", "undecided": "yellow"}


def show(result: Comparison) -> None:
    """Print the whole first, then every metric, the worst first, with its nodes."""
    from rich.table import Table
    from rich.text import Text

    console, say = console_of(200)
    what = f"{result.changed} changed" if result.changed else "nothing changed"
    sizes = f"{count(len(result.nodes), 'node')}, {count(len(result.controls), 'untouched node')}"
    if result.runs != (1, 1):
        sizes += f", {result.runs[0]} runs before and {result.runs[1]} after"
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
