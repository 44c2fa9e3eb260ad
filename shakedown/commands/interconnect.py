"""`shakedown interconnect RUN...`: data rate by path and number of GPUs, normalised to a baseline."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.assigned import assigned
from shakedown.commands.examples import examples

if TYPE_CHECKING:
    from shakedown.daytwo.interconnect_table import Row


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "interconnect",
        epilog=examples(
            "shakedown interconnect reports/runs/direct",
            "shakedown interconnect none=reports/runs/direct path1=reports/runs/path1",
        ),
    )(interconnect)


def interconnect(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="RUN, whose hosts are on several paths; or PATH=RUN for each path, a run of one host."
        ),
    ],
    baseline: Annotated[str, typer.Option(help="The path that is 1.00.")] = "none",
    noise: Annotated[
        float, typer.Option(min=0, max=0.5, help="Differences below this fraction read `no difference`.")
    ] = 0.03,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Compare inference over several ways between CPU and GPU, as the PRIMERGY CDI paper does.

    Cells marked * were extrapolated from the path's own rates, not measured. Hosts with links of another
    PCIe generation are compared by themselves.
    """
    from shakedown.daytwo.interconnect_table import rates_by_path, rates_of, table
    from shakedown.records.wording import printable

    if len(runs) == 1 and "=" not in runs[0]:
        groups = rates_by_path(Path(runs[0]))
    else:
        folders = assigned(runs, "PATH=RUN", "none=reports/runs/RUN-ID, or one RUN of several hosts")
        groups = {"": {path: rates_of(Path(folder)) for path, folder in folders.items()}}
    tables = {group: table(rates, baseline, noise) for group, rates in groups.items()}
    if as_json:
        rows = [
            ({"group": group} if group else {}) | asdict(row)
            for group, rows in tables.items()
            for row in rows
        ]
        typer.echo(json.dumps({"schema": 1, "baseline": baseline, "rows": rows}))
        return 0
    for group, found in tables.items():
        for line in ([group] if group else []) + lines(found):
            typer.echo(printable(line))
    return 0


def lines(rows: tuple[Row, ...]) -> list[str]:
    """Return the table as text: GB/s, then the ratio and how it reads."""
    counts = sorted(rows[0].cells)
    width = max(len(row.path) for row in rows)
    shown = [" " * width + "".join(f"{f'{n} GPUs':>26}" for n in counts)]
    for row in rows:
        cells = [row.cells[n] for n in counts]
        texts = [
            f"{cell.gb_per_s:.2f}{'*' if cell.extrapolated else ''} GB/s {cell.ratio:.2f} {cell.reading}"
            for cell in cells
        ]
        shown.append(f"{row.path:<{width}}" + "".join(f"{text:>26}" for text in texts))
    return shown
