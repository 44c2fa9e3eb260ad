"""Results that are missing or bad now and then: where they pile up, and whose they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaln, xlog1py, xlogy

from shakedown.judge.localise.fit import DOUBTFUL, MAX_CAUSES, MIN_CONFIDENCE, MIN_PARTNERS, FitSettings
from shakedown.judge.localise.groups import Candidates, Groups
from shakedown.judge.localise.model import Bools, Element, Explanation, Floats, Matrix
from shakedown.judge.localise.picks import RIVAL_GAIN, SAME_RESULTS, Pick, far_ends, posterior, same_hardware

# A link that flaps spoils its own results only: its far ends are well with everybody else, and so are its
# neighbours. Where four nodes are bad with the same four others, or a whole leaf is bad now and then or with
# everybody but itself, something that they share is as good an explanation, and blaming each of them blames
# good hardware.

# A line is bad more often than usual when chance alone gives as much in one of twenty.
_UNUSUAL = 0.05
# Part of an element's bad results that no other element may share.
_OWN_SHARE = 0.5
# Another element shows the same when it has this part of the element's share of bad results.
_SAME_SHARE = 0.5
# Where the leaf is not known, so many others of the rail are a crowd and not a coincidence.
_CROWD = 2
# Part of a crowd that must be well with an element, which it is not with others that are bad like it.
_WELL_SHARE = 0.6
# One that a slow NIC happens to be well with is chance.
_LEAST_MATES = 2


@dataclass(frozen=True)
class Shared:
    """Why the bad results of an element may be somebody else's, and whose."""

    why: tuple[str, ...]
    by: tuple[Element, ...] = ()


NOT_SHARED = Shared(())


@dataclass(frozen=True, eq=False)
class _Lines:
    """Of every row or column: its share of bad results; whether it is unusual without an element's own."""

    share: Floats  # (rails, nodes)
    unusual: Bools

    def like(self, share: float) -> Bools:
        """Return which lines are unusual, and nearly as bad as this share."""
        return self.unusual & (self.share >= _SAME_SHARE * share)


def shared_with(pick: Pick, mask: Bools, bad: Bools, indicator: Floats, groups: Groups) -> Shared:
    """Return what keeps a candidate's bad results from being its own.

    Args:
        pick: the candidate.
        mask: all its results, shape (rails, nodes, nodes).
        bad: those that are bad.
        indicator: 1 for a bad result, 0 for a good one, NaN for none.
        groups: the candidates and the fabric.
    """
    if pick.family.kind not in {"nic", "node"}:
        return NOT_SHARED
    share = float(np.nansum(indicator[mask]) / max(1, np.isfinite(indicator[mask]).sum()))
    others = np.where(mask, np.nan, indicator)
    by_row, by_column = (_counted(axis, indicator, others) for axis in (2, 1))
    rows, columns = _lines(by_row), _lines(by_column)
    # A far end that is bad both ways has few bad results each way.
    nics = _lines(by_row + by_column)
    # One that is far less often bad has met another culprit, and is none itself.
    suspicious = [way.like(share) | nics.like(share) for way in (rows, columns)]
    own = pick.family.keys[pick.index][-1]
    for way in suspicious:
        way[:, own] = False
    elsewhere = suspicious[0][:, :, None] | suspicious[1][:, None, :]
    if (bad & ~elsewhere).sum() < _OWN_SHARE * bad.sum():
        return Shared(("its bad results are with partners that are as bad with others",))
    return _neighbours(pick, share, rows, columns, indicator, groups)


def _counted(axis: int, indicator: Floats, others: Floats) -> Floats:
    """Count bad and all results of every line, then both without an element's own; (4, rails, nodes)."""
    return np.stack(
        [
            count
            for part in (indicator, others)
            for count in (np.nansum(part, axis=axis), np.isfinite(part).sum(axis=axis))
        ]
    )


