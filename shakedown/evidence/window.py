"""When a job or a stage ran: what was read at another time is no evidence of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shakedown.plan.flow_paths import PATHS, FlowPath
from shakedown.records.base import Stage
from shakedown.records.plan import Plan
from shakedown.records.results import JobRecord, Snapshot
from shakedown.run.folder import INVENTORY, RAW

# Clocks of nodes, switches and controller differ; no more than this is put down to them, in seconds, beyond
# what the snapshot knows of a node's clock. One that is further off is itself a finding, and what was read by
# it cannot be told from an old reading.
CLOCKS_S = 120.0
# Slurm tells whole seconds of a job's beginning and end.
_ROUNDED_S = 2.0
_FORM = "%Y-%m-%dT%H:%M:%SZ"


def clocks_ahead(snapshot: Snapshot | None) -> dict[str, float]:
    """Return how far each host's clock is ahead of the submit host's, in seconds, by the run's snapshot.

    A host whose clock was not read is missing.
    """
    if snapshot is None:
        return {}
    ahead = {reading.host: snapshot.ahead_s(reading.host) for reading in snapshot.clocks}
    return {host: sum(bounds) / 2 for host, bounds in ahead.items() if bounds is not None}


def snapshot_flaws(snapshot: Snapshot, ran: Sequence[JobRecord], plan: Plan) -> Iterator[str]:
    """Yield why a run's snapshot is not of this run, or says two things of one part.

    Of this run: neither of another one, nor taken before its plan or after its last job.
    """
    # The controller's clock took it, Slurm's tells when jobs ended: what is known of the two is taken off.
    ahead_s = [(one.low_s + one.high_s) / 2 for one in snapshot.clocks if one.host == snapshot.submit]
    yield from _flaws(INVENTORY, snapshot.run, snapshot.taken, ran, plan, sum(ahead_s[:1]))
    hosts, there = {part.host for part in snapshot.components}, set[tuple[str, str, str]]()
    for part in snapshot.components:
        place, own = (part.host, part.kind, part.name), part.attributes.get("netdev", part.name)
        if place in there:
            yield f"{INVENTORY} has {part.kind} {part.name} of {part.host} twice"
        elif part.kind == "node" and part.name in hosts - {part.host}:  # else it may be called as it likes
            yield f"{INVENTORY}: {part.host} calls itself {part.name}, which is another host's name"
        elif part.kind == "nic" and part.name != own:
            yield f"{INVENTORY} calls nic {own} of {part.host} {part.name}"
        there.add(place)


def paths_flaws(own: Iterable[FlowPath], ran: Sequence[JobRecord], plan: Plan) -> list[str]:
    """Return why the site's own record of paths, `raw/paths.jsonl`, is not of this run."""
    of = {(path.run or "unknown", path.taken or "an unknown time") for path in own}
    file = f"{RAW}/{PATHS}"
    return [flaw for run, taken in sorted(of) for flaw in _flaws(file, run, taken, ran, plan)][:1]


def _flaws(
    file: str, run: str, taken: str, ran: Sequence[JobRecord], plan: Plan, ahead_s: float = 0.0
) -> Iterator[str]:
    if run != plan.run:
        yield f"{file} is of run {run}, not {plan.run}: it says nothing of these machines"
        return
    jobs = [job_window(job) for job in ran]
    ends = [job.end or job.begin for job in jobs]
    end = None if None in ends else max((at for at in ends if at is not None), default=None)
    at, begin = moment(taken), moment(plan.created)
    if at is None:
        yield f"{file} was taken at {taken[:40]!r}, which is no time"
    elif begin is not None and (begin - at).total_seconds() > CLOCKS_S:
        yield f"{file} was taken at {taken}, before the run was planned at {plan.created}"
    elif end is not None and (at - end).total_seconds() + ahead_s > CLOCKS_S:
        yield f"{file} was taken at {taken}, after the last job had ended at {end:{_FORM}}"


@dataclass(frozen=True)
class Window:
    """From when to when something ran, as far as it is known (UTC). `what`: "the job", "the fabric stage"."""

    what: str
    begin: datetime | None = None
    end: datetime | None = None

    def misses(self, taken: str | None, *, of: str = "reading", ahead_s: Iterable[float] = ()) -> str:
        """Return why something of that time (RFC 3339) does not belong here; empty if it does.

        Nothing is held against an unknown window, nor against a reading that carries no time.

        Args:
            taken: the time, by the clock of whoever wrote it.
            of: what it is, in words.
            ahead_s: how far that clock is ahead, as far as it is known. Several: it is one of these clocks.
        """
        if taken is None or self.begin is None:
            return ""
        at = moment(taken)
        if at is None:
            return f"{of} of {taken[:40]!r}, which is no time"
        if any(self._holds(at, ahead) for ahead in (list(ahead_s) or [0.0])):
            return ""
        return self.says(at, of)

    def _holds(self, at: datetime, ahead_s: float) -> bool:
        """Whether that time lies within, once what a clock is ahead has been taken off."""
        assert self.begin is not None
        early = (self.begin - at).total_seconds() + ahead_s
        late = (at - self.end).total_seconds() - ahead_s if self.end else 0.0
        return max(early, late) <= CLOCKS_S

    def says(self, at: datetime, of: str) -> str:
        """Say when something was read and when this ran."""
        begin, end = self.begin, self.end
        form = "%H:%M:%S" if begin and begin.date() == at.date() else "%Y-%m-%d %H:%M:%S"
        ran = f"{begin:{form}} to {f'{end:{form}}' if end else 'an unknown time'}"
        return f"{of} of {at:{form}}, {self.what} ran {ran}: it is no evidence of it"


def moment(text: str) -> datetime | None:
    """Return a time of RFC 3339; one without an offset is UTC. None if it is no time."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def job_window(job: JobRecord) -> Window:
    """Return when a job ran, by Slurm."""
    begin = moment(job.started) if job.started else None
    if begin is None:
        return Window("the job")
    try:
        end = None if job.duration_s is None else begin + timedelta(seconds=job.duration_s)
    except (ValueError, OverflowError):
        end = None
    return Window("the job", begin, end)


def longer_than(job: JobRecord, seconds: float) -> bool:
    """Whether something within a job took longer than the whole job, by whatever clocks: they run alike."""
    return job.duration_s is not None and seconds > 1.05 * job.duration_s + _ROUNDED_S


def stage_windows(jobs: Iterable[JobRecord]) -> dict[Stage, Window]:
    """Return when the first job of each stage began and its last one ended; without a known job, nothing."""
    found: dict[Stage, Window] = {}
    for job in jobs:
        one = job_window(job)
        if one.begin is None:
            continue
        last = one.end or one.begin
        known = found.get(job.stage)
        begin = min(one.begin, known.begin) if known and known.begin else one.begin
        end = max(last, known.end) if known and known.end else last
        found[job.stage] = Window(f"the {job.stage} stage", begin, end)
    return found
