"""The benchmark of localisers: noise models x sizes x faults, each case from its own seed.

A case is a measured fabric and the truth about it. `judge` says of an answer what the table counts: whether
good hardware was blamed, the planted part named, and named first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from noise_models import NOISE, parse_noise
from shakedown.judge.localise.causes import Cause, localise
from shakedown.judge.localise.model import Element, Route
from shakedown.simulate.fabric import (
    FaultKind,
    PlantedFault,
    Shape,
    Simulated,
    build_fabric,
    draw_fault,
    measure,
)

SIZES = {"16x4": Shape(16, 4, pod=8, spines=4), "64x8": Shape(64, 8)}
# A row of the table: its name, and the models that act together in it.
ROWS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in NOISE},
    "spread-quiet": ("iid:cv=0.1%", "spread"),
    "quantised-quiet": ("iid:cv=0.1%", "quantised", "spread:sd=0.1%"),
    "ar-strong": ("ar:sd=1%,rho=0.98",),
    "classes-half": ("classes:share=50%",),
    "classes-three": ("classes:share=60%,classes=3",),
    "classes-untold": ("classes:known=0",),
    "several": ("t4", "spread:sd=0.2%", "thermal", "missing"),
    "all-benign": (
        "t4",
        "contamination",
        "spread:sd=0.1%",
        "leaf-ar",
        "classes",
        "quantised:step=1",
        "missing",
    ),
    "mixed": ("laplace", "uneven:cv=0.2%", "periodic", "quantised:step=1", "missing:share=5%"),
}
# Rows of which a localiser need not make anything but "undecided".
HARD = frozenset({"classes-untold", *(name for name, model in NOISE.items() if model.hard)})
HELD_OUT = frozenset({"mixed", *(name for name, model in NOISE.items() if model.held_out)})
# What is planted; the part of a NIC or a node is drawn anew for every case.
FAULTS = ("none", "2%", "5%", "20%", "pair", "flapping")
_PARTS = (FaultKind.NIC_TX, FaultKind.NIC_RX, FaultKind.LOSSY_CABLE, FaultKind.SLOW_NODE)
_PAIR_LOSS = 0.2
# Of its results, three in ten, by half of this to all of it (fabric.py).
_FLAPPING_LOSS = 0.3
# Seeds of cases that thresholds may be chosen with, and of those that only check them.
TUNING, CHECKING = 0, 1


@dataclass(frozen=True)
class Blame:
    """What a localiser says of one part. Its answers stand in their order, the surest first.

    Attributes:
        element: the part.
        blamed: whether it is blamed; else it is a suspect.
        confidence: how sure it is, 0 to 1; None: it does not say.
    """

    element: Element
    blamed: bool
    confidence: float | None = None


@dataclass(frozen=True)
class CaseScore:
    """What a localiser made of one case.

    Attributes:
        row, size, fault, number: the case.
        blamed: how many parts it blamed.
        wrong: how many of them are good.
        named: the planted part is blamed (a pair: named).
        first: the planted part comes first.
        undecided: nothing is blamed, but something is suspected.
        claims: (confidence, right) of every part that is blamed.
    """

    row: str
    size: str
    fault: str
    number: int
    blamed: int
    wrong: int
    named: bool
    first: bool
    undecided: bool
    claims: tuple[tuple[float, bool], ...]


def case(row: str, size: str, fault: str, number: int, series: int = TUNING) -> Simulated:
    """Return a case: the same one whenever it is asked for."""
    shape = SIZES[size]
    rng = np.random.default_rng([2027, series, crc32(f"{row} {size} {fault}".encode()), number])
    fabric = build_fabric(shape, rng)
    faults: list[PlantedFault] = []
    if fault == "pair":
        faults = [draw_fault(FaultKind.PAIR, _PAIR_LOSS, shape, fabric, rng)]
    elif fault == "flapping":
        faults = [draw_fault(FaultKind.FLAPPING, _FLAPPING_LOSS, shape, fabric, rng)]
    elif fault != "none":
        kind = _PARTS[number % len(_PARTS)]
        faults = [draw_fault(kind, float(fault.removesuffix("%")) / 100, shape, fabric, rng)]
    return measure(shape, fabric, faults, rng, parse_noise(ROWS[row]))


def ours(sim: Simulated) -> list[Cause]:
    """Localisation as the command does it where no path is known, as on every real fabric so far."""
    fabric = replace(sim.fabric, spine=None, spines=())
    return localise([Route((sim.matrix,), fabric)])


def planted(sim: Simulated) -> list[Element]:
    """Return the parts that are bad."""
    return [fault.element for fault in sim.faults]


def judge(
    faults: Sequence[Element], causes: Sequence[Cause | Blame], key: tuple[str, str, str, int]
) -> CaseScore:
    """Return what an answer is worth, given the parts that were planted."""
    blamed = [c for c in causes if c.blamed]
    right = [any(is_part(c.element, p) for p in faults) for c in blamed]
    pair = bool(faults) and faults[0].kind == "pair"
    told = causes if pair else blamed
    return CaseScore(
        *key,
        blamed=len(blamed),
        wrong=right.count(False),
        named=any(is_part(c.element, p) for c in told for p in faults),
        first=bool(told) and bool(faults) and is_part(told[0].element, faults[0]),
        undecided=bool(causes) and not blamed,
        claims=tuple(
            (c.confidence, r) for c, r in zip(blamed, right, strict=True) if c.confidence is not None
        ),
    )


def published(sim: Simulated) -> Simulated:
    """Return a case as it is written for others: nothing in its files but results tells what is planted."""
    return replace(sim, fabric=replace(sim.fabric, spine=None, spines=()), lossy=(), flapped=())


def summary(outcomes: Sequence[CaseScore]) -> list[str]:
    """Return the cells of a row of the table.

    Of healthy cases, how many had good hardware blamed, and how many were undecided; of each fault, per cent
    named, named first, and with good hardware blamed.
    """
    healthy = [o for o in outcomes if o.fault == "none"]
    cells = [f"{sum(o.wrong > 0 for o in healthy)} of {len(healthy)}", str(sum(o.undecided for o in healthy))]
    for fault in FAULTS[1:]:
        of_fault = [o for o in outcomes if o.fault == fault]
        many = len(of_fault) / 100
        parts = [sum(x) / many if many else 0.0 for x in zip(*map(_counts, of_fault), strict=True)]
        cells.append(" / ".join(f"{part:.0f}" for part in parts) or "-")
    return cells


def _counts(outcome: CaseScore) -> tuple[bool, bool, bool]:
    return outcome.named, outcome.first, outcome.wrong > 0


def brier(claims: Sequence[tuple[float, bool]]) -> float:
    """Return the mean squared distance of confidences from what came out: 0 is best (Brier 1950)."""
    return sum((confidence - right) ** 2 for confidence, right in claims) / len(claims)


def kind_of(row: str) -> str:
    """Return what is asked of a row."""
    return "hard" if row in HARD else "held out" if row in HELD_OUT else "benign"


def is_part(found: Element, planted: Element) -> bool:
    """Whether the planted part is meant: NIC or node, rail and direction must all be right."""
    kind = "nic" if found.kind in {"cable", "port"} else found.kind
    return (kind, found.node, found.peer, found.rail, found.direction) == (
        planted.kind,
        planted.node,
        planted.peer,
        planted.rail,
        planted.direction,
    )
