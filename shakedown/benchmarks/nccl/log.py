"""NCCL's own log (NCCL_DEBUG=INFO, 2.18 to 2.30): the entry point."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.nccl import log_lines as nccl_log_lines
from shakedown.benchmarks.nccl.log_model import NcclLog
from shakedown.records.tool_text import Source


def parse_nccl_log(text: str, *, file: str | Path | None = None, allow_unfinished: bool = False) -> NcclLog:
    """Parse a log of NCCL_DEBUG=INFO, of one rank or of all.

    Args:
        text: the log; lines that are not NCCL's are passed over.
        file: the name to quote when it is refused.
        allow_unfinished: accept a log in which communicators were not destroyed; see `finished`.

    Raises:
        BadInput: no communicator was set up, lines are mixed or damaged, or the log ends early.
    """

    return nccl_log_lines.parse(Source(text, file, mixed=True), allow_unfinished)
