"""The switch systems that Shakedown knows, one line each."""

from pathlib import Path

from shakedown.nos import cumulus, enterprise_sonic, eos, linux, nxos, os9, os10, sonic
from shakedown.nos.system import Classes, Outputs, ParseCounters, PortCounters, SwitchSystem
from shakedown.records.reading import BadInput

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
    """Return the parser of the counters of `nos`. Raises BadInput for a system of which none are read.

    The parser raises BadInput for whatever is not that system's output: JSON may have any shape.
    """
    parse = known(nos).parse
    if parse is None:
        readable = [name for name, system in SYSTEMS.items() if system.parse]
        raise BadInput(
            f"no counters are read from switch system {nos!r}",
            fix=f"it is one of {', '.join(readable)}",
            file=file,
        )

    def whole(outputs: Outputs, classes: Classes) -> PortCounters:
        try:
            return parse(outputs, classes)
        except BadInput as error:
            raise BadInput(error.what, fix=error.fix, file=file, line=error.line) from None
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise BadInput(
                f"no counters of {nos}: {error!r}"[:200], fix="read the switch again", file=file
            ) from None

    return whole
