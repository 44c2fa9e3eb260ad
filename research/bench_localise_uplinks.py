"""How often a bad uplink or spine of 32 leaves and 8 spines is named, where the paths of flows are known.

`research/bench_localise_uplinks.py [--runs N] [--nodes N]`: simulated fabrics (simulate/fabric.py), the
same seeds always; a leaf has nodes / 32 nodes. Healthy fabrics, a bad uplink and a bad spine at -2 %, and
at -1 % to show where it ends. A part that is good and blamed, in a run of any kind, is false.

Exit status 1 when at -2 % fewer than 99 % are named, or when more than one run in 1,000 blames a good part.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from shakedown.judge.localise.causes import localise
from shakedown.judge.localise.model import Route
from shakedown.simulate.fabric import FaultKind, Shape, build_fabric, draw_fault, measure

LEAVES, SPINES = 32, 8
CASES = (
    (None, 0.0),
    (FaultKind.UPLINK, 0.02),
    (FaultKind.SPINE, 0.02),
    (FaultKind.UPLINK, 0.01),
    (FaultKind.SPINE, 0.01),
)
ASKED, NAMED, FALSE = 0.02, 0.99, 1e-3


def one(kind: FaultKind | None, size: float, shape: Shape, seed: int) -> tuple[bool, int]:
    """Return whether the planted part was blamed, and how many good ones were."""
    rng = np.random.default_rng([24, shape.nodes, round(1000 * size), seed, kind == FaultKind.SPINE])
    fabric = build_fabric(shape, rng)
    faults = [] if kind is None else [draw_fault(kind, size, shape, fabric, rng)]
    sim = measure(shape, fabric, faults, rng)
    blamed = [cause.element for cause in localise([Route((sim.matrix,), sim.fabric)]) if cause.blamed]
    planted = {fault.element for fault in faults}
    return bool(planted & set(blamed)), sum(element not in planted for element in blamed)


def main() -> None:
    """Print the table and check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000, help="of each case")
    parser.add_argument("--nodes", type=int, default=4 * LEAVES, help="a multiple of 32")
    given = parser.parse_args()
    shape = Shape(given.nodes, 1, pod=given.nodes // LEAVES, spines=SPINES)
    missed: list[str] = []
    print(f"{LEAVES} leaves x {SPINES} spines, {shape.nodes} nodes, cv {shape.cv:.1%}")
    print("fault         loss    runs   named  runs with a good part blamed")
    for kind, size in CASES:
        found = [one(kind, size, shape, seed) for seed in range(given.runs)]
        named, false = sum(hit for hit, _ in found), sum(wrong > 0 for _, wrong in found)
        name = "none" if kind is None else kind.value
        print(f"{name:12} {size:>5.0%} {given.runs:>7} {named:>7} {false:>6}", flush=True)
        if size == ASKED and named < NAMED * given.runs:
            missed.append(f"{name} at -{size:.0%}: {named} of {given.runs} named")
        if false > FALSE * given.runs:
            missed.append(f"{name} at -{size:.0%}: {false} of {given.runs} runs blame a good part")
    for line in missed:
        print(f"MISSED {line}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
