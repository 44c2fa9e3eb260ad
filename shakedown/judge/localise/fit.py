"""Slow results explained by the fewest elements: a greedy, robust fit of additive effects in logarithms.

A result is taken as rail level x sender x receiver x path x noise, so logarithms add. In each step every
candidate of `localise_groups` is scored; of those whose effect is significant, large enough and shared by
their members, the one with the largest gain is taken out of the matrix, and the rest is scored again. The
scheme is orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad 1993) with medians for means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.special import stdtrit

from shakedown.judge.localise.groups import MEDIAN_SE, Candidates, Groups, Scores, robust_sigma, spread_of
from shakedown.judge.localise.levels import Deviations, measured, take_out, values_of
from shakedown.judge.localise.model import Bools, Explanation, Floats, Matrix
from shakedown.judge.localise.picks import (
    MIN_SIGMA,
    Pick,
    beyond_other_way,
    cells_of_all,
    close_ones,
    far_ends,
    noise_beyond,
    noise_of_rails,
    of_slow_half,
    posterior,
    rivals_of,
    shared_by_cells,
    stands_out,
    weights,
)
from shakedown.statistics.robust import ROBUST_Z_CUTOFF

MAX_CAUSES = 64
# Candidates that may be a large part of the fabric, and of which there are few.
LARGE = frozenset({"leaf", "rail", "spine"})
# Healthy elements differ by no more of their standard deviations.
HEALTHY_SIGMAS = 5.0
# Fewer elements say nothing of how much they differ.
FEWEST_OF_A_KIND = 3
# Part of a candidate's members that must show at least half of its effect.
MIN_SHARE = 0.75
# An effect of so many standard deviations leaves no result within a part of it by chance: more than a few
# that are, are well.
TWO_HEAPS_SIGMAS = 8.0
WELL = 0.25
WELL_SHARE = 0.1
FEWEST_WELL = 2
MIN_PARTNERS = 2
# What a NIC's other way tells must narrow what it is held against to this part; of few NICs chance does some.
FAR_BETTER = 0.8
MIN_CONFIDENCE = 0.9
# With a counter on the same element that stands out, less is needed of the matrix.
SUPPORTED_Z = ROBUST_Z_CUTOFF
DOUBTFUL_SHARE = 0.5
# What is slower by this, and slower than chance allows in all but a lopsided class, is a suspect.
WORTH_A_WORD = 0.02
# Confidence in one of several that share their bad results.
DOUBTFUL = 0.5


@dataclass(frozen=True)
class FitSettings:
    """How sure to be.

    Attributes:
        alpha: probability of blaming anybody in a healthy matrix.
        min_effect: relative change below which no part is blamed, however significant.
    """

    alpha: float = 2e-4
    min_effect: float = 0.005


@dataclass(frozen=True, eq=False)
class Choice:
    """A candidate that was taken: its rivals, its probability against them, and its results."""

    pick: Pick
    rivals: list[Pick]
    confidence: float
    mask: Bools


@dataclass(frozen=True, eq=False)
class FamilyEffects:
    """What the candidates of a family show: effects, standard errors, how many of them are significant.

    `slope`: how much of a NIC's other way is taken out of the effect; 0: none.
    """

    effect: Floats
    error: Floats
    needed: Floats
    slope: Floats


def noise_of(residual: Floats, clean: float) -> float:
    """Return the standard deviation of one result.

    Where some share links with other flows, those say nothing of it: then the upper side alone does.
    """
    if clean == 1:
        return spread_of(residual)
    above = residual[residual >= 0]
    return float(np.quantile(above, 0.6827)) if above.size else float("nan")


def fit(
    seen: Deviations, groups: Groups, settings: FitSettings, supported: Bools | None = None
) -> tuple[list[Choice], float]:
    """Return the elements that explain the slow results; their effects are taken out of the residuals.

    Args:
        seen: the results relative to their like.
        groups: the candidates.
        settings: how sure to be.
        supported: (rails, nodes) where a counter of that NIC or its port stands out.

    Returns:
        The choices, largest gain first, and the standard deviation of the noise that is left.
    """
    residual = seen.residual
    choices: list[Choice] = []
    doubts: list[tuple[Choice, Bools]] = []
    sigma = noise_of(residual, seen.clean)
    while len(choices) < MAX_CAUSES and np.isfinite(sigma):
        candidates = _candidates(seen, groups, settings, sigma, supported)
        best = next((c for c in candidates if _is_shown(c, residual, seen, groups, sigma)), None)
        if best is None:
            break
        candidates.remove(best)
        if any(c.pick.narrowly for c in choices):
            # Without those that were taken the rest looks more alike than it is.
            best = replace(best, narrowly=True)
        mask = groups.cells(best.family, best.index)
        low = mask & (residual <= best.effect / 2)
        before = residual.copy() if close_ones(best, candidates) else residual
        take_out(residual, seen, groups, best.family, best.index, best.effect)
        rivals = rivals_of(best, candidates, before, seen, groups, sigma)
        choice = Choice(best, rivals, posterior(best, rivals), mask)
        for earlier, doubtful in doubts:
            # What is left over of results that one of several may have spoiled is as doubtful as they are.
            if (low & doubtful).sum() > DOUBTFUL_SHARE * low.sum():
                choice = replace(choice, rivals=earlier.rivals, confidence=earlier.confidence)
        if choice.confidence < MIN_CONFIDENCE:
            doubts.append((choice, cells_of_all(choice.rivals, groups, mask)))
        choices.append(choice)
        sigma = min(sigma, noise_of(residual, seen.clean))
    return choices, sigma


def _is_shown(pick: Pick, residual: Floats, seen: Deviations, groups: Groups, sigma: float) -> bool:
    """Whether a candidate's own results show its effect, and none of many is as if nothing were.

    Results in two heaps, some far down and the others well, are of a part that is bad now and then (rare.py),
    even if more than half of a line happen to be bad. Where links are shared, that is how all of them look.
    """
    if not shared_by_cells(pick, residual, seen, groups):
        return False
    if seen.clean < 1 or pick.effect > -TWO_HEAPS_SIGMAS * max(sigma, MIN_SIGMA):
        return True
    values = values_of(residual, seen, groups, pick.family, pick.index)
    well = int((values > WELL * pick.effect).sum())
    return well < FEWEST_WELL or well <= WELL_SHARE * len(values)


def _candidates(
    seen: Deviations, groups: Groups, settings: FitSettings, sigma: float, supported: Bools | None
) -> list[Pick]:
    """Return every significant candidate, largest gain first."""
    floor = max(sigma, MIN_SIGMA)
    lines, blocks = measured(seen.residual, seen, groups, floor)
    of_rails = noise_of_rails(seen, floor)
    # Below a step of the tool's output everything is rounding.
    least = math.log1p(-settings.min_effect - seen.step)
    found: list[Pick] = []
    for family in groups.families:
        scores = groups.score(family, lines, blocks)
        large = (scores.effect <= least) & (scores.share >= MIN_SHARE)
        if not large.any():
            continue
        spread, freedom = _spread_of_others(scores)
        if family.kind in LARGE:
            middles = (blocks if family.of_blocks else lines)[0]
            spread, freedom = _spread_outside(family, middles, scores, large)
        noise: float | Floats = floor
        if family.kind == "nic":
            noise = of_rails[[rail for rail, _ in family.keys]]
        with np.errstate(invalid="ignore", divide="ignore"):
            by_noise = MEDIAN_SE * noise / np.sqrt(scores.cells * seen.clean)
        needed = _needed(freedom, settings, groups)
        told = FamilyEffects(scores.effect, np.maximum(by_noise, spread), needed, np.zeros(len(spread)))
        if family.kind == "nic" and family.direction != "both" and seen.clean == 1:
            told = _by_other_way(told, family, lines[0], scores.cells, seen, settings, groups)
        with np.errstate(invalid="ignore", divide="ignore"):
            z = told.effect / told.error
            large &= told.effect <= least
        wanted = np.where(_supported(family, supported), np.minimum(SUPPORTED_Z, told.needed), told.needed)
        sure = large & (-z >= wanted)
        narrowly = np.zeros(len(sure), dtype=bool)
        if family.kind in {"nic", "node"}:
            spread, freedom = _spread_of_others(scores, lopsided=False)
            with np.errstate(invalid="ignore", divide="ignore"):
                narrowly = -scores.effect >= _needed(freedom, settings, groups) * np.maximum(by_noise, spread)
            narrowly &= ~sure & (scores.effect <= math.log1p(-WORTH_A_WORD)) & (scores.share >= MIN_SHARE)
            told.effect[narrowly] = scores.effect[narrowly]
        for i in np.flatnonzero(sure | narrowly):
            pick = Pick(
                family,
                int(i),
                float(told.effect[i]),
                float(z[i]),
                float(scores.gain[i]) / floor**2,
                float(scores.share[i]),
                int(scores.cells[i]),
                bool(narrowly[i]),
            )
            if stands_out(pick, seen, groups, float(told.slope[i]), float(wanted[i])):
                found.append(pick)
    return sorted(found, key=lambda p: -p.gain)


def _by_other_way(
    told: FamilyEffects,
    family: Candidates,
    middles: Floats,
    cells: Floats,
    seen: Deviations,
    settings: FitSettings,
    groups: Groups,
) -> FamilyEffects:
    """Return what each way of a NIC shows beyond its other way, where that is told far better.

    Across rails the other way is another NIC's of the same node, which most often tells nothing.
    """
    other = np.roll(middles, groups.rails * groups.nodes)[family.members[:, 0]]
    well = _healthy(other)
    beyond = beyond_other_way(told.effect, other, _healthy(told.effect) & well)
    noise = noise_beyond(seen.residual, beyond.slope)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_noise = MEDIAN_SE * noise[[rail for rail, _ in family.keys]] / np.sqrt(cells)
    error = np.maximum(by_noise, beyond.error)
    needed = _needed(beyond.freedom, settings, groups)
    # That rests on the other NICs alone, and so leaves the test of this one what it is. Of a way that is sick
    # itself nobody knows what it lets expect.
    better = well & (needed * error < FAR_BETTER * told.needed * told.error)
    return FamilyEffects(
        np.where(better, beyond.effect, told.effect),
        np.where(better, error, told.error),
        np.where(better, needed, told.needed),
        np.where(better, beyond.slope, 0.0),
    )


def _needed(freedom: Floats, settings: FitSettings, groups: Groups) -> Floats:
    """Return how many standard errors are significant, by Student's t with that freedom.

    By its quantile function: scipy.stats alone takes a second or two to import.
    """
    return -np.asarray(stdtrit(freedom, settings.alpha / groups.hypotheses))


def _healthy(effects: Floats, spread: Callable[[Floats], float] = spread_of) -> Bools:
    """Return which candidates of a family may be healthy."""
    good = effects[np.isfinite(effects)]
    if not good.size:
        return np.zeros(len(effects), dtype=bool)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(effects - np.median(good)) <= HEALTHY_SIGMAS * spread(effects))


def _spread_of_others(scores: Scores, *, lopsided: bool = True) -> tuple[Floats, Floats]:
    """Return the standard deviation between the other healthy candidates of a family, and its freedom.

    That is what healthy elements of one kind differ by, whatever the reason: NICs, nodes or leaves that are
    not quite alike, results that are not independent. It is told from elements and not from results, so of
    few elements it is known badly, which Student's t takes into account. An element that is asked about has
    no part in it (the deleted residual of regression): a slow one would widen what it is held against.
    `lopsided`: whether the slow half may differ more than the fast half.
    """
    effects = scores.effect
    finite = np.isfinite(effects)
    spread, freedom = np.zeros(len(effects)), np.ones(len(effects))
    if finite.sum() < FEWEST_OF_A_KIND:
        return spread, freedom
    away = effects - np.median(effects[finite])
    kept = _healthy(effects, spread_of if lopsided else robust_sigma)
    count = kept.sum() - kept
    total, squares = (float(x[kept].sum()) - np.where(kept, x, 0.0) for x in (away, away**2))
    many = count >= FEWEST_OF_A_KIND
    variance = (squares - total**2 / np.maximum(count, 1)) / np.maximum(count - 1, 1)
    if lopsided:
        variance, count = of_slow_half(away, kept, variance, count)
    spread[many] = np.sqrt(np.maximum(variance, 0.0))[many]
    freedom[many] = np.maximum(count[many] - 1.0, 1.0)
    return spread, freedom


def _spread_outside(
    family: Candidates, middles: Floats, scores: Scores, wanted: Bools
) -> tuple[Floats, Floats]:
    """Return the same for elements of which there are few, each a large part of the fabric.

    They are judged by the rows, columns or blocks outside of them, and by how much the others of their kind
    differ.
    """
    spread = np.full(len(family.keys), spread_of(middles) / math.sqrt(max(1.0, float(scores.members.max()))))
    for i in np.flatnonzero(wanted):
        outside = np.delete(middles, family.members[i][family.members[i] >= 0])
        factor = MEDIAN_SE if scores.members[i] > 2 else 1.0  # the median of two is their mean
        lines = spread_of(outside) * factor / math.sqrt(scores.members[i])
        others = np.delete(scores.effect, i)
        others = others[np.isfinite(others)]
        alike = float(np.std(others, ddof=1)) if len(others) >= FEWEST_OF_A_KIND else 0.0
        spread[i] = np.nanmax([lines, alike])
    return spread, np.full(len(spread), max(1.0, float(np.isfinite(middles).sum()) - 1))


def _supported(family: Candidates, supported: Bools | None) -> Bools:
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
    if pick.narrowly:
        confidence = min(confidence, DOUBTFUL)
        why.append("many are slower than the rest, so it may be one of a kind: compare firmware and model")
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
        chances=tuple(weights(pick, rivals)),
        blamed=not why,
        label=matrix.label,
        why=tuple(why),
    )


# Against its rivals a part that is blamed has a posterior of next to 1, as if the noise were what the fit
# takes it for. How often it is not is counted: of the cases of research/localiser_cases.py in the noise
# models that thresholds were chosen with, each blame is sorted by its evidence, and the part that was right
# is what such evidence is worth. `research/bench_localise_noise.py` counts anew, and holds the result
# against models that took no part (docs/evidence/localisation.md).

# A slow part this many standard errors below its like, or more, is far from what chance gives.
_STRONG_Z = 8.0
# What is slow by less than this, and not far beyond chance, may be good: of a thousand healthy NICs whose own
# ceilings differ by 0.3 % (standard deviation), one is 1 % below the middle.
NARROW = 0.0125
_NARROWLY = "healthy parts may differ so much: measure it again"
# What is bad now and then with so many partners is no passing moment.
_STRONG_PARTNERS = 8
# Of several that are blamed together, one that lost no more than this part of the worst may follow from it.
_BESIDE = 0.6


class BlameEvidence(StrEnum):
    """What a blame rests on."""

    SLOW = "slow, far beyond the noise"
    SLOW_NARROWLY = "slow, narrowly beyond the noise"
    BESIDE = "slower than its like, beside a part that lost far more"
    NOW_AND_THEN = "bad now and then, with many partners"
    NOW_AND_THEN_FEW = "bad now and then, with few partners"


@dataclass(frozen=True)
class Counted:
    """Blames on one kind of evidence: how many there were, and how many were right."""

    claims: int
    right: int

    @property
    def rate(self) -> float:
        """The part that is right, by Laplace's rule of succession: never 0 or 1, and 1/2 of none."""
        return (self.right + 1) / (self.claims + 2)


