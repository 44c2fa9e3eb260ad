"""The counters of a node's NICs as a job left them: `counters.NODE.{before,after}.json` (`jobs.counters`)."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from shakedown.core.records import CounterValue, Name
from shakedown.errors import BadInput
from shakedown.runs import read_bytes


class _Device(BaseModel):
    """One RDMA device. What else a file says of it (its netdev, the time) is for people."""

    model_config = ConfigDict(strict=True)

    device: Name
    counters: dict[Name, CounterValue]


class _File(BaseModel):
    model_config = ConfigDict(strict=True)

    devices: tuple[_Device, ...]


def read_counters(path: Path) -> dict[str, dict[str, int]]:
    """Return one node's counters by RDMA device; an absent file is no counters at all.

    Raises:
        BadInput: no plain file, or something in it is no 64-bit counter.
    """
    if not os.path.lexists(path):
        return {}
    try:
        found = _File.model_validate_json(read_bytes(path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:64] for part in first["loc"])
        raise BadInput(
            f"not a counter file: {where or 'the document'}: {first['msg'][:200]}",
            fix="run the job again: its counters are damaged",
            file=path,
        ) from None
    return {entry.device: entry.counters for entry in found.devices}
