"""Single pairs of nodes that are slow both ways while both are well with everybody else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from shakedown.judge.localise.fit import Settings
from shakedown.judge.localise.model import Element, Explanation, Floats, Matrix

# Both ways of a pair must lose so much, and so many standard deviations of the noise.
_EFFECT = 0.05
_SIGMAS = 8.0
# A tail of results falls at least with the square of the distance: Student's t with two degrees of freedom.
_TAIL = 2.0
# More pairs than this part of the nodes are no single pairs.
_MOST = 0.1
_WHY = "both ends are well with all others, so it lies between them: a path, an address, a setting"


def bad_pairs(
    residual: Floats, sigma: float, settings: Settings, matrix: Matrix, named: Sequence[Explanation]
) -> list[Explanation]:
    """Return the pairs; a suspect each, since neither end is at fault.

    How often a healthy result is as low is told from those half as low, so where many are low for no reason,
    none is named.

    Args:
        residual: deviations, what elements explain taken out.
        sigma: noise of one result.
        settings: how sure to be.
        matrix: the results.
        named: what was found already; its parts are looked at no more.
    """
    # The better of both ways.
    both = np.maximum(residual, residual.transpose(0, 2, 1))
    limit = -max(-np.log1p(-_EFFECT), _SIGMAS * sigma)
    places = [(int(r), int(a), int(b)) for r, a, b in np.argwhere(np.nan_to_num(both) <= limit) if a < b]
    places = [p for p in places if not _explained(p, matrix, named)]
    if not places or len(places) > max(1.0, _MOST * len(matrix.nodes)) * len(matrix.rails):
        return []
    rest = residual.copy()
    for r, a, b in places:
        rest[r, a, b] = rest[r, b, a] = np.nan
    rest = np.sort(rest[np.isfinite(rest)])
    pairs = np.isfinite(both).sum() / 2
    bad: dict[tuple[int, int], list[tuple[int, float, float]]] = defaultdict(list)
    for r, a, b in places:
        x = both[r, a, b]
        half = (np.searchsorted(rest, x / 2) + 1) / (len(rest) + 1)
        chance = float(pairs * (half / 2**_TAIL) ** 2)
        if chance < settings.alpha:
            bad[a, b].append((r, float(x), chance))
    return [_finding(matrix, ends, of_rails) for ends, of_rails in bad.items()]


def _explained(place: tuple[int, int, int], matrix: Matrix, named: Sequence[Explanation]) -> bool:
    r, a, b = place
    ends = {matrix.nodes[a], matrix.nodes[b]}
    rails = {"", matrix.rails[r], *matrix.rails[r].split(">")}
    return any((f.element.node in ends or not f.element.node) and (f.element.rail in rails) for f in named)


def _finding(matrix: Matrix, ends: tuple[int, int], of_rails: list[tuple[int, float, float]]) -> Explanation:
    one, other = (matrix.nodes[i] for i in ends)
    everywhere = len(of_rails) == len(matrix.rails)
    rail = "" if everywhere else matrix.rails[min(of_rails, key=lambda found: found[1])[0]]
    return Explanation(
        element=Element("pair", node=one, peer=other, rail=rail),
        pattern="slow",
        effect=float(np.expm1(np.median([x for _, x, _ in of_rails]))),
        z=float("inf"),
        cells=2 * len(of_rails),
        partners=1,
        share=1.0,
        confidence=1 - min(found[2] for found in of_rails),
        rivals=(),
        blamed=False,
        label=matrix.label,
        why=(_WHY,),
    )
