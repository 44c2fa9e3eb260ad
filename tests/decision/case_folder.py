"""The inputs of a decision case, written line by line: hostile values go in as they are given."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shakedown.physics.collectives import flat_ring_busbw_gb_per_s
from shakedown.physics.ethernet import RoceOperation, payload_ceiling_gbps

Json = dict[str, Any]

# 400G at RDMA MTU 4096, 64 KiB messages.
WRITE_GBPS = payload_ceiling_gbps(400, rdma_mtu_bytes=4096, message_bytes=65536)
RING_GB_PER_S = flat_ring_busbw_gb_per_s(
    [payload_ceiling_gbps(400, rdma_mtu_bytes=4096, operation=RoceOperation.WRITE) / 8] * 8
)

WRITE_BW = {"id": "write-bw-400g", "value": round(WRITE_GBPS, 3), "tolerance": 0.03}
WRITE_BW |= {"ceiling": round(WRITE_GBPS, 3)}
WRITE_BW |= {"ceiling_source": "RoCE v2 payload, 400G, RDMA MTU 4096, 64 KiB", "unit": "Gb/s"}
WRITE_BW |= {"better": "higher", "kind": "physical", "source": "IBTA headers, computed"}
ALL_REDUCE = {"id": "all-reduce-ring", "value": 389.7, "limit": 372.0, "ceiling": round(RING_GB_PER_S, 3)}
ALL_REDUCE |= {"ceiling_source": "ring over 8 x 400G", "unit": "GB/s", "better": "higher", "kind": "measured"}
ALL_REDUCE |= {"source": "Tolly, May 2024"}
DROPS = {"id": "no-drops", "value": 0.0, "limit": 0.0, "unit": "packets", "better": "lower"}
DROPS |= {"kind": "contract", "source": "a lossless class loses nothing"}
SIZE = {"size_bytes": 65536}


class Case:
    """One folder: plan items, result lines and counter lines, written as they are given."""

    def __init__(self, name: str, nodes: Iterable[str], rails: Iterable[str] = ("rail0",)) -> None:
        self.name = name
        self.nodes, self.rails = list(nodes), list(rails)
        self.items: list[Json] = []
        self.references: dict[str, Json] = {}
        self.results: list[str] = []
        self.counters: list[str] = []
        self.raw: dict[str, str] = {}

    def plan(self, ref: Json, nodes: Iterable[Iterable[str]], **fields: Any) -> Json:
        """Add a plan item; the defaults are a RoCE bandwidth test."""
        self.references[ref["id"]] = ref
        item = {"stage": "fabric", "test": "ib_write_bw", "metric": "bandwidth", "unit": ref["unit"]}
        item |= {"better": ref["better"], "nodes": [list(group) for group in nodes], "rails": self.rails}
        item |= {"directions": [None], "params": SIZE, "reference": ref["id"], "required": True}
        item |= {"not_run": None, **fields}
        self.items.append(item)
        return item

    def line(self, item: Json, nodes: Iterable[str], value: float | None, **fields: Any) -> None:
        """Add a result line for one cell of an item."""
        record = {"schema": 1, "run": self.name, **{k: item[k] for k in ("stage", "test", "metric")}}
        record |= {"value": value, **{k: item[k] for k in ("unit", "better")}, "nodes": list(nodes)}
        record |= {"rail": item["rails"][0], "direction": item["directions"][0], "params": item["params"]}
        record |= {"job": "1001", "state": "COMPLETED", **fields}
        self.results.append(json.dumps(record))

    def all_lines(self, item: Json, value: Callable[[int], float], **fields: Any) -> None:
        """Add a result line for every cell of an item; `value` gets the number of the cell."""
        cells = [(n, r, d) for n in item["nodes"] for r in item["rails"] for d in item["directions"]]
        for number, (nodes, rail, direction) in enumerate(cells):
            self.line(item, nodes, value(number), rail=rail, direction=direction, **fields)

    def counter(
        self, name: str, device: str, port: str, before: int | None, after: int | None, **fields: Any
    ) -> None:
        """Add a counter line, of a switch port unless told otherwise."""
        record = {"schema": 1, "run": self.name, "stage": "fabric", "test": "ib_write_bw"}
        record |= {"kind": "switch_port", "device": device, "port": port, "counter": name, "before": before}
        record |= {"after": after, **fields}
        self.counters.append(json.dumps(record))

    def plan_drops(self, port: str) -> Json:
        """Plan that a switch port drops nothing."""
        return self.plan(DROPS, [["leaf1"]], metric="counter.drops", params={"port": port}, rails=[None])

    def inputs(self) -> dict[str, str]:
        """Return the folder's inputs by file name, but for raw files."""
        plan = {"schema": 1, "run": self.name, "system": "example", "created": "2026-11-20T08:00:00Z"}
        plan |= {"nodes": self.nodes, "rails": self.rails, "items": self.items, "references": self.references}
        texts = {
            "plan.json": json.dumps(plan, indent=1) + "\n",
            "results.jsonl": "".join(line + "\n" for line in self.results),
            "counters.jsonl": "".join(line + "\n" for line in self.counters),
        }
        return {name: text for name, text in texts.items() if text or name == "results.jsonl"}

    def write(self, folder: Path) -> None:
        """Write the inputs into a folder, which is made."""
        folder.mkdir(parents=True)
        for name, text in self.inputs().items():
            (folder / name).write_text(text)
        for name, text in self.raw.items():
            (folder / "raw").mkdir(exist_ok=True)
            (folder / "raw" / name).write_text(text)


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[Case], None]) -> Callable[[Case], None]:
    """Register a function that fills the case of its name: two nodes and one rail, unless it changes them."""

    def build() -> Case:
        made = Case(make.__name__, ["n1", "n2"])
        make(made)
        return made

    CASES[make.__name__] = build
    return make


def singles(*names: str) -> list[list[str]]:
    """Single-node groups."""
    return [[name] for name in names]


def good(number: int) -> float:
    """A healthy RoCE bandwidth with a little spread, in Gb/s."""
    return round(391.3 - 0.07 * (number * 7 % 11), 2)
