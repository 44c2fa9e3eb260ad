"""What any alarm could do at best: `python research/bench_alarm_limits.py`.

An oracle that knows a node's level, spread and kind of noise exactly, and looks at two nights: by the
likelihood ratio of a loss of 2 % against none (Neyman and Pearson 1933: no test of these two nights has more
power at as many false alarms). Columns: false alarms per 1,000 node-metric-years if 95 % of such losses are
to be alarmed within two nights, and how many are if there is to be one. Then the same of an oracle that is
not told how large the loss is, of 2 to 10 %, any as likely: on average over these sizes. So no alarm that has
one false one finds more than that of every size. Last, of a loss of 2 % again, an oracle that has the level
from the mean of thirty nights, as the charts have. The second table has t4 nights and other numbers of
nights that the level is known from.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from night_models import CV

Floats = NDArray[np.float64]
Density = Callable[[Floats], Floats]
LEVEL_NIGHTS = 30
LOSS, NIGHTS_OF_1000_YEARS = 0.02, 365_000
_GRID = np.linspace(-0.16, 0.04, 1001)
_SIZES = np.linspace(0.02, 0.1, 33)
# Errors of a level that thirty nights tell, in standard deviations, and how likely each is (Gauss, Hermite).
_ERRORS, _LIKELY = np.polynomial.hermite_e.hermegauss(9)


def _odd(share: float) -> Density:
    """Normal, and now and then 1 to 10 % lower (night_models)."""

    def density(x: Floats) -> Floats:
        slow = (norm.cdf(x + 0.1, scale=CV) - norm.cdf(x + 0.01, scale=CV)) / 0.09
        return np.asarray((1 - share) * norm.pdf(x, scale=CV) + share * slow)

    return density


MODELS: dict[str, Density] = {
    "iid": lambda x: np.asarray(norm.pdf(x, scale=CV)),
    "t4": lambda x: np.asarray(t.pdf(x, 4, scale=CV / np.sqrt(2))),
    "odd nights 0.1 %": _odd(0.001),
    "odd nights 1 %": _odd(0.01),
}


def limits(density: Density, losses: Floats, level_sd: float = 0.0) -> tuple[float, float]:
    """Return false alarms per 1,000 years at 95 % detection, and the detection at one false alarm.

    `losses`: as likely each, and the same in both nights; `level_sd`: how badly the level is known.
    """
    step = _GRID[1] - _GRID[0]
    healthy = _two_nights(density, 0.0, level_sd)
    slow = np.mean([_two_nights(density, float(loss), level_sd) for loss in losses], axis=0)
    order = np.argsort(-(np.log(np.maximum(slow, 1e-300)) - np.log(np.maximum(healthy, 1e-300))))
    false = np.cumsum(healthy[order]) * step**2 * NIGHTS_OF_1000_YEARS
    found = np.cumsum(slow[order]) * step**2
    return float(np.interp(0.95, found, false)), float(np.interp(1.0, false, found))


def _two_nights(density: Density, loss: float, level_sd: float) -> Floats:
    """Return how likely each two values are: the level's error is the same in both."""
    total = np.zeros(len(_GRID) ** 2)
    for error, weight in zip(_ERRORS, _LIKELY / _LIKELY.sum(), strict=True):
        one = density(_GRID + loss + error * level_sd)
        total += weight * np.outer(one, one).ravel()
    return total


def main() -> None:
    """Print the table."""
    print(
        "| noise | a loss of 2 %: false at 95 % | found at 1 | of 2 to 10 %: false at 95 % | found at 1",
        end="",
    )
    print(" | level of 30 nights: false at 95 % | found at 1 |\n|---|---|---|---|---|---|---|")
    for name, density in MODELS.items():
        told, untold = limits(density, np.array([LOSS])), limits(density, _SIZES)
        learnt = limits(density, np.array([LOSS]), CV / np.sqrt(LEVEL_NIGHTS))
        cells = [f"{false:.3g} | {found:.1%}" for false, found in (told, untold, learnt)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n| nights of the level | a loss of 2 % in t4 nights: false at 95 % | found at 1 |\n|---|---|---|")
    for nights in (5, 10, 20, 30, 60):
        false, found = limits(MODELS["t4"], np.array([LOSS]), CV / np.sqrt(nights))
        print(f"| {nights} | {false:.2f} | {found:.1%} |", flush=True)


if __name__ == "__main__":
    main()
