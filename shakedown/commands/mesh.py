"""`shakedown mesh`: what a mesh will measure and how long, its coverage, and which nodes to measure again."""

from __future__ import annotations

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shakedown.commands.arguments import command, group
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import natural_key, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shakedown.benchmarks.perftest.mesh.schedule import MeshCoverage
    from shakedown.benchmarks.perftest.mesh.spec import Spec
    from shakedown.judge.localise.outdir import Covered, Outdir
    from shakedown.judge.localise.pair_results import PairResults
    from shakedown.run.folder import Run

_NAMED = 10  # so many missing cells are named one by one

_mesh = group("mesh", "Measure all pairs of nodes in one allocation.")


class Mode(StrEnum):
    """Which pairs are measured."""

    FULL = "full"
    QUICK = "quick"
    PAIRS = "pairs"


@command(
    "shakedown mesh plan spec.json --rounds",
    "shakedown mesh plan spec.json --mode quick --output quick.json",
    of=_mesh,
)
def plan(
    spec: Annotated[Path, typer.Argument(help="Specification of a mesh (raw/JOB/spec.json of a run).")],
    mode: Annotated[Mode | None, typer.Option(help="Other pairs than the specification's.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="With --mode pairs: a file, two names a line.")] = None,
    rail: Annotated[list[str] | None, typer.Option(help="Only these rails; rail0>rail1 crosses.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random matchings of --mode quick.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the specification here.")
    ] = None,
    rounds: Annotated[bool, typer.Option("--rounds", help="List every round.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show rounds, cells and time of a mesh, or make a specification of other pairs. Nothing is run."""
    from shakedown.benchmarks.perftest.mesh.schedule import (
        blocks_of,
        estimate_s,
        pairs_of,
        round_count,
        rounds_of,
    )
    from shakedown.benchmarks.perftest.mesh.spec import parse_spec
    from shakedown.records.writing import write_aside

    data = _read(spec)
    _choose_pairs(data, mode, pairs, seed, spec)
    if rail:
        data["rails"] = rail
    parsed = parse_spec(data, str(spec))
    seconds = estimate_s(parsed)
    cells = len(pairs_of(parsed)) * len(parsed.rails) * len(parsed.directions) * len(blocks_of(parsed))
    summary = {
        "nodes": len(parsed.nodes),
        "rails": list(parsed.rails),
        "pairs": len(pairs_of(parsed)),
        "rounds": round_count(parsed),
        "cells": cells,
        "seconds": round(seconds),
        "node_hours": round(seconds * len(parsed.nodes) / 3600, 2),
    }
    if output is not None:
        write_aside(output, (json.dumps(data, indent=1) + "\n").encode())
    if as_json:
        extra = {"schedule": [list(map(list, r)) for r in rounds_of(parsed)]} if rounds else {}
        sys.stdout.write(json.dumps({"schema": 1, **summary, **extra}) + "\n")
        return
    sys.stdout.write(
        f"{summary['nodes']} nodes x {len(parsed.rails)} rails ({', '.join(parsed.rails)}): "
        f"{summary['pairs']} pairs in {summary['rounds']} rounds, {cells} cells\n"
        f"about {seconds / 60:.0f} min, {summary['node_hours']} node-hours\n"
    )
    for index, pairs_of_round in enumerate(rounds_of(parsed) if rounds else ()):
        sys.stdout.write(f"round {index}: {'  '.join(f'{a}-{b}' for a, b in pairs_of_round)}\n")


@command("shakedown mesh coverage spec.json outdir", of=_mesh)
def coverage(
    spec: Annotated[Path, typer.Argument(help="Specification of the mesh.")],
    folder: Annotated[Path, typer.Argument(help="What the drivers left (raw/JOB of a run).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Prove that every pair, rail and direction was measured. Exit status 0 complete, 3 not.

    A cell counts as measured if its output is there and holds a number above 0.
    """
    from shakedown.benchmarks.perftest.mesh.driver import read_spec
    from shakedown.judge.localise.outdir import Covered, Outdir

    parsed, digest = read_spec(spec)
    outdir = Outdir(folder, parsed)
    outdir.refuse_other(digest)
    gathered = Covered()
    for m in outdir.measurements():
        gathered.add(m)
    covered = gathered.of(parsed)
    if as_json:
        parts = {k: list(getattr(covered, k)) for k in ("cells", "pairs", "rails", "directions")}
        document = {
            "schema": 1,
            **parts,
            "missing": [list(m) for m in covered.missing],
            "why": list(covered.why),
            "dropped": outdir.dropped,
            "clock_skew": [[*ends, seconds] for ends, seconds in sorted(outdir.skews.items())],
        }
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        _show_coverage(covered, outdir)
    return ExitStatus.PASS if covered.complete else ExitStatus.INCOMPLETE


@command("shakedown mesh confirm spec.json outdir --output confirm.json", of=_mesh)
def confirm(
    spec: Annotated[Path, typer.Argument(help="Specification of the quick mesh.")],
    folder: Annotated[Path, typer.Argument(help="Its results: the drivers' OUTDIR, or a run folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the specification here.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of partners.")] = 1,
) -> int:
    """After a quick mesh: make the specification that measures every suspect with good partners.

    Exit status 0: there is no suspect and nothing to measure; 3: the specification was written, or something
    larger than a node looks bad, or results are slow or missing and no node explains them.
    """
    from shakedown.benchmarks.perftest.mesh.driver import read_spec
    from shakedown.benchmarks.perftest.mesh.schedule import pack_rounds, pairs_of
    from shakedown.benchmarks.perftest.mesh.spec import parse_spec
    from shakedown.commands.localise import slow_lines
    from shakedown.judge.localise.matrices import routes_of
    from shakedown.judge.localise.suspects import (
        confirming_pairs,
        in_the_way,
        suspected_nodes,
        suspects,
        unexplained,
    )
    from shakedown.records.writing import write_aside

    parsed, digest = read_spec(spec)
    pairs, gathered, run = _results(folder, parsed, digest)
    covered = gathered.of(parsed)
    routes = routes_of(pairs, run)
    causes = suspects(routes)
    suspected = suspected_nodes(causes)
    if suspected:
        # A good partner was measured and is not suspect; the others are unknown.
        known = [node for node in parsed.nodes if node in gathered.nodes]
        wanted = confirming_pairs(suspected, known, pairs_of(parsed), seed)
        if not wanted:
            raise BadInput("no good partner is left for the suspects", fix="run the full mesh", file=folder)
        data = {**_read(spec), "mode": "pairs", "pairs": [list(p) for p in wanted]}
        parse_spec(data, str(spec))
        write_aside(output, (json.dumps(data, indent=1) + "\n").encode())
        rounds = len(pack_rounds(wanted))
        _say([f"suspects {', '.join(suspected)}: {len(wanted)} pairs in {rounds} rounds"])
    larger = [c for c in causes if not c.element.node]
    # No pair of nodes can confirm these: every node behind them is affected.
    _say([f"{c.element}, {c.effect:+.1%}: {c.proposal}" for c in larger])
    slow = unexplained(routes, causes)
    _say(slow_lines(slow))
    if not covered.complete:
        done, planned = covered.cells
        lost = [f"{cause.element.node or 'all nodes'}: {cause.evidence[0]}" for cause in in_the_way(pairs)]
        what = "" if causes else "no suspect, but "
        again = "measure them before you trust this: start the mesh again in the same folder"
        _say([f"{what}{planned - done} of {planned} results are missing; {again}", *lost, *_missing(covered)])
    if causes or slow or not covered.complete:
        return ExitStatus.INCOMPLETE
    _say(["no suspect: nothing to confirm; nothing was compared with a reference"])
    return ExitStatus.PASS


def _choose_pairs(data: dict[str, Any], mode: Mode | None, pairs: Path | None, seed: int, spec: Path) -> None:
    from shakedown.benchmarks.perftest.mesh.spec import parse_spec
    from shakedown.judge.localise.suspects import first_pairs

    if (mode is Mode.PAIRS) != (pairs is not None):
        raise BadInput("--pairs and --mode pairs belong together", fix="give both or neither")
    if mode is Mode.FULL:
        data.update(mode="full", pairs=None)
    elif mode is Mode.QUICK:
        names = sorted(parse_spec({**data, "mode": "full", "pairs": None}, str(spec)).nodes, key=natural_key)
        data.update(mode="pairs", pairs=[list(p) for p in first_pairs(names, seed)])
    elif pairs is not None:
        data.update(mode="pairs", pairs=_read_pairs(pairs))


def _read_pairs(path: Path) -> list[list[str]]:
    from shakedown.records.reading import read_bytes

    found: list[list[str]] = []
    for number, raw in enumerate(read_bytes(path).split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise BadInput("not UTF-8", fix="write two names a line", file=path, line=number) from None
        words = re.split(r"[\s,]+", line.partition("#")[0].strip())
        if words == [""]:
            continue
        if len(words) != 2:
            raise BadInput(f"{line!r} is not a pair", fix="write two names a line", file=path, line=number)
        found.append(words)
    return found


def _read(path: Path) -> dict[str, Any]:
    from shakedown.records.reading import loads, read_bytes

    try:
        data = loads(read_bytes(path))
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise BadInput("not JSON", fix="give a mesh's spec.json", file=path, line=line) from None
    if not isinstance(data, dict):
        raise BadInput("not an object", fix="give a mesh's spec.json", file=path)
    return data


def _results(folder: Path, spec: Spec, digest: str) -> tuple[PairResults, Covered, Run | None]:
    """Return the results of pairs in an OUTDIR or in a run, which of them have a number, and the run."""
    from shakedown.judge.localise.outdir import Covered, Outdir, is_outdir, planned_items
    from shakedown.judge.localise.pair_results import PairResults, PlannedPairs
    from shakedown.run.folder import Run

    run: Run | None = None
    if is_outdir(folder):
        outdir = Outdir(folder, spec)
        outdir.refuse_other(digest)
        measurements, items = outdir.measurements(), planned_items(spec)
    else:
        run = Run(folder, simulated=True)
        measurements, items = run.measurements(), list(run.plan.items)
    pairs, gathered = PairResults(PlannedPairs(items)), Covered()
    for m in measurements:
        pairs.add(m)
        gathered.add(m)
    return pairs, gathered, run


def _show_coverage(covered: MeshCoverage, outdir: Outdir) -> None:
    def part(name: str) -> str:
        done, planned = getattr(covered, name)
        return f"{done}/{planned} {name}"

    lines = [", ".join(part(name) for name in ("pairs", "rails", "directions", "cells"))]
    lines += [f"{node} was dropped by {', '.join(by)}" for node, by in outdir.dropped.items()]
    lines += [
        f"the clocks of {a} and {b} were {seconds:g} s apart: their times cannot be compared"
        for (a, b), seconds in sorted(outdir.skews.items())
    ]
    _say(lines + _missing(covered))


def _missing(covered: MeshCoverage) -> list[str]:
    """Return lines that name the first missing cells, and why."""
    found = list(zip(covered.missing, covered.why, strict=True))
    lines = [
        f"missing: {a} and {b}, {rail}, {direction}{': ' if why else ''}{why}"
        for (a, b, rail, direction), why in found[:_NAMED]
    ]
    if len(found) > _NAMED:
        lines.append(f"... and {len(found) - _NAMED} more (shakedown mesh coverage --json lists all)")
    return lines


def _say(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(printable(line) + "\n" for line in lines))
