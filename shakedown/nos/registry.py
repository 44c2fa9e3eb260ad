"""The switch systems that Shakedown knows, one line each."""

from __future__ import annotations

from pathlib import Path

from shakedown.nos import cumulus, enterprise_sonic, eos, linux, nxos, os9, os10, sonic
from shakedown.nos.system import ParseCounters, SwitchSystem
from shakedown.records.errors import BadInput

SYSTEMS: dict[str, SwitchSystem] = {
    system.name: system
    for system in (
        linux.SYSTEM,
        sonic.SYSTEM,
        enterprise_sonic.SYSTEM,
        cumulus.SYSTEM,
        eos.SYSTEM,
        nxos.SYSTEM,
        os9.SYSTEM,
        os10.SYSTEM,
    )
}


def known(nos: str) -> SwitchSystem:
    """Return what is known of `nos`; for a system that is not listed, nothing."""
    return SYSTEMS.get(nos, SwitchSystem(nos))


def counters_of(nos: str, file: str | Path | None = None) -> ParseCounters:
    """Return the parser of the counters of `nos`. Raises BadInput for a system of which none are read."""
    parse = known(nos).parse
    if parse is None:
        readable = [name for name, system in SYSTEMS.items() if system.parse]
        raise BadInput(
            f"no counters are read from switch system {nos!r}",
            fix=f"it is one of {', '.join(readable)}",
            file=file,
        )
    return parse
