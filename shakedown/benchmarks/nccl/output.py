"""nccl-tests 2.13 to 2.19: the entry point, for its text and its JSON."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.nccl import output_json as nccl_json
from shakedown.benchmarks.nccl import output_text as nccl_text
from shakedown.benchmarks.nccl.output_model import NcclResult
from shakedown.records.tool_text import Source


def parse_nccl(text: str, *, file: str | Path | None = None) -> NcclResult:
    """Parse one output of an nccl-tests program, text or `-J` JSON.

    The environment that `-J` writes is dropped; nothing of it reaches the result or an error message.

    Raises:
        BadInput: truncated, contradictory or failed output, anything that is not a number where one is due.
    """

    source = Source(text, file, mixed=True)
    first = next(line.text.strip() for line in source.lines if line.text.strip())
    if first.startswith("{"):
        return nccl_json.parse(source)
    return nccl_text.parse(source)
