"""Noise that no model of noise_models.py has: what healthy clusters may do unforeseen.

Each is a function of a scene (simulate/fabric.py). Nothing here is a fault: whoever is blamed in it is good.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shakedown.judge.localise.model import Floats, Ints
from shakedown.simulate.fabric import Noise, Phase, Scene

CV = 0.003


def _normal(scene: Scene) -> Floats:
    return np.asarray(scene.rng.standard_normal(scene.logs.shape))


def _places(scene: Scene) -> tuple[Ints, Ints]:
    """Return the numbers of source and sink, to be broadcast over the results of a rail."""
    i = np.arange(scene.nodes)
    return i[:, None], i[None, :]


def _turn(scene: Scene) -> tuple[Floats, int]:
    """Return when each result is measured, 0 to 1, and how many slots there are."""
    times, steps = scene.times()
    return times / max(1, steps - 1), steps


def loud_rail(scene: Scene) -> None:
    """One rail is five times as noisy as the others."""
    rail = int(scene.rng.integers(scene.rails))
    scene.logs[rail] += 5 * CV * _normal(scene)[rail]


def odd_even(scene: Scene) -> None:
    """Pairs of an odd and an even node go another way, which is 8 % slower."""
    source, sink = _places(scene)
    scene.factor[:, (source + sink) % 2 == 1] *= 0.92


def asic_pairs(scene: Scene) -> None:
    """Nodes side by side share a switch chip and are 2 % faster with each other."""
    source, sink = _places(scene)
    scene.logs[:, source // 2 == sink // 2] += 0.02


def sawtooth(scene: Scene) -> None:
    """The fabric slows by 2 % and recovers at once, seven times."""
    turn, _ = _turn(scene)
    scene.logs -= 0.02 * (7 * turn % 1)


def lognormal(scene: Scene) -> None:
    """What is lost has log-normal tails: half of the results lose 0.2 %, one in a hundred 2 % or more."""
    scene.logs -= np.minimum(0.002 * np.exp(_normal(scene)), 1.0)


def pareto(scene: Scene) -> None:
    """What is lost has the tails of a power law (index 1.5)."""
    scene.logs -= np.minimum(0.001 * scene.rng.pareto(1.5, scene.logs.shape), 1.0)


def day_steps(scene: Scene) -> None:
    """By the hour the fabric is 0, 1, 2 or 3 % slower."""
    turn, _ = _turn(scene)
    scene.logs -= 0.01 * scene.rng.integers(0, 4, 12)[np.minimum(12 * turn, 11).astype(int)]


def far_noise(scene: Scene) -> None:
    """Between leaves the noise is four times that within one."""
    leaf = scene.fabric.leaf
    far = leaf[:, :, None] != leaf[:, None, :]
    scene.logs += 4 * CV * far * _normal(scene)


def nic_pairs(scene: Scene) -> None:
    """Two neighbouring NICs of a node hang on one PCIe switch: they are fast or slow together, by 0.3 %."""
    both = scene.rng.standard_normal(((scene.rails + 1) // 2, scene.nodes))
    own = 0.003 * np.repeat(both, 2, axis=0)[: scene.rails]
    scene.logs += own[:, :, None] + own[:, None, :]


def untold_speeds(scene: Scene) -> None:
    """A quarter of the nodes have 200 Gb/s NICs and the others 400; no snapshot tells."""
    slow = scene.rng.permutation(scene.nodes)[: scene.nodes // 4]
    scene.able[slow] *= 0.5


def untold_speeds_half(scene: Scene) -> None:
    """Half of the nodes have 200 Gb/s NICs; no snapshot tells."""
    slow = scene.rng.permutation(scene.nodes)[: scene.nodes // 2]
    scene.able[slow] *= 0.5


def quantised_ar(scene: Scene) -> None:
    """The fabric wanders from slot to slot (AR 0.95, 0.5 %) while the tool prints steps of 2 Gb/s."""
    times, steps = scene.times()
    series = np.zeros(steps)
    for t in range(1, steps):
        series[t] = 0.95 * series[t - 1] + 0.005 * np.sqrt(1 - 0.95**2) * scene.rng.standard_normal()
    scene.rates[:] = np.maximum(np.round(scene.rates * np.exp(series[times]) / 2), 1) * 2


def two_paths(scene: Scene) -> None:
    """A result is as it is, or 1.5 % lower: a coin decides which of two paths a flow takes."""
    scene.logs -= 0.015 * (scene.rng.random(scene.logs.shape) < 0.5)


def noisy_nodes(scene: Scene) -> None:
    """One node in eight is six times as noisy as the others, on all rails."""
    loud = scene.rng.permutation(scene.nodes)[: scene.nodes // 8]
    cv = np.full(scene.nodes, CV)
    cv[loud] *= 6
    scene.logs += np.maximum(cv[:, None], cv[None, :]) * _normal(scene)


def leaf_pairs(scene: Scene) -> None:
    """What lies between two leaves differs from what lies between two others, by 0.5 %."""
    many = len(scene.fabric.leaves)
    between = 0.005 * scene.rng.standard_normal((many, many))
    leaf = scene.fabric.leaf
    scene.logs += between[leaf[:, :, None], leaf[:, None, :]]


def black_round(scene: Scene) -> None:
    """For one slot in fifty the whole fabric is at 70 %: somebody rebalanced it."""
    times, steps = scene.times()
    scene.logs += np.log(0.7) * (scene.rng.random(steps) < 0.02)[times]


def distance(scene: Scene) -> None:
    """The further two nodes are apart in the row, the slower: up to 2 %."""
    source, sink = _places(scene)
    scene.logs -= 0.02 * np.abs(source - sink) / max(1, scene.nodes - 1)


def racks(scene: Scene) -> None:
    """Nodes higher up are warmer and slower, by 1 % from the first to the last."""
    own = -0.01 * np.arange(scene.nodes) / max(1, scene.nodes - 1)
    scene.logs += np.minimum(own[:, None], own[None, :])


def warm_up(scene: Scene) -> None:
    """A node's first rounds on each rail are up to 5 % slower."""
    when, _ = scene.rounds()
    scene.logs -= 0.05 * np.exp(-when / 2)


