"""What the search for a peak is ordered to do."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from shakedown.benchmarks.base.options import without
from shakedown.benchmarks.inference.options import Inference


class InferenceOrder(Inference):
    """The site's options."""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "python", "pythonpath")
