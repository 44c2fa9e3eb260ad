"""How often a card that got slower is named, and a healthy one blamed: by its fellows, and by its own runs.

bench_gpu_cards.py [NODES]      default 4000 simulated nodes of eight cards a row
"""

from __future__ import annotations

import random
import sys

from shakedown.benchmarks.gpu_rate.output import RUN_TO_RUN
from shakedown.statistics.robust import behind_fellows, behind_itself

# Between cards 0.93 % (the first ten H200 of fourteen, reference h200-rate-bf16). One
# card from run to run: 0.12 % in recorded series, 0.33 % in the worst four runs; days apart nobody measured.
BETWEEN, CARDS, LOSSES = (0.0093, 12), 8, (0.0, 0.005, 0.007, 0.01, 0.02, 0.03, 0.05)


def fellows(draw: random.Random, loss: float, _noise: float, _runs: int) -> list[bool | None]:
    """One node by the rule among fellows; the first card lost something."""
    rates = [660 * draw.gauss(1, BETWEEN[0]) for _ in range(CARDS)]
    rates[0] *= 1 - loss
    return behind_fellows(rates, spread=BETWEEN[0], cards=BETWEEN[1], min_effect=0.02)


def own(draw: random.Random, loss: float, noise: float, runs: int) -> list[bool | None]:
    """The same with so many accepted runs of each card, which differ by so much."""
    told = []
    for card in range(CARDS):
        level = 660 * draw.gauss(1, BETWEEN[0]) * (1.0 - (loss if card == 0 else 0.0))
        before = [level / (1 - (loss if card == 0 else 0.0)) * draw.gauss(1, noise) for _ in range(runs)]
        now = level * draw.gauss(1, noise)
        told.append(behind_itself(now, before, known=RUN_TO_RUN, members=CARDS))
    return told


def main(argv: list[str]) -> int:
    """Print a row of each rule."""
    nodes = int(argv[1]) if len(argv) > 1 else 4000
    print("per cent of nodes: named (undecided) by loss of one card; others or healthy nodes blamed")
    rows = [("fellows", fellows, 0.0, 0)]
    rows += [
        (f"own, {runs} runs, {noise:.2%}", own, noise, runs)
        for noise in (0.0012, 0.002, 0.0033)
        for runs in (1, 3, 8)
    ]
    for name, rule, noise, runs in rows:
        draw, cells, blamed, undecided = random.Random(47), [], 0, 0
        for loss in LOSSES:
            told = [rule(draw, loss, noise, runs) for _ in range(nodes)]
            if loss == 0.0:
                blamed = sum(True in one for one in told)
                undecided = sum(None in one and True not in one for one in told)
                continue
            first = [one[0] for one in told]
            cells.append(
                f"-{loss:.1%}: {100 * first.count(True) / nodes:.0f} ({100 * first.count(None) / nodes:.0f})"
            )
        healthy = f"healthy: {100 * blamed / nodes:.2f} blamed, {100 * undecided / nodes:.1f} undecided"
        print(f"{name:20}", "  ".join(cells), "|", healthy, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
