"""Parameters of a NIC's firmware, which it takes at its next reset: compared where the site names them.

They are written only with the site's second key; until the reset the read-back says that the NIC does not
use them yet. No reset is ever made here.

Sources: Mellanox nic-configuration-operator (ATS, CC mask); mlxconfig's listing with -e, whose last two
columns are Current and Next Boot; AMD ROCm, "RoCE cluster network configuration guide" (niccli).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from host_settings.desired import FIRMWARE_BNXT, FIRMWARE_MLX5, FIRMWARE_MLX5_PORT
from host_settings.model import Action, Item, NotApplicable, Run, Setting, Value
from host_settings.system import System

_WORDS = {"enabled": 1, "true": 1, "disabled": 0, "false": 0}


def port_of(pci: str) -> int:
    """Return the number of a function's port in mlx5's parameters: 1 for function 0."""
    function = pci.rpartition(".")[2]
    return int(function) + 1 if function.isdigit() else 1


def number(text: str) -> int | None:
    """Return the number of `255`, `True(1)` or `Enabled`; None for what is none."""
    match = re.fullmatch(r"(?:\w+\()?(\d{1,9})\)?", text)
    return int(match[1]) if match else _WORDS.get(text.lower())


def mlx5_names(wanted: Mapping[str, int], pci: str) -> dict[str, str]:
    """Return mlxconfig's name of each parameter that an mlx5 NIC has."""
    port = port_of(pci)
    mine = (*FIRMWARE_MLX5, *FIRMWARE_MLX5_PORT)
    return {n: f"{n}_P{port}" if n in FIRMWARE_MLX5_PORT else n for n in wanted if n in mine}


def read_mlx5(system: System, pci: str, names: Mapping[str, str]) -> dict[str, tuple[Any, Any]] | None:
    """Return (in use, from the next reset on) of each parameter; None: there is no mlxconfig."""
    if not names:
        return {}
    if not system.has_tool("mlxconfig"):
        return None
    found = _listed(system, pci, names)
    for name, full in names.items():
        # mlxconfig lists nothing at all where it does not know one of them.
        found.update(_listed(system, pci, {name: full}) if name not in found else {})
    return {name: found.get(name, (None, None)) for name in names}


def _listed(system: System, pci: str, names: Mapping[str, str]) -> dict[str, tuple[Any, Any]]:
    text = system.run("mlxconfig", "-d", pci, "-e", "q", *names.values()).out
    found: dict[str, tuple[Any, Any]] = {}
    for name, full in names.items():
        # Default, Current, Next Boot; an asterisk marks what differs.
        match = re.search(rf"^[ \t*]*{full}[ \t]+\S+[ \t]+(\S+)[ \t]+(\S+)[ \t]*$", text, re.M)
        if match:
            found[name] = number(match[1]), number(match[2])
    return found


def mlx5_items(
    found: Mapping[str, tuple[Any, Any]] | None, wanted: Mapping[str, int], pci: str, write: bool
) -> list[Item]:
    """What should be, beside what is."""
    names = mlx5_names(wanted, pci)
    if found is None:
        # The site asked for it: without the tool it is unknown, which is a failure.
        return [Setting(f"firmware.{full}", None, wanted[name]) for name, full in names.items()]
    items: list[Item] = []
    for name, full in names.items():

        def set_to(value: Value, full: str = full) -> tuple[Action, ...]:
            return () if value is None else (Run(("mlxconfig", "-y", "-d", pci, "set", f"{full}={value}")),)

        in_use, next_ = found[name]
        items += _pair(full, in_use, next_, wanted[name], set_to if write else None)
    return items


def read_bnxt(system: System, pci: str, wanted: Mapping[str, int]) -> dict[str, tuple[Any, Any]] | None:
    """Return (words that ask niccli in its own syntax, value in NVM) of each parameter; None: no niccli."""
    names = [name for name in wanted if name in FIRMWARE_BNXT]
    if not names:
        return {}
    if not system.has_tool("niccli"):
        return None
    found: dict[str, tuple[Any, Any]] = {}
    for name in names:
        found[name] = (None, None)
        # Releases differ in the dashes.
        for dash in ("--", "-"):
            out = system.run("niccli", f"{dash}dev", pci, "nvm", f"{dash}getoption", name).out
            match = re.search(rf"^\s*{name}\s*=\s*(\S+)\s*$", out, re.M)
            if match and number(match[1]) is not None:
                found[name] = (dash, number(match[1]))
                break
    return found


def bnxt_items(
    found: Mapping[str, tuple[Any, Any]] | None, wanted: Mapping[str, int], pci: str, write: bool
) -> list[Item]:
    """What should be, beside what is. niccli tells what is in NVM, not what is in use."""
    names = [name for name in wanted if name in FIRMWARE_BNXT]
    if found is None:
        return [Setting(f"firmware.{name}", None, wanted[name]) for name in names]
    items: list[Item] = []
    for name in names:
        dash, value = found[name]

        def set_to(value: Value, name: str = name, dash: str = dash) -> tuple[Action, ...]:
            words = (f"{dash}dev", pci, "nvm", f"{dash}setoption", name, f"{dash}value", str(value))
            return () if value is None else (Run(("niccli", *words)),)

        known = write and dash is not None
        items.append(Setting(f"firmware.{name}", value, wanted[name], set_to if known else None))
        why = "niccli tells what is in NVM; it is in use after the next reboot"
        items.append(NotApplicable(f"firmware.{name}.in_use", why))
    return items


def _pair(
    name: str, in_use: Value, next_: Value, wanted: int, set_to: Callable[[Value], tuple[Action, ...]] | None
) -> list[Item]:
    settable = set_to if next_ is not None else None
    return [
        Setting(f"firmware.{name}", next_, wanted, settable),
        # What is planned and not in use yet is no success: it takes a reset of the NIC, of a drained node.
        Setting(f"firmware.{name}.in_use", in_use, wanted),
    ]
