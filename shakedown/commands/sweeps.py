"""`shakedown sweeps` and `shakedown interconnect`: runs side by side, over networks or by path and GPUs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import assigned, command
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import printable

if TYPE_CHECKING:
    from shakedown.daytwo.interconnect_table import TableCell, TableRow
    from shakedown.daytwo.sweeps.claims import Claim
    from shakedown.daytwo.sweeps.pairs import SweepComparison, SweepSide


_LONGEST_NAME = 40


@command(
    "shakedown sweeps tcp=reports/runs/tcp roce=reports/runs/roce --html ab.html",
    "shakedown sweeps A=reports/runs/roce B=reports/runs/tcp --baseline B",
)
def sweeps(
    runs: Annotated[
        list[str], typer.Argument(help="NAME=RUN: a side's name and its run folder; two to four.")
    ],
    baseline: Annotated[str, typer.Option(help="The side that is 1.00; default: the first.")] = "",
    noise: Annotated[
        float, typer.Option(min=0, max=0.5, help="Differences below this fraction read `no difference`.")
    ] = 0.03,
    network: Annotated[
        list[str] | None,
        typer.Option(help="SIDE=NETWORK: the fabric of `tcp_fabrics` that a side is; else its RoCE fabric."),
    ] = None,
    references: Annotated[
        str, typer.Option(help="Profile whose claims are judged; default: that of the runs.")
    ] = "",
    html: Annotated[
        Path | None, typer.Option(help="Write a page too: one file that needs nothing else.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Compare sweeps of collectives (A/B): time and busbw per operation and size, and their ratio.

    Both runs need the same sizes, operations, data type, numbers of nodes and launcher; what only one of them
    has, and whatever else differs between them (variables, transports, GPUs, versions, ranks), is said first.
    nccl-tests and PyTorch are kept apart. Numbers are read again from the tools' own outputs.

    Two networks, with the site's own file untouched:

    \b
      alias play="ansible-playbook -i inventories/SITE playbooks/acceptance.yml"
      play -e acceptance_stages=collective -e run_id=roce
      play -e acceptance_stages=collective -e run_id=tcp
           -e '{"acceptance_variables": {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}}'

    How to read it: roce/tcp 0.326 in time is 67.4 % less; 5.56 in busbw is 5.56 times as much.

    Claims of the runs' profile about these sides (`configuration: A-against-B`: side A, baseline B) are
    judged; nothing else is a verdict. Exit status 0: everything has a pair and every claim holds; 1: a claim
    does not; 3: something is missing on a side, or a claim could not be decided; 2: bad input.
    """
    from shakedown.daytwo.sweeps import claims
    from shakedown.daytwo.sweeps import text as sweep_text
    from shakedown.daytwo.sweeps.pairs import compare_sweeps
    from shakedown.records.writing import write_aside

    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise BadInput("is no place for a file", fix="name a file in a folder that is there", file=html)
    found = compare_sweeps(_sides(runs, baseline, network or []), noise)
    if not found.pairings:
        # Why numbers are missing says more than what was not asked for.
        reasons = sorted(found.missing, key=lambda line: "no number" not in line)
        raise BadInput(
            f"no size has a number on all sides: {next(iter(reasons), 'nothing was measured')}",
            fix="compare runs with the same operations, sizes, data type, nodes and launcher",
        )
    judged, unjudged = _claims(found, references)
    if html is not None:
        from shakedown.daytwo.sweeps import page as sweep_page

        write_aside(html, sweep_page.page(found, judged, unjudged).encode())
    if as_json:
        typer.echo(json.dumps(sweep_text.document(found, judged, unjudged)))
    else:
        for line in sweep_text.lines(found, judged, unjudged):
            typer.echo(printable(line))
    if claims.failed(judged):
        return ExitStatus.FAIL
    return ExitStatus.INCOMPLETE if found.missing or claims.undecided(judged) else ExitStatus.PASS


def _claims(found: SweepComparison, name: str) -> tuple[tuple[Claim, ...], str]:
    """Return the judged claims of a profile, or why there are none.

    Raises BadInput: no such profile, or one that was asked for has no claim about these sides.
    """
    from shakedown.daytwo.sweeps.claims import AGAINST, judge_claims, sides_of
    from shakedown.references.files import load_profile, profile_names

    own = {side.profile for side in found.sides}
    chosen = name or (own.pop() if len(own) == 1 else "")
    if not name and chosen not in profile_names():
        return (), ""
    entries = load_profile(chosen).entries
    judged = judge_claims(found, entries)
    about = ", ".join(f"{side} against {base}" for side, base in sides_of(entries))
    if judged or not about:
        return judged, ""
    base = found.sides[0].name
    mine = ", ".join(f"{side.name}{AGAINST}{base}" for side in found.sides[1:]).replace(AGAINST, " against ")
    said = f"profile {chosen} claims something of {about}, these sides are {mine}"
    if name:
        raise BadInput(said, fix="name sides and --baseline as the claims do")
    return (), f"no claims judged: {said}"


