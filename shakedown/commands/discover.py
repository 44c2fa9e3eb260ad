"""`shakedown discover FOLDER`: a site's folder from what is there, or what differs between the two."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import count

if TYPE_CHECKING:
    from shakedown.discover.ask import Answers
    from shakedown.discover.draft_site import FoundSite
    from shakedown.intent.slurm_block import SlurmBlock


@command(
    "shakedown discover mysite --from answers.json",
    "shakedown discover mysite --ansible hosts.ini --record answers.json",
    "shakedown discover mysite --slurm gpu --cabling cabling.csv",
    "shakedown discover mysite --slurm gpu --account bench --reservation maint",
)
def discover(
    folder: Annotated[
        Path, typer.Argument(help="The site's folder: a new one is written, one that is there compared.")
    ],
    slurm: Annotated[
        str | None,
        typer.Option(metavar="PARTITION", help="Ask the nodes of this partition, by one Slurm job."),
    ] = None,
    ansible: Annotated[
        str | None, typer.Option(metavar="INVENTORY", help="Ask the hosts of group compute, by Ansible.")
    ] = None,
    account: Annotated[str | None, typer.Option(help="Account of that job.")] = None,
    qos: Annotated[str | None, typer.Option(help="QOS of that job.")] = None,
    reservation: Annotated[
        str | None, typer.Option(help="Reservation of that job; its nodes may be in maintenance.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Ask nothing: take recorded answers.")
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option(help="These nodes alone, by Slurm: gpu[001-003] or n1,n2.")
    ] = None,
    cabling: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Cabling: node,netdev,leaf,leaf_port; goes before LLDP."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the answers here, for --from.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the differences, or what was written, as JSON.")
    ] = False,
) -> int:
    """Write a site's folder from what is there, or compare the folder with what is there.

    Nothing is changed on any machine. Lines that hold a guess end in `# check` with the reason. A folder that
    exists is never written to: what its machines answer otherwise is printed, and the exit status is 1 if
    anything differs. Without --slurm, --ansible and --from, such a folder's own hosts are asked by Ansible.
    --account, --qos and --reservation go into a new folder's slurm block; a folder that exists has its own.
    """
    from shakedown.discover.draft_site import describe
    from shakedown.discover.nics import read_table
    from shakedown.records.base import to_json
    from shakedown.records.writing import write_aside

    # Before anything is asked: what a wrong word would make all of it useless.
    table = None if cabling is None else read_table(cabling)
    block = _block(folder, slurm, {"account": account, "qos": qos, "reservation": reservation})
    given = _gather(folder, slurm, ansible, answers, nodes or (), block)
    found = describe(given, table)
    if record is not None:
        _refuse_existing(record)
        write_aside(record, to_json(given))
    if folder.exists():
        return _compare(folder, given, found, as_json=as_json)
    return _write(folder, found, as_json=as_json)


def _block(folder: Path, slurm: str | None, given: dict[str, str | None]) -> SlurmBlock:
    """Return whose the job is: what is given, over what the folder's own block says. Raises BadInput."""
    from pydantic import ValidationError

    from shakedown.benchmarks.planning import read_site
    from shakedown.intent.slurm_block import SlurmBlock

    said = {key: value for key, value in given.items() if value is not None}
    if slurm is None:
        if said:
            raise BadInput(f"--{next(iter(said))} is for --slurm", fix="with --ansible no job is started")
        return SlurmBlock()
    try:
        block = SlurmBlock(**said)  # type: ignore[arg-type]  # pydantic checks it
    except ValidationError as error:
        key = error.errors()[0]["loc"][0]
        raise BadInput(f"{str(given[str(key)])[:64]!r} is no name for --{key}", fix="see sacctmgr") from None
    return read_site(folder).slurm.model_copy(update=said) if folder.exists() else block


def _gather(
    folder: Path,
    slurm: str | None,
    ansible: str | None,
    answers: Path | None,
    nodes: list[str] | tuple[()],
    block: SlurmBlock,
) -> Answers:
    """Return the answers from the one place that was named. Raises BadInput."""
    from shakedown.discover.ask import read_answers

    ways = [way for way in (slurm, ansible, answers) if way is not None]
    if len(ways) > 1:
        raise BadInput("--slurm, --ansible and --from exclude each other", fix="give one of them")
    if nodes and slurm is None:
        raise BadInput("--nodes is for --slurm", fix="with --ansible, list those hosts alone")
    if answers is not None:
        return read_answers(answers)
    if slurm is not None:
        from shakedown.discover.ask import ask_slurm

        return ask_slurm(slurm, nodes, block=block)
    if ansible is None and not folder.exists():
        raise BadInput(
            "nothing says whom to ask", fix="give --slurm PARTITION, --ansible INVENTORY or --from FILE"
        )
    from shakedown.discover.ask import ask_ansible

    return ask_ansible(ansible or str(folder))


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise BadInput("is there already", fix="name a new file; nothing was written", file=file)


def _write(folder: Path, found: FoundSite, *, as_json: bool) -> int:
    """Write the folder and say what is left to check."""
    from shakedown.discover.folder import files, write_folder

    name = _name_of(folder)
    made = files(found, name)
    write_folder(folder, made)
    check = [
        (file.path, number, line.strip())
        for file in made
        for number, line in enumerate(file.text.splitlines(), start=1)
        if "check:" in line
    ]
    if as_json:
        typer.echo(
            json.dumps({"folder": str(folder), "files": [f.path for f in made], "check": check}, indent=1)
        )
        return ExitStatus.PASS
    nics = sum(len(node.nics) for node in found.nodes)
    typer.echo(
        f"{folder}: {count(len(found.nodes), 'node')}, {count(nics, 'NIC')} on "
        f"{count(len(found.rails), 'rail')}; {count(len(check), 'line')} to check:"
    )
    for path, number, line in check:
        typer.echo(f"  {folder / path}:{number}: {line[:150]}")
    typer.echo(f"Then: shakedown plan {folder}{' --learn' if found.only_memory else ''}")
    return ExitStatus.PASS


def _name_of(folder: Path) -> str:
    """Return the site's name, which is its folder's. Raises BadInput if it is none."""
    name = folder.resolve().name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", name):
        raise BadInput(f"{name[:64]!r} is no name for a site", fix="use letters, digits and ._-", file=folder)
    return name


def _compare(folder: Path, given: Answers, found: FoundSite, *, as_json: bool) -> int:
    """Print what differs between the folder and the cluster."""
    from shakedown.benchmarks.planning import read_site
    from shakedown.discover.draft_site import differences

    differ = differences(read_site(folder), found, given)
    if as_json:
        typer.echo(json.dumps([one._asdict() for one in differ], indent=1))
    else:
        for one in differ:
            typer.echo(str(one))
        many = f"{count(len(differ), 'difference')} between" if differ else "no difference between"
        typer.echo(f"{many} {folder} and {count(len(given.nodes), 'node')} that answered")
    return ExitStatus.FAIL if differ else ExitStatus.PASS
