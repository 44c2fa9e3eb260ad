"""`shakedown seal RUN` and `shakedown verify BUNDLE`: sign a run, and check a signed one anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.examples import examples
from shakedown.records.errors import ExitStatus

if TYPE_CHECKING:
    from shakedown.bundle.seal import Verification

# More would bury the first ones; all are in --json.
_MOST_LINES = 40


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("seal", epilog=examples("shakedown seal reports/runs/lab --key ~/.ssh/id_ed25519"))(seal)
    app.command(
        "verify",
        epilog=examples(
            "shakedown verify reports/runs/lab --signers allowed_signers",
            "shakedown verify reports/runs/lab --signers allowed_signers --order order.json",
        ),
    )(verify)


def seal(
    run: Annotated[Path, typer.Argument(help="Run folder with its verdict.json.")],
    key: Annotated[Path, typer.Option(help="SSH private key to sign with.")],
    redact: Annotated[bool, typer.Option("--redact", help="First remove secrets from raw outputs.")] = False,
) -> int:
    """Write SHA256SUMS and sign it.

    Refused if verdict.json or the report is not what the raw results give, or if a file holds what looks like
    a secret.
    """
    from shakedown.bundle import seal as bundle
    from shakedown.run.files import SIGNATURE, redact_folder

    for name in redact_folder(run) if redact else ():
        typer.echo(f"redacted: {name}")
    bundle.seal(run, key)
    typer.echo(f"sealed: {run / SIGNATURE}")
    return ExitStatus.PASS


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
    date, the plan's digest, and every gate that is not a shipped profile's.

    Exit status 0: as sealed by a trusted signer, whatever the verdict. 1: something differs. 3: nothing
    differs, but the signer is unconfirmed because --signers was not given.
    """
    import json

    from shakedown.bundle import seal as bundle
    from shakedown.bundle import summary

    found = bundle.verify(folder, signers, order)
    # A bundle that differs may hold anything.
    facts = {} if found.differs and not found.findings else summary.facts(folder)
    gates = summary.gates(folder) if facts else []
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
        typer.echo(json.dumps({**fields, **rest, **facts, "gates": gates}, indent=1))
    else:
        _say(found, facts, gates)
    if found.authentic:
        return ExitStatus.PASS
    return ExitStatus.FAIL if found.differs else ExitStatus.INCOMPLETE


def _say(found: Verification, facts: dict[str, str], gates: list[str]) -> None:
    from shakedown.records.wording import printable

    state = "VERIFIED" if found.authentic else "DIFFERS" if found.differs else "UNCONFIRMED"
    typer.echo(f"{state}  {found.reason}")
    _list("not as ordered: ", [str(finding) for finding in found.findings])
    if facts:
        said = f"run {facts['run']} of {facts['system']}, planned {facts['planned']}"
        typer.echo(f"{printable(said)}, plan SHA-256 {facts['plan']}")
    _list("gate of its own: ", [printable(gate) for gate in gates])


def _list(head: str, lines: list[str]) -> None:
    for line in lines[:_MOST_LINES]:
        typer.echo(f"{head}{line}")
    if len(lines) > _MOST_LINES:
        typer.echo(f"{head}{len(lines) - _MOST_LINES} more, see --json")