# Counted on 2026-11-28: the 23 rows that are not held out, 16 x 4, 50 cases of every fault, 300 healthy ones,
# seeds of their own; only blames of which the fit itself is sure (bench_localise_noise.py, CLEAR_POSTERIOR).
# With them the eight kinds from physics that no rule was made with (bench_localise_odd.py, series 9): 46
# narrow blames, of which 29 were right, 1,285 strong ones (1,276) and five of few partners (none).
# No case has two faults, so what is blamed beside a far worse part can only be wrong there: of those nothing
# is counted, and half is as good a guess as any.
COUNTED: dict[BlameEvidence, Counted] = {
    BlameEvidence.SLOW: Counted(3416 + 1285, 3406 + 1276),
    BlameEvidence.SLOW_NARROWLY: Counted(21 + 46, 21 + 29),
    BlameEvidence.BESIDE: Counted(0, 0),
    BlameEvidence.NOW_AND_THEN: Counted(543, 541),
    BlameEvidence.NOW_AND_THEN_FEW: Counted(364 + 5, 362),
}


def evidence_of(finding: Explanation, worst: float) -> BlameEvidence | None:
    """Return what a blame rests on; None for what the benchmark does not hold (missing results).

    Args:
        finding: the strongest of a cause.
        worst: the largest relative change of all parts that are blamed.
    """
    if finding.pattern == "failed" or finding.element.kind not in {"nic", "node"}:
        return None
    if finding.effect > _BESIDE * worst:
        return BlameEvidence.BESIDE
    if finding.pattern == "intermittent":
        many = finding.partners >= _STRONG_PARTNERS
        return BlameEvidence.NOW_AND_THEN if many else BlameEvidence.NOW_AND_THEN_FEW
    return BlameEvidence.SLOW if finding.z >= _STRONG_Z else BlameEvidence.SLOW_NARROWLY


