"""What an inventory says of Slurm, and of the time a job may take."""

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from shakedown.records.base import Record, shape
from shakedown.records.reading import BadInput

# Slurm counts time limits in whole minutes and rounds seconds up (slurm.conf, MaxTime; sbatch, --time), so
# two limits are compared in minutes.

KEY = "slurm.max_job_time"  # of the inventory
# minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds
_TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_NONE = frozenset({"UNLIMITED", "INFINITE", "-1"})
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60


class JobTime(Record):
    """How long the partition lets a job run; `seconds` None: as long as it likes."""

    seconds: int | None = Field(gt=0)
    said_by: str  # what a refusal names: a key of the inventory, or the partition as Slurm has it
    fix: str


def stated(given: object) -> JobTime | None:
    """Return the limit that an inventory states by `slurm.max_job_time`; None where it states none.

    Raises BadInput: no time as Slurm writes it.
    """
    if given is None or given == "":
        return None
    fix = f"raise {KEY}, or leave it out where Slurm is made by the playbooks; or measure less"
    return JobTime(seconds=seconds_of(given), said_by=KEY, fix=fix)


def seconds_of(text: object) -> int | None:
    """Return a time of Slurm's in seconds; None for one without a limit.

    Raises BadInput: no time as Slurm writes it. YAML reads 4:00:00 without quotes as a number: refused too.
    """
    if not isinstance(text, str):
        raise BadInput(f"{text!r:.40} is no time in quotes", fix='write "04:00:00", or "UNLIMITED"')
    if text.strip().upper() in _NONE:
        return None
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"{text[:40]!r} is no time as Slurm writes it", fix='write "04:00:00" or "1-12:00:00"')
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None:
        parts = (days * _DAY_S, (first or 0) * _HOUR_S, (second or 0) * _MINUTE_S, third or 0)
    elif third is not None:
        parts = (0, (first or 0) * _HOUR_S, (second or 0) * _MINUTE_S, third)
    else:
        parts = (0, 0, (first or 0) * _MINUTE_S, second or 0)
    if not sum(parts):
        raise BadInput(f"{text[:40]!r} allows no time at all", fix='write "04:00:00", or "UNLIMITED"')
    return sum(parts)


