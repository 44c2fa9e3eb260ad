"""`shakedown power RUN`: what the servers draw while a run measures, from their BMCs."""

from pathlib import Path
from typing import Annotated

import typer

from shakedown.commands.arguments import command
from shakedown.records.reading import BadInput, ExitStatus


@command("shakedown power reports/runs/PT --bmcs ~/bmcs.yml --seconds 3600")
def power(
    run: Annotated[Path, typer.Argument(help="The run's folder, with its plan.json.")],
    bmcs: Annotated[Path, typer.Option(help="Which BMC is which node's, and where its password is.")],
    seconds: Annotated[float, typer.Option(min=1, max=86400, help="How long to read.")] = 3600,
    every: Annotated[float, typer.Option(min=0.5, max=60, help="Seconds from one reading to the next.")] = 2,
) -> int:
    """Read every node's power from its BMC, through Redfish or IPMI, while a run measures.

    Start it before the run's jobs, on a machine that reaches the BMCs and has the run's folder; it ends by
    itself or with Ctrl-C. Readings go to raw/server_power/ and become metric server_power of the tests that
    acceptance.nccl.server_power asks for. The file of BMCs:

    \b
      bmcs:
        n1: {through: redfish, address: 192.0.2.111, user: monitor, password_file: bmc.password}
        n2: {through: ipmi, address: 192.0.2.112, user: monitor, password_file: bmc.password}

    Passwords are in files of mode 600, and nowhere else: not in arguments, logs, readings or reports.

    Exit status 0: every node was read; 3: a node never was; 2: bad input.
    """
    import threading

    from shakedown.collect.server_watts import read_bmcs, reader, sample
    from shakedown.run.folder import Run

    nodes = Run(run).plan.nodes
    found = read_bmcs(bmcs)
    if missing := [node for node in nodes if node not in found]:
        raise BadInput(f"no BMC of {', '.join(missing[:5])}", fix="add it under bmcs", file=bmcs)
    readers = {node: reader(found[node]) for node in nodes}
    counts = sample(run, readers, every_s=every, for_s=seconds, stop=threading.Event())
    for node, (good, bad) in counts.items():
        typer.echo(f"{node}: {good} readings" + (f", {bad} times none" if bad else ""))
    return ExitStatus.PASS if all(good for good, _ in counts.values()) else ExitStatus.INCOMPLETE
