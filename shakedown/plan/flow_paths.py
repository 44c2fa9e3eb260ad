"""Which spine a flow crosses, where the links between switches leave no choice."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from shakedown.plan.jobs import Jobs
from shakedown.records.base import Document, Name
from shakedown.records.plan import Plan
from shakedown.records.reading import open_plain, refusal

PATHS = "paths.jsonl"
# A line takes some hundred bytes; a mesh of more flows is read with its links instead.
_MOST_FLOWS = 1_000_000
LONGEST_LINE = 4096  # bytes; a line names three machines and a rail


class FlowPath(Document):
    """The spine that one flow crosses (a line of `paths.jsonl`), where a site knows its paths.

    `run`, `taken`: of which run the site read it, and when (RFC 3339); what links say is of any.
    """

    source: Name
    sink: Name
    rail: Name
    spine: Name
    run: Name | None = None
    taken: str | None = None


def read_paths(file: Path) -> Iterator[FlowPath]:
    """Yield the lines of a file of paths. Raises BadInput for one that is none."""
    with open_plain(file) as lines:
        number = 0
        while line := lines.readline(LONGEST_LINE):
            number += 1
            try:
                yield FlowPath.model_validate_json(line)
            except ValidationError as error:
                raise refusal(error, FlowPath, file=file, line=number) from None


def lines_of_paths(paths: Iterable[FlowPath]) -> bytes:
    """Return paths as the lines of a file."""
    return b"".join(p.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n" for p in paths)


def only_spines(jobs: Jobs) -> dict[tuple[str, str], str]:
    """Return the one spine between each two leaves that have no other in common.

    Between leaves of several common spines a hash or the load chooses for every flow: links do not say.
    """
    above: dict[str, set[str]] = {}
    for link in jobs.links:
        above.setdefault(link.leaf, set()).add(link.spine)
    found = {}
    for one, spines in above.items():
        for other, others in above.items():
            if one != other and len(common := spines & others) == 1:
                found[one, other] = next(iter(common))
    return found


def known_paths(plan: Plan, jobs: Jobs) -> Iterator[FlowPath]:
    """Yield the path of every planned flow between two leaves that its links leave one way for."""
    only = only_spines(jobs)
    if not only:
        return
    leaf = {(node, nic.rail): nic.leaf for node, nics in jobs.nics.items() for nic in nics}
    flows: dict[tuple[str, str, str], str] = {}
    for item in plan.items:
        ends = [(rail, *rail.split(">")) for rail in item.rails if rail]
        if (
            item.metric.startswith("counter.")
            or not ends
            or not set(item.directions) & {"forward", "reverse"}
        ):
            continue
        for pair in item.nodes:
            if len(pair) != 2:
                break
            for rail, first, *last in ends:
                for source, sink in (pair, pair[::-1]):
                    way = leaf.get((source, first)), leaf.get((sink, last[0] if last else first))
                    if (spine := only.get(way)) is not None:  # type: ignore[arg-type]  # None is no leaf
                        flows[source, sink, rail] = spine
            if len(flows) > _MOST_FLOWS:
                return
    for (source, sink, rail), spine in flows.items():
        yield FlowPath(source=source, sink=sink, rail=rail, spine=spine)
