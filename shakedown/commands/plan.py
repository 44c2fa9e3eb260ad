"""`shakedown plan INVENTORY` and `shakedown collect RUN`: what will be measured, and what was."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import assigned, command
from shakedown.records.reading import BadInput
from shakedown.records.wording import count, in_unit, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shakedown.intent.site import Site
    from shakedown.plan.jobs import Jobs
    from shakedown.plan.scope import Mesh, WantedScope
    from shakedown.records.base import Stage
    from shakedown.records.plan import Plan

_SHOWN = 5  # of the marked lines
_NOTES = 20  # nodes that did not answer, or not as their fellows


@command("shakedown plan inventories/lab --output reports/runs/first")
def plan(
    inventory: Annotated[Path, typer.Argument(help="Inventory folder, for example inventories/lab.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Make a run folder here: plan.json and jobs.json.")
    ] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for this run's collectives, over the site's: NCCL_IB_DISABLE=1."),
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option(help="Judge these nodes alone: gpu[001-003] or n1,n2.")
    ] = None,
    rails: Annotated[list[str] | None, typer.Option(help="Measure these rails alone: rail0,rail1.")] = None,
    stage: Annotated[
        list[str] | None, typer.Option(help="Measure these stages alone: fabric, or config,fabric.")
    ] = None,
    partners: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1000,
            help="How many further nodes --nodes are measured with; used, never judged.",
            show_default="as many as make three",
        ),
    ] = None,
    learn: Annotated[
        bool,
        typer.Option(
            "--learn", help="Measure what has no reference without judging it; the run ends as BASELINE."
        ),
    ] = False,
    mesh: Annotated[
        str | None,
        typer.Option(
            help="quick: each node with its two neighbours in a ring; full: every pair rail by rail.",
            show_default="as the site asks",
        ),
    ] = None,
    max_job_time: Annotated[
        str | None,
        typer.Option(
            help="What the partition allows a job, as its MaxTime: 04:00:00; over slurm.max_job_time."
        ),
    ] = None,
    longest_job: Annotated[
        bool, typer.Option("--longest-job", help="Print only the MaxTime that the plan's longest job needs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print plan.json instead of a table.")] = False,
) -> None:
    """Show what will be measured, on which nodes, how long and against what.

    Nothing is run and no host is contacted. A cell without a reference is an error here, never a pass later.
    A plan of some nodes, rails or stages, or of a quick mesh, can pass, and its verdict begins with what it
    is of.
    With --learn such a cell is measured and not judged, and the run is no acceptance; losses and wrong
    results are judged all the same.
    A job that its partition would refuse is refused here, with both times.
    """
    from shakedown.benchmarks.planning import read_site
    from shakedown.discover.folder import MARK, guesses, notes
    from shakedown.intent.slurm_block import slurm_time
    from shakedown.plan.scope import WantedScope, named_nodes, named_rails, with_variables
    from shakedown.plan.time_limits import longest_s
    from shakedown.references.catalogue import MissingReference
    from shakedown.run.folder import run_name

    variables = assigned(variable or (), "NAME=VALUE", "NCCL_IB_DISABLE=1", option="--variable", empty=True)
    if output is not None:
        run_name(output)  # refused before the inventory is read, which takes seconds
    whole = read_site(inventory)
    wanted = WantedScope(
        nodes=named_nodes(whole, nodes) if nodes else (),
        rails=named_rails(whole, rails) if rails else (),
        stages=named_stages(stage or ()),
        partners=partners,
        mesh=_mesh(mesh),
    )
    site = _with_job_time(with_variables(whole, variables), max_job_time, asked=longest_job)
    try:
        made, jobs = made_now(site, inventory, output, wanted, learn=learn)
    except MissingReference:
        if not longest_job:
            raise
        # How long a job may take hangs on no reference, and a site's first run is to make them.
        made, jobs = made_now(site, inventory, output, wanted, learn=True)
    if longest_job:
        typer.echo(slurm_time(longest_s(jobs.jobs)))
        return
    deliver(made, jobs, output, as_json=as_json)
    if not as_json:
        told = notes(inventory)
        for note in told[:_NOTES]:
            typer.echo(note)
        if len(told) > _NOTES:
            typer.echo(f"{len(told) - _NOTES} more such lines: {inventory / 'hosts.yml'}")
    if not as_json and (marked := guesses(inventory)):
        more = f" and {len(marked) - _SHOWN} more" if len(marked) > _SHOWN else ""
        typer.echo(
            f"Guesses: {count(len(marked), 'line')} marked `{MARK}` still, which nobody confirmed: "
            f"{', '.join(marked[:_SHOWN])}{more}"
        )


def made_now(
    site: Site, inventory: Path, output: Path | None, wanted: WantedScope, *, learn: bool = False
) -> tuple[Plan, Jobs]:
    """Return plan and jobs of a run that is planned now, named after its folder if it has one.

    Raises BadInput: as `make_plan` does, or a folder that can name no run.
    """
    from shakedown.benchmarks.planning import make_plan
    from shakedown.references.of_site import catalogue_of_site
    from shakedown.run.folder import run_name

    now = datetime.now(UTC)
    return make_plan(
        site,
        catalogue_of_site(site, inventory),
        run=run_name(output) if output else now.strftime("%Y%m%dT%H%M%SZ"),
        created=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        wanted=wanted,
        learn=learn,
        inventory=inventory,
    )


def _with_job_time(site: Site, given: str | None, *, asked: bool) -> Site:
    """Return the site with the limit of its partition as Slurm has it; none where the limit is asked for.

    Raises BadInput: no time as Slurm writes it.
    """
    from shakedown.intent.slurm_block import JobTime, seconds_of

    if asked:
        return site.model_copy(update={"job_time": None})
    if given is None:
        return site
    try:
        seconds = seconds_of(given)
    except BadInput as refused:
        raise BadInput(f"--max-job-time: {refused.what}", fix=refused.fix) from None
    fix = "run playbooks/site.yml again where it makes Slurm; else ask for a longer MaxTime, or measure less"
    return site.model_copy(
        update={"job_time": JobTime(seconds=seconds, said_by="Slurm's partition", fix=fix)}
    )


def deliver(made: Plan, jobs: Jobs, output: Path | None, *, as_json: bool) -> None:
    """Make the run folder, if one is wanted, and show the plan. Raises BadInput for a folder in use."""
    from shakedown.records.base import to_json
    from shakedown.records.writing import write_aside
    from shakedown.run.folder import write_plan

    if output is not None:
        refuse_used(output)
        write_plan(output, made)
        write_aside(output / "jobs.json", to_json(jobs))
        (output / "raw").mkdir(exist_ok=True)
    if as_json:
        typer.echo(to_json(made).decode(), nl=False)
    else:
        _show(made)


def named_stages(given: Iterable[str]) -> tuple[Stage, ...]:
    """Return the stages in the order of the ladder. Raises BadInput for one that is not there."""
    from shakedown.records.base import Stage

    names = {name for text in given for name in text.split(",")}
    for name in sorted(names - set(Stage)):
        raise BadInput(f"--stage {name[:40]!r} is no stage", fix=f"use {', '.join(Stage)}")
    return tuple(stage for stage in Stage if stage in names)


def _mesh(given: str | None) -> Mesh | None:
    """Return which pairs are wanted. Raises BadInput for another word."""
    known: dict[str, Mesh] = {"quick": "quick", "full": "full"}
    if given is None or given in known:
        return known.get(given or "")
    raise BadInput(f"--mesh {given[:40]!r} is no mesh", fix="use quick or full")


def refuse_used(folder: Path) -> None:
    """Refuse a folder that has a plan or anything raw: what an earlier run left would pass for this one's."""
    raw = next((path for path in (folder / "raw").rglob("*") if not path.is_dir()), None)
    held = [name for name in ("plan.json", "jobs.json") if (folder / name).exists()]
    if raw is not None:
        held.append(str(raw.relative_to(folder)))
    if held:
        raise BadInput(
            f"holds {' and '.join(held)} of a run already",
            fix=f"give another run id, or remove that run: rm -r {quote(str(folder))}",
            file=folder,
        )


