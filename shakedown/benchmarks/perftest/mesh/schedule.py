"""The mesh's schedule: which pairs are measured in which round, and what each pair measures.

Pure, standard library only. Both ends of a pair compute the same schedule from the same specification, so it
need not be handed out while the job runs.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shakedown.benchmarks.perftest.mesh.spec import ALL_SIZES, RDMA_CM, Nic, Operation, Spec, rail_ends
from shakedown.records.wording import natural_key

if TYPE_CHECKING:
    # Not imported where the driver runs: it brings pydantic along.
    from shakedown.records.results import Measurement, OutputRecord

# How the problem of a rail without busy neighbours begins; it says nothing against the rail itself.
LESS_LOAD = "not all rails at once"

Pair = tuple[str, str]
Round = tuple[Pair, ...]
Cell = tuple[object, ...]  # test, nodes, rail, direction and parameters: what is measured once


@dataclass(frozen=True)
class Slot:
    """What a pair does at one time: one operation in one direction over the rails that run together."""

    index: int
    operation: Operation
    direction: str
    rails_at_once: str
    rails: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """Cells that differ in pair, rail and direction only: what the planner makes one plan item of."""

    test: str
    params: dict[str, int | str]
    rails: tuple[str, ...]
    directions: tuple[str, ...]


def circle_rounds(names: Iterable[str]) -> Iterator[Round]:
    """Yield the rounds in which every two of `names` meet exactly once: n-1 for even n, n for odd n.

    The circle method of round-robin tournaments (Kirkman 1847; e.g. D. de Werra, "Scheduling in sports",
    1981): one name stays, the others move around it. For an odd number a bye is added; each sits out once.
    """
    ordered = sorted(names, key=natural_key)
    # Places instead of names: a pair in natural order is a pair of places in order.
    ring = list(range(len(ordered) + len(ordered) % 2))
    half = len(ring) // 2
    for _ in range(len(ring) - 1):
        yield tuple(
            (ordered[min(a, b)], ordered[max(a, b)])
            for a, b in zip(ring[:half], reversed(ring[half:]), strict=True)
            if a < len(ordered) and b < len(ordered)
        )
        ring.insert(1, ring.pop())


def pack_rounds(pairs: Iterable[Pair]) -> list[Round]:
    """Return rounds in which no node appears twice: each pair, in the order given, in the first that fits.

    First fit needs at most 2 d - 1 rounds when no node is in more than d pairs.
    """
    rounds: list[list[Pair]] = []
    first_free: dict[str, set[int]] = {}
    for a, b in pairs:
        busy = first_free.setdefault(a, set()) | first_free.setdefault(b, set())
        r = next(i for i in range(len(busy) + 1) if i not in busy)
        if r == len(rounds):
            rounds.append([])
        rounds[r].append(_ordered(a, b))
        first_free[a].add(r)
        first_free[b].add(r)
    return [tuple(r) for r in rounds]


def random_matchings(names: Sequence[str], count: int, seed: int) -> list[Round]:
    """Return `count` random disjoint perfect matchings: no pair twice, each node in every one of them.

    They are rounds of the circle method over shuffled names. With an odd number of nodes one sits out of each
    matching, a different one every time.
    """
    shuffled = list(names)
    chooser = random.Random(seed)  # noqa: S311  (a schedule, not a secret)
    chooser.shuffle(shuffled)
    # Equally long labels of digits sort as they were shuffled.
    labels = {f"{i:09}": name for i, name in enumerate(shuffled)}
    rounds = list(circle_rounds(labels))
    chosen = chooser.sample(rounds, min(count, len(rounds)))
    return [tuple(_ordered(labels[a], labels[b]) for a, b in r) for r in chosen]


def rounds_of(spec: Spec) -> Iterator[Round]:
    """Yield the rounds of a specification."""
    if spec.pairs is None:
        yield from circle_rounds(spec.nodes)
    else:
        yield from pack_rounds(spec.pairs)


def round_count(spec: Spec) -> int:
    """Return how many rounds there are."""
    if spec.pairs is None:
        return len(spec.nodes) - 1 + len(spec.nodes) % 2
    return len(pack_rounds(spec.pairs))


def slots_of(spec: Spec) -> tuple[Slot, ...]:
    """Return what every pair measures, in order."""
    slots: list[Slot] = []
    for operation in spec.operations:
        for direction in spec.directions:
            for at_once in spec.rails_at_once:
                groups = [spec.rails] if at_once == "all" else [(rail,) for rail in spec.rails]
                for rails in groups:
                    slots.append(Slot(len(slots), operation, direction, at_once, rails))
    return tuple(slots)


def cell_params(operation: Operation, rails_at_once: str) -> dict[str, int | str]:
    """Return the parameters that tell a pair's cells apart; planner and driver both take them from here."""
    params: dict[str, int | str] = {"rails_at_once": rails_at_once}
    if operation.sizes:  # its outputs tell the sizes
        params["sweep"] = ALL_SIZES
    else:
        params["size_bytes"] = operation.size_bytes
    if operation.qps != 1:
        params["qps"] = operation.qps
    if operation.rdma_cm:
        params["connection"] = RDMA_CM
    if operation.memory:
        params["memory"] = operation.memory
    return params


