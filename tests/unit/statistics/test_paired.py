"""Single nodes of a comparison: what one of them lost is held against nodes that lost nothing."""

import numpy as np
import pytest

from shakedown.daytwo.compare.paired_tests import Sides, single_nodes


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
