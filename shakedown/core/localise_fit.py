"""Slow results explained by the fewest elements: a greedy, robust fit of additive effects in logarithms.

A result is taken as rail level x sender x receiver x path x noise, so logarithms add. In each step every
candidate of `localise_groups` is scored; of those whose effect is significant, large enough and shared by
their members, the one with the largest gain is taken out of the matrix, and the rest is scored again. The
scheme is orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad 1993) with medians for means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from shakedown.core.localise_groups import MEDIAN_SE, Family, Groups, Scores, robust_sigma
from shakedown.core.localise_model import Bools, Fabric, Finding, Floats, Matrix
from shakedown.core.statistics import MAD_EFFICIENCY, ROBUST_Z_CUTOFF

MAX_CAUSES = 64
# Part of a candidate's members that must show at least half of its effect.
MIN_SHARE = 0.75
MIN_PARTNERS = 2
MIN_CONFIDENCE = 0.9
# Below this many nodes one bad node spoils too large a part of a rail to compare the rail with itself.
SMALL_MESH = 8
MAX_QUANTILE = 0.85
# With a counter on the same element that stands out, less is needed of the matrix.
SUPPORTED_Z = ROBUST_Z_CUTOFF
# A matrix without any noise must not divide by zero.
MIN_SIGMA = 1e-9
# A rival that loses this part of its gain when the winner is taken out explained the same results.
SAME_RESULTS = 0.5


@dataclass(frozen=True)
class Settings:
    """How sure to be.

    Attributes:
        alpha: probability of blaming anybody in a healthy matrix.
        min_effect: relative change below which nobody is blamed, however significant.
    """

    alpha: float = 2e-4
    min_effect: float = 0.005


@dataclass(frozen=True, eq=False)
class Pick:
    """A candidate as it stood when it was considered."""

    family: Family
    index: int
    effect: float
    z: float
    gain: float
    share: float
    cells: int


def deviations(matrix: Matrix, fabric: Fabric) -> tuple[Floats, Floats]:
    """Return (log of every result over what its like reach, level of each rail).

    Its like are the results of the same rail and distance, on one leaf or across; below SMALL_MESH nodes
    there are too few of them, and all results are compared. Their level is not quite the median: when one of
    n nodes is slow, only (n - 2) / n of the results are good, and the median of those is the quantile
    1/2 + 1/n. Worse is negative whether more or less is better.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(matrix.values > 0, matrix.values, np.nan))
    if not matrix.higher:
        logs = -logs
    quantile = min(0.5 + 1 / len(matrix.nodes), MAX_QUANTILE)
    rails = range(len(matrix.rails))
    finite = np.isfinite(logs)
    level = np.array([np.median(logs[r][finite[r]]) if finite[r].any() else np.nan for r in rails])
    if len(matrix.nodes) < SMALL_MESH:
        if finite.any():
            logs -= np.quantile(logs[finite], quantile)
        return logs, level
    leaf = fabric.leaf
    for r in rails:
        near = (leaf[r][:, None] == leaf[r][None, :]) & (leaf[r][:, None] >= 0)
        for group in (finite[r] & near, finite[r] & ~near):
            if group.any():
                logs[r][group] -= np.quantile(logs[r][group], quantile)
    return logs, level


@dataclass(frozen=True, eq=False)
class Choice:
    """A candidate that was taken: its rivals, and the results that it explains."""

    pick: Pick
    rivals: list[Pick]
    mask: Bools


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
    sigma = robust_sigma(residual)
    while len(choices) < MAX_CAUSES and np.isfinite(sigma):
        candidates = _candidates(residual, groups, settings, sigma, supported)
        if not candidates:
            break
        best = candidates[0]
        mask = groups.cells(best.family, best.index)
        residual[mask] -= best.effect
        choices.append(Choice(best, _rivals(candidates, residual, groups, sigma), mask))
        sigma = min(sigma, robust_sigma(residual))
    return choices, sigma


