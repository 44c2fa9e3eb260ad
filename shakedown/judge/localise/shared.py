"""Are an element's bad results its own, or does it share them with others that are as suspicious?

A link that flaps spoils its own results only: its far ends are well with everybody else, and so are its
neighbours. Where four nodes are bad with the same four others, or a whole leaf is bad now and then or with
everybody but itself, something that they share is as good an explanation, and blaming each of them blames
good hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc

from shakedown.judge.localise.groups import Groups
from shakedown.judge.localise.model import Bools, Element, Floats
from shakedown.judge.localise.picks import Pick

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
