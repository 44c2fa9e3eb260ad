"""`shakedown order`, `seal` and `verify`: sign what is to be measured, seal a run, check it anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command
from shakedown.records.reading import ExitStatus
from shakedown.records.wording import count, printable

if TYPE_CHECKING:
    from shakedown.report.seal import Verification


@command("shakedown order reports/runs/lab --key ~/.ssh/id_ed25519 --hosts known_hosts --user 1000")
def order(
    plan: Annotated[Path, typer.Argument(help="Planned run: the folder with plan.json and jobs.json.")],
    key: Annotated[Path, typer.Option(help="SSH private key to sign with.")],
    hosts: Annotated[
        list[Path],
        typer.Option(
            help="Who the nodes are: a snapshot (inventory.json) or ssh's known_hosts; may be given again."
        ),
    ],
    user: Annotated[
        int, typer.Option(min=0, help="Whose jobs they are, by number (id -u on the host that submits them).")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it. [default: PLAN/order.json]")
    ] = None,
    days: Annotated[int, typer.Option(help="How many days it is valid, from now; at most 90.")] = 14,
    submit: Annotated[
        str | None,
        typer.Option(
            help="The host that submits the jobs: it must sign which there were (it needs a host key)."
        ),
    ] = None,
) -> int:
    """Sign a plan, so that `shakedown verify --order` tells whether that very plan was measured, and where.

    Prints what the key signs: every gate with its share of the physical ceiling beside the strictest that
    a shipped profile asks, what jobs expect, and what the plan eases: gates that are no shipped profile's,
    tests that are not to be run or not required, waivers.

    Writes the order and its signature (.sig). Keep your own copy: a bundle is held against it. Measure with
    ansible-playbook playbooks/acceptance.yml -e run_id=RUN -e order=FILE.
    """
    from shakedown.evidence import orders
    from shakedown.run.folder import ORDER

    folder = plan.parent if plan.is_file() else plan
    made = orders.make(folder, hosts, user=user, days=days, submit=submit)
    for line in (*orders.held(folder), *dict.fromkeys(orders.eased(folder))):
        typer.echo(printable(line)[:500])
    where = output or folder / ORDER
    orders.write(made, where, key)
    typer.echo(
        f"ordered: {where}, run {made.run} on {count(len(made.nodes), 'node')}, valid until {made.not_after}"
    )
    return ExitStatus.PASS


_MOST_LINES = 40  # more would bury the first ones; all are in --json


@command("shakedown seal reports/runs/lab --key ~/.ssh/id_ed25519")
def seal(
    run: Annotated[Path, typer.Argument(help="Run folder with its verdict.json.")],
    key: Annotated[Path, typer.Option(help="SSH private key to sign with.")],
    redact: Annotated[bool, typer.Option("--redact", help="First remove secrets from raw outputs.")] = False,
) -> int:
    """Write SHA256SUMS and sign it.

    Refused if verdict.json or the report is not what the raw results give, or if a file holds what looks like
    a secret.
    """
    from shakedown.report import seal as bundle
    from shakedown.run.folder import SIGNATURE, redact_folder

    for name in redact_folder(run) if redact else ():
        typer.echo(f"redacted: {name}")
    bundle.seal(run, key)
    typer.echo(f"sealed: {run / SIGNATURE}")
    return ExitStatus.PASS


@command(
    "shakedown verify reports/runs/lab --signers allowed_signers",
    "shakedown verify reports/runs/lab --signers allowed_signers --order order.json",
)
def verify(
    folder: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Sealed run folder.")],
    signers: Annotated[
        Path | None, typer.Option(help="Trusted signers, in the format of ssh's allowed_signers file.")
    ] = None,
    order: Annotated[
        Path | None, typer.Option(help="Your own copy of the order (shakedown order), with its .sig.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Check checksums and signature, recompute measurements, verdict and report, hold all against the order.

    The first file that differs is named; what is not as ordered is named file by file. Then: run, system,
    date, the plan's digest, what the plan holds the system to, and every gate that is no shipped profile's.

    Exit status 0: as sealed by a trusted signer, whatever the verdict. 1: something differs. 3: nothing
    differs, but the signer is unconfirmed because --signers was not given.
    """
    from shakedown.report import seal as bundle

    found = bundle.verify(folder, signers, order)
    if as_json:
        outcome = found.outcome.value if found.outcome else None
        fields = {"authentic": found.authentic, "differs": found.differs, "reason": found.reason}
        findings = [finding._asdict() for finding in found.findings]
        rest = {
            "signer": found.signer,
            "verdict": outcome,
            "ordered": order is not None,
            "findings": findings,
        }
        typer.echo(
            json.dumps(
                {**fields, **rest, **found.facts, "gates": list(found.gates), "held": list(found.held)},
                indent=1,
            )
        )
    else:
        _say(found)
    if found.authentic:
        return ExitStatus.PASS
    return ExitStatus.FAIL if found.differs else ExitStatus.INCOMPLETE


def _say(found: Verification) -> None:
    state = "VERIFIED" if found.authentic else "DIFFERS" if found.differs else "UNCONFIRMED"
    typer.echo(f"{state}  {found.reason}")
    _list("not as ordered: ", [str(finding) for finding in found.findings])
    if facts := found.facts:
        said = f"run {facts['run']} of {facts['system']}, planned {facts['planned']}"
        typer.echo(f"{printable(said)}, plan SHA-256 {facts['plan']}")
    _list("gate of its own: ", [printable(gate) for gate in found.gates])
    _list("held: ", [printable(line)[:500] for line in found.held])


def _list(head: str, lines: list[str]) -> None:
    for line in lines[:_MOST_LINES]:
        typer.echo(f"{head}{line}")
    if len(lines) > _MOST_LINES:
        typer.echo(f"{head}{len(lines) - _MOST_LINES} more, see --json")
