"""How localisation holds in real clusters' noise: `tests/bench/bench_localise_noise.py FILE [options]`.

Noise models x sizes x faults (simulate/benchmark.py), no path known. Every case's outcome is a line of FILE;
a second start goes on where the first one stopped. `--series 1` draws other seeds than thresholds were chosen
with; `--rows` and `--sizes` choose a part. Confidence is held against what came out, with its Brier score.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from shakedown.simulate.benchmark import FAULTS, HARD, HELD_OUT, ROWS, SIZES, case, judge, ours

Line = dict[str, Any]
BINS = (0.0, 0.5, 0.9, 0.99, 1.01)


def main() -> None:
    """Measure what FILE lacks, then print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--healthy", type=int, default=300)
    parser.add_argument("--faulty", type=int, default=50)
    parser.add_argument("--series", type=int, default=0)
    args = parser.parse_args()
    lines = [json.loads(text) for text in args.file.read_text().splitlines()] if args.file.exists() else []
    done = {_key(line) for line in lines}
    with args.file.open("a") as file:
        for row in args.rows.split(","):
            for size in args.sizes.split(","):
                for fault in FAULTS:
                    for number in range(args.healthy if fault == "none" else args.faulty):
                        key = (row, size, fault, number)
                        if (args.series, *key) in done:
                            continue
                        sim = case(*key, args.series)
                        line = {"series": args.series, **asdict(judge(sim, ours(sim), key))}
                        file.write(json.dumps(line) + "\n")
                        lines.append(line)
                print(*_row(row, size, [x for x in lines if (x["row"], x["size"]) == (row, size)]), sep=" | ")
    for name, rows in (("tuned on", set(ROWS) - HELD_OUT), ("held out", HELD_OUT)):
        print(*_reliability(name, [x for x in lines if x["row"] in rows]), sep="\n")


def _key(line: Line) -> tuple[int, str, str, str, int]:
    return line["series"], line["row"], line["size"], line["fault"], line["number"]


def _row(row: str, size: str, lines: list[Line]) -> Iterator[str]:
    by_fault: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_fault[line["fault"]].append(line)
    kind = "hard" if row in HARD else "held out" if row in HELD_OUT else "benign"
    healthy = by_fault["none"]
    yield f"{row} {size}, {kind}"
    yield f"{sum(x['wrong'] > 0 for x in healthy)} of {len(healthy)}"
    yield str(sum(x["undecided"] for x in healthy))
    for fault in FAULTS[1:]:
        many = max(1, len(by_fault[fault]))
        named, first, wrong = (
            100 * sum(x[what] > 0 for x in by_fault[fault]) / many for what in ("named", "first", "wrong")
        )
        yield f"{named:.0f} / {first:.0f} / {wrong:.0f}"


def _reliability(name: str, lines: list[Line]) -> Iterator[str]:
    claims = [(float(c), bool(right)) for line in lines for c, right in line["claims"]]
    if not claims:
        return
    brier = sum((c - right) ** 2 for c, right in claims) / len(claims)
    yield f"\n{name}: {len(claims)} claims, Brier score {brier:.4f}"
    for low, high in pairwise(BINS):
        inside = [right for c, right in claims if low <= c < high]
        if inside:
            right = f"{sum(inside) / len(inside):.1%} right"
            yield f"confidence {low:.2f} to {min(high, 1):.2f} | {len(inside)} | {right}"


if __name__ == "__main__":
    main()
