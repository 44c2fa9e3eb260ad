"""Second thoughts on one matrix: slower links, whole rails, the whole fabric, what several parts share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import betainc, ndtr

from shakedown.judge.localise.fit import DOUBTFUL
from shakedown.judge.localise.groups import Groups, line_stats, robust_sigma
from shakedown.judge.localise.levels import APART, Deviations
from shakedown.judge.localise.model import Bools, Cabling, Element, Explanation, Floats, Ints, Matrix
from shakedown.judge.localise.rare import DEAD_SHARE

# Links come in speeds that differ by factors of two (100, 200, 400 Gb/s). Two nodes or more that reach a half
# or a quarter of the others' rate, on all rails and both ways, have such links by all that a mesh can see:
# they are compared with their like, and told as suspects. One alone is a node that lost half of its rate.

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
# Where a quarter of the nodes or more are slower, with so large a gap and no other half as large, they are of
# another kind, whatever the rate; but for the nodes of one leaf, which may be at fault itself.
_KIND_SHARE = 0.25
_KIND_GAP = 0.02
_WHY = "{count} nodes reach {part} of the others' rate on all rails: compare their links, firmware and model"


def with_speeds(matrix: Matrix, fabric: Cabling) -> tuple[Cabling, list[Explanation]]:
    """Return the fabric with a class for every speed of links, and the nodes of slower ones as suspects.

    Classes that are told already stay apart; nodes that differ in them from all faster ones are no suspects.
    """
    if not matrix.higher or len(matrix.nodes) < _SMALLEST_MESH:
        return fabric, []
    reached = _reached(matrix)
    speed = _speed_of_nodes(reached, fabric)
    if not speed.any():
        return fabric, []
    told = fabric.classes
    if told is None:
        told = np.zeros((2, *matrix.values.shape[:2]), dtype=np.int64)
    kinds = range(1, len(_SPEEDS) + 2)
    found = [
        _finding(matrix, node, float(np.median(reached[speed == number])), part, many)
        for number in kinds
        if (many := int((speed == number).sum()))
        for node, part in _untold(speed, number, told, reached)
    ]
    return replace(fabric, classes=told * (len(kinds) + 1) + speed), found


def _untold(speed: Ints, number: int, told: Ints, reached: Floats) -> list[tuple[int, float]]:
    """Return the nodes of a speed, and what they reach, of whose class some faster node is, too."""
    faster = set(np.unique(told[:, :, speed < number]).tolist())
    return [
        (int(node), float(reached[node]))
        for node in np.flatnonzero(speed == number)
        if faster & set(told[:, :, node].ravel().tolist())
    ]


def _speed_of_nodes(reached: Floats, fabric: Cabling) -> Ints:
    """Return for every node 0, or 1 and so on for the speeds of slower links."""
    speed = np.zeros(len(reached), dtype=np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(reached)
    for number, part in enumerate(_SPEEDS, 1):
        away = np.abs(logs - np.log(part))
        if (away <= _APART).sum() >= _FEWEST:
            speed[away <= _NEAR] = number
    if not speed.any():
        order = np.argsort(logs)
        gaps = np.sort(np.diff(logs[order]))[::-1]
        many = 1 + int(np.argmax(np.diff(logs[order])))
        least = _KIND_SHARE * len(logs)
        leaves = fabric.leaf[:, order[:many]]
        of_one_leaf = ((leaves == leaves[:, :1]) & (leaves >= 0)).all(axis=1).any()
        alike = least <= many <= len(logs) - least and gaps[0] >= max(_KIND_GAP, 2 * gaps[1])
        if alike and not of_one_leaf:
            speed[order[:many]] = len(_SPEEDS) + 1
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
        label=matrix.label,
        why=(_WHY.format(count=many, part=f"{part:.0%}"),),
    )


# A whole rail is compared with the other rails only, so it must differ by more.
RAIL_EFFECT = 0.02
RAIL_SIGMAS = 5.0


def slow_rails(matrix: Matrix, level: Floats) -> list[Explanation]:
    """Return the rails whose level is below the other rails'."""
    if len(matrix.rails) < 2:
        return []
    away = level - np.nanmedian(level) if len(matrix.rails) > 2 else level - np.nanmax(level)
    needed = max(RAIL_EFFECT, RAIL_SIGMAS * robust_sigma(level) if len(matrix.rails) > 4 else 0.0)
    enough = len(matrix.rails) > 2
    return [
        Explanation(
            element=Element("rail", rail=matrix.rails[r]),
            pattern="slow",
            effect=float(np.expm1(away[r])),
            z=float(-away[r] / RAIL_EFFECT * RAIL_SIGMAS),
            cells=int(np.isfinite(matrix.values[r]).sum()),
            partners=len(matrix.rails) - 1,
            share=1.0,
            confidence=1.0 if enough else 0.5,
            blamed=enough,
            label=matrix.label,
            why=() if enough else ("of two rails one cannot tell which is the exception",),
        )
        for r in np.flatnonzero(away < -needed)
    ]


def collisions(seen: Deviations, matrix: Matrix) -> list[Explanation]:
    """Return that many results are far below the rest, scattered over good NICs."""
    if seen.clean == 1:
        return []
    with np.errstate(invalid="ignore"):
        low = seen.residual[seen.residual < np.log1p(-APART)]
    return [
        Explanation(
            element=Element("fabric"),
            pattern="intermittent",
            effect=float(np.expm1(np.median(low))) if low.size else 0.0,
            z=float("inf"),
            cells=int(low.size),
            partners=len(matrix.nodes),
            share=1 - seen.clean,
            confidence=DOUBTFUL,
            label=matrix.label,
            why=("their NICs are well with others, so flows may have shared links: see how they are hashed",),
        )
    ]


