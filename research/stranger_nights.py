"""False alarms in noise that chose no constant: `stranger_nights.py [YEARS] [KIND ...]`.

Twenty kinds from operations: the night's scale moves, leaves are busy, tools round, nights are missing.
Alarms per 1,000 node-metric-years, fleets of 128 nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shakedown.daytwo.history.alarms_and_steps import LEARNING_NIGHTS, find_alarms
from shakedown.daytwo.history.baselines import split_common

SEED, NODES, NIGHTS, CV = 20261129, 128, LEARNING_NIGHTS + 365, 0.003
Floats = NDArray[np.float64]
Rng = np.random.Generator


def white(g: Rng) -> Floats:
    """Normal noise."""
    return CV * g.standard_normal((NODES, NIGHTS))


def weeks(g: Rng, share: float, rows: int = 1) -> NDArray[np.bool_]:
    """Return which weeks are special, by row."""
    picked = g.random((rows, NIGHTS // 7 + 1)) < share
    return np.repeat(picked, 7, axis=1)[:, :NIGHTS]


def by_leaf(of: NDArray[np.generic], nodes: int = 16) -> NDArray[np.generic]:
    """Return what a leaf has for each of its nodes."""
    return np.repeat(of, nodes, axis=0)


def ar(g: Rng, rows: int, phi: float) -> Floats:
    """Return autocorrelated nights of variance 1."""
    x = g.standard_normal((rows, NIGHTS))
    for t in range(1, NIGHTS):
        x[:, t] = phi * x[:, t - 1] + np.sqrt(1 - phi**2) * x[:, t]
    return x


def _with_gaps(x: Floats, gone: NDArray[np.bool_]) -> Floats:
    return np.where(gone, np.nan, x)


FIRST_HALF = np.arange(NODES)[:, None] < NODES // 2
KINDS: dict[str, Callable[[Rng], Floats]] = {
    "noisy weeks of all": lambda g: np.where(weeks(g, 0.125), 3.0, 1.0) * white(g),
    "noisy nights of all": lambda g: np.where(g.random((1, NIGHTS)) < 0.1, 3.0, 1.0) * white(g),
    "noisy weeks of half": lambda g: np.where(weeks(g, 0.125) & FIRST_HALF, 3.0, 1.0) * white(g),
    "noisy weeks of a leaf": lambda g: np.where(by_leaf(weeks(g, 0.125, 8)), 3.0, 1.0) * white(g),
    "volatility in clusters": lambda g: np.exp(0.8 * ar(g, 1, 0.95)) * white(g),
    "volatility by leaf": lambda g: np.exp(0.6 * by_leaf(ar(g, 8, 0.95))) * white(g),
    "volatility, half missing": lambda g: _with_gaps(
        np.exp(0.8 * ar(g, 1, 0.95)) * white(g), g.random((NODES, NIGHTS)) < 0.5
    ),
    "busy weeks of a leaf": lambda g: (
        white(g) - by_leaf(weeks(g, 0.1, 8)) * g.exponential(0.004, (NODES, NIGHTS))
    ),
    "busy weeks of all": lambda g: white(g) - weeks(g, 0.1) * g.exponential(0.004, (NODES, NIGHTS)),
    "room's heat, own slopes": lambda g: white(g) - g.gamma(2, 0.0015, (NODES, 1)) * ar(g, 1, 0.7),
    "printed in 1 Gb/s": white,
    "printed in 10 Gb/s": white,
    "spreads differ tenfold": lambda g: white(g) * np.exp(0.8 * g.standard_normal((NODES, 1))),
    "spread grows over the year": lambda g: white(g) * np.linspace(1, 3, NIGHTS),
    "two levels": lambda g: white(g) - 0.012 * (g.random((NODES, NIGHTS)) < 0.3),
    "a job in one night of 20": lambda g: (
        white(g) - (g.random((NODES, NIGHTS)) < 0.05) * g.uniform(0.005, 0.05, (NODES, NIGHTS))
    ),
    "weekend load, own": lambda g: white(g) - 0.01 * g.random((NODES, 1)) * (np.arange(NIGHTS) % 7 > 4),
    "jumps between two levels": lambda g: (
        white(g) + 0.004 * np.sign(ar(g, NODES, 0.9)) * (np.arange(NODES)[:, None] % 8 == 0)
    ),
    "a third of nights missing": lambda g: _with_gaps(white(g), g.random((NODES, NIGHTS)) < 0.35),
    "a quarter a night": lambda g: _with_gaps(
        white(g), (np.arange(NODES)[:, None] + np.arange(NIGHTS)) % 4 > 0
    ),
}


PRINTED = {"printed in 1 Gb/s": 1.0, "printed in 10 Gb/s": 10.0}


def rates(name: str, years: int) -> tuple[float, float]:
    """Return (steps, drifts) in 1,000 node-metric-years."""
    grids = max(1, years // NODES)
    found = []
    for grid in range(grids):
        g = np.random.default_rng([SEED, [*KINDS].index(name), grid])
        values = 390 * (1 + 0.02 * g.standard_normal((NODES, 1))) * (1 + KINDS[name](g))
        step = PRINTED.get(name, 0.0)
        own, _ = split_common(np.round(values / step) * step if step else values)
        found += [
            a.chart for a in find_alarms(own, higher=True, resolution=step, weekdays=np.arange(NIGHTS) % 7)
        ]
    return tuple(1000 * found.count(chart) / grids / NODES for chart in ("step", "drift"))  # type: ignore[return-value]


def main() -> None:
    """Print a table."""
    years = int(sys.argv[1]) if len(sys.argv) > 1 else 1536
    print("| noise | steps | drift |\n|---|---|---|", flush=True)
    for name in sys.argv[2:] or KINDS:
        print(f"| {name} | {' | '.join(f'{rate:.2f}' for rate in rates(name, years))} |", flush=True)


if __name__ == "__main__":
    main()
