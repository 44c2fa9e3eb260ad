"""What BMCs say of a server's power: `ipmitool dcmi power reading`, and Redfish resources. Pure functions.

Sources: DCMI 1.5, section 6.6.1, Get Power Reading (the words are ipmitool's, lib/ipmi_dcmi.c); DMTF DSP0266
and DSP2046, schemas Chassis, EnvironmentMetrics (PowerWatts) and Power (PowerControl, deprecated but common).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from shakedown.records.untrusted import loads
from shakedown.run.server_power import MOST_WATTS

ROOT = "/redfish/v1/Chassis"
# A path on the same BMC, never another host, another scheme or a way up.
_LINK = re.compile(r"/redfish/v1/[A-Za-z0-9._~()/-]{1,300}\Z")
_DCMI = re.compile(
    r"^[^\S\n]*+Instantaneous power reading[^\S\n]*:[^\S\n]*([0-9]{1,6}) Watts[^\S\n]*$", re.MULTILINE
)
_STATE = re.compile(r"^[^\S\n]*+Power reading state is[^\S\n]*:[^\S\n]*(\w+)[^\S\n]*$", re.MULTILINE)
_MOST_CHASSIS = 16


class NoReading(ValueError):  # noqa: N818  (a BMC without a reading is no error of this program)
    """A BMC gave no power. The text is ours alone: nothing that the BMC wrote is in it."""


def parse_dcmi(text: str) -> float:
    """Return the instantaneous power in watts. Raises NoReading."""
    states = _STATE.findall(text)
    if states and set(states) != {"activated"}:
        raise NoReading("the BMC's power reading is not activated")
    found = _DCMI.findall(text)
    if len(found) != 1:
        raise NoReading("ipmitool printed no power reading")
    return _watts(int(found[0]))


def redfish_power(get: Callable[[str], bytes], chassis: str | None = None) -> float:
    """Return the power of a server in watts.

    Args:
        get: returns what the BMC answers under a path; raises NoReading.
        chassis: the one to read; None: all are asked, and one alone may have a reading.

    Raises:
        NoReading: no chassis tells a power, several do, or an answer is no such resource.
    """
    if chassis is not None:
        paths = [f"{ROOT}/{chassis}"]
    else:
        members = _object(get(ROOT)).get("Members")
        if not isinstance(members, list) or not 0 < len(members) <= _MOST_CHASSIS:
            raise NoReading("the BMC lists no chassis")
        paths = [_link(member) for member in members]
    found = [watts for path in paths if (watts := _of_chassis(get, path)) is not None]
    if len(found) != 1:
        raise NoReading(f"{len(found)} chassis tell a power: name one as chassis")
    return found[0]


def _of_chassis(get: Callable[[str], bytes], path: str) -> float | None:
    resource = _object(get(path))
    if "EnvironmentMetrics" in resource:
        metrics = _object(get(_link(resource["EnvironmentMetrics"])))
        if (power := metrics.get("PowerWatts")) is not None:
            reading = power.get("Reading") if isinstance(power, Mapping) else None
            if reading is not None:
                return _watts(reading)
    if "Power" in resource:
        controls = _object(get(_link(resource["Power"]))).get("PowerControl")
        if isinstance(controls, list) and controls and isinstance(controls[0], Mapping):
            # The first is the whole chassis; the others are parts of it.
            reading = controls[0].get("PowerConsumedWatts")
            return None if reading is None else _watts(reading)
    return None


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        found = loads(content)
    except ValueError:
        raise NoReading("the BMC's answer is no JSON") from None
    if not isinstance(found, Mapping):
        raise NoReading("the BMC's answer is no resource")
    return found


def _link(reference: object) -> str:
    path = reference.get("@odata.id") if isinstance(reference, Mapping) else None
    if not isinstance(path, str) or not _LINK.fullmatch(path) or ".." in path or "//" in path:
        raise NoReading("the BMC's answer links to no resource of its own")
    return path


def _watts(number: object) -> float:
    """Return a power that a server can draw."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= MOST_WATTS:
        raise NoReading(f"the BMC's power is none between 0 and {MOST_WATTS} W")
    return float(number)