@command("shakedown collect reports/runs/lab")
def collect(run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID).")]) -> None:
    """Read a run's raw outputs again and write results.jsonl and counters.jsonl from them."""
    from shakedown.collect.run import collect as collect_run

    flaws: list[BadInput] = []
    results, counters = collect_run(run, flaws)
    typer.echo(f"{count(results, 'result')} and {count(counters, 'counter')} in {run}")
    for flaw in flaws:
        typer.echo(printable(f"not read, and its cells have no value: {flaw}"))


def _show(made: Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    from shakedown.intent.places import span

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    table = Table(box=None, pad_edge=False)
    for heading in ("stage", "test", "metric", "parameters", "cells", "gate", "reference"):
        table.add_column(heading, justify="right" if heading == "cells" else "left")
    counters = 0
    # Rows that read alike are one, with their cells together: what differs is only whose they are.
    rows: dict[tuple[str, ...], tuple[int, dict[str, None]]] = {}
    for item in made.items:
        if item.metric.startswith("counter."):
            counters += len(item)
            continue
        reference = made.references[item.reference]
        sign = "≥" if item.better == "higher" else "≤"
        gate = f"{sign} {in_unit(f'{reference.gate:g}', item.unit)}" if item.required else "shown only"
        if reference.kind == "learn":
            gate = "to be learnt"
        parameters = " ".join(f"{k}={v}" for k, v in item.params.items())
        row = (item.stage, item.test, item.metric, parameters, gate, f"{reference.id} ({reference.kind})")
        cells, nodes = rows.get(row, (0, {}))
        nodes.update(dict.fromkeys(chain.from_iterable(item.nodes)))
        rows[row] = (cells + len(item), nodes)
    for (stage, test, metric, parameters, gate, source), (cells, nodes) in rows.items():
        whose = "" if nodes.keys() == set(made.nodes) else f"on {span(nodes)}"
        table.add_row(stage, test, metric, f"{parameters} {whose}".strip(), str(cells), gate, source)
    console.print(table)
    total = sum(len(item) for item in made.items)
    where = f"on {count(len(made.nodes), 'node')} x {count(len(made.rails), 'rail')}"
    console.print(f"\n{count(total, 'cell')} ({counters} of them counters) {where}")
    for line in time_lines(made):
        console.print(line)
    if made.scope is not None:
        with_them = f"; measured with {span(made.scope.partners)}" if made.scope.partners else ""
        console.print(f"Scope: {made.scope.words}{with_them}")
    for one in made.not_covered:
        how_many = "" if one.cells is None else f" ({count(one.cells, 'cell')})"
        key = "" if one.key is None else f" [{one.key}]"
        console.print(f"Not covered: {one.what}{how_many}: {one.why}{key}")
    for line in made.nic_counters:
        console.print(f"NIC counters: {line}")
    for caveat in made.caveats:
        console.print(f"Note: {caveat}")


_LONG_S = 3600.0  # a plan that takes longer says what to leave out first


def time_lines(made: Plan) -> Iterator[str]:
    """Yield what a manager must reserve: wall time and node-hours of each stage, and of all of them."""
    from shakedown.report.text import duration

    if (expected := made.expectation) is None:
        return
    rows = [
        (part.stage.value, part.jobs, str(part.at_once), part.expected_s, part.limit_s, likely, most)
        for part in expected.stages
        for likely, most in [(part.expected_node_s / 3600, part.limit_node_s / 3600)]
    ]
    jobs, unknown = (sum(getattr(part, key) for part in expected.stages) for key in ("jobs", "unknown"))
    whole = (expected.expected_s, expected.limit_s, expected.expected_node_hours, expected.limit_node_hours)
    head = f"{'stage':<12} {'jobs':>6} {'at once':>8} {'expected':>12} {'limit':>12}"
    yield f"\n{head}   node-h expected  limit"
    for stage, many, at_once, likely_s, limit_s, hours, most in [*rows, ("all", jobs, "", *whole)]:
        times = f"{duration(likely_s):>12} {duration(limit_s):>12}"
        yield f"{stage:<12} {many:>6} {at_once:>8} {times} {hours:>17,.1f} {most:>6,.1f}"
    if unknown:
        yield f"{count(unknown, 'job')} expected at the limit: no measurement says how long such a job takes."
    for source in expected.sources:
        yield f"Overhead: {source}"
    if made.scope is None and expected.expected_s > _LONG_S:
        yield (
            "For a first run: --mesh quick measures each node with two neighbours alone, not every pair; "
            "--stage node leaves all that joins nodes for later."
        )
