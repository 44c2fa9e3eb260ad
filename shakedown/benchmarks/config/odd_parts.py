"""Parts of one class that differ, as measurements, from the run's snapshot of its machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.config.uniformity import odd_parts
from shakedown.records.base import Better, Stage
from shakedown.records.plan import Plan
from shakedown.records.reading import read_record
from shakedown.records.results import Measurement
from shakedown.records.snapshot import Snapshot
from shakedown.run.folder import INVENTORY


def odd_measurements(plan: Plan, folder: Path) -> Iterator[Measurement]:
    """Yield how many parts of each node differ from their class, from `inventory.json`."""
    planned = {
        (node, item.params.get("part"))
        for item in plan.items
        if item.test == "inventory"
        for nodes in item.nodes
        for node in nodes
    }
    if not planned or not (folder / INVENTORY).exists():
        return  # planned and absent: the verdict says NOT-RUN
    found = read_record(folder / INVENTORY, Snapshot)
    for host, part, odd, detail in odd_parts(found):
        if (host, part) not in planned:
            continue  # the inventory is of more than what is under test: the submit host, switches
        yield Measurement(
            run=plan.run,
            stage=Stage.CONFIG,
            test="inventory",
            metric="odd",
            value=float(odd),
            unit="1",
            better=Better.LOWER,
            nodes=(host,),
            params={"part": part},
            state="COMPLETED",
            detail=detail[:1000] or None,
        )
