"""The targets: every fabric NIC by its name, and four that concern the host as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host_settings import desired, drivers, environment, gpudirect, link, pinning
from host_settings.desired import BadDesired
from host_settings.model import Item, NotApplicable
from host_settings.system import System

DESIRED_FOLDER = "/etc/shakedown/settings"
SCHEMA = 1
_AGAIN = "run the playbook that configures hosts"
# No NIC may have one of these names.
HOST_TARGETS = ("environment", "gpudirect", "pinning", "signing")


@dataclass(frozen=True)
class Target:
    """Something to bring into its desired state: its name and the way to read items of it."""

    name: str
    driver: str
    read: Callable[[], list[Item]]


def all_targets(folder: Path) -> list[str]:
    """The names of all targets with a wanted state."""
    return sorted(file.stem for file in folder.glob("*.json"))


def load_target(system: System, name: str, folder: Path) -> Target:
    """The target with its desired state. Raises BadDesired, naming the file."""
    if name not in HOST_TARGETS and not desired.NETDEV.match(name):
        raise BadDesired(f"{name!r} is no name of a NIC -- give the netdev, such as eth0")
    file = folder / f"{name}.json"
    try:
        data = json.loads(file.read_text())
    except OSError as error:
        raise BadDesired(f"{file}: {error.strerror} -- {_AGAIN}") from None
    except ValueError as error:
        raise BadDesired(f"{file}: {error} -- {_AGAIN}") from None
    try:
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise BadDesired(f"schema is not {SCHEMA} -- {_AGAIN} again")
        return _host_target(system, name, data) if name in HOST_TARGETS else _nic(system, name, data)
    except BadDesired as refused:
        raise BadDesired(f"{file}: {refused}") from None


def _host_target(system: System, name: str, data: Mapping[str, Any]) -> Target:
    if name == "environment":
        roce = desired.parse_roce(data)
        clock = environment.parse_clock(data)
        memlock = environment.parse_memlock(data)
        return Target(name, "", lambda: environment.items(environment.read(system), roce, clock, memlock))
    if name == "gpudirect":
        gpu = gpudirect.parse(data)
        return Target(name, "", lambda: gpudirect.items(gpudirect.read(system, gpu), gpu))
    if name == "signing":  # a host without a fabric: this one service, and nothing else
        unit = environment.SIGN_SOCKET
        if system.root == Path("/") and not system.exists("/run/systemd/system"):  # sd_booted(3)
            return Target(name, "", lambda: [NotApplicable(unit, "no systemd runs here that would serve it")])
        return Target(name, "", lambda: [environment.unit_item(unit, environment.unit_state(system, unit))])
    pins = pinning.parse(data)
    return Target(name, "", lambda: pinning.items(pinning.read(system, pins), pins))


def _nic(system: System, name: str, data: Mapping[str, Any]) -> Target:
    nic = desired.parse_nic(data)
    if nic.netdev != name:
        raise BadDesired(f"netdev is {nic.netdev!r} -- it must be the name of the file")
    rules = drivers.driver_for(system, name)
    drivers.refuse_management(system, name)
    driver = rules.__name__.rpartition(".")[2]

    def read() -> list[Item]:
        items: list[Item] = rules.items(rules.read(system, nic), nic)
        return [*items, *([link.second_owners(system, nic)] if system.probes else [])]

    return Target(name, driver, read)
