"""Results that are missing, and results that are bad now and then: where do they pile up?

A missing result has no size, so it is boolean tomography: the element whose results are all missing and that
explains the most of them. A link that flaps, or an uplink that only some flows take, spoils a part of an
element's results; what counts is that part against the part that is bad everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaln, xlog1py, xlogy

from shakedown.judge.localise.fit import DOUBTFUL, MAX_CAUSES, MIN_CONFIDENCE, MIN_PARTNERS, Settings
from shakedown.judge.localise.groups import Family, Groups
from shakedown.judge.localise.model import Bools, Explanation, Floats, Matrix
from shakedown.judge.localise.picks import RIVAL_GAIN, SAME_RESULTS, Pick, far_ends, posterior, same_hardware
from shakedown.judge.localise.shared import NOT_SHARED, Shared, shared_with

# Part of an element's results that must be missing before it is the element that is dead.
DEAD_SHARE = 0.9
# A single result is bad when it is this many standard deviations low, whatever the others do.
BAD_SIGMAS = 5.0
BAD_EFFECTS = 2.0
MIN_BAD = 3
# An element is noisier than most from this many times their noise on; less is chance among few results.
NOISIER = 1.4
_MOST_LINES_EXCEED = 0.25
MIN_BAD_SHARE = 0.05
# Fewer partners, or fewer than this part of them all, were met within a moment or two: a moment is no fault.
MIN_PARTNERS_BAD = 4
MIN_PARTNERS_SHARE = 0.1
_MOST_RIVALS = 8


@dataclass(frozen=True, eq=False)
class _Counts:
    """Bad and all results of every candidate of a family, and of its least affected member."""

    family: Family
    bad: Floats
    all: Floats
    least: Floats


def dead(matrix: Matrix, groups: Groups) -> list[Explanation]:
    """Return the elements whose results are all missing."""
    indicator = np.where(matrix.failed, 1.0, np.where(np.isfinite(matrix.values), 0.0, np.nan))
    findings: list[Explanation] = []
    while len(findings) < MAX_CAUSES and np.nansum(indicator) > 0:
        picks: list[Pick] = []
        for counts in _count(indicator, groups):
            with np.errstate(invalid="ignore", divide="ignore"):
                share = counts.bad / counts.all
            for i in np.flatnonzero((share >= DEAD_SHARE) & (counts.least >= DEAD_SHARE)):
                # Among equals the smaller element.
                gain = counts.bad[i] - (counts.all[i] - counts.bad[i]) + 0.5 * float(share[i])
                picks.append(_pick(counts.family, int(i), gain, float(share[i]), int(counts.bad[i])))
        if not picks:
            break
        picks.sort(key=lambda p: -p.gain)
        best = picks[0]
        mask = groups.cells(best.family, best.index)
        rivals = [p for p in picks[1:] if p.cells >= DEAD_SHARE * best.cells and not same_hardware(best, p)]
        rivals = [
            p for p in rivals if (groups.cells(p.family, p.index) & mask & matrix.failed).sum() >= p.cells / 2
        ]
        findings.append(
            _finding(
                "failed", best, dict.fromkeys(rivals, 1.0), mask & matrix.failed, groups, matrix, effect=-1.0
            )
        )
        indicator[mask & matrix.failed] = np.nan
    return findings


def intermittent(
    residual: Floats, sigma: float, groups: Groups, settings: Settings, matrix: Matrix
) -> list[Explanation]:
    """Return the elements of which a larger part of the results is bad than anywhere else."""
    limit = -np.maximum(BAD_SIGMAS * _noise_of_ends(residual, sigma), BAD_EFFECTS * settings.min_effect)
    findings: list[Explanation] = []
    indicator = np.where(np.isfinite(residual), (residual < limit).astype(float), np.nan)
    # What is explained already still speaks against its far ends.
    every = indicator.copy()
    at_first: list[Pick] = []
    while len(findings) < MAX_CAUSES and np.nansum(indicator) >= MIN_BAD:
        picks = _piled_up(indicator, groups, settings)
        if not picks:
            break
        at_first = at_first or picks
        best, sure = _which_way(picks[0], indicator, groups)
        mask = groups.cells(best.family, best.index)
        bad = mask & (indicator > 0)
        shared = shared_with(best, mask, bad, every, groups)
        others = at_first if shared.why else picks
        rivals = _rivals(best, others, bad, groups, any_part=bool(shared.why))
        effect = float(np.expm1(np.median(residual[bad])))
        findings.append(
            _finding(
                "intermittent", best, rivals, bad, groups, matrix, effect=effect, shared=shared, sure=sure
            )
        )
        indicator[mask] = np.nan
    return findings


def _noise_of_ends(residual: Floats, sigma: float) -> Floats:
    """Return the noise of every result: that of the noisier of its two ends, where one is noisier than most.

    It is told from results above the level, since noise goes both ways and a fault only one. Of few results
    a line tells it badly, so it is no less than that which three in four of its node's lines exceed.
    """
    above = np.where(residual > 0, residual, np.nan) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        rows, columns = (
            np.sqrt(np.nansum(above, axis=axis) / np.isfinite(above).sum(axis=axis)) for axis in (2, 1)
        )
    nodes = np.quantile(np.nan_to_num(np.concatenate([rows, columns])), _MOST_LINES_EXCEED, axis=0)
    rows, columns = np.fmax(rows, nodes), np.fmax(columns, nodes)
    ends = np.fmax(rows[:, :, None], columns[:, None, :])
    return np.where(ends > NOISIER * sigma, ends, sigma)


def _piled_up(indicator: Floats, groups: Groups, settings: Settings) -> list[Pick]:
    """Return the candidates with significantly more bad results than the rest, largest gain first."""
    bad_all, n_all = float(np.nansum(indicator)), float(np.isfinite(indicator).sum())
    picks: list[Pick] = []
    for counts in _count(indicator, groups):
        k, n = counts.bad, counts.all
        with np.errstate(invalid="ignore", divide="ignore"):
            # The rest of the matrix says how often a result is bad by itself.
            # Counted from few, so its upper end is taken.
            others = bad_all - k
            usual = (others + 3 * np.sqrt(others) + 1) / np.maximum(n_all - n, 1)
            share = k / n
            gain = 2 * (xlogy(k, share / usual) + xlogy(n - k, (1 - share) / (1 - usual)))
            # Of n results k or more are bad (the binomial tail, Abramowitz and Stegun 26.5.24).
            p = betainc(k, n - k + 1, np.minimum(usual, 1.0))
        passing = (
            (k >= MIN_BAD)
            & (share >= MIN_BAD_SHARE)
            & (p < settings.alpha / groups.hypotheses)
            & (share > usual)
        )
        # Both ways of a NIC, all NICs of a node: each must take part, or a smaller element explains it.
        passing &= counts.least >= share / 2
        picks += [
            _pick(counts.family, int(i), float(gain[i]), float(share[i]), int(k[i]))
            for i in np.flatnonzero(passing & np.isfinite(gain))
        ]
    return sorted(picks, key=lambda p: -p.gain)


def _which_way(best: Pick, indicator: Floats, groups: Groups) -> tuple[Pick, float]:
    """Return which way a NIC is bad now and then, and the probability of that: sending, receiving, or both.

    The two ways of a NIC are one piece of hardware, so this decides no blame. By the marginal likelihood of
    a binomial count whose rate may be anything (Bayes' own prior), against results that are bad as often as
    everybody else's. A link that goes down takes both ways with it, and damaged bits one: as likely before.
    """
    if best.family.kind != "nic":
        return best, 1.0
    counted = {c.family.direction: c for c in _count(indicator, groups) if c.family.kind == "nic"}
    index = best.index
    bad = {way: float(c.bad[index]) for way, c in counted.items()}
    every = {way: float(c.all[index]) for way, c in counted.items()}
    if not (every["tx"] and every["rx"]):
        return best, 1.0
    others = float(np.nansum(indicator)) - bad["both"]
    usual = (others + 1) / max(1.0, float(np.isfinite(indicator).sum()) - every["both"])

    def any_rate(way: str) -> float:
        return float(betaln(bad[way] + 1, every[way] - bad[way] + 1))

    def usual_rate(way: str) -> float:
        return float(xlogy(bad[way], usual) + xlog1py(every[way] - bad[way], -usual))

    likely = {
        "both": any_rate("both") + math.log(0.5),
        "tx": any_rate("tx") + usual_rate("rx") + math.log(0.25),
        "rx": any_rate("rx") + usual_rate("tx") + math.log(0.25),
    }
    way = max(likely, key=lambda w: likely[w])
    sure = 1 / sum(math.exp(x - likely[way]) for x in likely.values())
    if way == best.family.direction:
        return best, sure
    family, share = counted[way].family, bad[way] / every[way]
    return _pick(family, index, best.gain, share, int(bad[way])), sure


def _rivals(
    best: Pick, others: list[Pick], bad: Bools, groups: Groups, *, any_part: bool
) -> dict[Pick, float]:
    """Return what else explains the bad results, most of them or, of shared ones, any part; and what part."""
    rivals: dict[Pick, float] = {}
    needed = bad.sum() * SAME_RESULTS
    for other in others:
        if (
            other is best
            or same_hardware(best, other)
            or not (any_part or other.gain >= RIVAL_GAIN * best.gain)
        ):
            continue
        overlap = (groups.cells(other.family, other.index) & bad).sum()
        if overlap >= needed or (any_part and overlap):
            rivals[other] = float(overlap / bad.sum())
        if len(rivals) == _MOST_RIVALS:
            break
    return rivals


def _count(indicator: Floats, groups: Groups) -> list[_Counts]:
    (_, bad, every), (_, block_bad, block_every) = groups.measure(indicator)
    counted = []
    for family in groups.families:
        b, n = (block_bad, block_every) if family.of_blocks else (bad, every)
        absent = family.members < 0
        member_bad = np.where(absent, 0.0, b[family.members])
        member_all = np.where(absent, 0.0, n[family.members])
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(member_all > 0, member_bad / member_all, np.nan)
        least = np.where(np.isfinite(share), share, np.inf).min(axis=1, initial=np.inf)
        # A block is seen by few flows, so of paths only the whole counts.
        least = np.full_like(least, np.inf) if family.of_blocks else least
        counted.append(_Counts(family, member_bad.sum(axis=1), member_all.sum(axis=1), least))
    return counted


def _pick(family: Family, index: int, gain: float, share: float, cells: int) -> Pick:
    return Pick(family, index, effect=0.0, z=0.0, gain=gain, share=share, cells=cells)


def _finding(
    pattern: str,
    best: Pick,
    rivals: dict[Pick, float],
    bad: Bools,
    groups: Groups,
    matrix: Matrix,
    *,
    effect: float,
    shared: Shared = NOT_SHARED,
    sure: float = 1.0,
) -> Explanation:
    confidence = min(posterior(best, list(rivals)), DOUBTFUL if shared.why else 1.0)
    partners = far_ends(best.family, best.index, bad, groups)
    every = groups.cells(best.family, best.index) & np.isfinite(matrix.values)
    met = far_ends(best.family, best.index, every, groups)
    why = list(shared.why)
    if partners < MIN_PARTNERS:
        why.append(f"seen with {partners} partner only: measure it against another before blame")
    elif pattern == "intermittent" and partners < max(MIN_PARTNERS_BAD, MIN_PARTNERS_SHARE * met):
        why.append(f"bad with {partners} partners only, which may have been one moment: measure it again")
    if confidence < MIN_CONFIDENCE and not shared.why:
        why.append("other elements explain the same results as well")
    names = (matrix.nodes, matrix.rails)
    return Explanation(
        element=groups.element(best.family, best.index, *names),
        pattern=pattern,
        effect=effect,
        z=float("inf"),
        cells=int(best.cells),
        partners=partners,
        share=best.share,
        confidence=confidence * sure,
        rivals=(*(groups.element(r.family, r.index, *names) for r in rivals), *shared.by),
        parts=(*rivals.values(), *(1.0 for _ in shared.by)),
        blamed=not why,
        label=matrix.label,
        why=tuple(why),
    )
