"""What acceptance asks of the disk, which is also what its job is ordered to do."""

from __future__ import annotations

from pydantic import Field

from shakedown.records.base import Record


class Disk(Record):
    """Speed of the local disk of every node."""

    # Size of the file, in MiB.
    size_mib: int = Field(default=64, ge=1)
    # Seconds that it may take.
    timeout_s: int = Field(default=60, gt=0)
