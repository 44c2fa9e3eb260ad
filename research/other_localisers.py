"""How others tell a bad part from a table of results, to be held against the same cases as ours.

Each is written from its published description and scores rows (a NIC as it sends) and columns (as it
receives). What is done with the scores is the same for all: lines below the limit are accused, a NIC accused
both ways is accused as such, and so is a node with all of its NICs. Additive fits and robust z may
accuse in one healthy run of 300 if the noise were normal; the rest have the limits that they are published
with. None of them knows paths, pairs or the classes of the snapshot.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from localiser_cases import Blame
from shakedown.judge.localise.model import Element, Floats
from shakedown.simulate.fabric import Simulated

FALSE_RUNS = 1 / 300
MIN_EFFECT = 0.005
FLAT = 0.95
# SuperBench's validator calls a sample defective below this similarity (Xiong et al., USENIX ATC 2024).
SIMILAR = 0.95
SWEEPS = 4
GRID = 400

# Rows and columns, shape (2, rails, nodes): below 0 is bad, and how bad; 0 is well.
Scores = Floats


def least_squares(sim: Simulated) -> Scores:
    """Logarithms as rail + sender + receiver, by least squares (alternating means)."""
    return _significant(_polish(sim, np.nanmean), robust=False)


def median_polish(sim: Simulated) -> Scores:
    """The same by Tukey's median polish."""
    return _significant(_polish(sim, np.nanmedian), robust=True)


def robust_z(sim: Simulated) -> Scores:
    """Each line's median against the median of all, in median absolute deviations."""
    logs = np.log(sim.matrix.values)
    lines = np.stack([np.nanmedian(logs, axis=2), np.nanmedian(logs, axis=1)])
    return _significant(lines - np.nanmedian(lines, axis=2, keepdims=True), robust=True)


def cdf_similarity(sim: Simulated) -> Scores:
    """Area between a line's distribution function and that of the line in the middle, which is the criterion.

    One-sided, as for a metric of which more is better, over the area that the criterion leaves above itself:
    a line that is 5 % slower throughout has a similarity of 0.95.
    """
    values = sim.matrix.values
    lines = np.stack([values, values.transpose(0, 2, 1)])  # (2, rails, nodes, partners)
    places = np.linspace(0, 1, GRID)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        # The area between two distribution functions is that between their quantile functions.
        quantiles = np.moveaxis(np.nanquantile(lines, places[:: GRID // 40], axis=3), 0, 3)
    criterion = np.nanmedian(quantiles, axis=2, keepdims=True)
    worse = np.maximum(criterion - quantiles, 0).mean(axis=3)
    similarity = 1 - worse / criterion.mean(axis=3)
    return np.where(similarity < SIMILAR, similarity - 1, 0.0)


def flat(sim: Simulated) -> Scores:
    """A line with a result 5 % below the median of all is accused if most of its results are."""
    low = np.where(
        np.isfinite(sim.matrix.values), sim.matrix.values < FLAT * np.nanmedian(sim.matrix.values), np.nan
    )
    share = np.stack([np.nanmean(low, axis=2), np.nanmean(low, axis=1)])
    return np.where(share > 0.5, -share, 0.0)


METHODS: dict[str, Callable[[Simulated], Scores]] = {
    "least squares": least_squares,
    "median polish": median_polish,
    "robust z": robust_z,
    "CDF similarity": cdf_similarity,
    "flat -5 %": flat,
}


def answers(name: str, sim: Simulated) -> list[Blame]:
    """Return what a method blames, worst first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a line without any result
        scores = np.nan_to_num(METHODS[name](sim))
    bad = scores < 0
    found: list[tuple[float, Element]] = []
    nodes, rails = sim.matrix.nodes, sim.matrix.rails
    for n, node in enumerate(nodes):
        for way, direction in ((bad[0] & bad[1], "both"), (bad[0], "tx"), (bad[1], "rx")):
            if len(rails) > 1 and way[:, n].all():
                found.append((float(scores[:, :, n].min()), Element("node", node=node, direction=direction)))
                break
        else:
            for r in np.flatnonzero(bad[:, :, n].any(axis=0)):
                ways = "both" if bad[:, r, n].all() else "tx" if bad[0, r, n] else "rx"
                nic = Element("nic", node=node, rail=rails[r], direction=ways)
                found.append((float(scores[:, r, n].min()), nic))
    return [Blame(element, blamed=True) for _, element in sorted(found, key=lambda f: f[0])]


def _polish(sim: Simulated, middle: Callable[..., Floats]) -> Floats:
    rest = np.log(sim.matrix.values)
    effects = np.zeros((2, *rest.shape[:2]))
    rest -= middle(rest, axis=(1, 2), keepdims=True)
    for _ in range(SWEEPS):
        for way, axis in ((0, 2), (1, 1)):
            step = middle(rest, axis=axis, keepdims=True)
            rest -= step
            effects[way] += step.squeeze(axis)
    return effects - np.nanmedian(effects, axis=2, keepdims=True)


def _significant(effects: Floats, *, robust: bool) -> Scores:
    good = effects[np.isfinite(effects)]
    spread = 1.4826 * np.median(np.abs(good - np.median(good))) if robust else np.std(good)
    needed = -ndtri(FALSE_RUNS / good.size)
    return np.where(effects < -np.maximum(needed * spread, MIN_EFFECT), effects, 0.0)
