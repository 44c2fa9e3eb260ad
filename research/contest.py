"""The localisers' benchmark as files: runs without a word of what is planted, the truth apart, and the score.

    python research/contest.py write FOLDER --cases N [--row ROW] [--size SIZE] [--seed SEED]
    python research/contest.py score FOLDER ANSWERS

Whoever reads `results.jsonl` can take part: an answer is a line of JSON per run, as `shakedown localise RUN
--json` prints it, of which only what `Answered` names is read (docs/how-to/score-a-localiser.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localiser_cases import (
    FAULTS,
    ROWS,
    SIZES,
    Blame,
    CaseScore,
    brier,
    case,
    judge,
    kind_of,
    planted,
    published,
    summary,
)
from shakedown.judge.localise.model import Element
from shakedown.records.base import Record
from shakedown.records.reading import BadInput, ExitStatus, read_bytes, refusal
from shakedown.records.writing import write_aside
from shakedown.simulate.run import write_run

_CREATED = "2026-01-01T00:00:00Z"
Key = tuple[str, str, str, int]
M = TypeVar("M", bound=BaseModel)


class Part(Record):
    """A planted part; a field that does not apply is empty."""

    kind: str
    node: str = ""
    peer: str = ""
    rail: str = ""
    direction: str = "both"


class Truth(Record):
    """What one run of a benchmark holds: a line of FOLDER.truth.jsonl."""

    run: str
    row: str
    size: str
    fault: str
    number: int
    planted: tuple[Part, ...] = ()


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class NamedPart(_Lenient):
    """A part that a localiser names; what does not apply may be empty, null or absent."""

    kind: str
    node: str | None = None
    peer: str | None = None
    rail: str | None = None
    direction: Literal["tx", "rx", "both"] = "both"
    blamed: bool
    confidence: float | None = Field(default=None, ge=0, le=1)


class Answered(_Lenient):
    """A localiser's answer to one run: what it names, the surest first."""

    run: str
    causes: list[NamedPart]


@dataclass(frozen=True)
class Score:
    """What a localiser's answers are worth, and how many runs it did not answer (it named nothing there)."""

    outcomes: tuple[CaseScore, ...]
    unanswered: int


def truth_of(folder: Path) -> Path:
    """Return where the truth about a benchmark lies: beside its folder, which can then be given away."""
    return folder.resolve().with_name(f"{folder.resolve().name}.truth.jsonl")


def write_benchmark(folder: Path, rows: Sequence[str], sizes: Sequence[str], cases: int, seed: int) -> int:
    """Write `cases` runs of every row, size and fault; return how many that is.

    Their order is drawn, so that a run's name tells nothing.

    Raises:
        BadInput: something is there already, or the disk has no room.
    """
    truth = truth_of(folder)
    for path in (folder, truth):
        if path.exists():
            raise BadInput("is there already", fix="give another folder", file=path)
    keys = list(product(rows, sizes, FAULTS, range(cases)))
    order = np.random.default_rng([seed, len(keys)]).permutation(len(keys))
    folder.mkdir(parents=True)
    lines = _write_cases(folder, [keys[i] for i in order], seed)
    write_aside(truth, b"".join(line.model_dump_json().encode() + b"\n" for line in lines))
    return len(keys)


def _write_cases(folder: Path, keys: Sequence[Key], seed: int) -> Iterator[Truth]:
    width = len(str(len(keys)))
    for place, key in enumerate(keys, 1):
        name = f"case-{place:0{width}d}"
        sim = case(*key, seed)
        write_run(folder / name, published(sim), name, _CREATED)
        parts = tuple(
            Part(kind=e.kind, node=e.node, peer=e.peer, rail=e.rail, direction=e.direction)
            for e in planted(sim)
        )
        row, size, fault, number = key
        yield Truth(run=name, row=row, size=size, fault=fault, number=number, planted=parts)


