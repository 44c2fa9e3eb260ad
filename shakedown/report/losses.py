"""Training curves, read from the raw logs of the trainer that a run holds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from shakedown import runs
from shakedown.core.records import Measurement, Stage
from shakedown.errors import BadInput
from shakedown.parsers.trainer import parse_trainer
from shakedown.report.source import Series

MOST_LOGS = 8
LARGEST_LOG = 64 << 20


def read(run: Path, measurements: Iterable[Measurement]) -> tuple[Series, ...]:
    """Return the loss of every trainer log among the raw outputs of the application stage.

    A log that was cut off is drawn as far as it goes; one that is no trainer log, or a damaged one, is
    passed over: what it means for the verdict was decided when its measurement was judged.
    """
    paths = dict.fromkeys(m.raw for m in measurements if m.stage is Stage.APPLICATION and m.raw)
    found: list[Series] = []
    for path in paths:
        if len(found) == MOST_LOGS:
            break
        try:
            with runs.open_plain(run / path) as file:
                content = file.read(LARGEST_LOG)
            series = _loss(content.decode(), path)
        except (BadInput, UnicodeDecodeError):
            continue
        if series is not None:
            found.append(series)
    return tuple(found)


def _loss(content: str, path: str) -> Series | None:
    result = parse_trainer(content, file=path, allow_truncated=True)
    ranks = {step.rank for step in result.steps if step.loss is not None}
    if not ranks:
        return None
    # Ranks of one replica share a loss; the first that reports one stands for all.
    steps = [step for step in result.steps if step.rank == min(ranks)]
    header = result.header
    label = f"{header.model}, {header.method}, {header.precision}, {header.parallelism}"
    values = tuple(math.nan if step.loss is None else step.loss for step in steps)
    return Series(label, tuple(float(step.step) for step in steps), values)
