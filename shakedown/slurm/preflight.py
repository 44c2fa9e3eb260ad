"""Ask Slurm, before the first job is submitted, whether it would take the jobs of a plan.

    python -m shakedown.slurm.preflight [--access=JSON] [--home=FOLDER] < jobs.json

Partition, account, QOS, reservation and the user are looked up one by one, so that the line names the key to
mend; nothing is submitted. Exit status 0, or 2 with one line on stderr. What Slurm cannot be asked (no
answer, no accounting) is no refusal: Slurm then says so of each job, or enforces nothing.

What its commands print is text that others wrote: only whole fields of known names are read, and bounded.
"""

import argparse
import json
import os
import pwd
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from shakedown.intent.slurm_block import seconds_of
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.program import ended, users_wishes
from shakedown.records.reading import BadInput, ExitStatus, refusal
from shakedown.slurm.client import NoAnswer, Slurm, fields
from shakedown.slurm.under_way import refuse_other_run

# Slurm takes a job that its account can never start and lets it wait for ever (AssocMaxNodePerJobLimit and
# the like), or refuses it in the middle of a stage (MaxSubmitJobs). Only limits that no other user's jobs can
# lift are looked at: what one job may have, and how many of ours may be there at a time. What others use of a
# group's share is not known beforehand.
#
# Limits are read by the names that sacctmgr(1) gives them. What it does not show is no limit.

Ask = Callable[..., str | None]  # a command's answer; None: there is none

_COLUMNS = ("MaxWall", "MaxTRES", "MaxJobs", "MaxSubmit", "GrpTRES", "GrpJobs", "GrpSubmit")
# sacctmgr calls a QOS's limits for one user otherwise; more of them hold there.
_OF_QOS = ("MaxWall", "MaxTRES", "MaxJobsPU", "MaxSubmitPU", "GrpTRES", "GrpJobs", "GrpSubmit", "MaxTRESPU")
_NODES = re.compile(r"(?:^|,)node=(\d{1,9})(?:,|$)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,127}")
_MOST_ANCESTORS = 16  # accounts within accounts


@dataclass(frozen=True)
class Limits:
    """The limits of one association or QOS: `where` names it, `at` holds what sacctmgr shows."""

    where: str
    at: Mapping[str, str]


def refuse_over_limits(
    ask: Ask,  # how Slurm is asked
    jobs: Jobs,  # of the plan
    user: str,  # who submits
    *,
    account: str,  # as asked for; empty: the user's default
    qos: str,  # as asked for; empty: the association's default
    partition: str,  # as asked for; associations of another are passed over
    partition_qos: str,  # the partition's own QOS, or empty
) -> None:
    """Refuse jobs that their account or QOS can never start, or would not take all of.

    Raises BadInput: naming the job, both numbers and the limit.
    """
    own, default_qos = _associations(ask, user, account, partition)
    named = [*(qos or default_qos).split(","), partition_qos]
    for limits in (*own, *_qos(ask, [name for name in named if name])):
        _one_job(limits, jobs.jobs)
        _at_a_time(limits, jobs, user)


def _associations(ask: Ask, user: str, account: str, partition: str) -> tuple[list[Limits], str]:
    """Return the limits of the user's association and of the accounts above it, and its default QOS."""
    columns = ("Account", "User", "Partition", "ParentName", "DefaultQOS", *_COLUMNS)
    if not account:
        said = _rows(ask, ("show", "user", f"user={user}"), ("DefaultAccount",))
        account = said[0]["DefaultAccount"] if said else ""
    found: list[Limits] = []
    default_qos, name = "", account
    for _ in range(_MOST_ANCESTORS):
        if not _NAME.fullmatch(name):
            break
        rows = _rows(ask, ("show", "associations", f"account={name}"), columns)
        mine = [row for row in rows if row["User"] == user and row["Partition"] in ("", partition)]
        if name == account and mine:
            default_qos = mine[0]["DefaultQOS"]
            found += [Limits(f"slurm.account {name!r} of {user}", row) for row in mine]
        whole = next((row for row in rows if not row["User"]), None)
        if whole is None:
            break
        found.append(Limits(f"slurm.account {name!r}", whole))
        name = whole["ParentName"]
    return found, default_qos


