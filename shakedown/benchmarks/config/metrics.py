"""Settings read back from nodes."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Output, Value
from shakedown.benchmarks.config.order import SettingsOrder
from shakedown.benchmarks.config.settings import TargetReport, judge
from shakedown.records.errors import BadInput
from shakedown.records.records import Better, Params


def settings(output: Output[SettingsOrder]) -> Iterator[Value]:
    """Yield 0 or 1 for each setting: whether what was found differs from what was wanted."""
    try:
        report = TargetReport.model_validate_json(output.text)
    except ValidationError as error:
        raise BadInput(f"no read-back: {error.errors()[0]['msg']}", file=output.file) from None
    expected = output.order.expect[output.node][report.target]
    for setting, wrong, detail in judge(report, expected):
        params: Params = {"setting": setting}
        yield "wrong", float(wrong), "1", Better.LOWER, params, detail
