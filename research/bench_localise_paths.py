"""Whom localisation blames when it cannot see the paths, and how many bad NICs at once it names.

`research/bench_localise_paths.py`: simulated fabrics (simulate/fabric.py), the same seeds always;
`--series 1` draws others. An uplink is bad and no `paths.jsonl` says who crosses it, so nobody can name it; a
NIC or a node named for it is a good one drained. Then one to four NICs of one leaf flap.

Exit status 1 when a number that docs/evidence/localisation.md states is missed.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from shakedown.judge.localise.causes import Cause, localise
from shakedown.judge.localise.model import Cabling, Element, Route
from shakedown.simulate.fabric import (
    FaultKind,
    PlantedFault,
    Shape,
    Simulated,
    build_fabric,
    draw_fault,
    measure,
)

SHAPES = (
    Shape(24, 2, pod=4, spines=2),
    Shape(32, 2, pod=4, spines=4),
    Shape(48, 2, pod=12),
    Shape(64, 2, pod=16, spines=1),
    Shape(128, 1, pod=16),
)
FLAPPING = (Shape(32, 2, pod=8), Shape(48, 2, pod=12), Shape(64, 2, pod=16))
SEEDS = 25
# Runs of an uplink in which a good NIC or node is blamed: one in ten where leaves have four NICs, none above.
MOST_WRONG = {4: 0.1}


def seen(sim: Simulated, leaves: bool) -> list[Cause]:
    """Localise without paths, with or without the cabling."""
    fabric = sim.fabric
    blind = Cabling(fabric.leaf, fabric.leaves) if leaves else Cabling.unknown(*fabric.leaf.shape)
    return localise([Route((sim.matrix,), blind)])


def uplinks(series: int) -> list[str]:
    """Print who is blamed for an uplink of unknown path; return what misses its number."""
    missed: list[str] = []
    print("uplink of unknown path    loss  leaves   runs  good part blamed  leaf blamed  suspects  silent")
    for shape in SHAPES:
        for size in (0.1, 0.5):
            for leaves in (True, False):
                wrong = leaf = suspects = silent = 0
                for seed in range(SEEDS):
                    rng = np.random.default_rng([seed, shape.nodes, shape.pod, series])
                    fabric = build_fabric(shape, rng)
                    fault = draw_fault(FaultKind.UPLINK, size, shape, fabric, rng)
                    causes = seen(measure(shape, fabric, [fault], rng), leaves)
                    blamed = [c.element for c in causes if c.blamed]
                    wrong += any(
                        e.kind in {"nic", "node", "rail"} or e.leaf != fault.element.leaf for e in blamed
                    )
                    leaf += any(e.kind == "leaf" and e.leaf == fault.element.leaf for e in blamed)
                    suspects += bool(causes) and not blamed
                    silent += not causes
                name = f"{shape.nodes} x {shape.rails}, {shape.pod} a leaf, {shape.spines} up"
                known = "known" if leaves else "-"
                print(
                    f"{name:25} {size:>4.0%} {known:>7} {SEEDS:>6} {wrong:>17}"
                    f" {leaf:>12} {suspects:>9} {silent:>7}"
                )
                if wrong > MOST_WRONG.get(shape.pod, 0.0) * SEEDS:
                    missed.append(
                        f"{name}, {size:.0%}, leaves {known}: {wrong} of {SEEDS} runs blame a good part"
                    )
    return missed


def flapping(series: int) -> list[str]:
    """Print how many of several flapping NICs are named; return what misses its number."""
    missed: list[str] = []
    print("\nflapping NICs of one leaf  leaves  runs  named of 1, 2, 3, 4 at once   good part blamed")
    for shape in FLAPPING:
        for leaves in (True, False):
            shares, innocent = [], 0
            for many in (1, 2, 3, 4):
                named = 0
                for seed in range(SEEDS):
                    rng = np.random.default_rng([seed, shape.nodes, many, series])
                    fabric = build_fabric(shape, rng)
                    nics = [Element("nic", node=n, rail="rail0") for n in shape.node_names[:many]]
                    faults = [PlantedFault(FaultKind.FLAPPING, nic, 0.3) for nic in nics]
                    causes = seen(measure(shape, fabric, faults, rng), leaves)
                    blamed = [c.element for c in causes if c.blamed]
                    named += sum(any((e.node, e.rail) == (n.node, n.rail) for e in blamed) for n in nics)
                    innocent += any(e.node not in shape.node_names[:many] for e in blamed)
                shares.append(named / (many * SEEDS))
            name, known = f"{shape.nodes} x {shape.rails}, {shape.pod} a leaf", "known" if leaves else "-"
            told = " ".join(f"{share:>6.0%}" for share in shares)
            print(f"{name:25} {known:>7} {SEEDS:>5} {told:>29} {innocent:>18}")
            if shares[0] < 1 or min(shares) < 0.8 or innocent:
                missed.append(f"flapping, {name}, leaves {known}: {told}, {innocent} innocent")
    return missed


def main() -> None:
    """Print the tables and check them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=0)
    series = parser.parse_args().series
    missed = uplinks(series) + flapping(series)
    for line in missed:
        print(f"MISSED {line}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
