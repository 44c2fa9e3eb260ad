"""What a NIC received from all its senders together, and whether they were held back."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from shakedown.benchmarks.base.contract import Moved, NoneTwice, Output, Read, Value
from shakedown.benchmarks.incast.job import NAME, Round, rounds_of
from shakedown.benchmarks.perftest.metrics import moved as moved_by_perftest
from shakedown.benchmarks.perftest.metrics import perftest
from shakedown.benchmarks.perftest.settings import MeshSettings
from shakedown.records.base import Better, Record
from shakedown.records.reading import BadInput, read_as
from shakedown.records.results import RunProblem
from shakedown.records.wording import natural_key

Pattern = Literal["incast", "all_to_all"]


class Incast(Record):
    """Several nodes that send to one NIC at once, and groups in which every node sends to all others."""

    # Many nodes to one, and every node of a group to all others.
    patterns: Annotated[tuple[Pattern, ...], NoneTwice] = Field(default=("incast",), min_length=1)
    operation: Literal["write", "send"] = "write"  # ib_write_bw or ib_send_bw: what the senders run
    # So many nodes send to one at once, fewer where the site is smaller; a group of all-to-all has one more.
    senders: int = Field(default=7, ge=2, le=63)
    # So many nodes of the site receive in incast, one after the other, spread over all of them.
    receivers: int = Field(default=8, ge=1, le=1024)
    size_bytes: int = Field(default=1048576, ge=4096, le=1 << 30)  # of one message, in bytes
    # Seconds of each measurement; perftest counts the middle half of it.
    duration_s: int = Field(default=10, ge=2, le=600)


class Crowd(Record):
    """Who sends to whom.

    Attributes:
        patterns, senders, receivers: as the site asks.
        priority: of RoCE, whose pause frames count.
    """

    patterns: tuple[Pattern, ...]
    senders: int
    receivers: int
    priority: int


class IncastSettings(MeshSettings):
    """The mesh's own order, and who sends to whom."""

    rails: tuple[str, ...] = ()
    crowd: Crowd

    def rounds(self) -> list[Round]:
        """Return the rounds that are ordered."""
        nodes = sorted(self.nodes, key=natural_key)
        crowd = self.crowd
        return rounds_of(nodes, self.rails, crowd.patterns, crowd.senders, crowd.receivers)


_AGAIN = "measure the cell again"


class _Note(Record):
    """What a receiver notes (job.py)."""

    schema_: Literal[1] = Field(alias="schema")
    receiver: str
    rail: str
    files: dict[str, str]
    held: dict[str, dict[str, int]]


def incast(output: Output[IncastSettings]) -> Iterator[Value]:
    """Yield the sum of what all senders brought, and how often something held them back.

    Raises BadInput: a sender's output is missing, cannot be read, or is of something else than ordered.
    """
    note = _note(output)
    rates = {}
    for sender in _senders(output):
        found = [value[1] for value in perftest(_of(output, note, sender)) if value[0] == "bandwidth"]
        if len(found) != 1 or not found[0]:
            raise BadInput(f"{sender}'s output has no bandwidth", fix=_AGAIN, file=output.file)
        rates[sender] = found[0]
    slowest, fastest = min(rates, key=lambda s: rates[s]), max(rates, key=lambda s: rates[s])
    told = (
        f"{len(rates)} senders; the slowest is {slowest} with {rates[slowest]:.4g} Gb/s, "
        f"the fastest {fastest} with {rates[fastest]:.4g}"
    )
    yield "bandwidth_in", sum(rates.values()), "Gb/s", Better.HIGHER, {}, told
    yield _held_back(output, note)


def moved(output: Output[IncastSettings]) -> Iterator[Moved]:
    """Yield the payload that the senders say they moved, in bytes. Raises BadInput."""
    note = _note(output)
    for sender in _senders(output):
        yield from moved_by_perftest(_of(output, note, sender))


def _held_back(output: Output[IncastSettings], note: _Note) -> Read:
    """Return how many pause frames, marks and notices there were at the receiver and its senders."""
    counted = {node: names for node, names in note.held.items() if names}
    if output.node not in counted:
        why = RunProblem(kind="not-run", message=f"{output.node}'s NIC counts neither pause frames nor marks")
        return Read("held_back", None, "1", Better.HIGHER, {}, problem=why)
    sums: dict[str, int] = {}
    for names in counted.values():
        for name, grown in names.items():
            sums[name] = sums.get(name, 0) + grown
    told = ", ".join(f"{name} {n}" for name, n in sorted(sums.items()))
    return Read("held_back", float(sum(sums.values())), "1", Better.HIGHER, {}, told[:900])


def _senders(output: Output[IncastSettings]) -> tuple[str, ...]:
    """Return who was ordered to send to the record's node on its rail. Raises BadInput."""
    record = output.record
    for each in output.order.rounds():
        if (each.pattern, each.rail) == (record.test, record.rail) and output.node in each.senders:
            return each.senders[output.node]
    raise BadInput(f"nobody was ordered to send to {output.node}", fix=_AGAIN, file=output.file)


def _note(output: Output[IncastSettings]) -> _Note:
    about = f"no note of a receiver of {NAME}"
    note = read_as(_Note, output.text, file=output.file, about=about, fix=_AGAIN)
    senders = set(_senders(output))
    if (note.receiver, note.rail) != (output.node, output.record.rail) or set(note.files) != senders:
        raise BadInput("is the note of another receiver, rail or senders", fix=_AGAIN, file=output.file)
    return note


def _of(output: Output[IncastSettings], note: _Note, sender: str) -> Output[IncastSettings]:
    """Return a sender's own output, as the record of a pair of nodes. Raises BadInput."""
    one, other = sorted((sender, output.node), key=natural_key)
    operation = output.order.operations[0]
    record = output.record.model_copy(
        update={
            "file": note.files[sender],
            "test": operation.test,
            "nodes": (one, other),
            "direction": "forward" if one == sender else "reverse",
            "params": {"size_bytes": operation.size_bytes, "rails_at_once": "one"},
        }
    )
    return replace(output, text=output.folder.text(note.files[sender]), record=record)
