"""What the switch's end of a cable says of itself, from raw read-backs.

The role roce_switch saves `SWITCH.settings.json` (variable roce_switch_raw_dir). Neighbours come from the
counter reading, and so do rate and FEC of some systems.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from shakedown.nos.crosscheck import End, SwitchCable
from shakedown.nos.readings import SwitchReading, load_record
from shakedown.nos.registry import known
from shakedown.nos.system import Neighbours, Tree, refuse_error_text
from shakedown.records.base import Name, Record
from shakedown.records.reading import BadInput


class SettingsCable(Record):
    """One entry of the switch's cabling."""

    port: str
    host: Name
    netdev: str
    rail: Name | None = None
    role: Literal["host", "uplink", "spine"] = "host"
    speed_gbps: float | None = None
    cable_m: int | None = None


class SwitchSettings(Record):
    """What the role wanted on a switch and what it read back (`SWITCH.settings.json`)."""

    schema_: Literal[1] = Field(alias="schema")
    switch: Name
    nos: Name
    cabling: tuple[SettingsCable, ...]
    differences: tuple[str, ...]
    found: Any
    not_done: tuple[str, ...]
    unread: tuple[str, ...] = ()  # why nothing is known: what it printed is no configuration

    # Beside these a system's read-back has fields of its own, for its way of applying.
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


def load_settings(path: Path) -> SwitchSettings:
    """Read one settings file. Raises BadInput if it is none."""
    return load_record(path, SwitchSettings)


def cables(settings: SwitchSettings) -> list[SwitchCable]:
    """Return the planned cables of a switch."""
    kept = {"port", "host", "netdev", "rail", "role"}
    return [
        SwitchCable(switch=settings.switch, **entry.model_dump(include=kept)) for entry in settings.cabling
    ]


def switch_ends(
    settings: SwitchSettings,  # what the role read back
    heard: Neighbours | None = None,  # the LLDP neighbours of its ports; None if it was not asked
    links: Mapping[str, Tree] | None = None,  # rate and FEC of its ports, where its settings do not tell them
) -> dict[tuple[str, str], End]:
    """Return what each cabled port says of itself. For an unknown system, nothing.

    Raises BadInput: the read-back is not what that system's read-back looks like.
    """
    describe = known(settings.nos).end
    ends = {}
    for entry in settings.cabling:
        try:
            own = {} if settings.unread else describe(settings.found, entry.port)
            fields = own | (links or {}).get(entry.port, {})
            told = {key: value for key, value in fields.items() if value is not None}
            ends[settings.switch, entry.port] = End(neighbours=seen(heard, entry.port), **told)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise BadInput(
                f"{settings.switch}: no read-back of {settings.nos}: {error!r}", fix="read the switch again"
            ) from None
    return ends


def neighbours_of(reading: SwitchReading) -> Neighbours | None:
    """Return the LLDP neighbours in a counter reading; None if the switch was not asked.

    Raises BadInput: what it printed is not understood.
    """
    read = known(reading.nos).neighbours
    output = reading.outputs.get("neighbours")
    if not read or not output:
        return None
    refuse_error_text(output.stdout, "neighbours")
    return read(output.stdout)


def links_of(reading: SwitchReading) -> dict[str, Tree]:
    """Return rate (`speed_gbps`) and FEC (`fec`) of each cabled port, as far as a counter reading has them.

    Raises BadInput: an output is not JSON where it should be.
    """
    outputs = {label: output.stdout for label, output in reading.outputs.items()}
    return known(reading.nos).links(outputs, [cable.port for cable in reading.cabling])


def seen(heard: Neighbours | None, port: str) -> tuple[str, ...] | None:
    """Return a port's neighbours as `SYSTEM/PORT`; None if LLDP was not read."""
    return None if heard is None else tuple(f"{name}/{remote}" for name, remote in heard.get(port, []))
