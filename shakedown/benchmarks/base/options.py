"""Types that the options of several benchmarks share."""

from __future__ import annotations

from typing import Annotated, Any

from shakedown.records.shapes import PATH, shape

# Files that a job reads: their paths end up in argv.
Program = Annotated[str, shape(*PATH, max_length=400)]


def without(settings: Any, *keys: str) -> Any:  # noqa: ANN401  (as the file has it)
    """Return a job's settings without keys that orders of earlier releases had, and that decide nothing."""
    return {k: v for k, v in settings.items() if k not in keys} if isinstance(settings, dict) else settings