def score(folder: Path, answers: Path) -> Score:
    """Return what a file of answers to a benchmark is worth.

    Raises:
        BadInput: the truth or an answer cannot be read, or is to a run that is not of the benchmark.
    """
    truth = {line.run: line for _, line in _read(truth_of(folder), Truth)}
    given: dict[str, Answered] = {}
    for number, answer in _read(answers, Answered):
        if answer.run not in truth:
            raise BadInput(
                f"no run {answer.run[:80]!r} is in {folder}",
                fix="name a run of it",
                file=answers,
                line=number,
            )
        if answer.run in given:
            raise BadInput(
                f"a second answer to {answer.run}", fix="give one a run", file=answers, line=number
            )
        given[answer.run] = answer
    outcomes = []
    for run, line in truth.items():
        said = given[run].causes if run in given else []
        found = [Blame(_element(part), part.blamed, part.confidence) for part in said]
        key = (line.row, line.size, line.fault, line.number)
        outcomes.append(judge([_element(part) for part in line.planted], found, key))
    return Score(tuple(outcomes), len(truth) - len(given))


def _element(part: Part | NamedPart) -> Element:
    node, peer = part.node or "", part.peer or ""
    if part.kind == "pair":  # either end may come first
        node, peer = sorted((node, peer))
    return Element(part.kind, node=node, peer=peer, rail=part.rail or "", direction=part.direction)


def _read(path: Path, model: type[M]) -> Iterator[tuple[int, M]]:
    for number, text in enumerate(read_bytes(path).splitlines(), 1):
        if text.strip():
            try:
                yield number, model.model_validate_json(text)
            except ValidationError as error:
                fix = "write a line of JSON a run, with run and causes"
                raise refusal(error, model, file=path, line=number, fix=fix) from None


def table(scored: Score) -> str:
    """Return the table of what a localiser's answers are worth."""
    lines = [
        "Healthy: runs in which a good part is blamed; runs undecided. Faults: per cent of runs in which",
        "the planted part is named / is named first / a good part is blamed.",
        "",
        f"| noise, size | kind | good part blamed | undecided | {' | '.join(FAULTS[1:])} |",
        "|---" * (4 + len(FAULTS[1:])) + "|",
    ]
    for row, size in dict.fromkeys((o.row, o.size) for o in sorted(scored.outcomes, key=lambda o: o.row)):
        cells = summary([o for o in scored.outcomes if (o.row, o.size) == (row, size)])
        lines.append(f"| {row} {size} | {kind_of(row)} | {' | '.join(cells)} |")
    claims = [claim for o in scored.outcomes for claim in o.claims]
    if claims:
        lines += ["", f"{len(claims)} blames with a confidence: Brier score {brier(claims):.4f}"]
    if scored.unanswered:
        many = len(scored.outcomes)
        lines.append(f"{scored.unanswered} of {many} runs have no answer: taken as nothing named")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Write a benchmark or score the answers to one; exit status 2 if the input cannot be used."""
    parser = argparse.ArgumentParser(prog="research/contest.py", description="The localisers' benchmark.")
    doing = parser.add_subparsers(dest="doing", required=True)
    write = doing.add_parser("write", help="write runs to FOLDER and what is planted to FOLDER.truth.jsonl")
    write.add_argument("folder", type=Path)
    write.add_argument("--cases", type=int, default=1, help="of every row, size and fault")
    write.add_argument(
        "--row", action="append", choices=ROWS, metavar="ROW", help="only this noise; may be repeated"
    )
    write.add_argument(
        "--size", action="append", choices=SIZES, metavar="SIZE", help="only this size; may be repeated"
    )
    write.add_argument("--seed", type=int, default=1, help="the same seed gives the same cases")
    scores = doing.add_parser("score", help="print what the answers in a file are worth")
    scores.add_argument("folder", type=Path)
    scores.add_argument("answers", type=Path)
    asked = parser.parse_args(words)
    try:
        if asked.doing == "score":
            print(table(score(asked.folder, asked.answers)))
        else:
            rows, sizes = (list(dict.fromkeys(a or b)) for a, b in ((asked.row, ROWS), (asked.size, SIZES)))
            runs = write_benchmark(asked.folder, rows, sizes, asked.cases, asked.seed)
            print(f"{runs} runs in {asked.folder}; what is planted: {truth_of(asked.folder)}")
    except BadInput as error:
        print(error, file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return ExitStatus.PASS


if __name__ == "__main__":
    sys.exit(main())