def blocks_of(spec: Spec) -> list[Block]:
    """Return the blocks of cells that the specification measures on each of its pairs."""
    return [
        Block(operation.test, cell_params(operation, at_once), spec.rails, spec.directions)
        for operation in spec.operations
        for at_once in spec.rails_at_once
    ]


def pairs_of(spec: Spec) -> list[Pair]:
    """Return every pair that is measured, once, in natural order."""
    pairs = {pair for r in rounds_of(spec) for pair in r}
    return sorted(pairs, key=lambda p: (natural_key(p[0]), natural_key(p[1])))


def source_and_sink(pair: Pair, direction: str) -> Pair:
    """Return (node that the data leaves, node that it reaches); of both directions the forward one."""
    return pair if direction != "reverse" else (pair[1], pair[0])


def client_and_server(test: str, pair: Pair, direction: str) -> Pair:
    """Return (node of the perftest client, node of the server): a read client is where the data arrives."""
    source, sink = source_and_sink(pair, direction)
    return (source, sink) if not test.startswith("ib_read") else (sink, source)


def nic_rail(node: str, pair: Pair, direction: str, rail: str) -> str:
    """Return the rail whose NIC `node` uses: of `rail0>rail1` the source uses rail0, the sink rail1."""
    source_rail, sink_rail = rail_ends(rail)
    return source_rail if node == source_and_sink(pair, direction)[0] else sink_rail


def nic_of(spec: Spec, node: str, pair: Pair, direction: str, rail: str) -> Nic | None:
    """Return the NIC that `node` uses for a cell, or None when it has none on that rail."""
    return spec.nodes[node].rails.get(nic_rail(node, pair, direction, rail))


def port_of(spec: Spec, round_index: int, slot: Slot, rail: str) -> int:
    """Return the TCP port of a perftest server: neighbours in time and place never share one.

    A client left over from a killed measurement must not find the next measurement's server.
    """
    turn = (round_index * len(slots_of(spec)) + slot.index) * len(spec.rails) + spec.rails.index(rail)
    return spec.base_port + turn % spec.port_span


def estimate_s(
    spec: Spec,  # the specification
    overhead_s: float = 1.0,  # seconds that a slot costs beside the measurement (start, handshake, teardown)
    iteration_s: float = 20e-6,  # seconds of one iteration, for operations that count iterations
) -> float:
    """Return a guess of the wall-clock seconds of all rounds."""
    slot_s = sum(
        overhead_s + (slot.operation.duration_s or (slot.operation.iterations or 0) * iteration_s)
        for slot in slots_of(spec)
    )
    return round_count(spec) * slot_s


