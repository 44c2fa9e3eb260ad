"""Types that the options of several benchmarks share."""

from __future__ import annotations

from typing import Any

from shakedown.records.shapes import PlainPath

# Files that a job reads.
Program = PlainPath


def without(settings: Any, *keys: str) -> Any:  # noqa: ANN401  (as the file has it)
    """Return a job's settings without keys that orders of earlier releases had, and that decide nothing."""
    return {k: v for k, v in settings.items() if k not in keys} if isinstance(settings, dict) else settings
