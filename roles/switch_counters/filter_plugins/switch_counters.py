"""Jinja2 filter of the role: the ports whose counters are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shakedown.intent import links


def ports(fabric: dict[str, Any], cabled: list[dict[str, Any]], switch: str) -> list[dict[str, Any]]:
    """Every port of a switch that carries RoCE: those with hosts, then those of its links to switches."""
    return [*cabled, *links.link_ports(fabric, switch)]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {"switch_counters_ports": ports}