def _is_little(finding: Explanation, evidence: BlameEvidence | None) -> bool:
    """Whether heat, another's work or an unknown kind of nodes leaves as much on healthy parts."""
    if finding.pattern == "intermittent":
        # All NICs of a node are warm at once; one link that flaps loses more when it does.
        return finding.effect > -(WORTH_A_WORD if finding.element.kind == "node" else NARROW)
    if finding.element.kind in {"leaf", "spine", "uplink"}:
        return finding.pattern == "slow" and finding.z < _STRONG_Z
    return evidence is BlameEvidence.SLOW_NARROWLY and finding.effect > -NARROW


def calibrated(findings: Sequence[Explanation]) -> list[Explanation]:
    """Return the findings of one matrix with the confidence that their evidence is worth."""
    worst = min((f.effect for f in findings if f.blamed), default=0.0)
    found: list[Explanation] = []
    for f in findings:
        evidence = evidence_of(f, worst) if f.blamed else None
        if f.blamed and _is_little(f, evidence):
            found.append(replace(f, blamed=False, confidence=min(f.confidence, DOUBTFUL), why=(_NARROWLY,)))
        elif evidence is None:
            found.append(f)
        else:
            rate = COUNTED[evidence].rate
            found.append(replace(f, confidence=f.confidence * rate, worth=evidence.value))
    return found