def record_key(record: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the identity of the cell that an output record (as parsed JSON) belongs to."""
    params = tuple(sorted((record.get("params") or {}).items()))
    return (record["test"], tuple(record["nodes"]), record.get("rail"), record.get("direction"), params)


def is_measured(record: Mapping[str, Any]) -> bool:
    """Return whether the tool ended well and nothing spoiled it."""
    return record.get("exit_code") == 0 and record.get("problem") is None


def drop_superseded(records: Iterable[OutputRecord]) -> list[OutputRecord]:
    """Return the records that count: without those of clients never started, where a started one is there.

    The end that lost its partner notes every cell that was left. Such a note says nothing once the other
    end's own record of the attempt, or that of a second start, is found. Of several notes of a cell one is
    kept. What was started is always kept, every attempt of it: a retry hides nothing.
    """
    every = list(records)
    started = {cell_of(r) for r in every if _was_started(r)}
    kept: list[OutputRecord] = []
    noted: set[Cell] = set()
    for record in every:
        cell = cell_of(record)
        if _was_started(record):
            kept.append(record)
        elif cell not in started and cell not in noted:
            noted.add(cell)
            kept.append(record)
    return kept


def _was_started(record: OutputRecord) -> bool:
    killed = record.problem is not None and record.problem.kind == "killed"
    return record.exit_code is not None or killed


def cell_of(record: OutputRecord | Measurement) -> Cell:
    """Return the cell that a record, or a measurement that was read from its output, belongs to."""
    params = tuple(sorted(record.params.items()))
    return (record.test, record.nodes, record.rail, record.direction, params)


@dataclass(frozen=True)
class MeshCoverage:
    """What was measured of what had to be: the proof that no pair was left out.

    Attributes:
        cells, pairs, rails, directions: (complete, planned) of each.
        missing: (first node, second node, rail, direction) of the cells without a result, in order.
        why: of each of `missing`, what is known of the reason; empty: it was never tried.
    """

    cells: tuple[int, int]
    pairs: tuple[int, int]
    rails: tuple[int, int]
    directions: tuple[int, int]
    missing: tuple[tuple[str, str, str, str], ...]
    why: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every planned cell was measured."""
        return self.cells[0] == self.cells[1]


def coverage_of(
    spec: Spec,  # the specification
    measured: Collection[Cell],  # the cells (`cell_of`) for which the caller has seen a number
    reasons: Mapping[Cell, str] | None = None,  # why a cell has none
) -> MeshCoverage:
    """Return how much of the specification was measured."""
    pairs, blocks = pairs_of(spec), blocks_of(spec)
    lacking_cells = 0
    missing: dict[tuple[str, str, str, str], str] = {}
    for block in blocks:
        params = tuple(sorted(block.params.items()))
        for pair in pairs:
            for rail in block.rails:
                for direction in block.directions:
                    cell = (block.test, pair, rail, direction, params)
                    if cell not in measured:
                        lacking_cells += 1
                        place = (*pair, rail, direction)
                        missing[place] = missing.get(place) or (reasons or {}).get(cell, "")
    planned = len(pairs) * len(spec.rails) * len(spec.directions) * len(blocks)

    def complete(part: int, names: Sequence[object]) -> tuple[int, int]:
        lacking = {m[:2] if part == 0 else m[part] for m in missing}
        return sum(name not in lacking for name in names), len(names)

    return MeshCoverage(
        cells=(planned - lacking_cells, planned),
        pairs=complete(0, pairs),
        rails=complete(2, spec.rails),
        directions=complete(3, spec.directions),
        missing=tuple(missing),
        why=tuple(missing.values()),
    )


def _ordered(a: str, b: str) -> Pair:
    return (a, b) if natural_key(a) <= natural_key(b) else (b, a)
