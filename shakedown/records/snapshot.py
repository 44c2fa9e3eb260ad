"""What was found on the machines: `inventory.json`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from shakedown.records.base import Name, Record


class Component(Record):
    """One piece of hardware, firmware or software (`inventory.json`)."""

    host: Name
    kind: Literal["node", "nic", "gpu", "cable", "switch", "software"]
    name: Name
    attributes: dict[str, str] = Field(default_factory=dict)


class ClockReading(Record):
    """How far a host's clock is ahead of the controller's, in seconds; below zero is behind.

    The host's time was read between two of the controller's: the truth lies between `low_s` and `high_s`,
    and the readings of several round trips have narrowed it.
    """

    host: Name  # as the inventory names it
    low_s: Annotated[float, Field(allow_inf_nan=False)]  # at least so far ahead, in seconds
    high_s: Annotated[float, Field(allow_inf_nan=False)]  # at most so far ahead, in seconds
    # What munge on this host said of the submit host's credential: Success, Rewound credential, ...
    munge: Annotated[str, Field(max_length=80)] = ""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low_s > self.high_s:
            raise ValueError("low_s must not be above high_s")
        return self


class Snapshot(Record):
    """What the run was made on: the snapshot that a later comparison needs."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    taken: str
    components: tuple[Component, ...] = ()
    submit: Name | None = None  # whose clock the nodes' clocks are held against
    clocks: tuple[ClockReading, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    def ahead_s(self, host: str) -> tuple[float, float] | None:
        """Return how far a host's clock is ahead of the submit host's, at least and at most, in seconds.

        None if one of the two was not read.
        """
        read = {reading.host: reading for reading in self.clocks}
        mine, submit = read.get(host), read.get(self.submit or "")
        if mine is None or submit is None:
            return None
        if host == self.submit:
            return 0.0, 0.0
        return mine.low_s - submit.high_s, mine.high_s - submit.low_s
