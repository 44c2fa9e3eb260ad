"""What acceptance asks of the config stage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shakedown.benchmarks.traffic_class.options import TrafficClass
from shakedown.records.base import Record


class ConfigStage(Record):
    """What the NICs of this site can show in the config stage; real ones show everything."""

    dcb: bool = True
    link_speed: bool = True
    # Targets of roles/host_settings that concern the whole node.
    targets: tuple[Literal["environment", "gpudirect", "pinning"], ...] = ("environment",)
    # Whether the nodes have the reader of settings that site.yml installs. False where nothing may be
    # installed: every setting stays in the plan, not run, and the verdict does not wait for it.
    settings_reader: bool = True
    # How far a node's clock may be from the submit host's, in seconds. munge(7) refuses credentials at 300,
    # Kerberos tickets at 300; logs and counters of two nodes can be put in one order below a second.
    clock_offset_s: Annotated[float, Field(gt=0, le=300)] = 1.0
    # RoCE from node to node, counted by class where it arrives. None: this is not proved.
    traffic_class: TrafficClass | None = TrafficClass()