def _lines(counts: Floats) -> _Lines:
    all_bad, all_every, bad, every = counts
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(all_every > 0, all_bad / all_every, 0.0)
    # What is usual say the better three quarters; even if none of them has a bad result, some have sometimes.
    ordered = np.sort((bad / np.maximum(every, 1))[every > 0])
    better = ordered[: max(1, 3 * len(ordered) // 4)]
    usual = max(float(better.mean()) if len(better) else 0.0, 1 / max(1, int(every.sum())))
    k = np.maximum(bad, 1)
    # The binomial tail (Abramowitz and Stegun 26.5.24).
    p = np.where(bad > 0, betainc(k, np.maximum(every - k, 0) + 1, min(usual, 1.0)), 1.0)
    return _Lines(share, p < _UNUSUAL)


def _neighbours(
    pick: Pick, share: float, rows: _Lines, columns: _Lines, indicator: Floats, groups: Groups
) -> Shared:
    """Look at the other NICs on the same leaf, or, where no leaf is known, on the same rail.

    Many that are as often bad share something, unless they are as bad with each other: what they share lies
    beyond them, while each of several bad NICs is bad with the other bad ones, too.
    """
    lines = groups.rails * groups.nodes
    named: set[str] = set()
    alike = 0
    members = [int(i) for i in pick.family.members[pick.index] if i >= 0]
    for i in members:
        rail, node = divmod(i % lines, groups.nodes)
        way, leaf = (rows, groups.fabric.leaf) if i < lines else (columns, groups.fabric.sink_leaf)
        same = way.like(share)[rail]
        same[node] = False
        number = leaf[rail, node]
        mates = leaf[rail] == number if number >= 0 else np.ones(groups.nodes, dtype=bool)
        mates[node] = False
        crowd = same & mates
        # Bad results with one another, sent by either.
        bad = np.nan_to_num(indicator[rail, node]) + np.nan_to_num(indicator[rail, :, node])
        well = crowd & (bad == 0)
        least = max(2, _SAME_SHARE * mates.sum()) if number >= 0 else _CROWD
        if well.sum() < max(least, _WELL_SHARE * crowd.sum()):
            continue
        alike += 1
        if number >= 0:
            named.add(groups.fabric.leaves[number])
    if alike * 2 < len(members) or not alike:
        return NOT_SHARED
    where = " and ".join(sorted(named)) if named else "its rail"
    return Shared(
        (f"its neighbours on {where} show the same, but not with each other: look at what they share",),
        tuple(Element("leaf", leaf=name) for name in sorted(named)),
    )


def beyond(pick: Pick, residual: Floats, groups: Groups) -> Shared:
    """Return whether a slow element's slowness lies beyond it: in a path that several share.

    NICs that are slow with the rest of their rail and well with each other do not cross what is slow when
    they talk to each other; a slow NIC is slow with everybody.

    Args:
        pick: what explains slow results.
        residual: deviations before any of it was taken out, shape (rails, nodes, nodes).
        groups: the candidates and the fabric.
    """
    kind, way = pick.family.kind, pick.family.direction
    if kind not in {"nic", "node"}:
        return NOT_SHARED
    key = pick.family.keys[pick.index]
    rails = [key[0]] if kind == "nic" else list(range(groups.rails))
    own = key[-1]
    # (bad, all) of every node as it sends and receives, and of its results with this one.
    bad, every = np.zeros(groups.nodes), np.zeros(groups.nodes)
    bad_here, here = np.zeros(groups.nodes), np.zeros(groups.nodes)
    for rail in rails:
        slow, there = residual[rail] <= pick.effect / 2, np.isfinite(residual[rail])
        for sends in [w for w in ("tx", "rx") if way in {w, "both"}]:
            axis = 1 if sends == "tx" else 0
            bad += slow.sum(axis=axis)
            every += there.sum(axis=axis)
            # The same way for both: this one sends to its mate in `tx`, and its mate to it.
            bad_here += slow[own] if sends == "tx" else slow[:, own]
            here += there[own] if sends == "tx" else there[:, own]
    share = bad / np.maximum(every, 1)
    # Half of the results or more are well: the median of so few.
    alike = (share >= _SAME_SHARE * share[own]) & (here > 0) & (bad_here < here / 2)
    alike[own] = False
    if alike.sum() < _LEAST_MATES:
        return NOT_SHARED
    return Shared((f"{alike.sum()} others are as often slow, but well with it: look at what they share",))


# A missing result has no size, so it is boolean tomography: the element whose results are all missing and
# that explains the most of them. A link that flaps, or an uplink that only some flows take, spoils a part of
# an element's results; what counts is that part against the part that is bad everywhere.

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
# So probable it must not be that chance alone puts so many bad results on any NIC.
_BY_CHANCE = 0.01


@dataclass(frozen=True, eq=False)
class _Counts:
    """Bad and all results of every candidate of a family, and of its least affected member."""

    family: Candidates
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
    residual: Floats, sigma: float, groups: Groups, settings: FitSettings, matrix: Matrix
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
        if not shared.why and _as_by_a_path(best, indicator, groups):
            shared = Shared(("no path is known, and an uplink may be bad so often: look at its counters",))
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


def _bad_of(indicator: Floats) -> tuple[float, float]:
    return float(np.nansum(indicator)), float(np.isfinite(indicator).sum())


def _as_by_a_path(best: Pick, indicator: Floats, groups: Groups) -> bool:
    """Whether an uplink may be bad, and chance have put so many of its bad results on one NIC.

    A bad uplink spoils the flows of a leaf that are hashed on it. It may be where the other NICs of the leaf
    (or, where that is not known, of the rail) are bad more often than those of others, too. How often that
    puts so many on one of them is the binomial tail with their rate.
    """
    fabric = groups.fabric
    if best.family.kind != "nic" or fabric.spine is not None:
        return False
    rail, node = best.family.keys[best.index]
    everywhere = _bad_of(indicator)
    chance = 1.0
    for way, lines, leaf, far in (
        ("tx", indicator[rail], fabric.leaf[rail], fabric.sink_leaf[rail]),
        ("rx", indicator[rail].T, fabric.sink_leaf[rail], fabric.leaf[rail]),
    ):
        if best.family.direction not in {way, "both"}:
            continue
        mates = leaf == leaf[node]
        within = (far == leaf[node]) & (leaf[node] >= 0)
        across = np.where(within, np.nan, lines)
        near, far_off = (bad / max(1.0, of) for bad, of in map(_bad_of, (lines[node, within], across[node])))
        if near > _SAME_SHARE * far_off:
            return False  # no uplink is between it and its neighbours
        (bad, own), (theirs, others), of_leaf = map(_bad_of, (across[node], across[mates], lines[mates]))
        rest, many = everywhere[0] - of_leaf[0], everywhere[1] - of_leaf[1]
        theirs, others = theirs - bad, max(1.0, others - own)
        usual = (rest + 1) / (many + 2)
        if not bad:
            continue
        if not theirs or betainc(theirs, max(1.0, others - theirs + 1), usual) > _UNUSUAL:
            return False
        rate = min(1.0, (theirs + 3 * math.sqrt(theirs)) / others)
        chance *= float(betainc(bad, own - bad + 1, rate))
    return bool(chance * groups.rails * groups.nodes > _BY_CHANCE)


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


def _piled_up(indicator: Floats, groups: Groups, settings: FitSettings) -> list[Pick]:
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


def _pick(family: Candidates, index: int, gain: float, share: float, cells: int) -> Pick:
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
