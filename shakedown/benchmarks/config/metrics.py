"""Settings read back from nodes."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Output, Value
from shakedown.benchmarks.config.order import SettingsOrder
from shakedown.benchmarks.config.settings import TargetReport, judge
from shakedown.records.base import Better, Params
from shakedown.records.refusals import refusal


def settings(output: Output[SettingsOrder]) -> Iterator[Value]:
    """Yield 0 or 1 for each setting: whether what was found differs from what was wanted."""
    try:
        report = TargetReport.model_validate_json(output.text)
    except ValidationError as error:
        raise refusal(
            error, TargetReport, file=output.file, about="no read-back", fix="run it again"
        ) from None
    expected = output.order.expect[output.node][report.target]
    for setting, wrong, detail in judge(report, expected):
        params: Params = {"setting": setting}
        yield "wrong", float(wrong), "1", Better.LOWER, params, detail
