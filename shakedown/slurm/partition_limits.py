"""What a partition refuses or never starts, whatever the user's account allows (scontrol show partition)."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.plan.jobs import Jobs
from shakedown.records.errors import BadInput

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
