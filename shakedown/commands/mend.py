"""`shakedown mend PATH`: what a crash, a full disk or a bad disk left is put in order, and said."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shakedown.commands.examples import examples
from shakedown.records.errors import ExitStatus


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "mend",
        epilog=examples(
            "shakedown mend reports/runs/lab",
            "shakedown mend reports/history --runs reports/runs",
            "shakedown mend reports/drain.jsonl",
        ),
    )(mend)


def mend(
    path: Annotated[
        Path, typer.Argument(help="A run's folder, a history's folder, or a drain log (.jsonl).")
    ],
    runs: Annotated[
        Path | None, typer.Option(help="Where the runs lie that a history is to take in again.")
    ] = None,
) -> int:
    """Put in order what a crash, a full disk or a bad disk left, and say what was done.

    Half-written files go; what cannot be read is set aside under another name (.broken), never thrown away.
    What a history lost is taken in again from the runs' folders. What was measured is never changed.

    Exit status 0: in order, now or before. 3: a run could not be taken in again.
    """
    from shakedown.daytwo.mend import mend as put_in_order
    from shakedown.records.wording import printable

    status, done = ExitStatus.PASS, 0
    for line in put_in_order(path, runs):
        typer.echo(printable(line))
        done += 1
        if "must be taken in again" in line or "could not be taken in again" in line:
            status = ExitStatus.INCOMPLETE
    if not done:
        typer.echo(f"nothing to mend in {path}")
    return status
