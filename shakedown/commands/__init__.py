"""The commands. A module has a `register` for each of its commands; what is slow loads when one runs."""

from __future__ import annotations

from collections.abc import Callable

import typer

from shakedown.commands import (
    ceiling,
    compare,
    discover,
    history,
    localise,
    mesh,
    nightly,
    parse,
    plan,
    power,
    references,
    signing,
    simulate,
    sweeps,
    topology,
    verdict,
)

# In the order of the help.
REGISTER: tuple[Callable[[typer.Typer], None], ...] = (
    ceiling.register,
    compare.register,
    discover.register,
    nightly.register_drain,
    history.register,
    sweeps.register_interconnect,
    localise.register,
    nightly.register_mend,
    mesh.register,
    nightly.register_nightly,
    signing.register_order,
    parse.register,
    plan.register,
    power.register,
    references.register,
    verdict.register_report,
    nightly.register_rerun,
    simulate.register,
    sweeps.register_sweeps,
    topology.register,
    verdict.register_verdict,
    signing.register_verify,
)