def minutes(seconds: int) -> int:
    """Return a time limit in minutes as Slurm counts it: rounded up."""
    return -(-seconds // _MINUTE_S)


def slurm_time(seconds: int) -> str:
    """Return a time limit as Slurm writes it, rounded up to minutes: 14,430 s are 04:01:00."""
    hours, rest = divmod(minutes(seconds), _MINUTE_S)
    return f"{hours:02d}:{rest:02d}:00"


# Its words reach `#SBATCH` lines and argument lists, never a shell. Each is held to a pattern that admits no
# quote, backslash, line break or comment sign, and further options are a closed list.

# What Slurm's names look like (slurm.conf; sacctmgr); commas list several.
_SLURM_NAME = shape(
    r"^[A-Za-z0-9_][A-Za-z0-9_.:@+-]*$",
    "one name as Slurm has it, of letters, digits and _ . : @ + -",
    "gpu",
    max_length=128,
)
SlurmName = Annotated[str, _SLURM_NAME]
_NAMES = r"[A-Za-z0-9_][A-Za-z0-9_.:@+,-]{0,255}"
_USER = shape(
    r"^[a-z_][a-z0-9_-]*\$?$", "a user's name of lower-case letters, digits, _ and -", "bench", max_length=32
)
_COUNT = r"[0-9]{1,9}"
_SIZE = r"[0-9]{1,9}[KMGT]?"
_SLURM_TIME = r"[0-9:-]{1,16}|now(?:\+[0-9]{1,9}[a-z]{0,7})?|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:]{4,8})?"
# What the keys of the block become, and what a night may set instead (nightly_access).
_KEYS = {
    "--partition": _NAMES,
    "--account": _NAMES,
    "--qos": _NAMES,
    "--reservation": _NAMES,
    "--constraint": r"[A-Za-z0-9_][A-Za-z0-9_.&|*(),:\[\]-]{0,255}|[\[(][A-Za-z0-9_.&|*(),:\[\]-]{1,255}",
    "--comment": r"[A-Za-z0-9 _.,:/@+=()-]{1,200}",
}
# Further options of sbatch(1). None: no value. What the plan decides (nodes, tasks, time, output, requeue)
# and what would run something else (wrap, export, chdir, uid, container) is not among them.
_FURTHER: dict[str, str | None] = {
    "--begin": _SLURM_TIME,
    "--bb": _NAMES,
    "--contiguous": None,
    "--core-spec": _COUNT,
    "--cpu-freq": _NAMES,
    "--deadline": _SLURM_TIME,
    "--exclusive": r"user|mcs|topo",
    "--gpus-per-node": _NAMES,
    "--gres": _NAMES,
    "--hint": _NAMES,
    "--licenses": _NAMES,
    "--mcs-label": _NAMES,
    "--mem": _SIZE,
    "--mem-per-cpu": _SIZE,
    "--network": _NAMES,
    "--nice": _COUNT,
    "--priority": _COUNT,
    "--propagate": r"[A-Z,]{1,64}",
    "--switches": r"[0-9]{1,4}(?:@[0-9:-]{1,16})?",
    "--threads-per-core": _COUNT,
    "--tmp": _SIZE,
    "--wckey": _NAMES,
}
_OWN_KEYS = {name.removeprefix("--"): name for name in _KEYS}


def option(text: str, *, keys_too: bool = False) -> str:
    """Return an option of sbatch as it may stand in a job. `keys_too`: also those that keys of `slurm` set.

    Raises ValueError: an option that is not in the list, or a value that it cannot have.
    """
    name, equals, value = text.partition("=")
    known: Mapping[str, str | None] = {**_FURTHER, **(_KEYS if keys_too else {})}
    if name not in known:
        if name in _KEYS:
            raise ValueError(f"{name} has a key of its own: slurm.{name.removeprefix('--')}")
        raise ValueError(
            f"{text[:60]!r} is not an option that a site may set; use {', '.join(sorted(known))}"
        )
    pattern = known[name]
    if pattern is None:
        if equals:
            raise ValueError(f"{name} takes no value")
        return name
    if not equals or re.fullmatch(pattern, value) is None:
        # --exclusive alone is what every job has.
        raise ValueError(f"{text[:80]!r} has no value that {name} can have; write {name}=VALUE")
    return text


SbatchOption = Annotated[str, Field(max_length=300), AfterValidator(option)]
# As a night's own options, which go over the site's.
AccessOption = Annotated[str, Field(max_length=300), AfterValidator(lambda text: option(text, keys_too=True))]


class SlurmBlock(Record):
    """How the site's jobs are submitted."""

    # Partition of the jobs. Without it: Slurm's default, and `all` where the playbooks make Slurm.
    partition: SlurmName | None = None
    account: SlurmName | None = None  # account that the jobs are charged to
    qos: SlurmName | None = None  # quality of service of the jobs
    # Reservation that the jobs run in, a maintenance one too; every planned node must be in it.
    reservation: SlurmName | None = None
    constraint: str | None = None  # features that the nodes must have, as sbatch --constraint takes them
    comment: str | None = None  # comment of every job, for whoever reads squeue
    # Further options of sbatch, such as --mem=0, from a closed list.
    options: tuple[SbatchOption, ...] = Field(default=(), max_length=32)
    # Login name that owns jobs, ReFrame and the stage folder. Without it: who connects to the submit host.
    run_as: Annotated[str, _USER] | None = None
    # Seconds that the longest of the site's prolog and epilog scripts takes; every job gets them on top.
    prolog_s: int = Field(default=0, ge=0, le=86_400)
    # What the partition allows a job, as its MaxTime, in quotes: a plan with a longer job is refused.
    max_job_time: str | None = None

    @field_validator("max_job_time", mode="before")
    @classmethod
    def _a_time(cls, given: Any) -> Any:  # noqa: ANN401  (pydantic checks what it is)
        if given not in (None, ""):
            try:
                seconds_of(given)
            except BadInput as refused:
                raise ValueError(f"{refused.what}; {refused.fix}") from None
        return given or None

    @field_validator("constraint", "comment")
    @classmethod
    def _plain(cls, given: str | None, info: Any) -> str | None:  # noqa: ANN401  (pydantic's own)
        if given is not None:
            name = f"--{info.field_name}"
            if re.fullmatch(_KEYS[name], given) is None:
                raise ValueError("holds a character that sbatch or a shell could take for more than text")
        return given

    def job_options(self) -> tuple[str, ...]:
        """Return the options of sbatch that every job gets, each fit for an #SBATCH line."""
        own = ((name, getattr(self, key)) for key, name in _OWN_KEYS.items())
        # sbatch splits such a line as a shell would.
        return (*(f"{name}={shlex.quote(value)}" for name, value in own if value is not None), *self.options)
