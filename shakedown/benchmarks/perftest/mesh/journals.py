"""What the drivers' journals say, and with what each start measured. Compute nodes use this: no libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shakedown.records.errors import BadInput
from shakedown.records.untrusted import complete_lines, loads, read_plain

_FIX = "remove it, or start in an empty folder"
Event = dict[str, Any]


@dataclass(frozen=True)
class Start:
    """One start of a node's driver.

    Attributes:
        file, line: where the journal says so.
        time: RFC 3339, UTC, of the node's own clock.
        spec_sha256: digest of the specification that it was started with; empty: not said.
        versions: test -> version of perftest, for those that the node had.
    """

    file: Path
    line: int
    time: str
    spec_sha256: str
    versions: Mapping[str, str]


def journal_path(folder: Path, node: str) -> Path:
    """Return where a node's driver keeps its journal."""
    return folder / f"journal.{node}.jsonl"


def events(path: Path) -> Iterator[tuple[int, Event]]:
    """Yield (line number, event) of a journal; none if there is no such file.

    Raises:
        BadInput: it is no plain file, or a finished line is no event. Half a last line is what a node leaves
            that died while it wrote.
    """
    for number, line in complete_lines(read_plain(path, _FIX) or b""):
        try:
            entry = loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
            raise BadInput("not a journal line", fix=_FIX, file=path, line=number)
        yield number, entry


def starts(path: Path) -> list[Start]:
    """Return all starts of a node's driver, in order; raises BadInput as `events` does."""
    return [start_in(path, number, entry) for number, entry in events(path) if entry["event"] == "start"]


def gids_taken(folder: Path, node: str) -> dict[str, set[int]]:
    """Return rail -> the indices of the GIDs that a node's driver gave its tests, one of each start.

    Nothing where there is no journal or it cannot be read: the GIDs in the outputs still tell the addresses.
    """
    found: dict[str, set[int]] = {}
    with suppress(BadInput):
        for _, entry in events(journal_path(folder, node)):
            gids = entry.get("gid_index") if entry["event"] == "start" else None
            for rail, index in (gids if isinstance(gids, dict) else {}).items():
                if type(index) is int:
                    found.setdefault(rail, set()).add(index)
    return found


def start_in(path: Path, number: int, entry: Event) -> Start:
    """Return the start that a line of a journal speaks of."""
    versions = entry.get("perftest")
    said = versions.items() if isinstance(versions, dict) else ()
    return Start(
        file=path,
        line=number,
        time=str(entry.get("time", "")),
        spec_sha256=str(entry.get("spec_sha256", "")),
        versions={test: version for test, version in said if isinstance(version, str)},
    )


def start_of(found: Sequence[Start], started: str) -> Start:
    """Return in which start, of at least one, something was begun, by one node's clock."""
    return next((start for start in reversed(found) if start.time <= started), found[0])


def refuse_other_specification(found: Sequence[Start], digest: str) -> None:
    """Refuse what was started with another specification: its results are of something else.

    Raises:
        BadInput: naming the journal's line.
    """
    for start in found:
        if start.spec_sha256 != digest:
            raise BadInput(
                f"started with another specification (sha256 {start.spec_sha256[:12] or 'not said'}, "
                f"not {digest[:12]})",
                fix="give that specification, or a folder of its own for each",
                file=start.file,
                line=start.line,
            )


def refuse_other_version(start: Start, test: str, version: str | None) -> None:
    """Refuse what was measured by another perftest than this version; None: not known, and no difference.

    Raises:
        BadInput: naming the journal's line.
    """
    earlier = start.versions.get(test)
    if earlier is not None and version is not None and earlier != version:
        raise BadInput(
            f"{test} {earlier} has measured here, and {version} is another: their results are not comparable",
            fix=f"install one version on all nodes, and start in an empty folder unless it is {earlier}",
            file=start.file,
            line=start.line,
        )
