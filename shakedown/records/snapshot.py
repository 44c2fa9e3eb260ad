"""What was found on the machines: `inventory.json`."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from shakedown.records.base import Name, Record


class Component(Record):
    """One piece of hardware, firmware or software (`inventory.json`)."""

    host: Name
    kind: Literal["node", "nic", "gpu", "cable", "switch", "software"]
    name: Name
    attributes: dict[str, str] = Field(default_factory=dict)


class Snapshot(Record):
    """What the run was made on: the snapshot that a later comparison needs."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    taken: str
    components: tuple[Component, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
