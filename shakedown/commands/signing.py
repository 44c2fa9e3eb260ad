"""`shakedown order`, `seal`, `certify` and `verify`: sign what is to be measured, seal it, check it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command, console_of
from shakedown.records.reading import BadInput, ExitStatus
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
    "shakedown certify reports/runs/lab --criteria criteria.yml --signers allowed_signers "
    "--key ~/.ssh/id_ed25519"
)
def certify(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Sealed run folders of one cluster.")],
    criteria: Annotated[Path, typer.Option(help="The contract's criteria, with the cells that answer each.")],
    key: Annotated[Path, typer.Option(help="SSH private key to sign the certificate with.")],
    signers: Annotated[
        Path, typer.Option(help="Who may seal a run, in the format of ssh's allowed_signers.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.")] = Path("certificate"),
    pdf: Annotated[
        Path | None, typer.Option(help="Also print its page here, with the Chromium or Chrome of this host.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print certificate.json.")] = False,
) -> int:
    """Answer each criterion of a contract by sealed runs; write a signed folder with a page to sign.

    Every run is verified and judged anew. A criterion is MET if all cells of its patterns passed, in all
    runs, and each pattern has some that the plan requires, on every node of the site in one run. Else it is
    MET IN PART (in no run of the whole site), WAIVED (it failed, and somebody signed for that), FAILED or
    NOT ANSWERED.

    Exit status 0: all are met, in runs that passed. 1: one failed. 3: otherwise.
    """
    from shakedown.records.base import to_json
    from shakedown.report import certificate

    made = certificate.certify(runs, criteria, output, key, signers, pdf)
    if as_json:
        typer.echo(to_json(made), nl=False)
    else:
        style = {"ALL MET": "bold green", "FAILED": "bold red"}.get(made.stamp, "bold yellow")
        say = console_of(1000)[1]
        say(f"  {made.reason}", made.stamp, style)
        for answer in made.answers:
            say(f"  {answer.id}: {answer.reason}", answer.answer, _STYLE.get(answer.answer, "yellow"))
        typer.echo(f"certificate: {output / certificate.PAGE}")
    return {"ALL MET": ExitStatus.PASS, "FAILED": ExitStatus.FAIL}.get(made.stamp, ExitStatus.INCOMPLETE)


_STYLE = {"MET": "green", "FAILED": "red"}


@command(
    "shakedown verify reports/runs/lab --signers allowed_signers",
    "shakedown verify reports/runs/lab --signers allowed_signers --order order.json",
    "shakedown verify certificate --signers allowed_signers --runs reports/runs/lab",
)
def verify(
    folder: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Sealed run folder, or a certificate.")],
    signers: Annotated[
        Path | None, typer.Option(help="Trusted signers, in the format of ssh's allowed_signers file.")
    ] = None,
    order: Annotated[
        Path | None, typer.Option(help="Your own copy of the order (shakedown order), with its .sig.")
    ] = None,
    runs: Annotated[
        list[Path] | None, typer.Option(help="A run that the certificate is of; each is needed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Check checksums and signature, recompute measurements, verdict and report, hold all against the order.

    The first file that differs is named; what is not as ordered is named file by file. Then: run, system,
    date, the plan's digest, what the plan holds the system to, and every gate that is no shipped profile's.
    The criteria of a certificate are answered again from its runs.

    Exit status 0: as sealed by a trusted signer, whatever the verdict. 1: something differs. 3: nothing
    differs, but --signers was not given, so that the signer is unconfirmed, or --runs of a certificate.
    """
    from shakedown.report import certificate
    from shakedown.report import seal as bundle

    if (folder / certificate.CERTIFICATE).exists():
        if order is not None:
            raise BadInput("--order is for a run, and this is a certificate", fix="leave it out", file=folder)
        found = certificate.verify(folder, signers, runs or ())
    elif runs:
        raise BadInput("--runs is for a certificate, and this is none", fix="leave it out", file=folder)
    else:
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
    style = {"VERIFIED": "bold green", "DIFFERS": "bold red"}.get(state, "bold yellow")
    console_of(1000)[1](f"  {found.reason}", state, style)
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
