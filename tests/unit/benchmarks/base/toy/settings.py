"""What acceptance asks of the disk, which is also what its job is ordered to do."""

from pydantic import Field

from shakedown.records.base import Record


class Disk(Record):
    """Speed of the local disk of every node."""

    size_mib: int = Field(default=64, ge=1)  # size of the file, in MiB
    timeout_s: int = Field(default=60, gt=0)  # seconds that it may take
