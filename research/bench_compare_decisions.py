"""What `shakedown compare` decides of made-up differences: `bench_compare_decisions.py [COMPARISONS]`.

Each comparison has 20 metrics. A node's value varies by 0.3 % from run to run; all nodes of a run share a
shift of their own (sd 0.5 or 1.4 %: a warm room, other jobs). Columns: comparisons called worse, metrics
called worse, metrics called equivalent; with one node of ten or 45 % of the nodes at -5 % in one metric,
how often that metric names exactly those nodes, is called worse, is called equivalent. The rows marked
`aside` chose no constant. Exit status 1 if a number that is asked for does not hold.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from shakedown.daytwo.compare.paired_metrics import ComparisonSettings, MetricComparison, PairedMetric, decide
from shakedown.daytwo.compare.paired_tests import Sides
from shakedown.records.base import Better, Stage
from shakedown.records.plan import PlanItem

SEED, METRICS, CV, LOSS = 20260302, 20, 0.003, 0.05
ITEM = PlanItem(
    stage=Stage.FABRIC,
    test="ib_write_bw",
    metric="bandwidth",
    unit="Gb/s",
    better=Better.HIGHER,
    nodes=(("n0",),),
    reference="rate",
)
Noise = Callable[[np.random.Generator, int], np.ndarray]


def normal(rng: np.random.Generator, nodes: int) -> np.ndarray:
    """One run's noise of all nodes."""
    return CV * rng.standard_normal(nodes)


def heavy(rng: np.random.Generator, nodes: int) -> np.ndarray:
    """Student's t with four degrees of freedom, the same spread."""
    return CV / np.sqrt(2) * rng.standard_t(4, nodes)


def odd(rng: np.random.Generator, nodes: int) -> np.ndarray:
    """Two of a hundred values are 1 to 10 % low."""
    return normal(rng, nodes) - (rng.random(nodes) < 0.02) * rng.uniform(0.01, 0.1, nodes)


