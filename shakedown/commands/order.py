"""`shakedown order PLAN`: the customer signs what is to be measured, on which machines, and until when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shakedown.commands.examples import examples
from shakedown.records.errors import ExitStatus


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "order",
        epilog=examples(
            "shakedown order reports/runs/lab --key ~/.ssh/id_ed25519 --hosts known_hosts --output order.json"
        ),
    )(order)


def order(
    plan: Annotated[Path, typer.Argument(help="Planned run: the folder with plan.json and jobs.json.")],
    key: Annotated[Path, typer.Option(help="SSH private key to sign with.")],
    hosts: Annotated[
        list[Path],
        typer.Option(
            help="Who the nodes are: a snapshot (inventory.json) or ssh's known_hosts; may be given again."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it. [default: PLAN/order.json]")
    ] = None,
    days: Annotated[int, typer.Option(help="How many days it is valid, from now; at most 90.")] = 14,
    submit: Annotated[
        str | None,
        typer.Option(
            help="The host that submits the jobs: it must sign which there were (it needs a host key)."
        ),
    ] = None,
) -> int:
    """Sign a plan, so that `shakedown verify --order` tells whether that very plan was measured, and where.

    Prints what the plan eases, before its key signs that: gates that are no shipped profile's, tests that are
    not to be run or not required, waivers. Writes the order and its signature (.sig). Keep your own copy: a
    bundle is held against it. Measure with
    ansible-playbook playbooks/acceptance.yml -e run_id=RUN -e order=FILE.
    """
    from shakedown.bundle import orders, summary
    from shakedown.records.wording import printable
    from shakedown.run.folder import ORDER

    folder = plan.parent if plan.is_file() else plan
    made = orders.make(folder, hosts, days=days, submit=submit)
    for line in dict.fromkeys(summary.eased(folder)):
        typer.echo(printable(line)[:500])
    where = output or folder / ORDER
    orders.write(made, where, key)
    typer.echo(f"ordered: {where}, run {made.run} on {len(made.nodes)} nodes, valid until {made.not_after}")
    return ExitStatus.PASS