# Each rule takes blame away and says why; none adds any.

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
    found: Sequence[Explanation], matrix: Matrix, fabric: Cabling, *, links_shared: bool = False
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


def without_paths(found: Sequence[Explanation], fabric: Cabling) -> list[Explanation]:
    """Blame no switch, uplink or rail that no flow is known to cross."""
    if fabric.spine is not None:
        return list(found)
    why = "no flow's path is known, so it may be an uplink, a spine or another load: look at their counters"
    return [
        _doubt(f, why) if f.blamed and f.pattern != "failed" and f.element.kind in _BY_PATH else f
        for f in found
    ]


def _back_pressure(found: Sequence[Explanation], matrix: Matrix, fabric: Cabling) -> list[Explanation]:
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


def _drags_afar(sink: Explanation, found: Sequence[Explanation], matrix: Matrix, fabric: Cabling) -> bool:
    """Whether a slow sender drags those of other leaves: its own leaf is slow too, or several others are."""
    own = {fabric.leaves[leaf] for _, leaf in _leaves(sink.element, matrix, fabric) if leaf >= 0}
    leaf_too = any(
        o.element.kind == "leaf" and o.element.leaf in own and o.pattern == "slow" and _loses_less(sink, o)
        for o in found
    )
    return leaf_too or sum(_may_drag_afar(sink, o) for o in found) >= _LEAST_DRAGGED_AFAR


def _may_drag(sink: Explanation, other: Explanation, matrix: Matrix, fabric: Cabling) -> bool:
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


def _leaves(element: Element, matrix: Matrix, fabric: Cabling) -> set[tuple[int, int]]:
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


# A part's results in the order of time change between bad and good so seldom by chance alone, not more often.
_ONE_SPAN_BY_CHANCE = 0.01
_FEWEST_OF_A_SPAN = 4
# Before, bad, and after.
_MOST_RUNS = 3
_ONE_SPAN = "its bad results fall into one span of time, and it is well before or after: measure it again"


def of_one_moment(found: Sequence[Explanation], matrix: Matrix, residual: Floats) -> list[Explanation]:
    """Blame no part whose results are bad for a while only: a neighbour's job, or heat, looks like that.

    By the runs test (Wald and Wolfowitz 1940): bad and good results of a faulty part come in any order.

    Args:
        found: what was found.
        matrix: with the times of its results.
        residual: of its results before any effect was taken out.
    """
    steady = {(f.element.node, f.element.rail) for f in found if f.blamed and f.pattern == "slow"}
    kept = []
    for f in found:
        places, when = {(f.element.node, f.element.rail), (f.element.node, "")}, matrix.when
        if f.blamed and when is not None and _is_one_span(f, matrix, residual, when):
            kept.append(_doubt(f, _ONE_SPAN))
        elif f.blamed and _is_as_traffic(f.element, f.pattern) and not places & steady:
            kept.append(_doubt(f, _OTHERS_TRAFFIC))
        else:
            kept.append(f)
    return kept


# A link that goes down takes both of its ways with it, and is one of its node's.
_OTHERS_TRAFFIC = (
    "one way only, or all of a node, is bad now and then: traffic that is not the mesh's looks alike"
)


def _is_as_traffic(e: Element, pattern: str) -> bool:
    """Whether a part is bad as where others send to its node, or a job on it sends: no mesh can tell."""
    return pattern == "intermittent" and (e.kind == "node" or (e.kind == "nic" and e.direction != "both"))


def _is_one_span(finding: Explanation, matrix: Matrix, residual: Floats, when: Floats) -> bool:
    e = finding.element
    if e.kind not in {"nic", "node"} or finding.pattern == "failed":
        return False
    node = matrix.nodes.index(e.node)
    mine = np.zeros(residual.shape, dtype=bool)
    for rail in [matrix.rails.index(e.rail)] if e.rail else range(len(matrix.rails)):
        mine[rail, node, :] = e.direction in {"tx", "both"}
        mine[rail, :, node] |= e.direction in {"rx", "both"}
    mine &= np.isfinite(residual) & np.isfinite(when)
    # The effect of what is bad now and then is the median of its bad results alone.
    part = 4 if finding.pattern == "intermittent" else 2
    bad = residual[mine] <= math.log1p(max(finding.effect, -0.99)) / part
    # All that was measured at one time counts once: rails at once, both ways at once.
    times, place = np.unique(when[mine], return_inverse=True)
    bad_then = np.bincount(place, bad) > np.bincount(place) / 2
    one, other = int(bad_then.sum()), int((~bad_then).sum())
    if min(one, other) < _FEWEST_OF_A_SPAN:
        return False
    runs = 1 + int((bad_then[1:] != bad_then[:-1]).sum())
    # The number of runs by chance is about normal.
    mean = 2 * one * other / len(times) + 1
    deviation = math.sqrt((mean - 1) * (mean - 2) / (len(times) - 1))
    by_chance = float(ndtr((runs + 0.5 - mean) / deviation))
    return runs <= _MOST_RUNS and by_chance < _ONE_SPAN_BY_CHANCE
