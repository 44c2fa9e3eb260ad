"""What acceptance asks of the config stage."""

from __future__ import annotations

from typing import Literal

from shakedown.benchmarks.traffic_class.options import TrafficClass
from shakedown.records.base import Record


class ConfigStage(Record):
    """What the NICs of this site can show in the config stage; real ones show everything."""

    dcb: bool = True
    link_speed: bool = True
    # Targets of roles/host_settings that concern the whole node.
    targets: tuple[Literal["environment", "gpudirect", "pinning"], ...] = ("environment",)
    # RoCE from node to node, counted by class where it arrives. None: this is not proved.
    traffic_class: TrafficClass | None = TrafficClass()
