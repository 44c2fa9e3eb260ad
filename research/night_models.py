"""Noise of nightly values, as relative deviations of nodes x nights; 0.3 % night to night but for one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

NODES = int(os.environ.get("NODES", "512"))
CV = 0.003
SEASON = 0.005  # amplitude: 1 % between the best and the worst night

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Floats]


def ar1(rng: np.random.Generator, shape: tuple[int, int], phi: float) -> Floats:
    """Return series of variance 1 with that correlation from night to night."""
    e = rng.standard_normal(shape)
    for night in range(1, shape[1]):
        e[:, night] = phi * e[:, night - 1] + np.sqrt(1 - phi**2) * e[:, night]
    return e


def _iid(rng: np.random.Generator, nights: int) -> Floats:
    return CV * rng.standard_normal((NODES, nights))


def _t4(rng: np.random.Generator, nights: int) -> Floats:
    return CV / math.sqrt(2) * rng.standard_t(4, (NODES, nights))


def _ar(phi: float) -> Noise:
    return lambda rng, nights: CV * ar1(rng, (NODES, nights), phi)


def _odd(share: float) -> Noise:
    """Some nights 1 to 10 % slow, each node its own."""

    def noise(rng: np.random.Generator, nights: int) -> Floats:
        slow = rng.random((NODES, nights)) < share
        return _iid(rng, nights) - slow * rng.uniform(0.01, 0.1, (NODES, nights))

    return noise


def _season(period: float, *, own: bool) -> Noise:
    def noise(rng: np.random.Generator, nights: int) -> Floats:
        phase = rng.random((NODES, 1) if own else (1, 1))
        return _iid(rng, nights) + SEASON * np.sin(2 * np.pi * (np.arange(nights) / period + phase))

    return noise


def _drift(rng: np.random.Generator, nights: int) -> Floats:
    """All nodes lose 0.2 % a month."""
    return _iid(rng, nights) - 0.002 / 30 * np.arange(nights)


def _busy_nights(rng: np.random.Generator, nights: int) -> Floats:
    """One night in fifty, all nodes are 1 to 10 % slow."""
    return _iid(rng, nights) - (rng.random(nights) < 0.02) * rng.uniform(0.01, 0.1, nights)


def _leaf_ar(rng: np.random.Generator, nights: int) -> Floats:
    """Sixteen nodes on a leaf share an AR(0.8) of 0.3 %, beside their own noise."""
    leaves = ar1(rng, (NODES // 16, nights), 0.8)
    return CV / math.sqrt(2) * (np.repeat(leaves, 16, axis=0) + rng.standard_normal((NODES, nights)))


def _skewed(rng: np.random.Generator, nights: int) -> Floats:
    """Interference only ever takes away: exponential losses, printed in steps of 0.1 %."""
    return np.round(-CV * rng.standard_exponential((NODES, nights)), 3)


def _mixed(rng: np.random.Generator, nights: int) -> Floats:
    """Nodes of 0.1 to 0.6 % spread, t5 in an AR(0.5), and six nights of ten not measured."""
    spread = rng.uniform(0.001, 0.006, (NODES, 1))
    e = rng.standard_t(5, (NODES, nights)) / np.sqrt(5 / 3)
    for night in range(1, nights):
        e[:, night] = 0.5 * e[:, night - 1] + np.sqrt(0.75) * e[:, night]
    return np.where(rng.random((NODES, nights)) < 0.6, np.nan, spread * e)


def _wander(rng: np.random.Generator, nights: int) -> Floats:
    """Each node moves over months: AR(0.97) of 0.2 % beside 0.3 %."""
    return _iid(rng, nights) + 0.002 * ar1(rng, (NODES, nights), 0.97)


def _uneven_tails(rng: np.random.Generator, nights: int) -> Floats:
    """Nodes differ in their tails: a third t3, the others normal."""
    heavy = CV / math.sqrt(3) * rng.standard_t(3, (NODES, nights))
    return np.where(rng.random((NODES, 1)) < 1 / 3, heavy, _iid(rng, nights))


def _laplace_ar(rng: np.random.Generator, nights: int) -> Floats:
    """Shocks with Laplace's tails, of which the next night has four tenths."""
    e = rng.laplace(size=(NODES, nights)) / math.sqrt(2)
    for night in range(1, nights):
        e[:, night] = 0.4 * e[:, night - 1] + math.sqrt(1 - 0.16) * e[:, night]
    return CV * e


def _bouts(rng: np.random.Generator, nights: int) -> Floats:
    """Bouts of ten nights on average, a tenth of all nights, in which a node's spread is twice as wide."""
    loud = np.empty((NODES, nights), dtype=bool)
    loud[:, 0] = rng.random(NODES) < 0.1
    for night in range(1, nights):
        u = rng.random(NODES)
        loud[:, night] = np.where(loud[:, night - 1], u < 0.9, u < 1 / 90)
    return np.where(loud, 2.0, 1.0) * _iid(rng, nights)


def _lognormal(rng: np.random.Generator, nights: int) -> Floats:
    """What is lost has log-normal tails: half of the nights lose 1 %, one in a hundred 10 %."""
    return -np.minimum(0.01 * np.exp(rng.standard_normal((NODES, nights))), 0.5)


MODELS: dict[str, Noise] = {
    "iid": _iid,
    "t4": _t4,
    "AR 0.3": _ar(0.3),
    "AR 0.7": _ar(0.7),
    "odd nights 1 %": _odd(0.01),
    "odd nights 0.1 %": _odd(0.001),
    "weekly, all nodes": _season(7, own=False),
    "weekly, each its own": _season(7, own=True),
    "yearly, all nodes": _season(365, own=False),
    "yearly, each its own": _season(365, own=True),
    "drift 0.2 % a month, all nodes": _drift,
    "skewed and quantised": _skewed,
    "mixed: t5, AR 0.5, spreads, gaps": _mixed,
}
ASIDE: dict[str, Noise] = {
    "busy nights of all nodes": _busy_nights,
    "AR 0.8 shared by a leaf": _leaf_ar,
    "wander of months": _wander,
    "a third of nodes t3": _uneven_tails,
    "Laplace, AR 0.4": _laplace_ar,
    "bouts of twice the spread": _bouts,
    "log-normal losses of 1 %": _lognormal,
}


def healthy(name: str, rng: np.random.Generator, nights: int) -> Floats:
    """Return values of a healthy fleet: each node with a level of its own, 2 % apart."""
    level = 390 * (1 + 0.02 * rng.standard_normal((NODES, 1)))
    return level * (1 + (MODELS | ASIDE)[name](rng, nights))
