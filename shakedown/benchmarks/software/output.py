"""What the job that looks at a site's software is told to look at, and what it found on each node."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.base.contract import Output, Value
from shakedown.plan.jobs import JobSpec, job_and_attempt
from shakedown.records.base import Better, Name, Record
from shakedown.records.reading import BadInput, read_evidence
from shakedown.run.folder import RAW


class SoftwareSettings(Record):
    """Which software, on which nodes."""

    names: tuple[Name, ...]
    nodes: tuple[Name, ...]


JOB = "config.software"


def last_attempt(folder: Path) -> Path | None:
    """Return the folder of the run's last attempt at this job, by its number; None: there was none.

    Not by its time, which a copy of the run changes. What no job.json stands beside was no job.
    """
    found = [
        place
        for place in (folder / RAW).glob(f"{JOB}.a*/job.json")
        if job_and_attempt(place.parent.name)[0] == JOB and not place.parent.is_symlink()
    ]
    return max((p.parent for p in found), key=lambda p: (job_and_attempt(p.name)[1], p.name), default=None)


def unusable_software(
    folder: Path,  # the run's
    job: JobSpec,  # what is to be run
) -> str:
    """Return why a job cannot run: which software on which node, and the fix; empty if nothing is known."""
    last = last_attempt(folder)
    if last is None:
        return ""
    said = []
    for name in job.software:
        for node in job.nodes:
            try:
                document = json.loads(read_evidence(last / f"software.{node}.{name}.json"))
                said.append(str(document["problem"]["message"]))
            except (BadInput, OSError, ValueError, KeyError, TypeError, RecursionError):
                continue
    more = f"; and {len(said) - 3} more" if len(said) > 3 else ""
    return "; ".join(said[:3])[:1900] + more


MISSING, ODD = "missing", "odd"
_NONE = "nothing"  # in the place of a part that a node lacks
_FIX = "it was written by this run's job: run it again"


def software(output: Output[SoftwareSettings]) -> Iterator[Value]:
    """Yield that it ran here, and how many of its parts differ from most nodes'. Raises BadInput."""
    name = str(output.record.params["program"])
    mine = _parts(output.text)
    if mine is None:
        raise BadInput("no record of a software", file=output.file, fix=_FIX)
    yield MISSING, 0.0, "1", Better.LOWER, {}, _words(mine)
    seen = {node: found for node in output.order.nodes if (found := _of(output, node, name))}
    odd = []
    for part in sorted({*mine, *(key for found in seen.values() for key in found)}):
        here, values = mine.get(part, _NONE), {node: found.get(part, _NONE) for node, found in seen.items()}
        ranked = Counter(values.values()).most_common(2)
        if len(ranked) < 2 or (ranked[0][0] == here and ranked[0][1] > ranked[1][1]):
            continue  # alike, or of the majority
        theirs = [f"{value} on {node}" for node, value in values.items() if value != here]
        odd.append(f"{part} is {here} on {output.node}, {', '.join(theirs[:3])}")
    yield ODD, float(len(odd)), "1", Better.LOWER, {}, "; ".join(odd) or _words(mine)


def _of(output: Output[SoftwareSettings], node: str, name: str) -> dict[str, str] | None:
    """Return what another node says of the same software; None: nothing, and its own cell says why."""
    try:
        return _parts(output.folder.text(f"software.{node}.{name}.json"))
    except (BadInput, OSError):
        return None


def _parts(text: str) -> dict[str, str] | None:
    try:
        found = json.loads(text).get("found")
    except (ValueError, AttributeError):
        return None
    if (
        not isinstance(found, dict)
        or not found
        or not all(isinstance(value, str) for value in found.values())
    ):
        return None
    return {str(key)[:64]: value[:300] for key, value in found.items()}


def _words(parts: dict[str, str]) -> str:
    return ", ".join(f"{part} {value}" for part, value in sorted(parts.items()) if value)