def _qos(ask: Ask, names: Iterable[str]) -> list[Limits]:
    found = []
    for name in dict.fromkeys(names):
        if _NAME.fullmatch(name):
            rows = _rows(ask, ("show", "qos", f"name={name}"), ("Name", *_OF_QOS))
            found += [Limits(f"slurm.qos {name!r}", row) for row in rows if row["Name"] == name]
    return found


def _rows(ask: Ask, words: tuple[str, ...], columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return what sacctmgr shows, by column; nothing where it refuses or is not there."""
    options = ("--noheader", "--parsable2", "--readonly")
    try:
        said = ask("sacctmgr", *options, *words, f"format={','.join(columns)}") or ""
    except BadInput:
        return []
    rows = (line.split("|") for line in said.splitlines())
    return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]


def _one_job(limits: Limits, jobs: Iterable[JobSpec]) -> None:
    """Refuse a job with more nodes or time than any job may have there."""
    nodes = [(key, int(m[1])) for key in limits.at if "TRES" in key and (m := _NODES.search(limits.at[key]))]
    wall = limits.at.get("MaxWall", "")
    try:
        most_s = seconds_of(wall) if wall else None
    except BadInput:
        most_s = None
    for job in jobs:
        for key, most in nodes:
            if len(job.nodes) > most:
                raise BadInput(
                    f"job {job.name} is for {len(job.nodes)} nodes, but {limits.where} allows {most} "
                    f"({key} node={most}): Slurm would never start it",
                    fix="name another account or QOS in the slurm block, or have the limit raised",
                )
        # Slurm counts whole minutes and rounds seconds up.
        if most_s is not None and -(-job.time_limit_s // 60) > -(-most_s // 60):
            raise BadInput(
                f"job {job.name} may take {job.time_limit_s} s, but {limits.where} allows {most_s} s "
                f"(MaxWall={wall[:20]})",
                fix="measure less, name another account or QOS in the slurm block, or have the limit raised",
            )


def _at_a_time(limits: Limits, jobs: Jobs, user: str) -> None:
    """Refuse more jobs at a time than may be there: those that wait for their nodes count as well."""
    of_stage = Counter(job.stage for job in jobs.jobs)
    at_a_time = min(jobs.max_jobs, max(of_stage.values(), default=0))
    for key in ("MaxSubmit", "MaxSubmitPU", "GrpSubmit", "MaxJobs", "MaxJobsPU", "GrpJobs"):
        text = limits.at.get(key, "")
        if re.fullmatch(r"\d{1,9}", text) and int(text) < at_a_time:
            fix = f"set acceptance.max_jobs to {text} and plan again, or have the limit raised"
            if text == "0":
                fix = "name another account or QOS in the slurm block"
            raise BadInput(
                f"{at_a_time} jobs of a stage are submitted at a time, but {limits.where} lets {user} have "
                f"{text} ({key})",
                fix=fix,
            )


_MOST_SHOWN = 80  # characters of what others wrote


def refuse_over_partition(
    name: str,  # of the partition
    found: Mapping[str, str],  # its fields, as Slurm prints them
    jobs: Jobs,  # of the plan
    user: str,  # who submits
    *,
    account: str,  # that the jobs name, or empty
    qos: str,  # the same; several are separated by commas
) -> None:
    """Refuse accounts, QOS and numbers of nodes that a partition does not take.

    Raises BadInput: naming the key of the `slurm:` block, or the job with both numbers.
    """
    what = f"slurm.partition {name!r}"
    if found.get("RootOnly", "NO") == "YES" and user != "root":
        raise BadInput(f"{what} takes jobs of root alone (RootOnly=YES)", fix="name another partition")
    for key, word, given in (
        ("AllowAccounts", "account", account),
        ("DenyAccounts", "account", account),
        ("AllowQos", "qos", qos),
        ("DenyQos", "qos", qos),
    ):
        listed = found.get(key, "").split(",")
        if not given or listed in ([""], ["ALL"], ["N/A"], ["(null)"]):
            continue
        refused = [one for one in given.split(",") if (one in listed) == key.startswith("Deny")]
        if refused:
            raise BadInput(
                f"{what} does not take slurm.{word} {refused[0]!r} ({key}={found[key][:_MOST_SHOWN]})",
                fix="name a partition and "
                + ("an account" if word == "account" else "a QOS")
                + " that go together",
            )
    if not jobs.jobs:
        return
    largest = max(jobs.jobs, key=lambda job: len(job.nodes))
    smallest = min(jobs.jobs, key=lambda job: len(job.nodes))
    for key, job in (("MaxNodes", largest), ("MinNodes", smallest)):
        limit = found.get(key, "")
        if not limit.isdecimal() or len(limit) > 9:
            continue  # UNLIMITED
        asked, allowed = len(job.nodes), int(limit)
        if asked > allowed if key == "MaxNodes" else asked < allowed:
            way = (
                "measure with fewer nodes"
                if key == "MaxNodes"
                else "leave out what single nodes do (--stage)"
            )
            raise BadInput(
                f"job {job.name} is for {asked} node{'s' if asked != 1 else ''}, but {what} takes "
                f"{'at most' if key == 'MaxNodes' else 'no less than'} {allowed} ({key}={allowed})",
                fix=f"name another partition, or {way}",
            )


_LARGEST_ANSWER = 4 << 20  # characters; a site with a thousand reservations fits
_MOST_JOBS = 256 << 20  # bytes of jobs.json
_OPTION = re.compile(r"--(partition|account|qos|reservation|constraint)=(.*)", re.DOTALL)
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


def check(slurm: Slurm, jobs: Jobs, user: str, access: Sequence[str] = (), home: Path | None = None) -> None:
    """Refuse what Slurm would refuse, and a start beside a run of another stage folder than `home`.

    Raises BadInput: naming the key of the `slurm:` block that is wrong.
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

    Raises BadInput: Slurm's answer is that it does not know the name, with no fix.
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
    found = _shown(slurm, "partition", name, none="see scontrol show partition")
    if found is None:
        return
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
    found = _shown(slurm, "reservation", name, none="Slurm has none at all; take the key out")
    if found is None:
        return
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


def _shown(slurm: Slurm, kind: str, name: str, *, none: str) -> dict[str, str] | None:
    """Return the fields of a partition or reservation; None where Slurm does not answer.

    `none`: the fix where Slurm has no such thing at all. Raises BadInput: it has others, which are named.
    """
    show = ("scontrol", "--oneliner", "show", kind)
    try:
        said = _ask(slurm, *show, name)
    except BadInput:
        try:
            lines = (_ask(slurm, *show) or "").splitlines()
        except BadInput:
            lines = []
        names = (fields(line).get(f"{kind.capitalize()}Name", "") for line in lines)
        known = ", ".join([one[:60] for one in names if one][:_SHOWN])
        raise BadInput(
            f"slurm.{kind} {name!r}: Slurm has no such {kind}", fix=f"use one of {known}" if known else none
        ) from None
    return None if said is None else fields(said)


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
        if not _config(Slurm()):
            print("Slurm does not answer `scontrol show config`: the stages wait for it, not for ever")
        print(users_wishes(os.environ), end="")
    except ValidationError as error:
        print(refusal(error, Jobs, about="not a run's jobs.json", fix="plan again"), file=sys.stderr)
        return ExitStatus.BAD_INPUT
    except (BadInput, ValueError, KeyError, OSError) as error:
        print(error, file=sys.stderr)
        return ExitStatus.BAD_INPUT
    return ExitStatus.PASS


if __name__ == "__main__":
    ended(main)
