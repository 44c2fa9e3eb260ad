"""Localisation among nodes whose links differ in speed, as no snapshot tells."""

from dataclasses import replace

import numpy as np
import pytest
from one_route import localise_one

from shakedown.judge.localise.model import Cabling, Element, Matrix

NODES, RAILS = 16, 4


def mesh(seed: int, slow: dict[int, float]) -> Matrix:
    """Return a mesh of nodes, some of which reach a part of the rate; a flow is as fast as its slower end."""
    rng = np.random.default_rng(seed)
    able = np.array([slow.get(node, 1.0) for node in range(NODES)])
    values = 386 * np.minimum(able[:, None], able[None, :]) * np.ones((RAILS, 1, 1))
    values *= 1 + 0.003 * rng.standard_normal(values.shape)
    values[:, range(NODES), range(NODES)] = np.nan
    names = tuple(f"n{i:02d}" for i in range(NODES)), tuple(f"rail{r}" for r in range(RAILS))
    return Matrix("ib_write_bw", True, *names, values, np.zeros(values.shape, dtype=bool))


def found(matrix: Matrix, fabric: Cabling | None = None) -> tuple[list[Element], list[str]]:
    """Return what is blamed, and the nodes that are suspects."""
    causes = localise_one([matrix], fabric or Cabling.unknown(RAILS, NODES))
    return [c.element for c in causes if c.blamed], sorted(c.element.node for c in causes if not c.blamed)


@pytest.mark.parametrize("part", [0.5, 0.25])
@pytest.mark.parametrize("many", [2, 4, 8, 12])
def test_nodes_with_slower_links_are_suspects_and_not_blamed(part, many):
    """Catches: each 200 Gb/s node among 400 Gb/s ones drained as if it had lost half of its rate."""
    blamed, suspects = found(mesh(many, dict.fromkeys(range(many), part)))
    assert not blamed and suspects == [f"n{i:02d}" for i in range(many)]


@pytest.mark.parametrize("node", [1, 9])
@pytest.mark.parametrize("loss", [0.02, 0.05, 0.2])
def test_a_fault_is_named_among_two_speeds(node, loss):
    """Catches: a slow NIC hidden by the two speeds, on a node of either."""
    matrix = mesh(1, dict.fromkeys(range(4), 0.5))
    matrix.values[2, node, :] *= 1 - loss
    matrix.values[2, :, node] *= 1 - loss
    for other in range(4):
        if node >= 4:  # held back by the slower end anyway
            matrix.values[2, [node, other], [other, node]] /= 1 - loss
    assert found(matrix)[0] == [Element("nic", node=f"n{node:02d}", rail="rail2")]


@pytest.mark.parametrize("loss", [0.02, 0.05])
def test_a_node_of_the_slower_speed_that_lost_more_is_blamed(loss):
    """Catches: a slow node taken for healthy because its links are slower than others' anyway."""
    matrix = mesh(2, {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5 * (1 - loss)})
    assert found(matrix) == ([Element("node", node="n03")], ["n00", "n01", "n02"])


@pytest.mark.parametrize("slow", [{3: 0.5}, {3: 0.6, 7: 0.6}, {3: 0.01}])
def test_one_node_at_half_rate_or_two_at_no_link_speed_are_blamed(slow):
    """Catches: a node that lost half of its rate, or half of its PCIe lanes, taken for other links."""
    assert {e.node for e in found(mesh(3, slow))[0]} == {f"n{i:02d}" for i in slow}


def test_speeds_that_the_snapshot_tells_are_no_suspects():
    """Catches: a mixed cluster that is never told to be well, though its snapshot says which nodes differ."""
    classes = np.zeros((2, RAILS, NODES), dtype=np.int64)
    classes[:, :, :4] = 1
    told = replace(Cabling.unknown(RAILS, NODES), classes=classes)
    assert found(mesh(4, dict.fromkeys(range(4), 0.5)), told) == ([], [])
