"""`shakedown verdict`, `report` and `export`: judge the files of a run, write a page to sign or a table."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command, console_of
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import in_unit, printable

if TYPE_CHECKING:
    from shakedown.records.base import Outcome
    from shakedown.records.verdict import Verdict


@command("shakedown verdict reports/runs/lab --worst 20")
def verdict(
    run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print verdict.json instead of a table.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Write verdict.json into the run folder.")] = False,
    worst: Annotated[int, typer.Option(min=0, help="How many cells to list, worst first.")] = 10,
) -> int:
    """Recompute the verdict on a run. Exit status 0 PASS, 1 FAIL, 3 INCONCLUSIVE, NOT-RUN or BASELINE."""
    from shakedown.records.verdict import verdict_to_json
    from shakedown.run.folder import write_verdict

    result, notice = judged_from_raw(run)
    if write:
        write_verdict(run, result)
    if as_json:
        sys.stdout.write(verdict_to_json(result).decode())
    else:
        show(result, worst, notice)
    return exit_status(result.outcome)


def judged_from_raw(run: Path) -> tuple[Verdict, str]:
    """Return the verdict on a run whose results are what its raw files give, and a notice if it has none.

    Raises BadInput: a file cannot be used, or the results differ from the raw files. An older verdict and its
    report are set aside then, except in a sealed run: they would go on saying PASS.
    """
    from shakedown.collect.run import hold_against_raw
    from shakedown.judge.judged import judge_run
    from shakedown.records.program import no_cycle_search
    from shakedown.run.folder import JUDGED, SUMS, Run, set_aside

    try:
        with no_cycle_search():  # until the cells are gone: it would walk through all of them
            opened = Run(run, simulated=True)
            notice = hold_against_raw(opened)
            return judge_run(opened).verdict, notice
    except BadInput:
        if not (run / SUMS).exists():
            with contextlib.suppress(OSError):  # a folder that only lets itself be read
                set_aside(run, JUDGED)
        raise


def exit_status(outcome: Outcome) -> ExitStatus:
    """Return the exit status of an outcome."""
    return {"PASS": ExitStatus.PASS, "FAIL": ExitStatus.FAIL}.get(outcome.value, ExitStatus.INCOMPLETE)


_COLOUR = {
    "PASS": "green",
    "FAIL": "red",
    "INCONCLUSIVE": "yellow",
    "NOT-RUN": "yellow",
    "WAIVED": "yellow",
    "BASELINE": "cyan",
}


def show(result: Verdict, worst: int, notice: str = "") -> None:
    """Print the reason first, then what was judged, the worst cells, and every group with its coverage."""
    from rich.table import Table
    from rich.text import Text

    from shakedown.records.base import Outcome

    console, say = console_of(240)
    say(f"  {result.reason}", result.outcome.value, f"bold {_COLOUR[result.outcome.value]}")
    counts = ", ".join(f"{n} {o.value}" for o, n in result.outcomes.items() if n)
    covered = f"{result.coverage.measured} of {result.coverage.planned} required cells measured"
    say(f"run {result.run}: {covered}; {counts or 'none'}")
    if notice:
        say(notice)
    for problem in result.problems:
        say(f"problem: {problem}")
    for cause in result.causes[:worst]:
        label = "at fault" if cause.blamed else "suspect"
        effect = "no results" if cause.effect <= -1 else f"{cause.effect:+.1%}"
        said = f"{cause.element}, {effect}, confidence {cause.confidence:.0%}: {cause.proposal}"
        say(said, f"{label:14}", "bold red" if cause.blamed else "yellow")
    if len(result.causes) > worst:
        say(f"... and {len(result.causes) - worst} more causes (--json lists all)")
    for cell in result.cells[:worst]:
        say(f"{cell.rule:14}{cell.reason}", f"{cell.outcome.value:14}", _COLOUR[cell.outcome.value])
    if len(result.cells) > worst:
        say(f"... and {len(result.cells) - worst} more that did not pass (--json lists all)")
    for cell in result.transients[:worst]:
        say(f"{cell.rule:14}{cell.reason}", f"{cell.outcome.value:14}", _COLOUR[cell.outcome.value])
    if len(result.transients) > worst:
        more = len(result.transients) - worst
        say(f"... and {more} more that passed when measured again (--json lists all)")
    if result.unplanned:
        say(f"{len(result.unplanned)} measured but not planned, first: {result.unplanned[0]}")

    table = Table(box=None, pad_edge=False)
    for title in ("stage", "test", "metric"):
        table.add_column(title, overflow="fold")
    learnt = ("learnt",) if any(Outcome.BASELINE in group.outcomes for group in result.groups) else ()
    for title in ("measured", "pass", "fail", "inconcl.", "not run", "waived", *learnt, "worst", "median"):
        table.add_column(title, justify="right")
    for group in result.groups:
        params = " ".join(f"{k}={v}" for k, v in sorted(group.params.items()))
        row = (
            group.stage.value,
            group.test,
            f"{group.metric} {params}".strip(),
            f"{group.measured}/{group.planned}",
            *(str(n) for n in group.outcomes.values()),
            *("0" for _ in learnt if Outcome.BASELINE not in group.outcomes),
            *(in_unit(f"{v:.6g}", group.unit) if v is not None else "-" for v in (group.worst, group.median)),
        )
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


@command("shakedown report reports/runs/lab")
def report(
    run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID).")],
    output: Annotated[
        Path | None, typer.Option(help="Write only the HTML page, here, and leave the run folder as it is.")
    ] = None,
) -> ExitStatus:
    """Write report.html, junit.xml, metrics.prom and report.md. Exit status 0 PASS, 1 FAIL, 3 otherwise."""
    from shakedown.collect.run import hold_against_raw
    from shakedown.report.write import report as write
    from shakedown.run.folder import Run

    hold_against_raw(Run(run, simulated=True))
    written = write(run, output)
    say = console_of(240)[1]
    say(f"  {written.reason}", written.outcome.value, f"bold {_COLOUR[written.outcome.value]}")
    for path in written.files:
        typer.echo(str(path))
    return exit_status(written.outcome)


@command(
    "shakedown export reports/runs/lab --csv lab.csv",
    "shakedown export reports/runs/lab --parquet lab.parquet",
)
def export(
    run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID).")],
    to_csv: Annotated[Path | None, typer.Option("--csv", help="Write a CSV file here.")] = None,
    to_parquet: Annotated[Path | None, typer.Option("--parquet", help="Write a Parquet file here.")] = None,
) -> None:
    """Judge a run and write every planned cell as a row, for spreadsheets and programs.

    Columns, of which none is ever renamed: run, system, created, simulated, cell, stage, test, metric, nodes,
    rail, direction, params, required, outcome, rule, value, unit, better, gate, ceiling, reference, kind,
    source, reason, raw. In CSV a text that a spreadsheet would take for a formula begins with a quote.
    """
    from shakedown.collect.run import hold_against_raw
    from shakedown.judge.judged import judge_run
    from shakedown.records.writing import write_aside
    from shakedown.report import machines as made
    from shakedown.run.folder import Run

    wanted = [(to_csv, made.as_csv), (to_parquet, made.as_parquet)]
    if not any(path for path, _ in wanted):
        raise BadInput("nothing to write", fix="give --csv FILE or --parquet FILE")
    opened = Run(run, simulated=True)
    hold_against_raw(opened)
    judged = judge_run(opened)
    for path, as_file in wanted:
        if path is not None:
            write_aside(path, as_file(made.rows(judged.run.plan, judged.cells)))
            typer.echo(str(path))
