"""Settings read back from nodes."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Output, Value
from shakedown.benchmarks.config.order import SettingsOrder
from shakedown.benchmarks.config.owners import second_owners, wrong_neighbours
from shakedown.benchmarks.config.settings import DUPLICATES, NEIGHBOURS, TargetReport, judge
from shakedown.records.base import Better, Params
from shakedown.records.refusals import refusal
from shakedown.records.results import Problem


def settings(output: Output[SettingsOrder]) -> Iterator[Value]:
    """Yield 0 or 1 for each setting: whether what was found differs from what was wanted.

    What could not be asked for lack of rights has no number, and the reason.
    """
    try:
        report = TargetReport.model_validate_json(output.text)
    except ValidationError as error:
        raise refusal(
            error, TargetReport, file=output.file, about="no read-back", fix="run it again"
        ) from None
    expected = output.order.expect[output.node][report.target]
    found = list(judge(report, expected))
    if NEIGHBOURS in expected:
        found.append((NEIGHBOURS, *wrong_neighbours(output, report)))
    for setting, wrong, detail in found:
        params: Params = {"setting": setting}
        if wrong is None:
            unknown = Problem(kind="not-run", message=detail[:2000])
            yield "wrong", None, "1", Better.LOWER, params, "", (), unknown
        else:
            words = second_owners(output, report) if setting == DUPLICATES else ""
            yield "wrong", float(wrong), "1", Better.LOWER, params, words or detail