def slow_rail(scene: Scene) -> None:
    """One rail is 1.5 % slower: other cables, other switches."""
    scene.logs[int(scene.rng.integers(scene.rails))] -= 0.015


def daemon(scene: Scene) -> None:
    """In one round of a hundred something runs on a node, and all its NICs lose 10 %."""
    when, turns = scene.rounds()
    busy = scene.rng.random((scene.rails, scene.nodes, turns)) < 0.01
    i = np.arange(scene.nodes)
    sends = busy[:, i[:, None], when]
    scene.logs += np.log(0.9) * (sends | busy[:, i[None, :], when])


def _slower_end(scene: Scene, sends: Floats, receives: Floats) -> None:
    scene.factor[:] = np.minimum(scene.factor, np.minimum(sends[:, :, None], receives[:, None, :]))


def _ceilings(scene: Scene) -> Floats:
    return 1 + CV * np.asarray(scene.rng.standard_normal((scene.rails, scene.nodes)))


def slower_end(scene: Scene) -> None:
    """Each way of a NIC has a ceiling of its own, 0.3 % apart, and a flow is as fast as its slower end."""
    _slower_end(scene, _ceilings(scene), _ceilings(scene))


def slower_end_same(scene: Scene) -> None:
    """The same, and a NIC's ceiling is that of both ways."""
    own = _ceilings(scene)
    _slower_end(scene, own, own)


def slower_link(scene: Scene) -> None:
    """The same as `slower-end`, and each uplink has a ceiling, too."""
    slower_end(scene)
    assert scene.fabric.spine is not None
    leaf, spine = scene.fabric.leaf, scene.fabric.spine
    up = 1 + CV * scene.rng.standard_normal((len(scene.fabric.leaves), len(scene.fabric.spines)))
    ways = np.minimum(up[leaf[:, :, None], spine], up[leaf[:, None, :], spine])
    scene.factor[:] = np.where(spine >= 0, np.minimum(scene.factor, ways), scene.factor)


