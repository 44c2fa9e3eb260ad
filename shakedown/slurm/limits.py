"""What accounts and partitions allow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shakedown.intent.slurm_block import seconds_of
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.errors import BadInput

# What accounts and QOS allow (sacctmgr), against the jobs of a plan, before the first of them is submitted.
#
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
    ask: Ask, jobs: Jobs, user: str, *, account: str, qos: str, partition: str, partition_qos: str
) -> None:
    """Refuse jobs that their account or QOS can never start, or would not take all of.

    Args:
        ask: how Slurm is asked.
        jobs: of the plan.
        user: who submits.
        account: as asked for; empty: the user's default.
        qos: as asked for; empty: the association's default.
        partition: as asked for; associations of another are passed over.
        partition_qos: the partition's own QOS, or empty.

    Raises:
        BadInput: naming the job, both numbers and the limit.
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


# What a partition refuses or never starts, whatever the user's account allows (scontrol show partition).

_SHOWN = 80  # characters of what others wrote


def refuse_over_partition(
    name: str, found: Mapping[str, str], jobs: Jobs, user: str, *, account: str, qos: str
) -> None:
    """Refuse accounts, QOS and numbers of nodes that a partition does not take.

    Args:
        name: of the partition.
        found: its fields, as Slurm prints them.
        jobs: of the plan.
        user: who submits.
        account: that the jobs name, or empty.
        qos: the same; several are separated by commas.

    Raises:
        BadInput: naming the key of the `slurm:` block, or the job with both numbers.
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
                f"{what} does not take slurm.{word} {refused[0]!r} ({key}={found[key][:_SHOWN]})",
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
