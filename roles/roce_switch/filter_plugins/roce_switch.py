"""Jinja2 filters of the role: why a switch cannot hold the intent. Pure: decided before any change."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shakedown.intent import links, rules

Intent = dict[str, Any]
_IMPORT = "    from shakedown.intent import rules\n"


def lossless_priorities(fabric: Intent) -> list[int]:
    """The priorities that PFC protects."""
    return rules.lossless_priorities(fabric["roce"])


def refusals(
    fabric: Intent,
    nos: str,
    ports: list[dict[str, str]],
    management: list[str],
    hosts: list[str],
    switch: str = "",
) -> list[str]:
    """Why this intent cannot go onto this switch; empty if it can."""
    # Here, not above: pydantic takes a moment to load, and every fork of Ansible loads all filters.
    from shakedown.nos.registry import SYSTEMS

    system = SYSTEMS.get(nos)
    if system is None:
        return [f"unknown switch system {nos!r}; it is one of {', '.join(SYSTEMS)}"]
    found = [*rules.intent_problems(fabric), *links.problems(fabric)]
    linked = [] if found else links.link_ports(fabric, switch)
    if ports or not linked:  # a spine has no port with a host
        found += rules.cabling_problems(ports, fabric, management, hosts)
    found += [
        rules.Problem(
            ("fabric", "switches", "links"),
            f"port {entry['port']} carries management",
            "take it out of fabric.switches.links",
        )
        for entry in linked
        if entry["port"] in management
    ]
    found += rules.switch_problems(fabric, nos, system.lossless_limit)
    return [str(problem) for problem in found]


def ports(fabric: Intent, cabled: list[dict[str, Any]], switch: str) -> list[dict[str, Any]]:
    """Every port of a switch that carries RoCE: those with hosts, then those of its links to switches."""
    return [*cabled, *links.link_ports(fabric, switch)]


def leaf_program(source: str) -> str:
    """The program for a Linux leaf: one file, with the validator of the intent in place of its import."""
    if source.count(_IMPORT) != 1:
        raise ValueError("roce_leaf.py imports the validator in one line")
    text = Path(rules.__file__).read_text(encoding="utf-8")
    inlined = (
        "    import types\n\n    rules = types.ModuleType('rules')\n"
        f"    exec(compile({text!r}, 'rules.py', 'exec'), rules.__dict__)\n"
    )
    return source.replace(_IMPORT, inlined)


def cli_refusals(fabric: Intent, nos: str, ports: list[dict[str, str]], running: str) -> list[str]:
    """Why a switch, as it is configured, cannot take the intent."""
    reasons = []
    if nos == "os9":
        for entry in ports:
            section = re.search(rf"(?m)^interface {re.escape(entry['port'])}\n((?:[ !].*\n?)*)", running)
            if section and re.search(r"(?m)^ flowcontrol (rx|tx) on", section[1]):
                reasons.append(
                    f"port {entry['port']}: link-level flow control is on; OS9 has no PFC beside it"
                )
    return reasons


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_refusals": refusals,
            "roce_switch_ports": ports,
            "roce_switch_lossless": lossless_priorities,
            "roce_switch_leaf_program": leaf_program,
            "roce_switch_cli_refusals": cli_refusals,
        }
