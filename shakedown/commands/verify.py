"""`shakedown seal RUN` and `shakedown verify BUNDLE`: sign a run, and check a signed one anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shakedown.commands.examples import examples
from shakedown.records.errors import ExitStatus


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("seal", epilog=examples("shakedown seal reports/runs/lab --key ~/.ssh/id_ed25519"))(seal)
    app.command("verify", epilog=examples("shakedown verify reports/runs/lab --signers allowed_signers"))(
        verify
    )


def seal(
    run: Annotated[Path, typer.Argument(help="Run folder with its verdict.json.")],
    key: Annotated[Path, typer.Option(help="SSH private key to sign with.")],
    redact: Annotated[bool, typer.Option("--redact", help="First remove secrets from raw outputs.")] = False,
) -> int:
    """Write SHA256SUMS and sign it.

    Refused if verdict.json is not what the raw results give, or if a file holds what looks like a secret.
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Check checksums and signature, recompute measurements from raw files and the verdict from them.

    The first file that differs is named.

    Exit status 0: as sealed by a trusted signer, whatever the verdict. 1: something differs. 3: nothing
    differs, but the signer is unconfirmed because --signers was not given.
    """
    import json

    from shakedown.bundle import seal as bundle

    found = bundle.verify(folder, signers)
    if as_json:
        outcome = found.outcome.value if found.outcome else None
        fields = {"authentic": found.authentic, "differs": found.differs, "reason": found.reason}
        typer.echo(json.dumps({**fields, "signer": found.signer, "verdict": outcome}, indent=1))
    else:
        state = "VERIFIED" if found.authentic else "DIFFERS" if found.differs else "UNCONFIRMED"
        typer.echo(f"{state}  {found.reason}")
    if found.authentic:
        return ExitStatus.PASS
    return ExitStatus.FAIL if found.differs else ExitStatus.INCOMPLETE
