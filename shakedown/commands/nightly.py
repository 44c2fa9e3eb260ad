"""`shakedown nightly`, `drain`, `mend` and `rerun`: the commands of day two."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command, group
from shakedown.commands.plan import named_stages
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import count, printable

if TYPE_CHECKING:
    from shakedown.daytwo.draining import Drainer


_nightly = group("nightly", "Measure a part of the cluster every night.")


Config = Annotated[Path, typer.Option(help="nightly.json, as roles/nightly writes it.")]
DEFAULT = Path("/etc/shakedown/nightly.json")


@command(
    "shakedown nightly run",
    "shakedown nightly run --nodes n[1-8] --rails rail0",
    "shakedown nightly run --only n17 --only n1 --only n2 --access=--reservation=shakedown_n17",
    of=_nightly,
)
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
    from shakedown.daytwo.nightly.night import Nightly
    from shakedown.daytwo.nightly.plan import Tonight
    from shakedown.daytwo.nightly.playbook import NightlyConfig
    from shakedown.daytwo.nightly.report import deliver, text
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


@command("shakedown nightly rotation --config nightly.json", of=_nightly)
def rotation(
    config: Config = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Show the slots, the seconds that each takes of a node, and in how many nights all have their turn."""
    from shakedown.benchmarks.planning import read_site
    from shakedown.daytwo.nightly.plan import check, nights_to_cover, slot_costs
    from shakedown.daytwo.nightly.playbook import NightlyConfig
    from shakedown.records.reading import read_record

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


Act = Annotated[bool, typer.Option("--act", help="Do it. Without this, Slurm is not changed.")]
Log = Annotated[Path, typer.Option(help="Where every action is logged.")]
Over = Annotated[str, typer.Option(help="Prefix of Slurm's commands, such as 'ssh head'.")]
DEFAULT_LOG = Path("reports/drain.jsonl")


_drain = group("drain", "Take failed nodes out of service, and give them back.")


@command("shakedown drain propose reports/runs/night", of=_drain)
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
    from shakedown.daytwo.draining import Policy

    actions = _drainer(over, log, act, Policy(max_nodes, max_fraction)).after_run(run)
    if as_json:
        print(json.dumps({"schema": 1, "acted": act, "actions": [a.model_dump() for a in actions]}, indent=1))
    else:
        _show(actions, act)
    return ExitStatus.FAIL if any(a.action != "none" for a in actions) else ExitStatus.PASS


@command("shakedown drain begin-retest n1 --partner n2 --partner n3", of=_drain)
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


@command("shakedown drain end-retest n1 reports/runs/retest", of=_drain)
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
    from shakedown.daytwo.draining import Drainer, Policy
    from shakedown.slurm.client import Slurm

    limits = policy if isinstance(policy, Policy) else Policy()
    return Drainer(Slurm(tuple(shlex.split(over))), log, act, limits, user)


def _show(actions: list, act: bool) -> None:  # type: ignore[type-arg]
    if not actions:
        print("nothing to drain and nothing to give back")
    for action in actions:
        done = {"drain": "drained", "undrain": "given back", "none": "left"}[action.action]
        verb = done if act or action.action == "none" else f"would be {done}"
        print(printable(f"{action.node} {verb}: {action.reason}"))
        for cell in action.evidence[:5]:
            print(printable(f"    {cell}"))


@command(
    "shakedown mend reports/runs/lab",
    "shakedown mend reports/history --runs reports/runs",
    "shakedown mend reports/drain.jsonl",
)
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

    status, done = ExitStatus.PASS, 0
    for line in put_in_order(path, runs):
        typer.echo(printable(line))
        done += 1
        if "must be taken in again" in line or "could not be taken in again" in line:
            status = ExitStatus.INCOMPLETE
    if not done:
        typer.echo(f"nothing to mend in {path}")
    return status


@command(
    "shakedown rerun reports/runs/bad inventories/lab --failed --output reports/runs/again",
    "shakedown rerun reports/runs/lab inventories/lab --changed answers.json",
)
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
    from shakedown.collect.run import hold_against_raw
    from shakedown.commands.plan import deliver, made_now
    from shakedown.daytwo.rerun import changed_part, failed_part, refuse_other_system
    from shakedown.discover.ask import read_answers
    from shakedown.judge.judged import judge_run
    from shakedown.run.folder import Run

    if failed and changed is not None:
        raise BadInput("--failed and --changed both say what to plan", fix="give one of them")
    site = read_site(inventory)
    opened = Run(run)
    hold_against_raw(opened)
    if changed is None:
        part = failed_part(site, judge_run(opened))
    else:
        refuse_other_system(site, opened.plan)
        snapshot = opened.inventory
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
