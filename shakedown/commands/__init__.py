"""The commands, one file each. A module offers `register(app)` and imports what is slow only when it runs."""

from __future__ import annotations

from types import ModuleType

from shakedown.commands import ceiling, parse, references, report, verdict, verify

COMMAND_MODULES: tuple[ModuleType, ...] = (ceiling, parse, references, report, verdict, verify)
