"""`shakedown drain`: which nodes to take out of service and give back; a dry run unless told to act."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.examples import examples
from shakedown.records.errors import ExitStatus

if TYPE_CHECKING:
    from shakedown.daytwo.drain.drainer import Drainer

Act = Annotated[bool, typer.Option("--act", help="Do it. Without this, Slurm is not changed.")]
Log = Annotated[Path, typer.Option(help="Where every action is logged.")]
Over = Annotated[str, typer.Option(help="Prefix of Slurm's commands, such as 'ssh head'.")]
DEFAULT_LOG = Path("reports/drain.jsonl")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Take failed nodes out of service, and give them back.")
    group.command("propose", epilog=examples("shakedown drain propose reports/runs/night"))(propose)
    group.command(
        "begin-retest", epilog=examples("shakedown drain begin-retest n1 --partner n2 --partner n3")
    )(begin_retest)
    group.command("end-retest", epilog=examples("shakedown drain end-retest n1 reports/runs/retest"))(
        end_retest
    )
    app.add_typer(group, name="drain")


def propose(
    run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID).")],
    act: Act = False,
    log: Log = DEFAULT_LOG,
    over: Over = "",
    max_nodes: Annotated[int, typer.Option(min=0, help="How many nodes Shakedown may drain at a time.")] = 2,
    max_fraction: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of all nodes that may be out of service for whatever reason."),
    ] = 0.1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """List the nodes that a run's failures point to, with evidence, and the drained ones to give back.

    A node is named if it failed with two partners that are good with others, or failed a test of its own.
    Nodes that someone else drained are never touched. Exit status 0: nothing to do; 1: something was
    proposed or done.
    """
    from shakedown.daytwo.drain.proposals import Policy

    actions = _drainer(over, log, act, Policy(max_nodes, max_fraction)).after_run(run)
    if as_json:
        print(json.dumps({"schema": 1, "acted": act, "actions": [a.model_dump() for a in actions]}, indent=1))
    else:
        _show(actions, act)
    return ExitStatus.FAIL if any(a.action != "none" for a in actions) else ExitStatus.PASS


def begin_retest(
    node: Annotated[str, typer.Argument(help="A node that Shakedown drained.")],
    partner: Annotated[list[str], typer.Option(help="A node known to be good; give at least two.")],
    act: Act = False,
    log: Log = DEFAULT_LOG,
    over: Over = "",
    user: Annotated[str, typer.Option(help="Who may use the reserved nodes.")] = "root",
) -> int:
    """Reserve a drained node and its partners for a retest, and resume it for that alone."""
    name = _drainer(over, log, act, user=user).begin_retest(node, partner)
    print(f"{'' if act else 'would be '}reserved as {name}")
    return ExitStatus.PASS


def end_retest(
    node: Annotated[str, typer.Argument(help="The node that was retested.")],
    run: Annotated[
        Path | None, typer.Argument(help="The retest's run folder; without one, the retest could not be run.")
    ] = None,
    act: Act = False,
    log: Log = DEFAULT_LOG,
    over: Over = "",
) -> int:
    """Give a node back if its retest passed with two partners, or drain it again; end the reservation."""
    action = _drainer(over, log, act).end_retest(node, run)
    _show([action], act)
    return ExitStatus.PASS if action.action == "undrain" else ExitStatus.FAIL


def _drainer(over: str, log: Path, act: bool, policy: object = None, user: str = "root") -> Drainer:
    from shakedown.daytwo.drain.drainer import Drainer
    from shakedown.daytwo.drain.proposals import Policy
    from shakedown.slurm.client import Slurm

    limits = policy if isinstance(policy, Policy) else Policy()
    return Drainer(Slurm(tuple(shlex.split(over))), log, act, limits, user)


def _show(actions: list, act: bool) -> None:  # type: ignore[type-arg]
    from shakedown.records.wording import printable

    if not actions:
        print("nothing to drain and nothing to give back")
    for action in actions:
        done = {"drain": "drained", "undrain": "given back", "none": "left"}[action.action]
        verb = done if act or action.action == "none" else f"would be {done}"
        print(printable(f"{action.node} {verb}: {action.reason}"))
        for cell in action.evidence[:5]:
            print(printable(f"    {cell}"))