def by_leaf(rng: np.random.Generator, nodes: int) -> np.ndarray:
    """Four nodes share half of the variance."""
    leaves = np.repeat(rng.standard_normal((nodes + 3) // 4), 4)[:nodes]
    return CV / np.sqrt(2) * (leaves + rng.standard_normal(nodes))


def by_node(*spreads: float) -> Noise:
    """Return noise whose spread is each node's own, in turn."""
    return lambda rng, nodes: np.resize(spreads, nodes) * rng.standard_normal(nodes)


# name, noise, sd of a run, nodes, untouched nodes, runs a side
ROWS: dict[str, tuple[Noise, float, int, int, int]] = {
    "1 run, no controls, runs 0.5 %": (normal, 0.005, 10, 0, 1),
    "1 run, no controls, runs 1.4 %": (normal, 0.014, 10, 0, 1),
    "1 run, 12 of 24 untouched": (normal, 0.014, 24, 12, 1),
    "3 runs, no controls, runs 0.5 %": (normal, 0.005, 10, 0, 3),
    "3 runs, no controls, runs 1.4 %": (normal, 0.014, 10, 0, 3),
    "3 runs, 10 of 20 untouched": (normal, 0.014, 20, 10, 3),
    "3 runs, t4, no controls": (heavy, 0.005, 10, 0, 3),
    "3 runs, 60 nodes, no controls": (normal, 0.005, 60, 0, 3),
}
ASIDE: dict[str, tuple[Noise, float, int, int, int]] = {
    "3 runs, a quarter of nodes noisy": (by_node(CV, CV, CV, 4 * CV), 0.005, 10, 0, 3),
    "3 runs, a noisy one": (by_node(*[CV] * 9, 10 * CV), 0.005, 10, 0, 3),
    "3 runs, odd values, no controls": (odd, 0.005, 10, 0, 3),
    "3 runs, leaves move, 10 of 20 untouched": (by_leaf, 0.005, 20, 10, 3),
    "1 run, leaves move, 12 of 24 untouched": (by_leaf, 0.005, 24, 12, 1),
}


def one(
    setting: tuple[Noise, float, int, int, int], rng: np.random.Generator, sick: set[str]
) -> tuple[MetricComparison, ...]:
    """Return the decisions of one comparison; the sick lost 5 % of metric 0."""
    noise, run_sd, nodes, untouched, runs = setting
    names = [f"n{i}" for i in range(nodes)]
    treated = frozenset(names[: nodes - untouched])
    drafts = []
    for metric in range(METRICS):
        sides = []
        for late in (False, True):
            side = []
            for _ in range(runs):
                values = run_sd * rng.standard_normal() + noise(rng, nodes)
                if late and metric == 0:
                    values = values + np.array([-LOSS if n in sick else 0.0 for n in names])
                side.append(dict(zip(names, values.tolist(), strict=True)))
            sides.append(side)
        # As the folders are read: against the level before of each cell.
        level = {n: float(np.median([run[n] for run in sides[0]])) for n in names}
        sides = [[{n: (v - level[n]) / (1 + level[n]) for n, v in run.items()} for run in s] for s in sides]
        both = Sides(sides[0], sides[1], treated, frozenset(names) - treated, 1e-5)
        drafts.append(PairedMetric(f"m{metric}", ITEM, both, (), exact=False, whole=False))
    return decide(drafts, ComparisonSettings())


def row(name: str, count: int) -> list[float]:
    """Print one row; return its figures."""
    setting = (ROWS | ASIDE)[name]
    number = [*ROWS, *ASIDE].index(name)
    treated = setting[2] - setting[3]
    figures: list[float] = []
    healthy = [one(setting, np.random.default_rng([SEED, number, i]), set()) for i in range(count)]
    figures.append(float(np.mean([any(m.decision == "worse" for m in ms) for ms in healthy])))
    for word in ("worse", "equivalent"):
        figures.append(float(np.mean([m.decision == word for ms in healthy for m in ms])))
    for share in (0.1, 0.45):
        sick = {f"n{i}" for i in range(max(1, int(share * treated)))}
        found = [one(setting, np.random.default_rng([SEED, number, i, 7]), sick)[0] for i in range(count)]
        figures.append(float(np.mean([{s.node for s in m.worse} >= sick for m in found])))
        figures.append(float(np.mean([m.decision == "worse" for m in found])))
        figures.append(float(np.mean([m.decision == "equivalent" for m in found])))
    aside = " (aside)" if name in ASIDE else ""
    print(f"| {name}{aside} | " + " | ".join(f"{100 * f:.1f} %" for f in figures) + " |", flush=True)
    return figures


def bootstrap(count: int) -> float:
    """Return how often a bootstrap over three runs a side finds a change where there is none, at 5 %."""
    rng = np.random.default_rng(SEED)
    found = 0
    for _ in range(count):
        before, after = rng.standard_normal(3), rng.standard_normal(3)
        picks = rng.integers(0, 3, (2, 2000, 3))
        shifts = after[picks[1]].mean(axis=1) - before[picks[0]].mean(axis=1)
        low, high = np.quantile(shifts, (0.025, 0.975))
        found += bool(low > 0 or high < 0)
    return found / count


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print("| runs | worse | metrics worse | equivalent | 1 of 10 named | worse | equivalent ", end="")
    print("| 45 % named | worse | equivalent |")
    print("|---" * 10 + "|")
    missed = []
    for name in (*ROWS, *ASIDE):
        worse, _, _, named, _, alike, _, _, alike_45 = row(name, count)
        missed += [f"{name}: worse in {worse:.1%}"] if worse > 0.05 and name in ROWS else []
        missed += (
            [f"{name}: named in {named:.1%}"] if name.startswith("3") and name in ROWS and named < 0.9 else []
        )
        missed += [f"{name}: called equivalent"] if max(alike, alike_45) > 0.01 else []
    print(
        f"bootstrap over three runs a side, no change: {bootstrap(1000):.1%} called different (5 % is stated)"
    )
    for line in missed:
        print(f"missed: {line}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
