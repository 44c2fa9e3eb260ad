"""One side of a comparison of sweeps, and what else differs between the sides but what was measured.

A ratio is the work of everything that differs together: NCCL's variables, the way that the data went, GPUs,
versions, nodes, firmware. So all of it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shakedown.daytwo.compare.snapshot_changes import differences
from shakedown.records.errors import BadInput
from shakedown.records.snapshot import Snapshot
from shakedown.records.wording import count

Tool = Literal["nccl-tests", "PyTorch"]


@dataclass(frozen=True)
class Combination:
    """What must be alike for two sweeps to be a pair."""

    tool: Tool
    operation: str
    dtype: str
    nodes: int  # how many
    launcher: str  # of nccl-tests: one-process, srun, mpirun; of PyTorch: its backend
    split: str = "none"  # NCCL_TESTS_SPLIT
    messages: int = 1  # in flight together; PyTorch's many small ones

    @property
    def order(self) -> tuple[object, ...]:
        """Where it stands: nccl-tests before PyTorch, then operation by operation."""
        return self.tool != "nccl-tests", self.operation, self.messages, self.nodes, str(self)

    def __str__(self) -> str:
        parts = [f"{self.operation} {self.dtype}", count(self.nodes, "node"), self.launcher]
        parts += [f"split {self.split}"] if self.split != "none" else []
        parts += [f"{self.messages} messages at once"] if self.messages > 1 else []
        return ("PyTorch " if self.tool == "PyTorch" else "") + ", ".join(parts)


@dataclass(frozen=True)
class Samples:
    """All repeats of one size. busbw is empty on one GPU, where nothing crosses a bus."""

    time_us: tuple[float, ...]
    busbw_gb_per_s: tuple[float, ...]


@dataclass(frozen=True)
class Draw:
    """What all GPUs together drew over one operation, with all its sizes and repeats."""

    power_w: float  # mean
    energy_j: float
    hottest_c: float


@dataclass(frozen=True)
class Sweep:
    """One operation over sizes on one side. A size that gave no number has the reason instead."""

    combination: Combination
    nodes: tuple[str, ...]
    short_below_bytes: int  # smaller messages are about time, the others about busbw
    points: Mapping[int, Samples | str]
    facts: Mapping[str, str]  # what else could make a difference
    variables: Mapping[str, str]  # of the communication libraries, as the job was ordered with
    draw: Draw | None = None  # None: not sampled
    network: str = ""  # the TCP fabric that was measured; none: the RoCE fabric


@dataclass(frozen=True)
class Side:
    """One run under the name that it has in the comparison."""

    name: str
    run: str
    system: str
    created: str
    sweeps: tuple[Sweep, ...]
    inventory: Snapshot | None = None
    notes: tuple[str, ...] = ()  # of the reading: another attempt, a log that does not tell
    network: str = ""  # the TCP fabric that its sweeps went over; none: the RoCE fabric
    profile: str = ""  # of the run's plan


@dataclass(frozen=True)
class Differing:
    """A fact that is not the same on all sides. `sweeps` is empty where it holds for all of them."""

    fact: str
    values: tuple[str, ...]  # by side
    sweeps: tuple[str, ...] = ()


def of_network(sweeps: list[Sweep], network: str, folder: Path, notes: list[str]) -> tuple[str, list[Sweep]]:
    """Return the network that is compared and its sweeps; note what else the run measured.

    Raises:
        BadInput: the run did not measure that network, or several and none is chosen.
    """
    there = list(dict.fromkeys(sweep.network for sweep in sweeps))
    chosen = network or ("" if "" in there or len(there) > 1 else there[0])
    if chosen not in there:
        names = ", ".join(name or "the RoCE fabric" for name in there)
        raise BadInput(
            f"the run did not measure {f'network {chosen[:80]!r}' if chosen else 'the RoCE fabric'}",
            fix=f"it has {names}: choose with --network",
            file=folder,
        )
    for other in there:
        if other != chosen:
            notes.append(f"the run measured {other or 'the RoCE fabric'} too, which is not this side's")
    return chosen, [sweep for sweep in sweeps if sweep.network == chosen]


def node_names(nodes: Sequence[str]) -> str:
    """Name the nodes of a sweep; many by the first and the last."""
    return ",".join(nodes) if len(nodes) <= 4 else f"{nodes[0]}..{nodes[-1]} ({len(nodes)} nodes)"


def differing(sides: Sequence[Side], paired: Sequence[tuple[Sweep, ...]]) -> Iterator[Differing]:
    """Yield the facts that differ: those of the runs, then those of the sweeps, gathered by their values."""
    if len({side.system for side in sides}) > 1:
        yield Differing("system", tuple(side.system for side in sides))
    if len({side.network for side in sides}) > 1:
        yield Differing("network", tuple(side.network or "RoCE fabric" for side in sides))
    found: dict[tuple[str, tuple[str, ...]], list[Combination]] = {}
    for sweeps in paired:
        told = [{"nodes": node_names(sweep.nodes), **sweep.facts} for sweep in sweeps]
        for known, absent in (([sweep.variables for sweep in sweeps], "not set"), (told, "not reported")):
            for fact in dict.fromkeys(name for facts in known for name in facts):
                values = tuple(facts.get(fact, absent) for facts in known)
                if len(set(values)) > 1:
                    found.setdefault((fact, values), []).append(sweeps[0].combination)
    everything = [sweeps[0].combination for sweeps in paired]
    for (fact, values), combinations in found.items():
        yield Differing(fact, values, tuple(_summed_up(combinations, everything)))


def _summed_up(some: Sequence[Combination], everything: Sequence[Combination]) -> Iterator[str]:
    """Yield the sweeps that a fact holds for: a tool's name for all of its own, nothing for all there are."""
    if len(some) == len(everything):
        return
    for tool in dict.fromkeys(c.tool for c in some):
        mine = [c for c in some if c.tool == tool]
        whole = len(mine) == sum(c.tool == tool for c in everything)
        yield from [tool] if whole else dict.fromkeys(map(str, mine))


def changes(sides: Sequence[Side]) -> Iterator[str]:
    """Yield what differs between the baseline's inventory and the others': hardware, firmware, software."""
    base = sides[0].inventory
    for side in sides[1:]:
        if base is not None and side.inventory is not None and not _apart(base, side.inventory):
            yield from (f"{side.name}: {change}" for change in differences(base, side.inventory))


def uncompared(sides: Sequence[Side]) -> Iterator[str]:
    """Yield why the inventories of some sides say nothing."""
    if without := [side.name for side in sides if side.inventory is None]:
        yield f"{' and '.join(without)} without inventory: hardware, firmware and drivers are not compared"
    base = sides[0].inventory
    for side in sides[1:]:
        if base is not None and side.inventory is not None and _apart(base, side.inventory):
            yield f"{side.name} is of other hosts: the inventories are not compared"


def _apart(one: Snapshot, other: Snapshot) -> bool:
    return {c.host for c in one.components}.isdisjoint(c.host for c in other.components)
