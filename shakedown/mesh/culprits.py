"""What localisation says of a run, and the nodes that stopped answering, which it knows nothing about."""

from __future__ import annotations

from collections.abc import Iterable

from shakedown.core.localise import Cause, localise
from shakedown.core.localise_fit import Settings
from shakedown.core.localise_model import Element, Matrix
from shakedown.core.records import CounterReading
from shakedown.mesh.matrices import matrices_of
from shakedown.mesh.pair_results import PairResults
from shakedown.runs import Run


def culprits(
    pairs: PairResults, run: Run, readings: Iterable[CounterReading], settings: Settings | None = None
) -> tuple[list[Cause], list[Matrix]]:
    """Return the causes, lost nodes first among the suspects, and the matrices that they rest on.

    Raises:
        BadInput: the run's cabling or paths cannot be read.
    """
    matrices, fabric = matrices_of(pairs, run)
    causes = localise(matrices, fabric, readings, settings)
    lost = [_lost(node, pairs) for node in sorted(pairs.lost)]
    return [c for c in causes if c.blamed] + lost + [c for c in causes if not c.blamed], matrices


def _lost(node: str, pairs: PairResults) -> Cause:
    cells = sum(node in place[1:] for _, place in pairs.lost_places)
    return Cause(
        element=Element("node", node=node),
        blamed=False,
        confidence=1.0,
        effect=-1.0,
        findings=(),
        evidence=(pairs.lost[node], f"{cells} results of its pairs are missing for it"),
        rivals=(),
        proposal=f"see why {node} stopped answering, then measure its pairs",
    )
