"""Slow results that no cause explains: too few to name an element by, too many to call the fabric well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shakedown.judge.localise.causes import SMALL_MESH, Cause
from shakedown.judge.localise.groups import robust_sigma, spread_of
from shakedown.judge.localise.levels import deviations
from shakedown.judge.localise.model import Bools, Element, Fabric, Matrix, Route

# A single result is worth a word when it lost a quarter, and far more than the noise of its matrix. Healthy
# fabrics have single results that are a few per cent low for no reason.
SLOW_EFFECT = 0.25
SLOW_SIGMAS = 5.0
# By the median deviation of a small mesh, whose results may have long tails (emulated nodes do).
SMALL_SIGMAS = 8.0


@dataclass(frozen=True)
class Slow:
    """One result that is far below its like: where, and its relative change (-0.5 for half)."""

    label: str
    rail: str
    source: str
    sink: str
    effect: float


def unexplained(routes: Sequence[Route], causes: Iterable[Cause]) -> list[Slow]:
    """Return the slow results in which nothing that was named has a part, worst first.

    Args:
        routes: the matrices that were localised.
        causes: what was named, with its rivals.
    """
    named = [element for cause in causes for element in (cause.element, *cause.rivals)]
    found: list[Slow] = []
    for route in routes:
        for matrix in route.matrices:
            residual = deviations(matrix, route.fabric).residual
            # Of few results one bad pair is a large part: only the median deviation does not see it.
            few = len(matrix.nodes) < SMALL_MESH
            noise = SMALL_SIGMAS * robust_sigma(residual) if few else SLOW_SIGMAS * spread_of(residual)
            limit = min(float(np.log1p(-SLOW_EFFECT)), -noise) if np.isfinite(noise) else -np.inf
            with np.errstate(invalid="ignore"):
                slow = residual < limit
            if not slow.any():
                continue
            for element in named:
                slow &= ~_part_of(element, matrix, route.fabric)
            found += [
                Slow(
                    matrix.label,
                    matrix.rails[r],
                    matrix.nodes[a],
                    matrix.nodes[b],
                    float(np.expm1(residual[r, a, b])),
                )
                for r, a, b in np.argwhere(slow)
            ]
    return sorted(found, key=lambda s: (s.effect, s.label, s.rail, s.source, s.sink))


def _part_of(element: Element, matrix: Matrix, fabric: Fabric) -> Bools:
    """Return the mask of the results in which an element has a part, whichever way it is named."""
    mask = np.zeros(matrix.values.shape, dtype=bool)
    for r, rail in enumerate(matrix.rails):
        source, _, sink = rail.partition(">")
        if element.kind == "pair":
            one, other = (matrix.nodes.index(name) for name in (element.node, element.peer))
            if element.rail in {"", rail}:
                mask[r, one, other] = mask[r, other, one] = True
        elif element.node:
            i = matrix.nodes.index(element.node) if element.node in matrix.nodes else None
            if i is not None and element.rail in {"", source}:
                mask[r, i, :] = True
            if i is not None and element.rail in {"", sink or source}:
                mask[r, :, i] = True
        elif element.kind == "rail":
            mask[r] = element.rail == rail
        elif element.kind == "leaf" and element.leaf in fabric.leaves:
            mask[r] = _on_leaf(element.leaf, r, fabric)
        elif element.spine in fabric.spines and fabric.spine is not None:
            through = fabric.spine[r] == fabric.spines.index(element.spine)
            if element.leaf:
                through &= _on_leaf(element.leaf, r, fabric)
            mask[r] = through
    return mask


def _on_leaf(leaf: str, rail: int, fabric: Fabric) -> Bools:
    """Return the mask of a rail's results that leave or reach a leaf, shape (nodes, nodes)."""
    number = fabric.leaves.index(leaf)
    ends: Bools = (fabric.leaf[rail] == number)[:, None] | (fabric.sink_leaf[rail] == number)[None, :]
    return ends
