"""`shakedown localise RUN`: which node, NIC, cable, port, leaf, spine or uplink is at fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.errors import ExitStatus

if TYPE_CHECKING:
    from shakedown.core.localise import Cause
    from shakedown.core.localise_model import Matrix


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("localise")(localise)


def localise(
    run: Annotated[Path, typer.Argument(help="Run folder (reports/runs/RUN-ID).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    min_effect: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Relative loss below which nobody is blamed.")
    ] = 0.005,
) -> int:
    """Name what is at fault, from all pairs, rails and directions of a run. Nothing is drained: it proposes.

    Exit status 0: nothing is at fault; 1: something is; 3: suspects only, or results are missing.
    """
    from shakedown.core.localise_fit import Settings
    from shakedown.mesh.culprits import culprits
    from shakedown.mesh.matrices import read_pairs
    from shakedown.runs import Run, no_cycle_search

    with no_cycle_search():
        opened = Run(run)
        pairs = read_pairs(opened)
        causes, matrices = culprits(pairs, opened, opened.counters(), Settings(min_effect=min_effect))
    missing = sum(int(m.failed.sum()) for m in matrices) + len(pairs.lost_places)
    if as_json:
        sys.stdout.write(json.dumps(document(opened.plan.run, causes, matrices), indent=1) + "\n")
    else:
        show(causes, matrices, missing)
    if any(cause.blamed for cause in causes):
        return ExitStatus.FAIL
    return ExitStatus.INCOMPLETE if causes or missing or opened.problems else ExitStatus.PASS


def document(run: str, causes: list[Cause], matrices: list[Matrix]) -> dict[str, object]:
    """Return what `--json` prints."""
    return {
        "schema": 1,
        "run": run,
        "matrices": [
            {"label": m.label, "measured": _measured(m), "missing": int(m.failed.sum())} for m in matrices
        ],
        "causes": [
            {
                "element": str(c.element),
                "kind": c.element.kind,
                "node": c.element.node or None,
                "rail": c.element.rail or None,
                "leaf": c.element.leaf or None,
                "spine": c.element.spine or None,
                "direction": c.element.direction,
                "blamed": c.blamed,
                "confidence": round(c.confidence, 4),
                "effect": round(c.effect, 4),
                "evidence": list(c.evidence),
                "rivals": [str(r) for r in c.rivals],
                "proposal": c.proposal,
            }
            for c in causes
        ],
    }


def show(causes: list[Cause], matrices: list[Matrix], missing: int) -> None:
    """Print the causes, then the suspects, with their evidence."""
    from rich.console import Console
    from rich.text import Text

    from shakedown.core.wording import count, printable

    terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if terminal else 160)

    def say(text: str, label: str = "", style: str = "") -> None:
        # Text, not markup: names come from the cluster.
        console.print(Text(label, style=style) + Text(printable(text)), soft_wrap=not terminal)

    nodes, rails = len(matrices[0].nodes), len(matrices[0].rails)
    measured = sum(_measured(m) for m in matrices)
    blamed = [c for c in causes if c.blamed]
    say(f"{count(len(blamed), 'cause')}, {count(len(causes) - len(blamed), 'suspect')}")
    say(
        f"{count(nodes, 'node')} x {count(rails, 'rail')}, {count(len(matrices), 'matrix')}: "
        f"{measured} results, {missing} missing"
    )
    for cause in causes:
        label, style = ("CAUSE   ", "bold red") if cause.blamed else ("SUSPECT ", "yellow")
        say(f"{cause.element}, {cause.effect:+.1%}, confidence {cause.confidence:.0%}", label, style)
        for sentence in cause.evidence:
            say(f"        {sentence}")
        if cause.rivals:
            say(f"        or: {', '.join(str(r) for r in cause.rivals[:4])}")
        say(f"        proposal: {cause.proposal}")


def _measured(matrix: Matrix) -> int:
    import numpy as np

    return int(np.isfinite(matrix.values).sum())
