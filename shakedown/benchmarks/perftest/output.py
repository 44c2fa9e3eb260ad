"""perftest: ib_write, ib_read, ib_send and ib_atomic, bandwidth and latency: the entry point."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.perftest import output_json as perftest_json
from shakedown.benchmarks.perftest import output_text as perftest_text
from shakedown.benchmarks.perftest.output_clock import CLOCK_UNKNOWN, clock_unknown
from shakedown.benchmarks.perftest.output_model import PerftestResult
from shakedown.records.tool_text import Source

# An output has a few kilobytes; one of 60 MB was read for 16 s.
_LARGEST = 1 << 20


def parse_perftest(
    text: str, *, file: str | Path | None = None, report_gbits: bool | None = None
) -> PerftestResult:
    """Parse one output of a perftest tool, text or JSON.

    Args:
        text: stdout (stderr may be mixed in), or the file that `--out_json` wrote.
        file: the name to quote when the output is refused.
        report_gbits: whether `--report_gbits` was given. Text states its unit, and a contradiction is
            refused. JSON does not: without this argument the unit is derived from the message rate.

    Raises:
        BadInput: truncated, contradictory or failed output, anything that is not a number where one is due.
    """

    if len(text) > _LARGEST:
        Source(text[:1000], file).refuse(
            f"is larger than {_LARGEST} characters", fix="run the test again: its output is damaged"
        )
    source = Source(text, file)
    if clock_unknown(text):
        source.refuse(CLOCK_UNKNOWN, fix="run the test again, on a host that is less busy")
    first = next(line.text.strip() for line in source.lines if line.text.strip())
    if first.startswith("{"):
        return perftest_json.parse(source, report_gbits)
    return perftest_text.parse(source, report_gbits)
