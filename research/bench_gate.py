"""Does a healthy cluster pass and a sick one fail? `research/bench_gate.py FILE [options]`.

Noise models x {healthy, one NIC at -5 %, at -2 %, a pair at -20 %}, 64 nodes x 8 rails, every run judged by
the verdict's rules from its measurements and re-measurements: on arrays (gate_arrays.py), and every
hundredth run by the verdict itself too, which must say the same. Every run is a line of FILE; a second start
goes on.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from zlib import crc32

import numpy as np

from gate_arrays import Judgement, judge_arrays
from localiser_cases import ROWS, SIZES
from noise_models import parse_noise
from shakedown.judge.verdict import judge
from shakedown.records.base import Better, Stage
from shakedown.records.plan import Plan
from shakedown.records.results import Measurement, RunProblem
from shakedown.simulate.fabric import FaultKind, Simulated, build_fabric, draw_fault, measure
from shakedown.simulate.run import METRIC, REFERENCE, SIZE_BYTES, TEST, attempts, plan_of, remeasure_rule

# The rows that chose the budget, then those that no number was chosen with.
TUNED = (
    "iid",
    "t4",
    "contamination",
    "ar",
    "leaf-ar",
    "thermal",
    "spread",
    "quantised",
    "missing",
    "classes",
    "classes-half",
    "classes-three",
)
HELD_OUT = ("laplace", "periodic", "uneven")
FAULTS = {"healthy": (), "NIC -5 %": ("nic", 0.05), "NIC -2 %": ("nic", 0.02), "pair -20 %": ("pair", 0.2)}
_NICS = (FaultKind.NIC_TX, FaultKind.NIC_RX)
# The verdict itself judges one run of so many as well.
WHOLE_EVERY = 100
_PLANS: dict[str, Plan] = {}


def main() -> None:
    """Judge what FILE lacks, then print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", default=",".join((*TUNED, *HELD_OUT)))
    parser.add_argument("--size", default="64x8", choices=SIZES)
    parser.add_argument("--faults", default="healthy,NIC -5 %")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first-results-only", action="store_true", help="as before: nothing again")
    parser.add_argument("--series", type=int, default=0, help="other seeds")
    args = parser.parse_args()
    lines = [json.loads(x) for x in args.file.read_text().splitlines()] if args.file.exists() else []
    done = {tuple(line["key"]) for line in lines}
    with args.file.open("a") as file:
        for number in range(args.count):
            for row in args.rows.split(","):
                for fault in args.faults.split(","):
                    key = (args.series, row, args.size, fault, not args.first_results_only, number)
                    if key not in done:
                        line = {"key": key, **_one(*key)}
                        file.write(json.dumps(line) + "\n")
                        file.flush()
                        lines.append(json.loads(json.dumps(line)))
    _table(lines)


def _one(series: int, row: str, size: str, fault: str, again: bool, number: int) -> dict[str, object]:
    # Two re-measurements settle nearly every cell of a healthy mesh; of the same seed they are the same two.
    for times in (0,) if not again else (6,) if FAULTS[fault] else (2, 6):
        sim = _simulated(series, row, size, fault, number, times)
        plan = _plan(sim, size)
        found = judge_arrays(sim, plan)
        if found is not None:
            break
    whole = found is None or number % WHOLE_EVERY == 0
    if whole:
        verdict = _by_verdict(sim, plan)
        if found not in (None, verdict):
            raise SystemExit(f"{row} {fault} {number}: the verdict says {verdict}, the arrays {found}")
        found = verdict
    assert found is not None
    return {**asdict(found), "whole": whole}


def _simulated(series: int, row: str, size: str, fault: str, number: int, again: int) -> Simulated:
    rng = np.random.default_rng([2028, series, crc32(f"{row} {size} {fault}".encode()), number])
    shape = SIZES[size]
    fabric = build_fabric(shape, rng)
    faults = []
    if FAULTS[fault]:
        what, loss = FAULTS[fault]
        kind = FaultKind.PAIR if what == "pair" else _NICS[number % 2]
        faults = [draw_fault(kind, loss, shape, fabric, rng)]
    return measure(shape, fabric, faults, rng, parse_noise(ROWS[row]), again=again)


def _plan(sim: Simulated, size: str) -> Plan:
    """Return the plan of a run: that of another of the same size, but for how often is measured again."""
    if size not in _PLANS:
        plan = plan_of(sim, "bench", "2026-01-01T00:00:00Z")
        _PLANS[size] = plan.model_copy(update={"items": plan.items[:1]})  # counters are not asked for here
    return _PLANS[size].model_copy(update={"remeasure": remeasure_rule(sim)})


def _by_verdict(sim: Simulated, plan: Plan) -> Judgement:
    verdict = judge(plan, _measurements(sim, plan.references[REFERENCE].gate))
    rules = Counter(cell.rule for cell in verdict.cells)
    return Judgement(verdict.outcome.value, len(verdict.transients), dict(rules))


def _measurements(sim: Simulated, gate: float) -> list[Measurement]:
    names, rails = sim.matrix.nodes, sim.matrix.rails
    params: dict[str, object] = {"size_bytes": SIZE_BYTES, "rails_at_once": "one"}
    lost = RunProblem(kind="other", message="no value")
    return [
        # Not validated one by one: 32,000 a run.
        Measurement.model_construct(
            run="bench",
            stage=Stage.FABRIC,
            test=TEST,
            metric=METRIC,
            value=None if np.isnan(value) else value,
            unit="Gb/s",
            better=Better.HIGHER,
            nodes=(names[min(a, b)], names[max(a, b)]),
            rail=rails[r],
            direction="forward" if a < b else "reverse",
            params=params,
            state="COMPLETED",
            attempt=attempt,
            problem=lost if np.isnan(value) else None,
        )
        for r, a, b, attempt, value in attempts(sim, gate)
    ]


def _table(lines: list[dict[str, object]]) -> None:
    runs: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for line in lines:
        key = line["key"]
        assert isinstance(key, list)
        runs.setdefault(tuple(key[:5]), []).append(line)
    for (series, row, size, fault, again, *_), found in sorted(runs.items(), key=str):
        outcomes = Counter(str(x["outcome"]) for x in found)
        again_text = "with re-measuring" if again else "first results only"
        held = " (held out)" if row in HELD_OUT else ""
        most = max(int(str(x["transients"])) for x in found)
        told = ", ".join(f"{o} {n}" for o, n in sorted(outcomes.items()))
        print(
            row + held,
            size,
            fault,
            again_text,
            f"{told} of {len(found)}",
            f"up to {most} again",
            f"{sum(bool(x['whole']) for x in found)} by the verdict too",
            series,
            sep=" | ",
        )


if __name__ == "__main__":
    main()
