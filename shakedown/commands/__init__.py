"""The commands, one file each. A module offers `register(app)` and imports what is slow only when it runs."""

from __future__ import annotations

from types import ModuleType

from shakedown.commands import (
    ceiling,
    compare,
    discover,
    drain,
    history,
    interconnect,
    localise,
    mend,
    mesh,
    nightly,
    order,
    parse,
    plan,
    power,
    references,
    report,
    rerun,
    simulate,
    sweeps,
    topology,
    verdict,
    verify,
)

COMMAND_MODULES: tuple[ModuleType, ...] = (
    ceiling,
    compare,
    discover,
    drain,
    history,
    interconnect,
    localise,
    mend,
    mesh,
    nightly,
    order,
    parse,
    plan,
    power,
    references,
    report,
    rerun,
    simulate,
    sweeps,
    topology,
    verdict,
    verify,
)
