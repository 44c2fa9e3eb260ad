"""Settings read back from nodes."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Output, Value
from shakedown.benchmarks.config.order import SettingsOrder
from shakedown.benchmarks.config.owners import second_owners, wrong_neighbours
from shakedown.benchmarks.config.settings import DUPLICATES, NEIGHBOURS, TargetReport, judge
from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput
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
    if elsewhere := _elsewhere(output, report):
        raise BadInput(
            elsewhere, fix="run it again: another's read-back proves nothing here", file=output.file
        )
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


def _elsewhere(output: Output[SettingsOrder], report: TargetReport) -> str:
    """Return why this is the read-back of another node or target than the record's; empty if it is not."""
    targets = output.order.targets.get(output.node, {})
    if report.target not in targets:
        return f"{output.node} was not asked for {report.target}"
    if report.node is not None and report.node != output.node:
        return f"this is the read-back of {report.node}, its record says {output.node}"
    if targets[report.target] != output.record.rail:
        its = targets[report.target] or "the whole node"
        return f"{report.target} is of {its}, its record says {output.record.rail or 'the whole node'}"
    if output.record.rail is None and output.record.file != f"settings.{output.node}.{report.target}.json":
        return f"this is the read-back of {report.target}, its record says {output.record.file}"
    return ""
