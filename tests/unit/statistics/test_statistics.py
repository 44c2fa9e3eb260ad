"""Single nodes of a comparison: what one of them lost is held against nodes that lost nothing."""

import numpy as np
import pytest
from scipy.stats import binom

from shakedown.daytwo.compare.paired_tests import Sides, single_nodes
from shakedown.statistics.robust import CellTally, Samples, more_than, most_by_chance
from tests.kit.cases import cases


@pytest.mark.parametrize("sick", [1, 5])
def test_many_that_lost_do_not_become_the_noise_they_are_held_against(sick):
    """Catches: five of twelve upgraded nodes at -3 % whose loss is taken for healthy spread."""
    rng = np.random.default_rng(3)
    names = [f"n{i}" for i in range(24)]
    before = {n: float(0.003 * rng.standard_normal()) for n in names}
    after = {n: float(0.003 * rng.standard_normal()) - 0.03 * (i < sick) for i, n in enumerate(names)}
    treated = frozenset(names[:12])
    sides = Sides([before], [after], treated, frozenset(names) - treated, 1e-5)
    (nodes,) = single_nodes([sides], margin=0.01, q=0.05)
    assert set(nodes.found) == set(names[:sick])


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
