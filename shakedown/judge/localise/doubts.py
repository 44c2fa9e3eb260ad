"""Second thoughts on what was found in one matrix: what several parts have in common, or do to each other.

Each rule takes blame away and says why; none adds any.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import betainc

from shakedown.judge.localise.fit import DOUBTFUL
from shakedown.judge.localise.groups import Groups
from shakedown.judge.localise.model import Bools, Element, Explanation, Fabric, Matrix
from shakedown.judge.localise.rare import DEAD_SHARE

# Kinds that only a known path can name: what a leaf's flows have in common may as well lie beyond it.
_BY_PATH = frozenset({"leaf", "spine", "uplink", "rail"})
# A slow receiver's neighbours lose no more than this part of what it loses.
_DRAGGED = 0.6
_LEAST_DRAGGED = 2
# Of another leaf's: three at least, since two more that are slow on a rail may be two more faults.
_LEAST_DRAGGED_AFAR = 3
# Nodes of another kind differ by no more than this from the rest, and by so much of it from each other.
_MOST_OF_A_KIND = 0.05
_ALIKE = 0.15
_ALIKE_AT_LEAST = 0.002
# Or by no more than chance gives: so many standard errors of the difference.
_ALIKE_ERRORS = 2.0
# Where results are missing everywhere, the probability that some part lost all of its own by chance.
_MISSING_BY_CHANCE = 0.01
# So many shuffles tell that; above so many results lines are too long to be missing by chance.
_SHUFFLES = 400
_SHORT_LINES = 1000
# If more of the NICs' ways are dead, what they have in common is likelier than each of them.
_MOST_DEAD = 0.5


def second_thoughts(
    found: Sequence[Explanation], matrix: Matrix, fabric: Fabric, *, links_shared: bool = False
) -> list[Explanation]:
    """Return the findings, less blame; `links_shared`: many flows share links with others."""
    kept = without_paths(found, fabric)
    if links_shared:
        why = "many flows share links, so what is bad now and then may be their meeting"
        kept = [_doubt(f, why) if f.blamed and f.pattern == "intermittent" else f for f in kept]
    kept = _back_pressure(kept, matrix, fabric)
    return _another_kind(kept, matrix)


def _doubt(finding: Explanation, why: str, rivals: tuple[Element, ...] = ()) -> Explanation:
    return replace(
        finding,
        blamed=False,
        confidence=min(finding.confidence, DOUBTFUL),
        why=(*finding.why, why),
        rivals=tuple(dict.fromkeys((*finding.rivals, *rivals))),
        parts=(),
    )


def missing_thoughts(
    found: Sequence[Explanation], matrix: Matrix, groups: Groups, beside: Sequence[Matrix] = ()
) -> list[Explanation]:
    """Return what `dead` found, less blame for results that are missing everywhere, or here and there.

    `beside`: the other tests of the same parts. How often they miss what this one has is chance, too, but for
    a test that never ran.
    """
    if not found:
        return []
    beside = [m for m in beside if np.isfinite(m.values).any()]
    there = np.isfinite(matrix.values)
    tries = sum(int((there & (m.failed | np.isfinite(m.values))).sum()) for m in beside)
    in_others = sum(int((there & m.failed).sum()) for m in beside) / max(1, tries)
    tried = matrix.failed | np.isfinite(matrix.values)
    rows, columns = _dead_lines(matrix.failed, tried)
    lines = sum(int((tried.sum(axis=axis) > 0).sum()) for axis in (2, 1))
    most = rows.sum() + columns.sum() > _MOST_DEAD * lines
    at_random = _at_random(matrix.failed, tried)
    kept: list[Explanation] = []
    for f in found:
        all_its = round(f.cells / f.share)
        usual = (int(matrix.failed.sum()) - f.cells) / max(1, int(tried.sum()) - all_its) if at_random else 0
        usual = max(usual, in_others)
        chance = float(betainc(f.cells, all_its - f.cells + 1, usual)) if usual else 0.0
        if f.blamed and most:
            kept.append(_doubt(f, "most NICs have no result at all: look first at what they have in common"))
        elif f.blamed and chance * groups.hypotheses > _MISSING_BY_CHANCE:
            kept.append(_doubt(f, f"{usual:.0%} of the others' results are missing too, so it may be chance"))
        else:
            kept.append(f)
    return kept


def _dead_lines(failed: Bools, tried: Bools) -> tuple[Bools, Bools]:
    """Return the rows and the columns of which next to nothing is there."""
    ways = tuple(tried.sum(axis=axis) for axis in (2, 1))
    rows, columns = (
        (n > 0) & (failed.sum(axis=axis) >= DEAD_SHARE * n) for n, axis in zip(ways, (2, 1), strict=True)
    )
    return rows, columns


def _at_random(failed: Bools, tried: Bools) -> bool:
    """Whether results may be missing here and there, and not only those of whole lines.

    Where only whole lines are missing, several parts are dead, unless lines are so short that as many results
    missing at random lie in whole lines too: of three nodes a line has two results.
    """

    def in_lines(missing: Bools) -> bool:
        rows, columns = _dead_lines(missing, tried)
        return not (missing & ~(rows[:, :, None] | columns[:, None, :])).any()

    if not in_lines(failed):
        return True
    cells = int(tried.sum())
    if cells > _SHORT_LINES:
        return False
    rng = np.random.default_rng(cells)
    chance, missing = failed[tried], np.zeros_like(failed)
    so_too = 0
    for _ in range(_SHUFFLES):
        missing[tried] = rng.permutation(chance)
        so_too += in_lines(missing)
    return so_too > _MISSING_BY_CHANCE * _SHUFFLES


def without_paths(found: Sequence[Explanation], fabric: Fabric) -> list[Explanation]:
    """Blame no switch, uplink or rail that no flow is known to cross."""
    if fabric.spine is not None:
        return list(found)
    why = "no flow's path is known, so it may be an uplink, a spine or another load: look at their counters"
    return [
        _doubt(f, why) if f.blamed and f.pattern != "failed" and f.element.kind in _BY_PATH else f
        for f in found
    ]


def _back_pressure(found: Sequence[Explanation], matrix: Matrix, fabric: Fabric) -> list[Explanation]:
    """Blame the slow receiver and not those that share its leaf.

    What a receiver does not take, its switch holds back (pause frames), and with it what goes to its
    neighbours: they are slower in the same rounds, but less. So are those that send in the same rounds as a
    slow sender, which makes its receivers slow one after another.
    """
    sinks = [f for f in found if (f.blamed or f.pattern == "slow") and f.element.kind in {"nic", "node"}]
    afar = [s for s in sinks if _drags_afar(s, found, matrix, fabric)]
    kept: list[Explanation] = []
    for f in found:
        worse = [s.element for s in sinks if _may_drag(s, f, matrix, fabric)]
        dragged = [o for o in found if any(_may_drag(s, o, matrix, fabric) for s in sinks)]
        beside = [s.element for s in afar if _may_drag_afar(s, f)]
        if f.blamed and worse and len(dragged) >= _LEAST_DRAGGED:
            kept.append(_doubt(f, f"it is on the same switch as {worse[0]}, which is slower", (worse[0],)))
        elif f.blamed and beside:
            why = f"it sends in the same rounds as {beside[0]}, which is slower, and so do others"
            kept.append(_doubt(f, why, (beside[0],)))
        else:
            kept.append(f)
    return kept


def _drags_afar(sink: Explanation, found: Sequence[Explanation], matrix: Matrix, fabric: Fabric) -> bool:
    """Whether a slow sender drags those of other leaves: its own leaf is slow too, or several others are."""
    own = {fabric.leaves[leaf] for _, leaf in _leaves(sink.element, matrix, fabric) if leaf >= 0}
    leaf_too = any(
        o.element.kind == "leaf" and o.element.leaf in own and o.pattern == "slow" and _loses_less(sink, o)
        for o in found
    )
    return leaf_too or sum(_may_drag_afar(sink, o) for o in found) >= _LEAST_DRAGGED_AFAR


def _may_drag(sink: Explanation, other: Explanation, matrix: Matrix, fabric: Fabric) -> bool:
    if not _loses_less(sink, other):
        return False
    e = other.element
    if e.kind in {"rail", "leaf"}:
        return e.kind == "leaf" or e.rail == sink.element.rail
    if e.kind not in {"nic", "node"} or e.node == sink.element.node:
        return False
    if sink.element.direction == "tx" and e.direction != "tx":
        return False
    return bool(_leaves(sink.element, matrix, fabric) & _leaves(e, matrix, fabric))


def _may_drag_afar(sink: Explanation, other: Explanation) -> bool:
    """Whether a slow sender may drag another that sends on its rail, from whatever leaf.

    They send to one leaf in the same rounds, which is a matter of the schedule and not of where they are.
    """
    of, e = sink.element, other.element
    return (
        _loses_less(sink, other)
        and e.kind in {"nic", "node"}
        and e.node != of.node
        and {of.direction, e.direction} <= {"tx", "both"}
        and (of.rail == e.rail or "" in {of.rail, e.rail})
    )


def _loses_less(sink: Explanation, other: Explanation) -> bool:
    return sink is not other and other.pattern != "failed" and other.effect >= _DRAGGED * sink.effect


def _leaves(element: Element, matrix: Matrix, fabric: Fabric) -> set[tuple[int, int]]:
    """Return (rail, leaf) of an element's NICs; where no leaf is known, all of a rail are on one."""
    node = matrix.nodes.index(element.node)
    leaf = fabric.leaf if element.direction == "tx" else fabric.sink_leaf
    return {(r, int(leaf[r, node])) for r, rail in enumerate(matrix.rails) if element.rail in {"", rail}}


def _another_kind(found: Sequence[Explanation], matrix: Matrix) -> list[Explanation]:
    """Blame no node for being slower by as much as others are: that is how nodes of another kind look."""
    if len(matrix.rails) < 2:
        return list(found)

    def whole(f: Explanation) -> bool:
        return f.element.kind == "node" and f.pattern == "slow" and f.effect > -_MOST_OF_A_KIND

    wholes = [f for f in found if whole(f)]
    kept: list[Explanation] = []
    for f in found:
        near = sum(_alike(f, other) for other in wholes) if f.blamed and whole(f) else 0
        if near > 1:  # itself and another
            why = f"{near} nodes are slower by as much: compare their firmware, model and settings"
            kept.append(_doubt(f, why))
        else:
            kept.append(f)
    return kept


def _alike(one: Explanation, other: Explanation) -> bool:
    """Whether two are slower by the same, as far as their errors tell, whichever is asked about."""
    most = max(abs(one.effect), abs(other.effect))
    errors = _ALIKE_ERRORS * math.hypot(one.effect / one.z, other.effect / other.z)
    return abs(one.effect - other.effect) <= max(_ALIKE * most, _ALIKE_AT_LEAST, errors)
