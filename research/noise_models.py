"""The registry of noise models. A new one is a function and one entry here.

Written MODEL[:KEY=VALUE[,KEY=VALUE]]. Several act together, each in its phase: what limits a flow on its way
(the slowest part counts), what scales every rate, what the tool makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from shakedown.judge.localise.model import Floats
from shakedown.records.reading import BadInput
from shakedown.simulate.fabric import Noise, Phase, Scene

Values = Mapping[str, float]


@dataclass(frozen=True)
class Parameter:
    """A number of a model: its value if none is given, its limits, what it is, and who says so."""

    default: float
    low: float
    high: float
    says: str
    source: str = "assumed"


@dataclass(frozen=True)
class NoiseModel:
    """One kind of noise."""

    name: str  # as rows of the tables name it
    says: str  # what happens in the cluster
    phase: Phase  # when it acts
    act: Callable[[Scene, Values], None]  # changes a scene, given the parameters' values
    parameters: Mapping[str, Parameter] = field(default_factory=dict)  # by name
    hard: bool = False  # healthy, but some of it looks like faults; a localiser may answer "undecided"
    cell: bool = False  # it is the noise of a single result, and takes the place of the shape's own
    held_out: bool = False  # kept for the last check; no threshold was chosen with it


def _iid(scene: Scene, p: Values) -> None:
    scene.logs += p["cv"] * scene.rng.standard_normal(scene.logs.shape)


def _student(scene: Scene, p: Values) -> None:
    freedom = p["freedom"]
    scale = p["cv"] / np.sqrt(freedom / (freedom - 2))  # so that cv is its standard deviation
    # A log below -1 would be a stall, not noise.
    scene.logs += np.clip(scale * scene.rng.standard_t(freedom, scene.logs.shape), -1, 1)


def _contamination(scene: Scene, p: Values) -> None:
    hit = scene.rng.random(scene.logs.shape) < p["share"]
    scene.logs[hit] += p["cv"] * scene.rng.standard_normal(int(hit.sum()))


def _autoregressive(steps: int, rows: int, p: Values, rng: np.random.Generator) -> Floats:
    """Return stationary AR(1) series with standard deviation sd, shape (rows, steps)."""
    series = np.empty((rows, steps))
    series[:, 0] = rng.standard_normal(rows)
    fresh = np.sqrt(1 - p["rho"] ** 2)
    for t in range(1, steps):
        series[:, t] = p["rho"] * series[:, t - 1] + fresh * rng.standard_normal(rows)
    return p["sd"] * series


def _ar(scene: Scene, p: Values) -> None:
    times, steps = scene.times()
    scene.logs += _autoregressive(steps, 1, p, scene.rng)[0][times]


def _leaf_ar(scene: Scene, p: Values) -> None:
    times, steps = scene.times()
    series = _autoregressive(steps, len(scene.fabric.leaves), p, scene.rng)
    leaf = scene.fabric.leaf
    # A flow has half of its noise from the leaf that it enters by, half from the one it leaves by.
    scene.logs += (series[leaf[:, :, None], times] + series[leaf[:, None, :], times]) / 2


def _thermal(scene: Scene, p: Values) -> None:
    times, steps = scene.times()
    own = 1 + p["spread"] * scene.once("thermal", lambda: scene.rng.standard_normal(scene.nodes))
    slower = (own[:, None] + own[None, :]) / 2
    scene.logs -= p["loss"] * slower * times / max(1, steps - 1)


def _spread(scene: Scene, p: Values) -> None:
    draw = scene.once("spread", lambda: scene.rng.standard_normal((3, scene.rails, scene.nodes)))
    sends, receives, both = draw
    common = np.sqrt(p["common"])
    own = np.sqrt(1 - p["common"])
    scene.logs += p["sd"] * (common * both + own * sends)[:, :, None]
    scene.logs += p["sd"] * (common * both + own * receives)[:, None, :]


def _classes(scene: Scene, p: Values) -> None:
    many = int(p["classes"])
    number = np.zeros(scene.nodes, dtype=np.int64)
    others = scene.rng.permutation(scene.nodes)[: max(1, round(p["share"] * scene.nodes))]
    number[others] = 1 + np.arange(len(others)) % (many - 1)
    scene.able *= 1 - p["loss"] * number
    if p["known"]:
        scene.classes += number[None, :]


def _share_links(scene: Scene, capacity: float) -> None:
    """Let flows of one slot that were hashed onto the same link share it."""
    spine, leaf = scene.fabric.spine, scene.fabric.leaf
    if spine is None:
        return
    across = spine >= 0
    times, steps = scene.times()
    rail, source, sink = np.nonzero(across)
    via = spine[across].astype(np.int64)
    slot = times[across]
    for end in (leaf[rail, source], leaf[rail, sink]):
        link = (end * len(scene.fabric.spines) + via) * steps + slot
        _, where, flows = np.unique(link, return_inverse=True, return_counts=True)
        rest = np.minimum(1.0, capacity / flows[where])
        scene.factor[across] = np.minimum(scene.factor[across], rest)


def _ecmp_static(scene: Scene, p: Values) -> None:
    _share_links(scene, max(1.0, p["capacity"] * scene.pod / scene.spines))


def _ecmp_flow(scene: Scene, p: Values) -> None:
    leaf = scene.fabric.leaf
    across = leaf[:, :, None] != leaf[:, None, :]
    hit = across & (scene.rng.random(scene.factor.shape) < p["share"])
    flows = 2 + (scene.rng.random(int(hit.sum())) < p["share"])
    scene.factor[hit] = np.minimum(scene.factor[hit], 1 / flows)


def _incast(scene: Scene, p: Values) -> None:
    """Congest some receivers in some rounds; pause frames drag what else enters their leaf in that round."""
    leaf = scene.fabric.leaf
    when, turns = scene.rounds()
    for r in range(scene.rails):
        for number in np.unique(leaf[r]):
            sinks = np.flatnonzero(leaf[r] == number)
            # What a fault leaves of a receiver's rate drags its neighbours as much as a passing incast does.
            into = scene.factor[r][:, sinks]
            into[sinks, np.arange(len(sinks))] = 1.0
            rounds = when[:, sinks]
            for turn in np.flatnonzero(scene.rng.random(turns) < p["share"]):
                at, victim = np.nonzero(rounds == turn)
                one = int(scene.rng.integers(len(at))) if len(at) else 0
                if len(at):
                    loss = p["loss"] * scene.rng.uniform(0.5, 1.0)
                    into[at[one], victim[one]] = min(into[at[one], victim[one]], 1 - loss)
            lowest = np.ones(turns)
            np.minimum.at(lowest, rounds.ravel(), into.ravel())
            dragged = np.minimum(into, 1 - p["drag"] * (1 - lowest[rounds]))
            scene.factor[r][:, sinks] = dragged


def _bursts(scene: Scene, p: Values) -> None:
    """Slow one NIC for a few rounds: something else ran on its node."""
    when, turns = scene.rounds()
    starts = np.argwhere(scene.rng.random((scene.rails, scene.nodes)) < p["share"])
    for r, node in starts:
        first = int(scene.rng.integers(turns))
        during = (when - first) % turns < int(p["rounds"])
        loss = np.log1p(-p["loss"] * scene.rng.uniform(0.5, 1.0))
        scene.logs[r, node, during[node]] += loss
        scene.logs[r, during[:, node], node] += loss


def _laplace(scene: Scene, p: Values) -> None:
    scene.logs += np.clip(p["cv"] / np.sqrt(2) * scene.rng.laplace(size=scene.logs.shape), -1, 1)
    node = p["node_sd"] * scene.once("laplace", lambda: scene.rng.standard_normal(scene.nodes))
    scene.logs += (node[:, None] + node[None, :])[None]


def _uneven(scene: Scene, p: Values) -> None:
    noisy = scene.once("uneven", lambda: scene.rng.standard_normal((2, scene.rails, scene.nodes)))
    cv = p["cv"] * np.exp(p["spread"] * noisy)
    both = np.sqrt((cv[0][:, :, None] ** 2 + cv[1][:, None, :] ** 2) / 2)
    scene.logs += both * scene.rng.standard_normal(scene.logs.shape)


def _periodic(scene: Scene, p: Values) -> None:
    times, steps = scene.times()
    phase = scene.once("periodic", lambda: scene.rng.uniform(0, 2 * np.pi, len(scene.fabric.leaves)))
    turn = 2 * np.pi * p["periods"] * times / steps
    scene.logs += p["loss"] * (np.sin(turn + phase[scene.fabric.leaf][:, :, None]) - 1) / 2


def _quantised(scene: Scene, p: Values) -> None:
    scene.rates[:] = np.maximum(np.round(scene.rates / p["step"]), 1) * p["step"]


def _missing(scene: Scene, p: Values) -> None:
    scene.failed |= scene.rng.random(scene.failed.shape) < p["share"]


# From the recorded runs, 171 repetitions of 57 cells. Over NVLink and not over NICs, so
# the defaults stay where they are, above all of it.
_RECORDED = "assumed; recorded on 4 x H200 over NVLink (research/fit_noise.py):"
_CV = Parameter(
    0.003, 0, 0.5, "standard deviation of one result, as a part of it", source=f"{_RECORDED} 0.18 %"
)
_RHO = Parameter(0.9, 0, 0.999, "correlation from one slot to the next")


def _registry(*models: NoiseModel) -> dict[str, NoiseModel]:
    return {model.name: model for model in models}


NOISE = _registry(
    NoiseModel("iid", "every result for itself, normal", Phase.RATE, _iid, {"cv": _CV}, cell=True),
    NoiseModel(
        "t4",
        "every result for itself, with heavy tails (Student's t)",
        Phase.RATE,
        _student,
        {"cv": _CV, "freedom": Parameter(4, 2.1, 100, "degrees of freedom")},
        cell=True,
    ),
    NoiseModel(
        "contamination",
        "some results are far noisier than the rest",
        Phase.RATE,
        _contamination,
        {
            "share": Parameter(0.05, 0, 1, "part of the results", source=f"{_RECORDED} 0.6 %"),
            "cv": Parameter(0.03, 0, 0.5, "their standard deviation", source=f"{_RECORDED} 0.95 %"),
        },
    ),
    NoiseModel(
        "ar",
        "the whole fabric wanders from slot to slot",
        Phase.RATE,
        _ar,
        {"sd": Parameter(0.005, 0, 0.5, "standard deviation"), "rho": _RHO},
    ),
    NoiseModel(
        "leaf-ar",
        "each leaf wanders from slot to slot",
        Phase.RATE,
        _leaf_ar,
        {"sd": Parameter(0.003, 0, 0.5, "standard deviation"), "rho": _RHO},
    ),
    NoiseModel(
        "thermal",
        "all get slower while they warm up, each node at its own pace",
        Phase.RATE,
        _thermal,
        {
            "loss": Parameter(0.02, 0, 0.9, "loss at the end"),
            "spread": Parameter(0.1, 0, 1, "how much nodes differ in it"),
        },
    ),
    NoiseModel(
        "spread",
        "healthy NICs differ",
        Phase.RATE,
        _spread,
        {
            "sd": Parameter(0.003, 0, 0.5, "standard deviation between NICs"),
            "common": Parameter(1, 0, 1, "part of its variance that a NIC has both ways"),
        },
    ),
    NoiseModel(
        "quantised",
        "the tool prints in steps",
        Phase.OUTPUT,
        _quantised,
        {"step": Parameter(2.0, 0.001, 100, "Gb/s", source=f"{_RECORDED} 0.08 Gb/s, which is 0.01 GB/s")},
    ),
    NoiseModel(
        "classes",
        "nodes of two or three kinds (firmware, model); a flow is as fast as its slower end",
        Phase.NODE,
        _classes,
        {
            "share": Parameter(0.1, 0, 1, "part of the nodes that are of another kind"),
            "loss": Parameter(0.015, 0, 0.4, "loss of the second kind; the third loses twice as much"),
            "classes": Parameter(2, 2, 3, "how many kinds"),
            "known": Parameter(1, 0, 1, "1: the snapshot tells them apart; 0: it does not"),
        },
    ),
    NoiseModel(
        "ecmp-static",
        "flows of one slot that their hash puts on one uplink share it, every time",
        Phase.PATH,
        _ecmp_static,
        {"capacity": Parameter(1.0, 0.05, 16, "uplink rate over that of the NICs it is there for")},
        hard=True,
    ),
    NoiseModel(
        "ecmp-flow",
        "a flow between leaves meets others on its link, another time not",
        Phase.PATH,
        _ecmp_flow,
        {"share": Parameter(0.2, 0, 1, "part of such flows; of those the same part meets two")},
        hard=True,
    ),
    NoiseModel(
        "incast",
        "a receiver is congested for a round, and pause frames drag its leaf; a slow receiver does the same",
        Phase.PATH,
        _incast,
        {
            "share": Parameter(0.1, 0, 1, "part of the rounds of each leaf"),
            "loss": Parameter(0.3, 0, 0.95, "largest loss of the congested receiver, half of it at least"),
            "drag": Parameter(0.3, 0, 1, "part of that loss that its neighbours have"),
        },
        hard=True,
    ),
    NoiseModel(
        "missing",
        "results without a value, here and there",
        Phase.OUTPUT,
        _missing,
        {"share": Parameter(0.02, 0, 0.9, "part of the results")},
    ),
    NoiseModel(
        "bursts",
        "a NIC is slower for a few rounds, then well again",
        Phase.RATE,
        _bursts,
        {
            "share": Parameter(0.02, 0, 1, "part of the NICs"),
            "rounds": Parameter(2, 1, 4096, "how long, in rounds"),
            "loss": Parameter(0.05, 0, 0.95, "largest loss, half of it at least"),
        },
        hard=True,
    ),
    NoiseModel(
        "laplace",
        "sharp peak and long tails, and whole nodes differ a little",
        Phase.RATE,
        _laplace,
        {"cv": _CV, "node_sd": Parameter(0.001, 0, 0.5, "standard deviation between nodes")},
        cell=True,
        held_out=True,
    ),
    NoiseModel(
        "uneven",
        "some NICs are noisier than others",
        Phase.RATE,
        _uneven,
        {"cv": _CV, "spread": Parameter(0.5, 0, 2, "standard deviation of the logarithm of a NIC's noise")},
        cell=True,
    ),
    NoiseModel(
        "periodic",
        "a load that comes and goes slows each leaf at its own time",
        Phase.RATE,
        _periodic,
        {
            "loss": Parameter(0.01, 0, 0.9, "loss at its height"),
            "periods": Parameter(20, 0.1, 10000, "how often it comes during the mesh"),
        },
        held_out=True,
    ),
)


def parse_noise(texts: Iterable[str]) -> tuple[Noise, ...]:
    """Return the models that MODEL[:KEY=VALUE[,KEY=VALUE]] name.

    Raises BadInput: no such model or parameter, or a value outside of its limits.
    """
    return tuple(_parse(text) for text in texts)


def _parse(text: str) -> Noise:
    name, _, given = text.partition(":")
    model = NOISE.get(name)
    if model is None:
        raise BadInput(f"noise {text!r}: unknown model", fix=f"use one of {', '.join(NOISE)}")
    values = {key: p.default for key, p in model.parameters.items()}
    for part in filter(None, given.split(",")):
        key, _, number = part.partition("=")
        limits = model.parameters.get(key)
        if limits is None:
            known = ", ".join(model.parameters) or "none"
            raise BadInput(f"noise {text!r}: no parameter {key!r}", fix=f"{name} has: {known}")
        try:
            value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
        except ValueError:
            value = float("nan")
        if not limits.low <= value <= limits.high:
            raise BadInput(
                f"noise {text!r}: {key} {number!r}", fix=f"write {limits.low:g} to {limits.high:g}"
            )
        values[key] = value
    return Noise(name, model.phase, lambda scene: model.act(scene, values), model.cell)
