"""What the job that measures memory bandwidth is ordered to do."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from shakedown.benchmarks.base.options import without
from shakedown.benchmarks.stream.options import Stream


class StreamOrder(Stream):
    """The site's options."""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "program")
