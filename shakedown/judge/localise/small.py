"""Slow results of a mesh too small for medians: all its tests together, each candidate against the rest.

Of three nodes one bad one spoils two thirds of the results, so no median is safe; and the noise cannot be
taken from the bulk of so few results, which often sit at the limit of the link with a tail below. So a
candidate's results are compared with all others, tails included: they must be lower by ranks (Mann and
Whitney 1947) and by several times the spread of the others. Only large losses are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shakedown.judge.localise.fit import MAX_CAUSES, MIN_CONFIDENCE, Choice, Settings, to_finding
from shakedown.judge.localise.groups import Family, Groups
from shakedown.judge.localise.model import Bools, Explanation, Fabric, Floats, Matrix
from shakedown.judge.localise.picks import RIVAL_GAIN, Pick, posterior, same_hardware

# How many standard deviations of the other results the loss must be; with a counter of its own, fewer.
SPREADS = 4.0
SUPPORTED_SPREADS = 1.5
SUPPORTED_P = 0.01
# Part of its pairs, averaged over the tests, that must show at least half of the loss.
MIN_PAIR_SHARE = 0.9
_MIN_OTHERS = 3
# Exact ranks below this product of the two sample sizes, the normal approximation above.
_EXACT_BELOW = 20_000


def examine_small(
    matrices: Sequence[Matrix], fabric: Fabric, settings: Settings, supported: Bools
) -> list[Explanation]:
    """Return the slow elements of a small mesh, from all tests, all of one kind, and each test by itself."""
    findings: list[Explanation] = []
    sets = list(_sets(matrices))
    for label, chosen in sets:
        logs = np.stack([_logs(m) for m in chosen])
        with np.errstate(invalid="ignore"):
            seen = np.where(np.isfinite(logs).any(axis=0), 1.0, np.nan)
        groups = Groups(np.isfinite(seen), fabric)
        none_failed = np.zeros(seen.shape, dtype=bool)
        together = Matrix(label, True, chosen[0].nodes, chosen[0].rails, seen, none_failed)
        for choice in _fit(logs, groups, settings, len(sets), supported):
            findings.append(to_finding(choice, groups, together))
    return findings


def _sets(matrices: Sequence[Matrix]) -> Iterator[tuple[str, list[Matrix]]]:
    """Yield what is looked at together: a fault may show in every test, in bandwidth only, or in one."""
    seen: set[frozenset[str]] = set()
    named: dict[str, list[Matrix]] = {"all tests": list(matrices)}
    for m in matrices:
        named.setdefault("bandwidth tests" if m.higher else "latency tests", []).append(m)
        named.setdefault(m.label.partition(" ")[0], []).append(m)
    for label, chosen in named.items():
        members = frozenset(m.label for m in chosen)
        if members not in seen:
            seen.add(members)
            yield (chosen[0].label if len(chosen) == 1 else label), chosen


def _logs(matrix: Matrix) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(matrix.values > 0, matrix.values, np.nan))
    return logs if matrix.higher else -logs


def _fit(logs: Floats, groups: Groups, settings: Settings, sets: int, supported: Bools) -> Iterator[Choice]:
    """Yield the choices; `logs` has the shape (tests, rails, nodes, nodes) and is consumed."""
    candidates = [(f, i, groups.cells(f, i)) for f in groups.families for i in range(len(f.keys))]
    alpha = settings.alpha / (sets * max(1, len(candidates)))
    for _ in range(MAX_CAUSES):
        found: list[tuple[Pick, Bools]] = []
        for family, index, mask in candidates:
            helped = _is_supported(family, index, supported)
            pick = _compare(logs, family, index, mask, settings, alpha, helped=helped)
            if pick is not None:
                found.append((pick, mask))
        if not found:
            return
        found.sort(key=lambda f: -f[0].gain)
        best, mask = found[0]
        rivals = [
            other
            for other, cells in found[1:]
            if other.gain >= RIVAL_GAIN * best.gain
            and not same_hardware(best, other)
            and not _remains(logs, cells, mask, other.effect)
        ]
        choice = Choice(best, rivals, posterior(best, rivals), mask)
        yield choice
        if choice.confidence < MIN_CONFIDENCE:
            return  # what is left depends on which of them it was
        logs[:, mask] = np.nan


def _compare(
    logs: Floats, family: Family, index: int, mask: Bools, settings: Settings, alpha: float, *, helped: bool
) -> Pick | None:
    """Return the candidate if its results are lower than all others', or None."""
    inside, outside = logs[:, mask], logs[:, ~mask]
    usable = (np.isfinite(inside).any(axis=1)) & (np.isfinite(outside).sum(axis=1) >= _MIN_OTHERS)
    if not usable.any():
        return None
    level = np.nanmedian(outside[usable], axis=1, keepdims=True)
    inside, outside = inside[usable] - level, outside[usable] - level
    low, rest = inside[np.isfinite(inside)], outside[np.isfinite(outside)]
    effect, spread = float(np.median(low)), float(rest.std(ddof=1))
    limit = max(-np.log1p(-settings.min_effect), (SUPPORTED_SPREADS if helped else SPREADS) * spread)
    if effect > -limit:
        return None
    pairs = inside[:, np.isfinite(inside).any(axis=0)]
    share = float((np.nanmean(pairs, axis=0) <= effect / 2).mean())
    if share < MIN_PAIR_SHARE:
        return None
    from scipy import stats  # takes seconds to import, and only small fabrics need it

    method = "exact" if len(low) * len(rest) < _EXACT_BELOW else "asymptotic"
    p = float(stats.mannwhitneyu(low, rest, alternative="less", method=method).pvalue)
    if p >= max(alpha, SUPPORTED_P if helped else 0.0):
        return None
    error = max(spread, 1e-9) * (1 / len(low) + 1 / len(rest)) ** 0.5
    return Pick(family, index, effect, effect / error, (effect / error) ** 2, share, len(low))


def _remains(logs: Floats, cells: Bools, taken: Bools, effect: float) -> bool:
    """Whether a candidate is still as low without the results that another one has taken."""
    left = logs[:, cells & ~taken]
    others = logs[:, ~(cells | taken)]
    if not np.isfinite(left).any() or not np.isfinite(others).any():
        return False
    return float(np.nanmedian(left) - np.nanmedian(others)) <= effect / 2


def _is_supported(family: Family, index: int, supported: Bools) -> bool:
    key = family.keys[index]
    if family.kind == "nic":
        return bool(supported[key])
    return family.kind == "node" and bool(supported[:, key[0]].all())
