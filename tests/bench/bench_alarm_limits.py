"""What any alarm could do at best: `python tests/bench/bench_alarm_limits.py`.

An oracle that knows a node's level, spread and kind of noise exactly, and looks at two nights: by the
likelihood ratio of a loss of 2 % against none (Neyman and Pearson 1933: no test of these two nights has more
power at as many false alarms). Columns: false alarms per 1,000 node-metric-years if 95 % of such losses are
to be alarmed within two nights, and how many are if there is to be one. Then the same of an oracle that is
not told how large the loss is, of 2 to 10 %, any as likely: on average over these sizes. So no alarm that has
one false one finds more than that of every size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from night_models import CV
from numpy.typing import NDArray
from scipy.stats import norm, t

Floats = NDArray[np.float64]
Density = Callable[[Floats], Floats]
LOSS, NIGHTS_OF_1000_YEARS = 0.02, 365_000
_GRID = np.linspace(-0.16, 0.04, 1001)
_SIZES = np.linspace(0.02, 0.1, 33)


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


def limits(density: Density, losses: Floats) -> tuple[float, float]:
    """Return false alarms per 1,000 years at 95 % detection, and the detection at one false alarm.

    `losses`: as likely each, and the same in both nights.
    """
    step = _GRID[1] - _GRID[0]
    healthy = np.outer(density(_GRID), density(_GRID)).ravel()
    slow = np.zeros_like(healthy)
    for loss in losses:
        one = density(_GRID + loss)
        slow += np.outer(one, one).ravel() / len(losses)
    order = np.argsort(-(np.log(np.maximum(slow, 1e-300)) - np.log(np.maximum(healthy, 1e-300))))
    false = np.cumsum(healthy[order]) * step**2 * NIGHTS_OF_1000_YEARS
    found = np.cumsum(slow[order]) * step**2
    return float(np.interp(0.95, found, false)), float(np.interp(1.0, false, found))


def main() -> None:
    """Print the table."""
    print("| noise | a loss of 2 %: false at 95 % | found at 1 | of 2 to 10 %: false at 95 % | found at 1 |")
    print("|---|---|---|---|---|")
    for name, density in MODELS.items():
        told, untold = limits(density, np.array([LOSS])), limits(density, _SIZES)
        print(f"| {name} | {told[0]:.3g} | {told[1]:.1%} | {untold[0]:.3g} | {untold[1]:.1%} |", flush=True)


if __name__ == "__main__":
    main()
