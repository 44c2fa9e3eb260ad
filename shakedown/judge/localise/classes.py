"""Which NICs are alike: those of one board, firmware and driver in machines of one product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shakedown.benchmarks.perftest.mesh.spec import rail_ends
from shakedown.judge.localise.model import Ints
from shakedown.plan.jobs import Jobs
from shakedown.records.snapshot import Snapshot

_OF_NIC = ("psid", "board", "driver", "firmware", "driver_version")
_OF_NODE = ("product", "cpu")

Key = tuple[str, ...]


def classes_of(
    snapshot: Snapshot | None, jobs: Jobs | None, nodes: Sequence[str], rails: Sequence[str]
) -> Ints | None:
    """Return the number of each NIC's class, as `Fabric.classes` has it; None where all are of one.

    A NIC that the snapshot does not have is of a class with the others that it does not have.
    """
    if snapshot is None or jobs is None:
        return None
    of_node: dict[str, Key] = {}
    of_nic: dict[tuple[str, str], Key] = {}
    for part in snapshot.components:
        if part.kind == "node":
            of_node[part.host] = tuple(part.attributes.get(key, "") for key in _OF_NODE)
        elif part.kind == "nic":
            key = tuple(part.attributes.get(name, "") for name in _OF_NIC)
            for name in (part.name, *part.attributes.get("rdma_device", "").split()):
                of_nic[part.host, name] = key
    keys = {
        (node, nic.rail): (
            *of_node.get(node, ()),
            *of_nic.get((node, nic.rdma_device), of_nic.get((node, nic.netdev), ())),
        )
        for node, nics in jobs.nics.items()
        for nic in nics
    }
    return _numbers(keys, nodes, rails)


def _numbers(keys: Mapping[tuple[str, str], Key], nodes: Sequence[str], rails: Sequence[str]) -> Ints | None:
    ends = [rail_ends(rail) for rail in rails]
    number: dict[Key, int] = {}
    classes = np.array(
        [
            [
                [number.setdefault(keys.get((node, pair[end]), ()), len(number)) for node in nodes]
                for pair in ends
            ]
            for end in (0, 1)
        ],
        dtype=np.int64,
    )
    return classes if len(number) > 1 else None
