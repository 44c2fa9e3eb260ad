"""Types that the options of several benchmarks share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

# An interpreter that has PyTorch, and folders that it must look into besides its own: both end up in argv.
Program = Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./+-]+$", max_length=400)]
