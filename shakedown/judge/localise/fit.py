"""Slow results explained by the fewest elements: a greedy, robust fit of additive effects in logarithms.

A result is taken as rail level x sender x receiver x path x noise, so logarithms add. In each step every
candidate of `localise_groups` is scored; of those whose effect is significant, large enough and shared by
their members, the one with the largest gain is taken out of the matrix, and the rest is scored again. The
scheme is orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad 1993) with medians for means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from shakedown.judge.localise.groups import MEDIAN_SE, Family, Groups, Scores, spread_of
from shakedown.judge.localise.model import Bools, Explanation, Fabric, Floats, Matrix
from shakedown.judge.localise.picks import (
    MIN_SIGMA,
    Pick,
    cells_of_all,
    close_ones,
    far_ends,
    posterior,
    rivals_of,
    shared_by_cells,
)
from shakedown.statistics.robust import MAD_EFFICIENCY, ROBUST_Z_CUTOFF

MAX_CAUSES = 64
# Candidates that may be a large part of the fabric.
LARGE = frozenset({"leaf", "rail", "spine"})
# Part of a candidate's members that must show at least half of its effect.
MIN_SHARE = 0.75
MIN_PARTNERS = 2
MIN_CONFIDENCE = 0.9
# With a counter on the same element that stands out, less is needed of the matrix.
SUPPORTED_Z = ROBUST_Z_CUTOFF
DOUBTFUL_SHARE = 0.5
# Confidence in one of several that share their bad results.
DOUBTFUL = 0.5


@dataclass(frozen=True)
class Settings:
    """How sure to be.

    Attributes:
        alpha: probability of blaming anybody in a healthy matrix.
        min_effect: relative change below which no part is blamed, however significant.
    """

    alpha: float = 2e-4
    min_effect: float = 0.005


def deviations(matrix: Matrix, fabric: Fabric) -> tuple[Floats, Floats]:
    """Return (log of every result over what its like reach, level of each rail).

    Its like are the results of the same rail and distance, on one leaf or across. Their level is not quite
    the median: when one of n nodes is slow, only (n - 2) / n of the results are good, and the median of those
    is the quantile 1/2 + 1/n. Worse is negative whether more or less is better.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(matrix.values > 0, matrix.values, np.nan))
    if not matrix.higher:
        logs = -logs
    quantile = min(0.5 + 1 / len(matrix.nodes), 1.0)
    rails = range(len(matrix.rails))
    finite = np.isfinite(logs)
    level = np.array([np.median(logs[r][finite[r]]) if finite[r].any() else np.nan for r in rails])
    leaf, into = fabric.leaf, fabric.sink_leaf
    for r in rails:
        near = (leaf[r][:, None] == into[r][None, :]) & (leaf[r][:, None] >= 0)
        for group in (finite[r] & near, finite[r] & ~near):
            if group.any():
                logs[r][group] -= np.quantile(logs[r][group], quantile)
    return logs, level


@dataclass(frozen=True, eq=False)
class Choice:
    """A candidate that was taken: its rivals, its probability against them, and its results."""

    pick: Pick
    rivals: list[Pick]
    confidence: float
    mask: Bools


@dataclass(frozen=True)
class Noise:
    """The standard deviation of one result, and from how many results it is known."""

    sigma: float
    known_from: int


def noise_of(residual: Floats) -> Noise:
    """Return the noise of a matrix."""
    return Noise(spread_of(residual), int(np.isfinite(residual).sum()))


def fit(
    residual: Floats, groups: Groups, settings: Settings, supported: Bools | None = None
) -> tuple[list[Choice], float]:
    """Return the elements that explain the slow results; their effects are taken out of `residual`.

    Args:
        residual: deviations, NaN where there is no result.
        groups: the candidates.
        settings: how sure to be.
        supported: (rails, nodes) where a counter of that NIC or its port stands out.

    Returns:
        The choices, largest gain first, and the standard deviation of the noise that is left.
    """
    choices: list[Choice] = []
    doubts: list[tuple[Choice, Bools]] = []
    noise = noise_of(residual)
    while len(choices) < MAX_CAUSES and np.isfinite(noise.sigma):
        candidates = _candidates(residual, groups, settings, noise, supported)
        best = next((c for c in candidates if shared_by_cells(c, residual, groups)), None)
        if best is None:
            break
        candidates.remove(best)
        mask = groups.cells(best.family, best.index)
        low = mask & (residual <= best.effect / 2)
        before = residual.copy() if close_ones(best, candidates) else residual
        residual[mask] -= best.effect
        rivals = rivals_of(best, candidates, before, residual, groups, noise.sigma)
        choice = Choice(best, rivals, posterior(best, rivals), mask)
        for earlier, doubtful in doubts:
            # What is left over of results that one of several may have spoiled is as doubtful as they are.
            if (low & doubtful).sum() > DOUBTFUL_SHARE * low.sum():
                choice = replace(choice, rivals=earlier.rivals, confidence=earlier.confidence)
        if choice.confidence < MIN_CONFIDENCE:
            doubts.append((choice, cells_of_all(choice.rivals, groups, mask)))
        choices.append(choice)
        noise = min(noise, noise_of(residual), key=lambda n: n.sigma)
    return choices, noise.sigma


