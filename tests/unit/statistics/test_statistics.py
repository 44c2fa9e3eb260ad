"""Single nodes of a comparison: what one of them lost is held against nodes that lost nothing."""

import numpy as np
import pytest
from scipy.stats import binom

from shakedown.daytwo.compare.paired_tests import Sides, noise_of, single_nodes
from shakedown.statistics.robust import CellTally, Samples, more_than, most_by_chance
from tests.kit.cases import cases

NAMES = [f"n{i}" for i in range(24)]


def single(spread, sick=(), *, runs=3, metrics=8, seed=3):
    """Return what is said of single nodes where node i of the sick lost 5 % of metric 0."""
    rng = np.random.default_rng(seed)
    lost = np.zeros((metrics, 24))
    lost[0, list(sick)] = 0.05
    before, after = (spread * rng.standard_normal((runs, metrics, 24)) for _ in "ab")
    sides = [
        Sides(
            [dict(zip(NAMES, run[m].tolist(), strict=True)) for run in before],
            [dict(zip(NAMES, (run[m] - lost[m]).tolist(), strict=True)) for run in after],
            frozenset(NAMES[:12]),
            frozenset(NAMES[12:]),
            1e-5,
        )
        for m in range(metrics)
    ]
    return single_nodes(sides, noise_of(sides), margin=0.01, q=0.01)


@cases("sick", [3], [1, 3, 5, 7, 9])
def test_many_that_lost_do_not_become_the_noise_they_are_held_against(sick):
    """Catches: five of twelve upgraded nodes at -5 % whose loss is taken for healthy spread."""
    assert set(single(0.003, sick)[0].found) == {NAMES[i] for i in sick}
    (alone,) = single(0.003, sick, runs=1, metrics=1)
    assert not alone.found and set(alone.open) == {NAMES[i] for i in sick}


@cases("often", 1, 4, 24)
def test_a_noisy_node_is_held_against_its_own_noise(often):
    """Catches: nodes four and ten times as noisy as others called worse; the steady sick one not found."""
    spread = np.where(np.arange(24) % often == 0, 0.012 if often < 24 else 0.03, 0.003)
    for seed in range(20):
        assert not any(nodes.found for nodes in single(spread, seed=seed))
    found = [NAMES[5] in single(spread, [5], seed=seed)[0].found for seed in range(20)]
    assert sum(found) >= 18 or often == 1  # all are so noisy
    assert often > 1 or all(NAMES[5] in {*n.found, *n.open} for n in (single(spread, [5])[0],))


@pytest.mark.parametrize("cells", [0, 1, 8, 63, 126, 1008, 32_256, 8_000_000])
@pytest.mark.parametrize("rate", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("risk", [1e-3, 1e-6])
def test_the_share_is_the_binomial_one(cells, rate, risk):
    """Catches a share that is off by one, or that underflows for a large fabric."""
    share = most_by_chance(cells, rate, risk)
    assert share == int(binom.isf(risk, cells, rate)) if cells else share == 0
    assert more_than(share, cells, rate) == pytest.approx(binom.sf(share, cells, rate), rel=1e-6, abs=1e-300)


@cases(
    "tally, says",
    (CellTally(1, 1, 0), Samples.WITHIN),
    (CellTally(1, 1, 1), Samples.OPEN),
    (CellTally(2, 2, 1), Samples.OPEN),
    (CellTally(3, 3, 1), Samples.TRANSIENT),
    (CellTally(3, 3, 2), Samples.OPEN),
    (CellTally(5, 5, 2), Samples.TRANSIENT),
    (CellTally(3, 3, 3), Samples.PERSISTS),
    (CellTally(1, 0, 0), Samples.OPEN),
    (CellTally(3, 2, 0), Samples.TRANSIENT),
    (CellTally(3, 2, 1), Samples.OPEN),
)
def test_what_samples_say(tally, says):
    """Catches a cell that passes with as many samples outside as within."""
    assert tally.says(2) is says