def untold_firmware(scene: Scene) -> None:
    """On 25 to 31 % of the nodes another firmware is 0.8 to 1.5 % slower; no snapshot tells."""
    slow = scene.rng.permutation(scene.nodes)[: round(scene.rng.uniform(0.25, 0.31) * scene.nodes)]
    scene.able[slow] *= 1 - scene.rng.uniform(0.008, 0.015)


def busy_receiver(scene: Scene) -> None:
    """For a third of the rounds others send to one node: what it receives then is 10 to 40 % slower."""
    when, turns = scene.rounds()
    node, first = int(scene.rng.integers(scene.nodes)), scene.rng.uniform(0, 0.65) * turns
    busy = (when[:, node] >= first) & (when[:, node] < first + 0.35 * turns)
    lost = np.log(1 - scene.rng.uniform(0.1, 0.4, (scene.rails, scene.nodes)))
    scene.logs[:, :, node] += np.where(busy, lost, 0)


def others_job(scene: Scene) -> None:
    """A job on a quarter of the nodes takes 3 to 10 % of what they send and receive, by the round."""
    theirs = np.zeros(scene.nodes, dtype=bool)
    theirs[scene.rng.permutation(scene.nodes)[: scene.nodes // 4]] = True
    when, turns = scene.rounds()
    on = (scene.rng.random(turns) < 0.6)[when] & (theirs[:, None] | theirs[None, :])
    scene.logs += np.where(on, np.log(1 - scene.rng.uniform(0.03, 0.1, scene.logs.shape)), 0)


def own_heat(scene: Scene) -> None:
    """Each node gets slower in the course of the run, by up to 2 %, and each by its own."""
    when, turns = scene.rounds()
    own = -scene.rng.uniform(0, 0.02, scene.nodes)
    scene.logs += np.minimum(own[:, None], own[None, :]) * (1 - np.exp(-3 * when / turns))


def own_wander(scene: Scene) -> None:
    """Each node's rate wanders from round to round (AR 0.97, 1 %)."""
    when, turns = scene.rounds()
    series = np.zeros((scene.nodes, turns))
    for t in range(1, turns):
        step = np.sqrt(1 - 0.97**2) * 0.01 * scene.rng.standard_normal(scene.nodes)
        series[:, t] = 0.97 * series[:, t - 1] + step
    i, j = _places(scene)
    scene.logs += np.minimum(series[i, when], series[j, when])


_PHASES: dict[Callable[[Scene], None], Phase] = {
    loud_rail: Phase.RATE,
    odd_even: Phase.PATH,
    asic_pairs: Phase.RATE,
    sawtooth: Phase.RATE,
    lognormal: Phase.RATE,
    pareto: Phase.RATE,
    day_steps: Phase.RATE,
    far_noise: Phase.RATE,
    nic_pairs: Phase.RATE,
    untold_speeds: Phase.NODE,
    untold_speeds_half: Phase.NODE,
    quantised_ar: Phase.OUTPUT,
    two_paths: Phase.RATE,
    noisy_nodes: Phase.RATE,
    leaf_pairs: Phase.RATE,
    black_round: Phase.RATE,
    distance: Phase.RATE,
    racks: Phase.RATE,
    warm_up: Phase.RATE,
    slow_rail: Phase.RATE,
    daemon: Phase.RATE,
    slower_end: Phase.PATH,
    slower_end_same: Phase.PATH,
    slower_link: Phase.PATH,
    untold_firmware: Phase.NODE,
    busy_receiver: Phase.RATE,
    others_job: Phase.RATE,
    own_heat: Phase.RATE,
    own_wander: Phase.RATE,
}


def _noise(act: Callable[[Scene], None], phase: Phase) -> Noise:
    return Noise(act.__name__.replace("_", "-"), phase, act)


ODD: dict[str, Noise] = {noise.name: noise for noise in (_noise(*item) for item in _PHASES.items())}
