"""Jinja2 filters of the role: why a switch cannot hold the intent. Pure: decided before any change."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shakedown.intent import links, rules

Intent = dict[str, Any]
# How a command line waits for a key, in a line by itself.
_PAGER = re.compile(r"(?im)^\W*-- ?more ?--\W*$")
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


def not_done(nos: str) -> list[str]:
    """The parts of the intent that are neither set nor read on a system; kept with the read-back."""
    from shakedown.nos.registry import known  # here, as above

    return list(known(nos).not_done)


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


def cli_unready(nos: str, unsaved: list[str], mixture_accepted: bool) -> list[str]:
    """Why a switch must not be changed as it is. Saving would write somebody else's unsaved lines too."""
    reasons = []
    if unsaved:
        some = "; ".join(unsaved[:3]) + (f" and {len(unsaved) - 3} more" if len(unsaved) > 3 else "")
        reasons.append(f"the running configuration is not saved ({some}): save it, or discard it, first")
    if nos == "os9" and not mixture_accepted:
        reasons.append(
            "OS9 has neither a transaction nor a commit timer: a connection lost while lines are typed "
            "leaves a mixture until the switch is reloaded. To accept that set roce_switch_mixture_accepted"
        )
    return reasons


def cli_unread(running: str) -> list[str]:
    """Why what a switch printed is not its configuration, so that nothing is known of it; empty if it is."""
    # As above: only the systems with a command line pay for it.
    from shakedown.nos.system import refuse_error_text
    from shakedown.records.errors import BadInput

    # What a command says instead of a configuration is its first line; a banner may say anything below.
    first = next((line for line in running.splitlines() if line.strip()), "")
    if not first:
        return ["running configuration: the switch printed nothing; read it again"]
    try:
        refuse_error_text(first, "running configuration")
    except BadInput as refused:
        return [str(refused)]
    if _PAGER.search(running):
        return ["running configuration: a pager (--More--) cut it off; read it again without one"]
    return []


def cli_refusals(fabric: Intent, nos: str, ports: list[dict[str, str]], running: str) -> list[str]:
    """Why a switch, as it is configured, cannot take the intent, or why its configuration is not known."""
    reasons = cli_unread(running)
    if nos == "os9":
        for entry in ports:
            section = re.search(rf"(?m)^interface {re.escape(entry['port'])}\n((?:[ !].*\n?)*)", running)
            if section and re.search(r"(?m)^ flowcontrol (rx|tx) on", section[1]):
                reasons.append(
                    f"port {entry['port']}: link-level flow control is on; OS9 has no PFC beside it"
                )
    return reasons


# Whose a setting is, as the table's last column says it.
WHOSE = {
    "nobody": "nobody's",
    "system": "the system's default",
    "role": "this role's",
    "other": "SOMEBODY ELSE'S",
}


def change_table(read: Intent, switch: str) -> list[str]:
    """The one table before the first change: switch, port, setting, from, to, whose."""
    rows = [("switch", "port", "setting", "from", "to", "whose")]
    for one in read.get("changes", []):
        where = f"{one['where']} {one['setting']}".strip()
        rows.append((switch, one["port"] or "-", where, one["from"], one["to"], WHOSE[one["whose"]]))
    if len(rows) == 1:
        return list(read["differences"])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def others_settings(read: Intent) -> list[str]:
    """The settings that would be changed and are somebody else's."""
    return [
        f"{one['where']} {one['setting']}".strip() + f" ({one['from']})"
        for one in read.get("changes", [])
        if one["whose"] == "other"
    ]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_refusals": refusals,
            "roce_switch_not_done": not_done,
            "roce_switch_ports": ports,
            "roce_switch_lossless": lossless_priorities,
            "roce_switch_leaf_program": leaf_program,
            "roce_switch_cli_refusals": cli_refusals,
            "roce_switch_cli_unread": cli_unread,
            "roce_switch_cli_unready": cli_unready,
            "roce_switch_change_table": change_table,
            "roce_switch_others_settings": others_settings,
        }
