"""`shakedown localise RUN`: which node, NIC, cable, port, leaf, spine or uplink is at fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command, console_of
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import count

if TYPE_CHECKING:
    from shakedown.judge.localise.causes import Cause
    from shakedown.judge.localise.model import Matrix, Route
    from shakedown.judge.localise.pair_results import PairResults
    from shakedown.judge.localise.suspects import Slow
    from shakedown.run.folder import Run


@command("shakedown localise reports/runs/lab", "shakedown localise outdir --spec spec.json")
def localise(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folder (reports/runs/RUN-ID), or OUTDIRs of drivers.")
    ],
    spec: Annotated[
        list[Path] | None, typer.Option(help="With OUTDIRs: the specification of each, in their order.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    min_effect: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Relative loss below which no part is named.")
    ] = 0.005,
) -> int:
    """Name what is at fault, from all pairs, rails and directions of a run. Nothing is drained.

    A quick mesh and what confirmed it: `localise OUTDIR1 OUTDIR2 --spec Q --spec C`.

    Exit status 0: nothing is at fault; 1: something is; 3: suspects only, slow results that no part explains,
    attempts that disagree, or missing results.
    """
    from shakedown.judge.localise.fit import FitSettings
    from shakedown.judge.localise.matrices import read_pairs
    from shakedown.judge.localise.outdir import is_outdir, read_outdirs
    from shakedown.judge.localise.suspects import causes_and_suspects, unexplained
    from shakedown.run.folder import Run

    settings = FitSettings(min_effect=min_effect)
    run: Run | None = None
    with no_cycle_search():
        if spec or any(map(is_outdir, folders)):
            pairs, name = read_outdirs(folders, spec or []), folders[0].name
            causes, routes = causes_and_suspects(pairs, None, (), settings)
        elif len(folders) == 1:
            run = Run(folders[0], simulated=True)
            pairs, name = read_pairs(run), run.plan.run
            causes, routes = causes_and_suspects(pairs, run, run.counters(), settings)
        else:
            raise BadInput("several runs at once", fix="name one run folder, or OUTDIRs with --spec")
        slow = unexplained(routes, causes)
    if as_json:
        sys.stdout.write(json.dumps(document(name, causes, routes, pairs, slow), indent=1) + "\n")
    else:
        show(causes, routes, pairs, slow)
        if run is None:
            sys.stdout.write("nothing was compared with a reference: a run's verdict does that\n")
    if any(cause.blamed for cause in causes):
        return ExitStatus.FAIL
    # The problems of a run are known when all of its files have been read.
    undecided = causes or slow or pairs.missing or pairs.disagreeing or (run is not None and run.problems)
    return ExitStatus.INCOMPLETE if undecided else ExitStatus.PASS


def document(
    run: str, causes: list[Cause], routes: list[Route], pairs: PairResults, slow: list[Slow]
) -> dict[str, object]:
    """Return what `--json` prints."""
    return {
        "schema": 1,
        "run": run,
        "measured": pairs.measured,
        "missing": pairs.missing,
        "disagreeing": pairs.disagreeing,
        "unexplained": [
            {
                "test": s.label,
                "rail": s.rail,
                "source": s.source,
                "sink": s.sink,
                "effect": round(s.effect, 4),
            }
            for s in slow
        ],
        "matrices": [
            {"label": m.label, "measured": _measured(m), "failed": int(m.failed.sum())}
            for route in routes
            for m in route.matrices
        ],
        "causes": [
            {
                "element": str(c.element),
                "kind": c.element.kind,
                "node": c.element.node or None,
                "peer": c.element.peer or None,
                "rail": c.element.rail or None,
                "leaf": c.element.leaf or None,
                "spine": c.element.spine or None,
                "direction": c.element.direction,
                "blamed": c.blamed,
                "confidence": round(c.confidence, 4),
                "effect": round(c.effect, 4),
                "evidence": list(c.evidence),
                "rivals": [str(r) for r in c.rivals],
                "chances": [round(chance, 4) for chance in c.chances],
                "proposal": c.proposal,
            }
            for c in causes
        ],
    }


def slow_lines(slow: list[Slow], most: int = 5) -> list[str]:
    """Return lines on the slow results that no part explains."""
    lines = [f"{s.source} to {s.sink}, {s.rail}: {s.effect:+.1%} ({s.label})" for s in slow[:most]]
    head = [f"slow, but too few to name the part at fault: {count(len(slow), 'result')}"] if slow else []
    return head + lines + ([f"... and {len(slow) - most} more"] if len(slow) > most else [])


def show(causes: list[Cause], routes: list[Route], pairs: PairResults, slow: list[Slow]) -> None:
    """Print the causes, then the suspects, with their evidence."""
    _, say = console_of(160)
    blamed = [c for c in causes if c.blamed]
    say(f"{count(len(blamed), 'cause')}, {count(len(causes) - len(blamed), 'suspect')}")
    matrices = [m for route in routes for m in route.matrices]
    nodes = count(max((len(m.nodes) for m in matrices), default=0), "node")
    rails = count(sum(len(route.matrices[0].rails) for route in routes), "rail")
    say(
        f"{nodes} x {rails}, {count(len(matrices), 'test')}: "
        f"{count(pairs.measured, 'result')}, {pairs.missing} missing"
    )
    if pairs.disagreeing:
        say(f"{count(pairs.disagreeing, 'result')} not the same in every attempt")
    for cause in causes:
        label, style = ("CAUSE   ", "bold red") if cause.blamed else ("SUSPECT ", "yellow")
        say(f"{cause.element}, {cause.effect:+.1%}, confidence {cause.confidence:.0%}", label, style)
        for sentence in cause.evidence:
            say(f"        {sentence}")
        if cause.rivals:
            chances = cause.chances or (None,) * len(cause.rivals)
            each = [
                str(rival) if chance is None else f"{rival} ({chance:.0%})"
                for rival, chance in zip(cause.rivals, chances, strict=True)
            ]
            say(f"        or: {', '.join(each[:4])}")
        say(f"        proposal: {cause.proposal}")
    for line in slow_lines(slow):
        say(line)


def _measured(matrix: Matrix) -> int:
    import numpy as np

    return int(np.isfinite(matrix.values).sum())
