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
        epilog=examples(
            "shakedown rerun reports/runs/bad inventories/lab --failed --output reports/runs/again",
            "shakedown rerun reports/runs/lab inventories/lab --changed answers.json",
        ),
    )(rerun)


def rerun(
    run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID) of which something failed.")],
    inventory: Annotated[Path, typer.Argument(help="Inventory folder of its site.")],
    failed: Annotated[
        bool, typer.Option("--failed", help="Plan what did not pass; the same as saying nothing.")
    ] = False,
    changed: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Plan the nodes whose NICs are others than in that run, by what discover --record wrote.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Make a run folder here: plan.json and jobs.json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plan.json instead of a table.")] = False,
) -> None:
    """Plan what did not pass in a run again: its nodes, rails and stages, with two good nodes as partners.

    With --changed, plan instead the nodes of which a NIC was replaced since: its MAC address is another one.
    Nothing is run. The new plan is a run of its own that can pass within its scope; it mends no verdict.
    Start it with: ansible-playbook -i SITE playbooks/acceptance.yml -e run_id=NAME
    """
    from shakedown.benchmarks.planning import read_site
    from shakedown.collect.recollect import hold_against_raw
    from shakedown.commands.plan import deliver, made_now
    from shakedown.daytwo.rerun import changed_part, failed_part
    from shakedown.discover.answers import read_answers
    from shakedown.judge.judged import judge_run
    from shakedown.records.errors import BadInput
    from shakedown.run.folder import Run

    if failed and changed is not None:
        raise BadInput("--failed and --changed both say what to plan", fix="give one of them")
    site = read_site(inventory)
    hold_against_raw(run)
    if changed is None:
        part = failed_part(site, judge_run(Run(run)))
    else:
        snapshot = Run(run).inventory()
        if snapshot is None:
            raise BadInput(
                "the run has no inventory.json, so what it was made on is unknown",
                fix="name the nodes yourself: shakedown plan SITE --nodes",
                file=run,
            )
        part, words = changed_part(site, snapshot, read_answers(changed))
        caveats = (*site.acceptance.caveats, *(f"Measured again because of another NIC. {w}." for w in words))
        acceptance = site.acceptance.model_copy(update={"caveats": caveats})
        site = site.model_copy(update={"acceptance": acceptance})
    made, jobs = made_now(site, inventory, output, part)
    deliver(made, jobs, output, as_json=as_json)
