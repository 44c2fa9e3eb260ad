"""`shakedown report RUN`: the page that a person signs, and the same for machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shakedown.commands.examples import examples
from shakedown.records.errors import ExitStatus


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", epilog=examples("shakedown report reports/runs/lab"))(report)


def report(
    run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID).")],
    output: Annotated[
        Path | None, typer.Option(help="Write only the HTML page, here, and leave the run folder as it is.")
    ] = None,
) -> ExitStatus:
    """Write report.html, junit.xml, metrics.prom and report.md. Exit status 0 PASS, 1 FAIL, 3 otherwise."""
    from shakedown.collect.recollect import hold_against_raw
    from shakedown.commands.verdict import exit_status
    from shakedown.report.write import report as write

    hold_against_raw(run)
    written = write(run, output)
    typer.echo(f"{written.outcome.value}  {written.reason}")
    for path in written.files:
        typer.echo(str(path))
    return exit_status(written.outcome)
