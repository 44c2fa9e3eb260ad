"""The noise of real clusters as data: models, each with its parameters and where they come from.

`shakedown simulate --noise MODEL[:KEY=VALUE[,KEY=VALUE]]`; several models act together, each in its phase:
what limits a flow on its way (the slowest part counts), what scales every rate, what the tool makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from shakedown.judge.localise.model import Bools, Fabric, Floats, Ints
from shakedown.records.errors import BadInput

ASSUMED = "assumed"


class Phase(IntEnum):
    """When a model acts."""

    NODE = 0  # what a node can do at all, before faults
    PATH = 1  # lowers the bottleneck of a flow
    RATE = 2  # scales rates, as a sum of logarithms
    OUTPUT = 3  # changes what was written down


@dataclass(eq=False)
class Scene:
    """A measurement in the making; models change it in place.

    Attributes:
        pod, spines: nodes on one leaf; spines of each rail's plane.
        fabric: cabling and the spine of every flow.
        rng: source of all chance.
        able: what a node's kind reaches of the usual rate. Shape (nodes,).
        factor: what the slowest part on a flow's way leaves of its rate. Shape (rails, nodes, nodes), as all.
        logs: sum of everything else that scales a rate.
        rates: in Gb/s, from phase OUTPUT on.
        failed: tried, but without a value.
        kept: what does not change when something is measured again; see `once`.
        at_the_end: everything is measured again, after the last slot.
        classes: number of the class (firmware, model) of each (rail, node), as the snapshot tells it.
    """

    pod: int
    spines: int
    fabric: Fabric
    rng: np.random.Generator
    able: Floats
    factor: Floats
    logs: Floats
    rates: Floats
    failed: Bools
    classes: Ints
    kept: dict[str, Floats] = field(default_factory=dict)
    at_the_end: bool = False

    def once(self, name: str, draw: Callable[[], Floats]) -> Floats:
        """Return what `draw` gave the first time: what a part is like stays when it is measured again."""
        if name not in self.kept:
            self.kept[name] = draw()
        return self.kept[name]

    @property
    def rails(self) -> int:
        """How many rails."""
        return int(self.factor.shape[0])

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return int(self.factor.shape[1])

    def rounds(self) -> tuple[Ints, int]:
        """Return the round in which two nodes meet, and how many rounds a rail takes (the circle method)."""
        places = self.nodes + self.nodes % 2
        last, turns = places - 1, places - 1
        i = np.arange(self.nodes)
        when = (i[:, None] + i[None, :]) % turns
        if last < self.nodes:  # the one that stays meets i where 2i falls
            when[last, :] = when[:, last] = (2 * i) % turns
        return when.astype(np.int64), turns

    def times(self) -> tuple[Ints, int]:
        """Return when each result is measured, in slots: rails one after another, two directions a round."""
        when, turns = self.rounds()
        i = np.arange(self.nodes)
        back = (i[:, None] > i[None, :]).astype(np.int64)
        rail = np.arange(self.rails)[:, None, None] * turns
        steps = self.rails * turns * 2
        times = (rail + when) * 2 + back
        return (np.full_like(times, steps - 1) if self.at_the_end else times), steps


@dataclass(frozen=True)
class Parameter:
    """A number of a model: its value if none is given, its limits, what it is, and who says so."""

    default: float
    low: float
    high: float
    says: str
    source: str = ASSUMED


@dataclass(frozen=True)
class NoiseModel:
    """One kind of noise.

    Attributes:
        name: as on the command line.
        says: what happens in the cluster.
        phase: when it acts.
        act: changes a scene, given the parameters' values.
        parameters: by name.
        hard: healthy, but some of it looks like faults; a localiser may answer "undecided".
        cell: it is the noise of a single result, and takes the place of the shape's own.
        held_out: kept for the last check; no threshold was chosen with it.
    """

    name: str
    says: str
    phase: Phase
    act: Callable[[Scene, Mapping[str, float]], None]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    hard: bool = False
    cell: bool = False
    held_out: bool = False


@dataclass(frozen=True)
class Noise:
    """A model with the values of its parameters."""

    model: NoiseModel
    values: Mapping[str, float]

    def act(self, scene: Scene) -> None:
        """Change a scene."""
        self.model.act(scene, self.values)

    def __str__(self) -> str:
        given = ",".join(
            f"{k}={v:g}" for k, v in self.values.items() if v != self.model.parameters[k].default
        )
        return f"{self.model.name}:{given}" if given else self.model.name


def parse_noise(texts: Iterable[str], models: Mapping[str, NoiseModel]) -> tuple[Noise, ...]:
    """Return the models that MODEL[:KEY=VALUE[,KEY=VALUE]] name.

    Raises:
        BadInput: no such model or parameter, or a value outside of its limits.
    """
    return tuple(_parse(text, models) for text in texts)


def _parse(text: str, models: Mapping[str, NoiseModel]) -> Noise:
    name, _, given = text.partition(":")
    model = models.get(name)
    if model is None:
        raise BadInput(f"--noise {text!r}: unknown model", fix=f"use one of {', '.join(models)}")
    values = {key: p.default for key, p in model.parameters.items()}
    for part in filter(None, given.split(",")):
        key, _, number = part.partition("=")
        limits = model.parameters.get(key)
        if limits is None:
            known = ", ".join(model.parameters) or "none"
            raise BadInput(f"--noise {text!r}: no parameter {key!r}", fix=f"{name} has: {known}")
        try:
            value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
        except ValueError:
            value = float("nan")
        if not limits.low <= value <= limits.high:
            raise BadInput(
                f"--noise {text!r}: {key} {number!r}", fix=f"write {limits.low:g} to {limits.high:g}"
            )
        values[key] = value
    return Noise(model, values)
