"""The commands. Each module makes its own; what is slow loads when one runs."""

from shakedown.commands import (  # noqa: F401  (who imports one has them all)
    ceiling,
    compare,
    discover,
    health,
    history,
    localise,
    mesh,
    nightly,
    parse,
    plan,
    references,
    signing,
    simulate,
    sweeps,
    topology,
    verdict,
    watch,
)
