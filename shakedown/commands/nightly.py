"""`shakedown nightly run`: one night on idle nodes, from the rotation to the report."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from shakedown.commands.examples import examples
from shakedown.commands.plan import named_stages
from shakedown.records.errors import BadInput, ExitStatus


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Measure a part of the cluster every night.")
    group.command(
        "run",
        epilog=examples(
            "shakedown nightly run",
            "shakedown nightly run --nodes n[1-8] --rails rail0",
            "shakedown nightly run --only n17 --only n1 --only n2 --access=--reservation=shakedown_n17",
        ),
    )(run)
    group.command("rotation", epilog=examples("shakedown nightly rotation --config nightly.json"))(rotation)
    app.add_typer(group, name="nightly")


Config = Annotated[Path, typer.Option(help="nightly.json, as roles/nightly writes it.")]
DEFAULT = Path("/etc/shakedown/nightly.json")


def run(
    config: Config = DEFAULT,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Measure only these nodes, with each other, by all tests: for a retest."),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(help="Measure only these nodes, as far as they are idle: gpu[001-003]."),
    ] = None,
    rails: Annotated[list[str] | None, typer.Option(help="Measure these rails alone: rail0,rail1.")] = None,
    stage: Annotated[
        list[str] | None, typer.Option(help="Measure these stages alone: config,fabric.")
    ] = None,
    access: Annotated[list[str] | None, typer.Option(help="A further option of sbatch.")] = None,
) -> int:
    """Run one night: measure idle nodes within their budget, judge, add to the history, and report.

    Exit status: 0 PASS, 1 FAIL or a standing alarm, 2 bad input, 3 INCONCLUSIVE, NOT-RUN or a problem.
    """
    from shakedown.daytwo.nightly.config import NightlyConfig
    from shakedown.daytwo.nightly.deliver import deliver
    from shakedown.daytwo.nightly.night import Nightly
    from shakedown.daytwo.nightly.report import text
    from shakedown.daytwo.nightly.tonight import Tonight
    from shakedown.intent.slurm_block import option
    from shakedown.records.reading import read_record

    wanted = read_record(config, NightlyConfig)
    for given in access or ():
        try:
            option(given, keys_too=True)
        except ValueError as error:
            raise BadInput(f"--access: {error}", fix="see nightly_access in docs/how-to/nightly.md") from None
    if access:
        wanted = wanted.model_copy(update={"access": (*wanted.access, *access)})
    if only is not None and len(set(only)) < 2:
        raise BadInput("one node alone cannot be measured", fix="name two with --only")
    if only is not None and nodes is not None:
        raise BadInput("--only and --nodes both name nodes", fix="give one of them")
    part = Tonight(tuple(nodes or ()), tuple(rails or ()), named_stages(stage or ()))
    night = Nightly(wanted).run(datetime.now(UTC), tuple(dict.fromkeys(only or ())), part)
    print(text(night), end="")
    failed = deliver(night, wanted.deliver)
    for line in failed:
        print(f"not delivered: {line}")
    if night.outcome == "FAIL" or night.alarms:
        return ExitStatus.FAIL
    return (
        ExitStatus.PASS
        if night.outcome == "PASS" and not night.problems and not failed
        else ExitStatus.INCOMPLETE
    )


def rotation(
    config: Config = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Show the slots, the seconds that each takes of a node, and in how many nights all have their turn."""
    from shakedown.benchmarks.planning import read_site
    from shakedown.daytwo.nightly.config import NightlyConfig
    from shakedown.daytwo.nightly.plan import slot_costs
    from shakedown.daytwo.nightly.rotation import check, nights_to_cover
    from shakedown.records.reading import read_record
    from shakedown.records.wording import count

    wanted = read_record(config, NightlyConfig)
    costs = slot_costs(read_site(Path(wanted.inventory)), wanted.group, wanted.node_tests_s)
    check(costs, budget_s=wanted.budget_s, group=wanted.group)
    nights = nights_to_cover(costs, budget_s=wanted.budget_s)
    if as_json:
        slots = [{"slot": str(slot), "cost_s": cost} for slot, cost in costs.items()]
        sizes = {"budget_s": wanted.budget_s, "group": wanted.group, "nights": nights}
        print(json.dumps({"schema": 1, **sizes, "slots": slots}))
        return ExitStatus.PASS
    for slot, cost in costs.items():
        print(f"{cost:5.0f} s  {slot}")
    print(f"all in {count(nights, 'idle night')} of {wanted.budget_s:.0f} s, in groups of {wanted.group}")
    return ExitStatus.PASS