def _candidates(
    residual: Floats, groups: Groups, settings: Settings, noise: Noise, supported: Bools | None
) -> list[Pick]:
    """Return every significant candidate, largest gain first."""
    floor = max(noise.sigma, MIN_SIGMA)
    lines, blocks = groups.measure(residual, floor)
    # The noise is itself an estimate; few results know it badly, which Student's t takes into account.
    freedom = max(1.0, MAD_EFFICIENCY * (noise.known_from - 1))
    # Student's t by its quantile function: scipy.stats alone takes a second or two to import.
    needed = -float(stdtrit(freedom, settings.alpha / groups.hypotheses))
    found: list[Pick] = []
    for family in groups.families:
        scores = groups.score(family, lines, blocks)
        large = (scores.effect <= math.log1p(-settings.min_effect)) & (scores.share >= MIN_SHARE)
        if not large.any():
            continue
        spread = _spread(family, blocks[0] if family.of_blocks else lines[0], scores, large)
        with np.errstate(invalid="ignore", divide="ignore"):
            z = scores.effect / np.maximum(MEDIAN_SE * floor / np.sqrt(scores.cells), spread)
        wanted = np.where(_supported(family, supported), min(SUPPORTED_Z, needed), needed)
        for i in np.flatnonzero(large & (-z >= wanted)):
            found.append(
                Pick(
                    family,
                    int(i),
                    float(scores.effect[i]),
                    float(z[i]),
                    float(scores.gain[i]) / floor**2,
                    float(scores.share[i]),
                    int(scores.cells[i]),
                )
            )
    return sorted(found, key=lambda p: -p.gain)


def _spread(family: Family, middles: Floats, scores: Scores, wanted: Bools) -> Floats:
    """Return the standard error that the healthy spread among rows, columns or blocks implies.

    A large candidate would set the spread that it is judged by, so its own members are left out.
    """
    healthy = np.full(len(family.keys), spread_of(middles))
    if family.kind in LARGE:
        for i in np.flatnonzero(wanted):
            healthy[i] = spread_of(np.delete(middles, family.members[i][family.members[i] >= 0]))
    # The median of one member is that member.
    factor = np.where(scores.members > 2, MEDIAN_SE, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(healthy * factor / np.sqrt(scores.members))


def _supported(family: Family, supported: Bools | None) -> Bools:
    none = np.zeros(len(family.keys), dtype=bool)
    if supported is None or family.kind not in {"nic", "node"}:
        return none
    if family.kind == "nic":
        return np.array([supported[k] for k in family.keys], dtype=bool)
    return np.array([supported[:, k[0]].all() for k in family.keys], dtype=bool)


def to_finding(choice: Choice, groups: Groups, matrix: Matrix, beyond: tuple[str, ...] = ()) -> Explanation:
    """Return a pick in the words of the report; `beyond` says why the cause may lie beyond it."""
    names = (matrix.nodes, matrix.rails)
    pick, rivals, confidence = choice.pick, choice.rivals, choice.confidence
    partners = far_ends(pick.family, pick.index, choice.mask & np.isfinite(matrix.values), groups)
    why = list(beyond)
    if beyond:
        confidence = min(confidence, DOUBTFUL)
    if partners < MIN_PARTNERS:
        why.append(f"seen with {partners} partner only: measure it against another before blame")
    if choice.confidence < MIN_CONFIDENCE:
        why.append("other elements explain the same results as well")
    return Explanation(
        element=groups.element(pick.family, pick.index, *names),
        pattern="slow",
        effect=math.expm1(pick.effect),
        z=-pick.z,
        cells=pick.cells,
        partners=partners,
        share=pick.share,
        confidence=confidence,
        rivals=tuple(groups.element(r.family, r.index, *names) for r in rivals),
        blamed=not why,
        label=matrix.label,
        why=tuple(why),
    )
