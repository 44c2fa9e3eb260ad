"""Which cells of a pair are measured again at the end of the mesh, as a node sees its own results.

Only perftest's own table is read here, and only to choose what to measure again: the verdict reads the same
files with the whole parser, and decides. Standard library only.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from shakedown.benchmarks.perftest.mesh.schedule import (
    Pair,
    Slot,
    client_and_server,
    nic_rail,
    slots_of,
    source_and_sink,
)
from shakedown.benchmarks.perftest.mesh.spec import Remeasure, Spec
from shakedown.benchmarks.perftest.mesh.store import NodeFiles
from shakedown.statistics.remeasure import Samples, Tally

# perftest's column of a metric (linux-rdma/perftest, perftest_parameters.h, RESULT_FMT_G, RESULT_FMT_LAT).
_COLUMNS = {"bandwidth": "BW average", "latency_typical": "t_typical", "latency_p99": "99% percentile"}
_MOST_BYTES = 1 << 20
Place = tuple[int, str]  # slot index, rail


class Again:
    """What one node knows of the cells that it measured as client, and how often its NICs were in doubt."""

    def __init__(self, spec: Spec, rule: Remeasure, store: NodeFiles, node: str) -> None:
        self._spec, self._rule, self._store, self._node = spec, rule, store, node
        self._until = time.monotonic() + rule.within_s
        self._doubted: dict[str, set[tuple[Pair, Place]]] = defaultdict(set)

    def due(self, pair: Pair) -> list[Place]:
        """Return the cells of a pair, measured by this node, that must be measured again."""
        found: list[Place] = []
        for slot in slots_of(self._spec):
            if client_and_server(slot.operation.test, pair, slot.direction)[0] == self._node:
                found += [(slot.index, rail) for rail in slot.rails if self._is_due(pair, slot, rail)]
        return found

    def full(self) -> list[str]:
        """Return the NICs, with direction, in doubt so often that measuring again excuses nothing."""
        if time.monotonic() > self._until:  # the job's time limit would take what was measured with it
            return [f"{rail} {way}" for rail in self._spec.nodes[self._node].rails for way in ("tx", "rx")]
        return sorted(nic for nic, cells in self._doubted.items() if len(cells) >= self._rule.most_per_nic)

    def agreed(self, pair: Pair, due: Iterable[Place], full: Mapping[str, Iterable[str]]) -> list[Slot]:
        """Return the slots that both ends measure again; `full`: of each end, what it said itself.

        Both ends come to the same answer from the same two messages.
        """
        slots, wanted = slots_of(self._spec), set()
        for index, rail in sorted(set(due)):
            if not 0 <= index < len(slots) or rail not in slots[index].rails:
                continue
            nics = {node: _nic(node, pair, slots[index], rail) for node in pair}
            if not any(nics[node] in full.get(node, ()) for node in pair):
                self._doubted[nics[self._node]].add((pair, (index, rail)))
                wanted.add(index)
        return [slots[index] for index in sorted(wanted)]

    def _is_due(self, pair: Pair, slot: Slot, rail: str) -> bool:
        limits = self._rule.limits_of(slot.operation.key, slot.rails_at_once, rail, pair)
        files = self._store.started(pair, slot, rail)
        if not limits or not files or len(files) > self._rule.at_most:
            return False
        values, outside = 0, 0
        for file in files:
            numbers = _numbers(self._store.folder / file, limits) if file else None
            if numbers is not None:
                values += 1
                outside += any(
                    number < limits[metric] if metric == "bandwidth" else number > limits[metric]
                    for metric, number in numbers.items()
                )
        return Tally(len(files), values, outside).says(self._rule.again) is Samples.OPEN


def _nic(node: str, pair: Pair, slot: Slot, rail: str) -> str:
    source, _ = source_and_sink(pair, slot.direction)
    return f"{nic_rail(node, pair, slot.direction, rail)} {'tx' if node == source else 'rx'}"


def _numbers(file: Path, metrics: Iterable[str]) -> dict[str, float] | None:
    """Return the metrics in perftest's table; None if one is not there or is no number."""
    try:
        with file.open("rb") as raw:
            lines = raw.read(_MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return None
    heads = [i for i, line in enumerate(lines) if line.lstrip().startswith("#bytes")]
    if not heads or heads[-1] + 1 >= len(lines):
        return None
    names = re.split(r"\s{2,}|\t", lines[heads[-1]].replace("#iterations", "  #iterations  ").strip())
    words = lines[heads[-1] + 1].split()
    found: dict[str, float] = {}
    for metric in metrics:
        place = next((i for i, name in enumerate(names) if name.startswith(_COLUMNS[metric])), len(words))
        with contextlib.suppress(ValueError, IndexError):
            found[metric] = float(words[place])
        if not math.isfinite(found.get(metric, math.nan)):
            return None
    return found
