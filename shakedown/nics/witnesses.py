"""Which counter is a witness of which fault, by family of drivers; the page docs/reference/nic-counters.md.

The table is witnesses.yml. What no counter of a NIC sees, a measurement sees: it is named beside.
"""

from pathlib import Path
from typing import NamedTuple

import yaml


class WitnessCell(NamedTuple):
    """A judged cell of a plan that is no counter: its test and metric, and which check or setting of it."""

    test: str
    metric: str
    of: str = ""


class WitnessFault(NamedTuple):
    """A fault and what sees it."""

    name: str  # for tests and the page
    text: str  # what is wrong
    points_at: str  # where to look: cable, host, switch, fabric
    # By family, those that are judged; the first is named in the page as the best.
    counters: dict[str, list[str]]
    measured: str = ""  # the judged measurement that sees it, where counters of NICs do not or not alone
    cells: tuple[WitnessCell, ...] = ()  # the same as the plan has it, where the site asks for it

    def witnessed(self, family: str) -> bool:
        """Whether something that is judged sees it on NICs of a family: a counter, or a cell beside."""
        return bool(self.counters.get(family) or self.cells)


_DATA = yaml.safe_load(Path(__file__).with_name("witnesses.yml").read_text(encoding="utf-8"))
FAULTS = tuple(
    WitnessFault(
        **{"counters": {}} | fault | {"cells": tuple(WitnessCell(**cell) for cell in fault.get("cells", ()))}
    )
    for fault in _DATA["faults"]
)
# By family, or `any`: why what these patterns match is judged by no limit. Kept in counters.jsonl.
TOLD: dict[str, dict[str, str]] = _DATA["told"]


def seen(family: str) -> tuple[WitnessFault, ...]:
    """Return the faults of which a family has a judged counter."""
    return tuple(fault for fault in FAULTS if fault.counters.get(family))


def unseen(family: str) -> tuple[WitnessFault, ...]:
    """Return the faults that no counter of a family sees."""
    return tuple(fault for fault in FAULTS if not fault.counters.get(family))
