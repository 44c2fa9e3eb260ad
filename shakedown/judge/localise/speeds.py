"""Nodes with slower links than others, where no snapshot tells: a level at half of the others' is a class.

Links come in speeds that differ by factors of two (100, 200, 400 Gb/s). Two nodes or more that reach a half
or a quarter of the others' rate, on all rails and both ways, have such links by all that a mesh can see: they
are compared with their like, and told as suspects. One alone is a node that lost half of its rate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shakedown.judge.localise.fit import DOUBTFUL
from shakedown.judge.localise.groups import line_stats
from shakedown.judge.localise.model import Element, Explanation, Fabric, Floats, Ints, Matrix

# What slower links reach of the others' rate, to within so much of it as firmware and hosts make.
_SPEEDS = (0.5, 0.25)
_APART = 0.03
# A node this near to others of such links has them, too, and lost the rest.
_NEAR = 0.1
_FEWEST = 2
# Of fewer partners all may be slow themselves.
_FEWEST_PARTNERS = 8
# In a smaller mesh one bad node makes too many of its partners' results.
_SMALLEST_MESH = 16
# What a node can do shows with its fastest partners: those at this quantile of its results.
_WITH_FASTEST = 0.9
# What the fastest nodes do: the median of this part of them.
_FASTEST_SHARE = 0.25
_WHY = "{count} nodes reach {part} of the others' rate on all rails: compare the speed of their links"
_WORDS = {0.5: "half", 0.25: "a quarter"}


def with_speeds(matrix: Matrix, fabric: Fabric) -> tuple[Fabric, list[Explanation]]:
    """Return the fabric with a class for every speed of links, and the nodes of slower ones as suspects.

    Classes that are told already stay apart; nodes that differ in them from all faster ones are no suspects.
    """
    if not matrix.higher or len(matrix.nodes) < _SMALLEST_MESH:
        return fabric, []
    reached = _reached(matrix)
    speed = _speed_of_nodes(reached)
    if not speed.any():
        return fabric, []
    told = fabric.classes
    if told is None:
        told = np.zeros((2, *matrix.values.shape[:2]), dtype=np.int64)
    found = [
        _finding(matrix, node, _SPEEDS[number - 1], part, many)
        for number in range(1, len(_SPEEDS) + 1)
        if (many := int((speed == number).sum()))
        for node, part in _untold(speed, number, told, reached)
    ]
    return replace(fabric, classes=told * (len(_SPEEDS) + 1) + speed), found


def _untold(speed: Ints, number: int, told: Ints, reached: Floats) -> list[tuple[int, float]]:
    """Return the nodes of a speed, and what they reach, of whose class some faster node is, too."""
    faster = set(np.unique(told[:, :, speed < number]).tolist())
    return [
        (int(node), float(reached[node]))
        for node in np.flatnonzero(speed == number)
        if faster & set(told[:, :, node].ravel().tolist())
    ]


def _speed_of_nodes(reached: Floats) -> Ints:
    """Return for every node 0, or 1 and so on for the speeds of slower links."""
    speed = np.zeros(len(reached), dtype=np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(reached)
    for number, part in enumerate(_SPEEDS, 1):
        away = np.abs(logs - np.log(part))
        if (away <= _APART).sum() >= _FEWEST:
            speed[away <= _NEAR] = number
    return speed


def _reached(matrix: Matrix) -> Floats:
    """Return what every node reaches with its fastest partners, as a part of what the fastest nodes do."""
    ways = [line_stats(matrix.values, axis, _WITH_FASTEST) for axis in (2, 1)]
    lines = np.stack([np.where(count >= _FEWEST_PARTNERS, middle, np.nan) for middle, _, count in ways])
    ordered = -np.sort(-lines, axis=2)  # (ways, rails, nodes), NaN last
    there = np.isfinite(lines).sum(axis=2, keepdims=True)
    place = np.maximum((there * _FASTEST_SHARE).astype(np.int64) // 2, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = lines / np.take_along_axis(ordered, place, axis=2)
    both = relative.reshape(-1, len(matrix.nodes))
    kept = np.where(np.isfinite(both).any(axis=0), both, 1.0)
    return np.asarray(np.nanmedian(kept, axis=0))


def _finding(matrix: Matrix, node: int, part: float, reached: float, many: int) -> Explanation:
    own = np.isfinite(matrix.values[:, node]).sum() + np.isfinite(matrix.values[:, :, node]).sum()
    return Explanation(
        element=Element("node", node=matrix.nodes[node]),
        pattern="slow",
        effect=reached - 1,
        z=float("inf"),
        cells=int(own),
        partners=len(matrix.nodes) - 1,
        share=1.0,
        confidence=DOUBTFUL,
        rivals=(),
        blamed=False,
        label=matrix.label,
        why=(_WHY.format(count=many, part=_WORDS[part]),),
    )
