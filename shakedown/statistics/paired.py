"""The tests behind a comparison: Wilcoxon and Mann-Whitney, two one-sided tests, and single nodes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shakedown.statistics.robust import (
    MAD_TO_SIGMA,
    SMALLEST_CLASS,
    benjamini_hochberg,
    median,
    tail_probabilities,
)


@dataclass(frozen=True)
class Shift:
    """What the tests say of the differences of one metric."""

    median: float  # relative, positive for an improvement, controls taken out
    p_difference: float  # two-sided, against no shift
    p_equivalence: float  # larger of the two one-sided tests, against a shift of the margin or more


def decide_shift(treated: Mapping[str, float], controls: Mapping[str, float], margin: float) -> Shift | None:
    """Test the differences of one metric; None if there are fewer than six, with which no test can decide.

    With at least six untouched nodes: Mann-Whitney of changed against untouched. Else Wilcoxon's signed ranks
    of the changed. Equivalence by two one-sided tests of the same kind (TOST; Schuirmann 1987): both
    "lower by the margin or more" and "higher by the margin or more" must be rejected.
    """
    if len(treated) < SMALLEST_CLASS:
        return None
    d = list(treated.values())
    if len(controls) >= SMALLEST_CLASS:
        c = list(controls.values())
        below = _mann_whitney([x + margin for x in d], c, "greater")
        above = _mann_whitney([x - margin for x in d], c, "less")
        return Shift(median(d) - median(c), _mann_whitney(d, c, "two-sided"), max(below, above))
    below = _signed_ranks([x + margin for x in d], "greater")
    above = _signed_ranks([x - margin for x in d], "less")
    return Shift(median(d), _signed_ranks(d, "two-sided"), max(below, above))


def accused(
    metrics: Sequence[tuple[Mapping[str, float], Mapping[str, float], float]], margin: float, q: float
) -> list[dict[str, float]]:
    """Return for every metric the changed nodes that moved by more than the margin and beyond the noise.

    A node's noise is that of its class from A to B: of the untouched nodes if there are six, else of the
    changed ones about their own median. One false discovery rate holds over all nodes of all metrics.
    """
    places: list[tuple[int, str, float]] = []
    tails: list[float] = []
    for number, (treated, controls, resolution) in enumerate(metrics):
        sample = controls if len(controls) >= SMALLEST_CLASS else treated
        if len(sample) < SMALLEST_CLASS:
            continue
        middle = median(list(sample.values()))
        centre = middle if sample is controls else 0.0
        spread = max(median([abs(d - middle) for d in sample.values()]), resolution, 1e-9)
        z = [MAD_TO_SIGMA * abs(d - centre) / spread for d in treated.values()]
        # The freedom is that of the sample that the spread comes from.
        tail = tail_probabilities(z, members=len(sample))
        for (node, d), p in zip(treated.items(), tail, strict=True):
            places.append((number, node, d - centre))
            tails.append(2 * p)
    found: list[dict[str, float]] = [{} for _ in metrics]
    for (number, node, d), rejected in zip(places, benjamini_hochberg(tails, q), strict=True):
        if rejected and abs(d) > margin:
            found[number][node] = d
    return found


def _signed_ranks(d: Sequence[float], alternative: str) -> float:
    from scipy.stats import wilcoxon

    if not any(d):
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ties: the normal approximation is taken, as documented
        return float(wilcoxon(d, alternative=alternative, zero_method="pratt").pvalue)


def _mann_whitney(d: Sequence[float], c: Sequence[float], alternative: str) -> float:
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(d, c, alternative=alternative).pvalue)
