"""Settings read back from nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Value, job_settings
from shakedown.benchmarks.config.settings import TargetReport, judge
from shakedown.records.base import Better, Params
from shakedown.records.refusals import refusal
from shakedown.records.results import OutputRecord


def settings(text: str, output: OutputRecord, file: Path) -> Iterator[Value]:
    """Yield 0 or 1 for each setting: whether what was found differs from what was wanted."""
    try:
        report = TargetReport.model_validate_json(text)
    except ValidationError as error:
        raise refusal(error, TargetReport, file=file, about="no read-back", fix="run it again") from None
    expected = job_settings(file)["expect"][output.nodes[0]][report.target]
    for setting, wrong, detail in judge(report, expected):
        params: Params = {"setting": setting}
        yield "wrong", float(wrong), "1", Better.LOWER, params, detail