def _candidates(
    residual: Floats, groups: Groups, settings: Settings, sigma: float, supported: Bools | None
) -> list[Pick]:
    """Return every significant candidate, largest gain first."""
    floor = max(sigma, MIN_SIGMA)
    lines, blocks = groups.measure(residual, floor)
    n = int(np.isfinite(residual).sum())
    # The spread is itself an estimate; few results know it badly, which Student's t takes into account.
    needed = float(stats.t.isf(settings.alpha / groups.hypotheses, max(1.0, MAD_EFFICIENCY * (n - 1))))
    found: list[Pick] = []
    for family in groups.families:
        scores = groups.score(family, lines, blocks)
        spread = _spread(family, lines[0], blocks[0], scores)
        with np.errstate(invalid="ignore", divide="ignore"):
            se = np.maximum(MEDIAN_SE * floor / np.sqrt(scores.cells), spread)
            z = scores.effect / se
        wanted = np.where(_supported(family, supported), min(SUPPORTED_Z, needed), needed)
        passing = (
            (scores.effect <= math.log1p(-settings.min_effect)) & (-z >= wanted) & (scores.share >= MIN_SHARE)
        )
        for i in np.flatnonzero(passing):
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


def _spread(family: Family, lines: Floats, blocks: Floats, scores: Scores) -> Floats:
    """Return the standard error that the healthy spread among the members' own effects implies."""
    middles = blocks if family.of_blocks else lines
    if np.isfinite(middles).sum() < 16:
        return np.zeros_like(scores.effect)
    # The median of one member is that member.
    factor = np.where(scores.members > 2, MEDIAN_SE, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(robust_sigma(middles) * factor / np.sqrt(scores.members))


def _supported(family: Family, supported: Bools | None) -> Bools:
    none = np.zeros(len(family.keys), dtype=bool)
    if supported is None or family.kind not in {"nic", "node"}:
        return none
    if family.kind == "nic":
        return np.array([supported[k] for k in family.keys], dtype=bool)
    return np.array([supported[:, k[0]].all() for k in family.keys], dtype=bool)


def _rivals(candidates: list[Pick], residual: Floats, groups: Groups, sigma: float) -> list[Pick]:
    """Return the candidates that explained the same results nearly as well and are other hardware."""
    best = candidates[0]
    close = [
        c for c in candidates[1:] if c.gain > best.gain - 2 * math.log(1e4) and not same_hardware(best, c)
    ]
    if not close:
        return []
    floor = max(sigma, MIN_SIGMA)
    lines, blocks = groups.measure(residual, floor)
    after = {id(c.family): groups.score(c.family, lines, blocks).gain for c in close}
    return [c for c in close if after[id(c.family)][c.index] / floor**2 < SAME_RESULTS * c.gain]


def same_hardware(a: Pick, b: Pick) -> bool:
    """Whether one candidate is a part of the other's hardware: a NIC of its node, an uplink of its spine."""
    one, two = a.family.keys[a.index], b.family.keys[b.index]
    if a.family.kind == b.family.kind:
        return one == two
    match sorted((a.family.kind, b.family.kind)):
        case ["nic", "node"]:
            return one[-1] == two[-1]
        case ["nic", "rail"]:
            return one[0] == two[0]
        case ["spine", "uplink"]:
            return one[-1] == two[-1]
        case _:
            return False


def posterior(best: Pick, rivals: list[Pick]) -> float:
    """Return the probability of the best explanation against its rivals, equal before the measurement.

    Twice the logarithm of the likelihood ratio is the difference in gain, in units of the noise's variance.
    """
    weights = [math.exp(min(0.0, (r.gain - best.gain) / 2)) for r in rivals]
    return 1.0 / (1.0 + sum(weights))


def to_finding(choice: Choice, groups: Groups, matrix: Matrix) -> Finding:
    """Return a pick in the words of the report."""
    names = (matrix.nodes, matrix.rails)
    pick, rivals = choice.pick, choice.rivals
    confidence = posterior(pick, rivals)
    partners = far_ends(pick.family, pick.index, choice.mask & np.isfinite(matrix.values), groups)
    why = []
    if partners < MIN_PARTNERS:
        why.append(f"seen with {partners} partner only: measure it against another before blame")
    if confidence < MIN_CONFIDENCE:
        why.append("other elements explain the same results as well")
    return Finding(
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


def far_ends(family: Family, index: int, mask: Bools, groups: Groups) -> int:
    """Return how many different far ends the results of a candidate have: nodes, or leaves for an uplink."""
    if family.of_blocks:
        own = family.keys[index][0] if family.kind == "uplink" else -1
        leaf = groups.fabric.leaf
        rail, source, sink = np.nonzero(mask)
        ends = np.union1d(leaf[rail, source], leaf[rail, sink])
        return int((ends != own).sum())
    rail, source, sink = np.nonzero(mask)
    ends = np.union1d(source, sink)
    if family.kind in {"leaf", "rail"}:
        return len(ends)
    own_node = family.keys[index][-1]
    return int((ends != own_node).sum())
