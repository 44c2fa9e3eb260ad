"""What NICs and switch ports counted over a test: lines of `counters.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import ConfigDict, Field

from shakedown.records.base import CounterValue, Name, Record, Stage


class CounterReading(Record):
    """One counter of one NIC or switch port over a test (a line of `counters.jsonl`)."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    stage: Stage
    test: Name
    kind: Literal["nic", "switch_port"]
    device: Name  # host or switch
    port: Name  # RDMA device, netdev or switch port
    rail: Name | None = None
    peer: str | None = None  # the other end of the cable, "n1/fab0"
    counter: Name
    before: CounterValue | None
    after: CounterValue | None
    # The node, its driver or the switch was restarted, or the port's counters were cleared, between the two.
    began_anew: bool = False
    # Why it has no value before, after or both, where the reading itself says so.
    unread: str | None = None
    job: str | None = None
    raw: str | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def delta(self) -> int | None:
        """After minus before; None if either is missing, or the counter went backwards or began anew."""
        if self.began_anew or self.before is None or self.after is None or self.after < self.before:
            return None
        return self.after - self.before


def went_back(before: Mapping[str, int], after: Mapping[str, int], names: Iterable[str]) -> bool:
    """Whether any of the counters of these names is less than before."""
    return any(name in before and name in after and after[name] < before[name] for name in names)
