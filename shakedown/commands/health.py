"""`shakedown health`: whether this node still is what was accepted, for Slurm and for a person."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from shakedown.commands.arguments import command


@command(
    "shakedown health accept --service nvidia-dcgm",
    "shakedown health check",
    "shakedown health slurm --most 4",
)
def health(
    what: Annotated[Literal["accept", "check", "slurm"], typer.Argument(help="What to do.")],
    service: Annotated[
        list[str] | None, typer.Option(help="accept: hold this service of systemd too; may be repeated.")
    ] = None,
    nic: Annotated[
        list[str] | None, typer.Option(help="accept: hold this bond or virtual NIC too; may be repeated.")
    ] = None,
    most: Annotated[int, typer.Option(min=0, help="slurm: nodes that checks may keep out of service.")] = 2,
    hold_s: Annotated[float, typer.Option(min=0, help="slurm: seconds that a drain lasts at least.")] = 300,
) -> int:
    """Hold this node against its own accepted state, in a second.

    `accept` keeps links, widths, memory, GPUs, mounts, clock and services as they are now. `check` says what
    is worse (exit status 1), and what is only another. `slurm` is for HealthCheckProgram, Prolog and Epilog:
    it drains a node that is worse, with the reason, and resumes what it drained itself once that is well.

    Nodes need no `shakedown` for it: playbooks/health.yml installs the program, one file that runs with their
    own Python.
    """
    from shakedown.onnode.health import main

    named = [f"--service={one}" for one in service or ()] + [f"--nic={one}" for one in nic or ()]
    return main([what, *named, f"--most={most}", f"--hold-s={hold_s}"])