def _sides(arguments: list[str], baseline: str, over: list[str]) -> list[SweepSide]:
    """Read the sides, the baseline first."""
    from shakedown.daytwo.sweeps.pairs import MOST_SIDES
    from shakedown.daytwo.sweeps.reading import read_side

    folders = assigned(arguments, "NAME=RUN", "roce=reports/runs/RUN-ID")
    for name in folders:
        if not name.isprintable() or len(name) > _LONGEST_NAME:
            raise BadInput(
                f"{name[:80]!r} is no name for a side", fix=f"{_LONGEST_NAME} printable characters at most"
            )
    if not 2 <= len(folders) <= MOST_SIDES:
        raise BadInput(f"{len(folders)} given, two to {MOST_SIDES} are compared", fix="give A=RUN B=RUN")
    if baseline and baseline not in folders:
        raise BadInput(f"no side {baseline!r} to be the baseline", fix=f"take one of {', '.join(folders)}")
    networks = assigned(over, "SIDE=NETWORK", "B=storage", option="--network")
    if unknown := next((name for name in networks if name not in folders), None):
        raise BadInput(f"--network: no side {unknown[:80]!r}", fix=f"take one of {', '.join(folders)}")
    first = baseline or next(iter(folders))
    sides = [
        read_side(name, Path(folders[name]), networks.get(name, ""))
        for name in sorted(folders, key=lambda name: name != first)
    ]
    seen: dict[tuple[str, ...], str] = {}
    for side in sides:
        run = (side.system, side.run, side.created, side.network)
        if run in seen:
            raise BadInput(f"{seen[run]} and {side.name} are the same run {side.run}", fix="name two runs")
        seen[run] = side.name
    return sides


@command(
    "shakedown interconnect reports/runs/direct",
    "shakedown interconnect none=reports/runs/direct path1=reports/runs/path1",
)
def interconnect(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="RUN, whose hosts are on several paths; or PATH=RUN for each path, a run of one host."
        ),
    ],
    baseline: Annotated[str, typer.Option(help="The path that is 1.00.")] = "none",
    noise: Annotated[
        float, typer.Option(min=0, max=0.5, help="Differences below this fraction read `no difference`.")
    ] = 0.03,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Compare inference over several ways between CPU and GPU, as the PRIMERGY CDI paper does.

    Cells marked * were extrapolated from the path's own rates, not measured; a path that is full has none.
    A rate above the ceiling of its plan is refused. Hosts with links of another PCIe generation are compared
    by themselves.
    """
    from shakedown.daytwo.interconnect_table import rates_by_path, rates_of, table

    if len(runs) == 1 and "=" not in runs[0]:
        groups = rates_by_path(Path(runs[0]))
    else:
        folders = assigned(runs, "PATH=RUN", "none=reports/runs/RUN-ID, or one RUN of several hosts")
        groups = {"": {path: rates_of(Path(folder)) for path, folder in folders.items()}}
    tables = {group: table(rates, baseline, noise) for group, rates in groups.items()}
    if as_json:
        rows = [
            ({"group": group} if group else {}) | asdict(row)
            for group, rows in tables.items()
            for row in rows
        ]
        typer.echo(json.dumps({"schema": 1, "baseline": baseline, "rows": rows}))
        return 0
    for group, found in tables.items():
        for line in ([group] if group else []) + lines(found):
            typer.echo(printable(line))
    return 0


def lines(rows: tuple[TableRow, ...]) -> list[str]:
    """Return the table as text: GB/s, then the ratio and how it reads."""
    counts = sorted(rows[0].cells)
    shown = [["", *(f"{n} GPUs" for n in counts)]]
    for row in rows:
        cells = (row.cells[n] for n in counts)
        shown.append([row.path, *map(_cell, cells)])
    widths = [max(len(line[column]) for line in shown) for column in range(len(counts) + 1)]
    return [
        "  ".join(
            [f"{line[0]:<{widths[0]}}", *(f"{t:>{w}}" for t, w in zip(line[1:], widths[1:], strict=True))]
        )
        for line in shown
    ]


def _cell(cell: TableCell) -> str:
    if cell.gb_per_s is None:
        return "–"
    rate = f"{cell.gb_per_s:.2f}{'*' if cell.extrapolated else ''} GB/s"
    return rate if cell.ratio is None else f"{rate} {cell.ratio:.2f} {cell.reading}"
