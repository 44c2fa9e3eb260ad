"""`shakedown mesh`: what a mesh will measure and how long, what it has covered, and whom to measure again."""

from __future__ import annotations

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shakedown.errors import BadInput, ExitStatus

if TYPE_CHECKING:
    from shakedown.core.mesh import MeshCoverage

app = typer.Typer(help="Measure all pairs of nodes in one allocation.", no_args_is_help=True)


class Mode(StrEnum):
    """Which pairs are measured."""

    FULL = "full"
    QUICK = "quick"
    PAIRS = "pairs"


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="mesh")


@app.command("plan")
def plan(
    spec: Annotated[Path, typer.Argument(help="Specification of a mesh (raw/JOB/spec.json of a run).")],
    mode: Annotated[Mode | None, typer.Option(help="Other pairs than the specification's.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="With --mode pairs: a file, two names a line.")] = None,
    rail: Annotated[list[str] | None, typer.Option(help="Only these rails; rail0>rail1 crosses.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random matchings of --mode quick.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the specification here.")
    ] = None,
    rounds: Annotated[bool, typer.Option("--rounds", help="List every round.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show rounds, cells and time of a mesh, or make a specification of other pairs. Nothing is run."""
    from shakedown.core.mesh import blocks_of, estimate_s, pairs_of, round_count, rounds_of
    from shakedown.core.mesh_spec import parse_spec
    from shakedown.runs import write_aside

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


@app.command("coverage")
def coverage(
    spec: Annotated[Path, typer.Argument(help="Specification of the mesh.")],
    folder: Annotated[Path, typer.Argument(help="What the drivers left (raw/JOB of a run).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """Prove that every pair, rail and direction was measured. Exit status 0 complete, 3 not."""
    from shakedown.core.mesh import coverage_of
    from shakedown.core.mesh_spec import parse_spec

    parsed = parse_spec(_read(spec), str(spec))
    covered = coverage_of(parsed, _records(folder))
    if as_json:
        parts = {k: list(getattr(covered, k)) for k in ("cells", "pairs", "rails", "directions")}
        missing = [list(m) for m in covered.missing]
        document = {"schema": 1, **parts, "missing": missing, "dropped": _dropped(folder)}
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        _show_coverage(covered, _dropped(folder))
    return ExitStatus.PASS if covered.complete else ExitStatus.INCOMPLETE


@app.command("confirm")
def confirm(
    spec: Annotated[Path, typer.Argument(help="Specification of the quick mesh.")],
    run: Annotated[Path, typer.Argument(help="Run folder with its results.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the specification here.")],
    seed: Annotated[int, typer.Option(min=0)] = 1,
) -> int:
    """After a quick mesh: make the specification that measures every suspect with good partners.

    Exit status 0: there is no suspect and nothing to measure; 3: the specification was written.
    """
    from shakedown.core.mesh import pack_rounds, pairs_of
    from shakedown.core.mesh_quick import confirming_pairs, suspects
    from shakedown.core.mesh_spec import parse_spec
    from shakedown.mesh.matrices import read_mesh
    from shakedown.runs import Run, write_aside

    data = _read(spec)
    parsed = parse_spec(data, str(spec))
    suspected = suspects(read_mesh(Run(run)))
    if not suspected:
        sys.stdout.write("no suspect: nothing to confirm\n")
        return ExitStatus.PASS
    wanted = confirming_pairs(suspected, tuple(parsed.nodes), pairs_of(parsed), seed)
    if not wanted:
        raise BadInput("no good partner is left for the suspects", fix="run the full mesh", file=run)
    data.update(mode="pairs", pairs=[list(p) for p in wanted])
    parse_spec(data, str(spec))
    write_aside(output, (json.dumps(data, indent=1) + "\n").encode())
    sys.stdout.write(
        f"suspects {', '.join(suspected)}: {len(wanted)} pairs in {len(pack_rounds(wanted))} rounds\n"
    )
    return ExitStatus.INCOMPLETE


def _choose_pairs(data: dict[str, Any], mode: Mode | None, pairs: Path | None, seed: int, spec: Path) -> None:
    from shakedown.core.mesh_quick import first_pairs
    from shakedown.core.mesh_spec import natural_key, parse_spec

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
    found: list[list[str]] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        words = re.split(r"[\s,]+", line.partition("#")[0].strip())
        if words == [""]:
            continue
        if len(words) != 2:
            raise BadInput(f"{line!r} is not a pair", fix="write two names a line", file=path, line=number)
        found.append(words)
    return found


def _read(path: Path) -> dict[str, Any]:
    from shakedown.runs import read_bytes

    try:
        data = json.loads(read_bytes(path))
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise BadInput("not JSON", fix="give a mesh's spec.json", file=path, line=line) from None
    if not isinstance(data, dict):
        raise BadInput("not an object", fix="give a mesh's spec.json", file=path)
    return data


def _records(folder: Path) -> list[Any]:
    from pydantic import ValidationError

    from shakedown.core.records import OutputRecord
    from shakedown.runs import read_bytes

    if not folder.is_dir():
        raise BadInput("is not a folder", fix="name the driver's OUTDIR", file=folder)
    records = []
    for path in sorted(folder.glob("outputs*.jsonl")):
        # A line that its writer did not finish is no record.
        for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], start=1):
            try:
                records.append(OutputRecord.model_validate_json(line))
            except ValidationError as error:
                what = error.errors(include_url=False)[0]["msg"]
                raise BadInput(what, fix="remove the line", file=path, line=number) from None
    return records


def _dropped(folder: Path) -> dict[str, list[str]]:
    """Return node -> who dropped it, from the journals."""
    from shakedown.runs import read_bytes

    dropped: dict[str, set[str]] = {}
    for path in sorted(folder.glob("journal.*.jsonl")):
        for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], start=1):
            try:
                entry = json.loads(line)
                if entry["event"] == "dropped":
                    dropped.setdefault(str(entry["dropped"]), set()).add(str(entry["node"]))
            except (ValueError, KeyError, TypeError):
                raise BadInput("not a journal line", fix="remove it", file=path, line=number) from None
    return {node: sorted(by) for node, by in sorted(dropped.items())}


def _show_coverage(covered: MeshCoverage, dropped: dict[str, list[str]]) -> None:
    from shakedown.core.wording import printable

    def part(name: str) -> str:
        done, planned = getattr(covered, name)
        return f"{done}/{planned} {name}"

    lines = [", ".join(part(name) for name in ("pairs", "rails", "directions", "cells"))]
    lines += [f"{node} was dropped by {', '.join(by)}" for node, by in dropped.items()]
    lines += [f"missing: {a} and {b}, {rail}, {direction}" for a, b, rail, direction in covered.missing[:10]]
    if len(covered.missing) > 10:
        lines.append(f"... and {len(covered.missing) - 10} more (--json lists all)")
    sys.stdout.write("".join(printable(line) + "\n" for line in lines))
