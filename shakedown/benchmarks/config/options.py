"""What acceptance asks of the config stage."""

from __future__ import annotations

from typing import Literal

from shakedown.records.base import Record


class ConfigStage(Record):
    """What the NICs of this site can show in the config stage; real ones show everything."""

    dcb: bool = True
    link_speed: bool = True
    # Targets of roles/host_settings that concern the whole node.
    targets: tuple[Literal["environment", "gpudirect", "pinning"], ...] = ("environment",)
