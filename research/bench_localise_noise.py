"""How localisation holds in real clusters' noise: `research/bench_localise_noise.py FILE [options]`.

Noise models x sizes x faults (localiser_cases.py), no path known. Every case's outcome is a line of FILE;
a second start goes on where the first one stopped. `--series 1` draws other seeds than thresholds were chosen
with; `--rows` and `--sizes` choose a part. `--others` lets other methods judge the same cases
(other_localisers.py). Then what a blame's evidence is worth is counted, and its confidence held against what
came out: of a row that is held out by all other rows, of another by all but itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from localiser_cases import (
    FAULTS,
    HELD_OUT,
    ROWS,
    SIZES,
    CaseScore,
    brier,
    case,
    judge,
    kind_of,
    ours,
    planted,
    summary,
)
from other_localisers import METHODS, answers
from shakedown.judge.localise.causes import Cause
from shakedown.judge.localise.fit import COUNTED, BlameEvidence, Counted

Line = dict[str, Any]
BINS = (0.0, 0.5, 0.9, 0.95, 0.99, 1.01)
OURS = "localise"
# What a kind of evidence is worth is counted where the fit sees no other explanation; else its doubt would
# count twice.
CLEAR_POSTERIOR = 0.95


class Claim(NamedTuple):
    """A blame: its row, what it rests on, the fit's own probability, and whether it is right."""

    row: str
    evidence: BlameEvidence
    posterior: float
    right: bool


def main() -> None:
    """Measure what FILE lacks, then print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--healthy", type=int, default=300)
    parser.add_argument("--faulty", type=int, default=50)
    parser.add_argument("--series", type=int, default=0)
    parser.add_argument("--others", action="store_true")
    args = parser.parse_args()
    lines = [json.loads(text) for text in args.file.read_text().splitlines()] if args.file.exists() else []
    done = {_key(line) for line in lines}
    with args.file.open("a") as file:
        for row in args.rows.split(","):
            for size in args.sizes.split(","):
                for fault in args.faults.split(","):
                    for number in range(args.healthy if fault == "none" else args.faulty):
                        key = (row, size, fault, number)
                        if (args.series, *key) in done:
                            continue
                        for line in _outcomes(key, args.series, others=args.others):
                            file.write(json.dumps(line) + "\n")
                            lines.append(line)
                    file.flush()
                here = [x for x in lines if (x["row"], x["size"]) == (row, size)]
                for method in dict.fromkeys(x["method"] for x in here):
                    of_method = [x for x in here if x["method"] == method]
                    print("", method, *_row(row, size, of_method), "", sep=" | ", flush=True)
    _report([x for x in lines if x["method"] == OURS])


def _outcomes(key: tuple[str, str, str, int], series: int, *, others: bool) -> Iterator[Line]:
    sim = case(*key, series)
    causes = ours(sim)
    found: dict[str, Any] = {OURS: causes}
    if others:
        found |= {name: answers(name, sim) for name in METHODS}
    for method, named in found.items():
        line = {"series": series, "method": method, **asdict(judge(planted(sim), named, key))}
        if method == OURS:
            worth = [_worth(c) for c in causes if c.blamed]
            line["worth"] = worth
            # What the fit itself makes of it against other explanations, before what the evidence is worth.
            line["posterior"] = [
                confidence / COUNTED[BlameEvidence(w)].rate if w else confidence
                for w, (confidence, _) in zip(worth, line["claims"], strict=True)
            ]
        yield line


def _worth(cause: Cause) -> str:
    """Return the evidence that a cause's confidence comes from: the highest of its findings."""
    return max((f for f in cause.findings if f.blamed), key=lambda f: f.confidence).worth


def _key(line: Line) -> tuple[int, str, str, str, int]:
    return line["series"], line["row"], line["size"], line["fault"], line["number"]


def _row(row: str, size: str, lines: list[Line]) -> list[str]:
    names = [f.name for f in fields(CaseScore)]
    return [f"{row} {size}, {kind_of(row)}", *summary([CaseScore(**{n: x[n] for n in names}) for x in lines])]


def _report(lines: list[Line]) -> None:
    claims = [
        Claim(line["row"], BlameEvidence(worth), posterior, bool(right))
        for line in lines
        for worth, posterior, (_, right) in zip(line["worth"], line["posterior"], line["claims"], strict=True)
        if worth
    ]
    print("\nwhat a blame's evidence is worth, rows that are not held out: claims, right")
    for evidence in BlameEvidence:
        counted = _count(claims, evidence, HELD_OUT)
        print(f"{evidence.name} | {counted.claims} | {counted.right} | {counted.rate:.4f}")
    for name, tested in (
        ("not held out, each by the others", set(ROWS) - HELD_OUT),
        ("held out", set(HELD_OUT)),
    ):
        stated = [
            (claim.posterior * _count(claims, claim.evidence, HELD_OUT | {claim.row}).rate, claim.right)
            for claim in claims
            if claim.row in tested
        ]
        print(*_reliability(name, stated), sep="\n")


def _count(claims: list[Claim], evidence: BlameEvidence, without: frozenset[str]) -> Counted:
    if evidence is BlameEvidence.BESIDE:  # no case has two faults, so these are wrong by construction
        return Counted(0, 0)
    right = [
        c.right
        for c in claims
        if c.evidence == evidence and c.row not in without and c.posterior >= CLEAR_POSTERIOR
    ]
    return Counted(len(right), sum(right))


def _reliability(name: str, claims: list[tuple[float, bool]]) -> Iterator[str]:
    if not claims:
        return
    yield f"\n{name}: {len(claims)} claims, Brier score {brier(claims):.4f}"
    for low, high in pairwise(BINS):
        inside = [(c, right) for c, right in claims if low <= c < high]
        if inside:
            mean = sum(c for c, _ in inside) / len(inside)
            right = f"{sum(r for _, r in inside) / len(inside):.1%} right"
            yield f"| {low:.2f} to {min(high, 1):.2f} | {len(inside)} | {mean:.1%} | {right} |"


if __name__ == "__main__":
    main()
