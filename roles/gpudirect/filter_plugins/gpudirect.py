"""What GPUDirect needs to know of a host's map."""

from __future__ import annotations

from typing import Any

from shakedown.topology.host_map import acs_bridges, parse_topology


class FilterModule:
    """The filters for Ansible."""

    def filters(self) -> dict[str, Any]:
        """Names as used in the role."""
        return {"gpudirect_acs_bridges": lambda text: acs_bridges(parse_topology(text))}
