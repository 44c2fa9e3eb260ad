"""`shakedown rerun RUN SITE`: plan just what did not pass, with two good partners."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shakedown.commands.examples import examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "rerun",
        epilog=examples("shakedown rerun reports/runs/bad inventories/lab --output reports/runs/again"),
    )(rerun)


def rerun(
    run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID) of which something failed.")],
    inventory: Annotated[Path, typer.Argument(help="Inventory folder of its site.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Make a run folder here: plan.json and jobs.json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plan.json instead of a table.")] = False,
) -> None:
    """Plan what did not pass in a run again: its nodes, rails and stages, with two good nodes as partners.

    Nothing is run. The new plan is a run of its own that can pass within its scope; it mends no verdict.
    Start it with: ansible-playbook -i SITE playbooks/acceptance.yml -e run_id=NAME
    """
    from shakedown.benchmarks.planning import read_site
    from shakedown.collect.recollect import hold_against_raw
    from shakedown.commands.plan import deliver, made_now
    from shakedown.daytwo.rerun import failed_part
    from shakedown.judge.judged import judge_run
    from shakedown.run.folder import Run

    site = read_site(inventory)
    hold_against_raw(run)
    made, jobs = made_now(site, inventory, output, failed_part(site, judge_run(Run(run))))
    deliver(made, jobs, output, as_json=as_json)
