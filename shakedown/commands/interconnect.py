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
        epilog=examples("shakedown interconnect none=reports/runs/direct path1=reports/runs/path1"),
    )(interconnect)


def interconnect(
    runs: Annotated[list[str], typer.Argument(help="PATH=RUN: a path's name and a run made over it.")],
    baseline: Annotated[str, typer.Option(help="The path that is 1.00.")] = "none",
    noise: Annotated[
        float, typer.Option(min=0, max=0.5, help="Differences below this fraction read `no difference`.")
    ] = 0.03,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Compare inference over several ways between CPU and GPU, as the PRIMERGY CDI paper does.

    Cells marked * were extrapolated from the path's own rates, not measured.
    """
    from shakedown.daytwo.interconnect_table import rates_of, table
    from shakedown.records.wording import printable

    folders = assigned(runs, "PATH=RUN", "none=reports/runs/RUN-ID")
    rates = {path: rates_of(Path(folder)) for path, folder in folders.items()}
    rows = table(rates, baseline, noise)
    if as_json:
        typer.echo(json.dumps({"schema": 1, "baseline": baseline, "rows": [asdict(row) for row in rows]}))
    else:
        for line in lines(rows):
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
