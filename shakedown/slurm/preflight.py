"""Ask Slurm, before the first job is submitted, whether it would take the jobs of a plan.

    python -m shakedown.slurm.preflight [--access=JSON] [--home=FOLDER] < jobs.json

Partition, account, QOS, reservation and the user are looked up one by one, so that the line names the key to
mend; nothing is submitted. Exit status 0, or 2 with one line on stderr. What Slurm cannot be asked (no
answer, no accounting) is no refusal: Slurm then says so of each job, or enforces nothing.

What its commands print is text that others wrote: only whole fields of known names are read, and bounded.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from shakedown.plan.jobs import Jobs
from shakedown.records.errors import BadInput, ExitStatus
from shakedown.records.program import ended
from shakedown.records.refusals import refusal
from shakedown.slurm.client import NoAnswer, Slurm
from shakedown.slurm.limits import refuse_over_limits, refuse_over_partition
from shakedown.slurm.under_way import refuse_other_run

_LARGEST_ANSWER = 4 << 20  # characters; a site with a thousand reservations fits
_MOST_JOBS = 256 << 20  # bytes of jobs.json
_OPTION = re.compile(r"--(partition|account|qos|reservation|constraint)=(.*)", re.DOTALL)
_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z]{1,40})=(\S*)")
_SHOWN = 5  # names in a refusal
# What scontrol says of a name that it does not know (22.05 to 25.05).
_UNKNOWN = re.compile(r"not found|Invalid (?:partition|reservation)|is invalid")


def wanted(submit: Iterable[str]) -> dict[str, str]:
    """Return partition, account and the like by name from options of sbatch; the last of two holds."""
    found = {}
    for option in submit:
        if match := _OPTION.fullmatch(option):
            found[match[1]] = "".join(shlex.split(match[2])) if match[2] else ""
    return found


def fields(line: str) -> dict[str, str]:
    """Return the fields of a line of `scontrol --oneliner show`; of two of one name the first counts."""
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        found.setdefault(name, value)
    return found


def check(slurm: Slurm, jobs: Jobs, user: str, access: Sequence[str] = (), home: Path | None = None) -> None:
    """Refuse what Slurm would refuse, and a start beside a run of another stage folder than `home`.

    Raises:
        BadInput: naming the key of the `slurm:` block that is wrong.
    """
    asked = wanted([*jobs.submit, *access])
    nodes = sorted({node for job in jobs.jobs for node in job.nodes})
    config = _config(slurm)
    if user == "root" and config.get("DisableRootJobs", "").lower() == "yes":
        raise BadInput(
            "this Slurm takes no jobs of root (DisableRootJobs)",
            fix="name an ordinary user in slurm.run_as, or connect as one",
        )
    if home is not None:
        refuse_other_run(slurm, home, nodes)
    account = asked.get("account", "")
    of_plan = partial(_partition, jobs=jobs, qos=asked.get("qos", ""))
    for names, each in ((asked.get("partition"), of_plan), (asked.get("reservation"), _reservation)):
        for name in names.split(",") if names else ():
            each(slurm, name, nodes, user, account)
    enforces = config.get("AccountingStorageEnforce", "").split(",")
    enforced = "associations" in enforces
    if account or "qos" in asked or enforced:
        _association(slurm, user, account, asked.get("qos", ""), enforced=enforced)
    if user != "root" and {"limits", "safe"}.intersection(enforces):
        partition = asked.get("partition", "").partition(",")[0]
        refuse_over_limits(
            partial(_ask, slurm),
            jobs,
            user,
            account=account,
            qos=asked.get("qos", ""),
            partition=partition,
            partition_qos=_partition_qos(slurm, partition),
        )


def _ask(slurm: Slurm, *argv: str) -> str | None:
    """Return what a command prints; None where Slurm does not answer.

    Raises:
        BadInput: Slurm's answer is that it does not know the name, with no fix.
    """
    try:
        return slurm.ask(*argv)[:_LARGEST_ANSWER]
    except BadInput as refused:
        said = refused.what.partition(": ")[2]
        if _UNKNOWN.search(said):
            raise BadInput(said) from None
        if not isinstance(refused, NoAnswer):
            raise BadInput(said, fix="ask the owner of Slurm for the right to look") from None
        return None


def _config(slurm: Slurm) -> dict[str, str]:
    """Return Slurm's configuration; nothing where it does not answer."""
    try:
        said = _ask(slurm, "scontrol", "show", "config") or ""
    except BadInput:
        return {}
    pairs = (line.partition("=") for line in said.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _partition(
    slurm: Slurm, name: str, nodes: Sequence[str], user: str, account: str, *, jobs: Jobs, qos: str
) -> None:
    try:
        said = _ask(slurm, "scontrol", "--oneliner", "show", "partition", name)
    except BadInput:
        known = ", ".join(_names(slurm, "partition", "PartitionName"))
        raise BadInput(
            f"slurm.partition {name!r}: Slurm has no such partition",
            fix=f"use one of {known}" if known else "see scontrol show partition",
        ) from None
    if said is None:
        return
    found = fields(said)
    if (state := found.get("State", "UP")) != "UP":
        raise BadInput(
            f"slurm.partition {name!r} is {state[:40]}", fix="wait until it is UP, or name another"
        )
    refuse_over_partition(name, found, jobs, user, account=account, qos=qos)
    _holds(slurm, f"slurm.partition {name!r}", found.get("Nodes", ""), nodes)


def _partition_qos(slurm: Slurm, name: str) -> str:
    """Return the QOS that a partition has itself, or empty. Without a name: of the default partition."""
    try:
        said = _ask(slurm, "scontrol", "--oneliner", "show", "partition", *([name] if name else [])) or ""
    except BadInput:
        return ""
    lines = said.splitlines()
    chosen = lines if len(lines) == 1 else [line for line in lines if " Default=YES " in line]
    found = fields(chosen[0]).get("QoS", "") if chosen else ""
    return "" if found in ("N/A", "(null)") else found


def _reservation(slurm: Slurm, name: str, nodes: Sequence[str], user: str, account: str) -> None:
    try:
        said = _ask(slurm, "scontrol", "--oneliner", "show", "reservation", name)
    except BadInput:
        known = ", ".join(_names(slurm, "reservation", "ReservationName"))
        raise BadInput(
            f"slurm.reservation {name!r}: Slurm has no such reservation",
            fix=f"use one of {known}" if known else "Slurm has none at all; take the key out",
        ) from None
    if said is None:
        return
    found = fields(said)
    if (state := found.get("State", "ACTIVE")) != "ACTIVE":
        begin, end = (found.get(key, "?")[:20] for key in ("StartTime", "EndTime"))
        raise BadInput(
            f"slurm.reservation {name!r} is {state[:20]}: it is from {begin} to {end}",
            fix="start within that time, or name another",
        )
    users, accounts = (
        [] if found.get(key, "(null)") == "(null)" else found[key].split(",") for key in ("Users", "Accounts")
    )
    # root and a reservation without users are Slurm's own matter.
    if users and not accounts and user not in users and user != "root":
        raise BadInput(
            f"slurm.reservation {name!r} is not for {user} but for {', '.join(users[:_SHOWN])}",
            fix=f"have {user} added to it, or set slurm.run_as",
        )
    if accounts and not users and account and account not in accounts:
        raise BadInput(
            f"slurm.reservation {name!r} is not for slurm.account {account!r} "
            f"but for {', '.join(accounts[:_SHOWN])}",
            fix="have the account added to it, or name another",
        )
    _holds(slurm, f"slurm.reservation {name!r}", found.get("Nodes", ""), nodes)


def _holds(slurm: Slurm, what: str, hosts: str, nodes: Sequence[str]) -> None:
    """Refuse planned nodes that are not among Slurm's; a list that Slurm cannot expand says nothing."""
    try:
        held = set(slurm.hostnames(hosts))
    except BadInput:
        return
    outside = [node for node in nodes if node not in held]
    if held and outside:
        more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
        raise BadInput(
            f"{what} does not have {', '.join(outside[:_SHOWN])}{more}, which the plan measures on",
            fix="have the nodes added to it, or measure those that it has (-e acceptance_nodes=...)",
        )


def _association(slurm: Slurm, user: str, account: str, qos: str, *, enforced: bool) -> None:
    """Refuse an account that the user does not have, and a QOS that it does not have there.

    `enforced`: Slurm takes no job of a user without an association.
    """
    columns = "format=account,qos,defaultqos"
    who = ("sacctmgr", "--noheader", "--parsable2", "--readonly", "show", "associations", f"user={user}")
    try:
        said = _ask(slurm, *who, columns)
    except BadInput:
        return  # sacctmgr's own words are no answer about names
    if said is None or (user == "root" and not said.strip()):
        return  # no accounting, or it cannot be reached; and root may do without an association
    rows = [line.split("|") for line in said.splitlines() if line.count("|") == 2]
    accounts = sorted({row[0] for row in rows if row[0]})
    mine = [row for row in rows if not account or row[0] == account]
    if account and not mine:
        listed = ", ".join(accounts[:_SHOWN])
        raise BadInput(
            f"slurm.account {account!r}: Slurm has no such account for {user}",
            fix=f"use one of {listed}" if listed else f"have {user} added to an account (sacctmgr add user)",
        )
    if not rows:
        if enforced:
            raise BadInput(
                f"Slurm has no account for {user}, and takes no job without one",
                fix=f"have {user} added to an account (sacctmgr add user), or set slurm.run_as",
            )
        return  # nothing is enforced
    allowed = sorted({name for row in mine for name in (*row[1].split(","), row[2]) if name})
    if qos and any(name not in allowed for name in qos.split(",")):
        raise BadInput(
            f"slurm.qos {qos!r}: {user} may not use it"
            + (f" with slurm.account {account!r}" if account else ""),
            fix=f"use one of {', '.join(allowed[:_SHOWN])}" if allowed else "take slurm.qos out",
        )


def _names(slurm: Slurm, kind: str, field: str) -> list[str]:
    """Return the first names of a kind that Slurm has; none where it cannot be asked."""
    try:
        said = _ask(slurm, "scontrol", "--oneliner", "show", kind) or ""
    except BadInput:
        return []
    names = (fields(line).get(field, "") for line in said.splitlines())
    return [name[:60] for name in names if name][:_SHOWN]


def main(argv: Sequence[str] | None = None) -> int:
    """Read jobs.json from standard input; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m shakedown.slurm.preflight", description=__doc__)
    parser.add_argument("--access", default="[]", help="options over the plan's, as a JSON list")
    parser.add_argument("--home", type=Path, help="the stage folder that this run is made in")
    options = parser.parse_args(argv)
    try:
        access = json.loads(options.access)
        if not isinstance(access, list) or not all(isinstance(one, str) for one in access):
            raise BadInput("--access is no JSON list of options", fix="as playbooks/acceptance.yml gives it")
        jobs = Jobs.model_validate_json(sys.stdin.buffer.read(_MOST_JOBS))
        check(Slurm(), jobs, pwd.getpwuid(os.geteuid()).pw_name, access, options.home)
    except ValidationError as error:
        print(refusal(error, Jobs, about="not a run's jobs.json", fix="plan again"), file=sys.stderr)
        return ExitStatus.BAD_INPUT
    except (BadInput, ValueError, KeyError, OSError) as error:
        print(error, file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return ExitStatus.PASS


if __name__ == "__main__":
    ended(main)
