"""What pinning needs to know of a host's map, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shakedown.topology.host_map import pairs, parse_topology, problems, rank_file


def map_problems(text: str, gpus: Sequence[Mapping[str, Any]], accepted: Sequence[str]) -> list[str]:
    """What is wrong with a host's map, and where it contradicts the inventory's `gpus`.

    `accepted` are regular expressions; a sentence that one of them matches is left out.
    """
    topology = parse_topology(text)
    found = problems(topology)
    best = dict(enumerate(pairs(topology)))
    have = len(topology.gpu_devices())
    if gpus and have != len(gpus):
        found.append(
            f"{have} GPUs are there, the inventory lists {len(gpus)} -- correct gpus, or find the missing one"
        )
    for gpu in gpus:
        pair = best.get(int(gpu["index"]))
        wanted = gpu.get("nearest_nic")
        if pair and wanted and wanted not in pair.nic.rdma:
            found.append(
                f"GPU {gpu['index']}: its nearest NIC is {pair.nic.label} ({pair.distance}), the inventory "
                f"says {wanted} -- correct nearest_nic, or the slot"
            )
    return [sentence for sentence in found if not any(re.search(a, sentence) for a in accepted)]


class FilterModule:
    """The filters for Ansible."""

    def filters(self) -> dict[str, Any]:
        """Names as used in the role."""
        return {"numa_problems": map_problems, "numa_rank_file": lambda text: rank_file(parse_topology(text))}
