"""What the role wants of a host, and what the intent's one validator says of the inventory.

In Python because a template of many expressions, or one that is looked up in a file, costs the controller
milliseconds for every host of a play.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shakedown.intent import rules


def problems(hosts: Iterable[Mapping[str, Any]], fabric: Mapping[str, Any]) -> list[str]:
    """What is wrong with the intent and the `fabric_nics` of hosts (their variables): place, value, fix.

    A host without `fabric_nics` was refused by the role's argument_specs already.
    """
    if wrong := rules.intent_problems(fabric):
        return [f"group_vars: {problem}" for problem in wrong]
    hosts = [host for host in hosts if "fabric_nics" in host]
    nics = {host["inventory_hostname"]: host["fabric_nics"] for host in hosts}
    management = {h["inventory_hostname"]: h.get("ansible_host", h["inventory_hostname"]) for h in hosts}
    return [f"{host}: {problem}" for host, problem in rules.nic_problems(nics, fabric, management)]


def desired(
    nics: Iterable[Mapping[str, Any]],
    fabric: Mapping[str, Any],
    policy: Mapping[str, Any],
    clock: str,
    memlock: str = "keep",
) -> dict[str, dict[str, Any]]:
    """Wanted states by target for roles/host_settings: one for each NIC, and the environment.

    `policy` is what the role decides beyond the intent (`Policy` in host_settings/desired.py).
    """
    # A variable of Ansible may be a number in words.
    if str(filter_ := policy.get("rp_filter", "keep")).isdecimal():
        policy = {**policy, "rp_filter": int(str(filter_))}
    common = {
        "schema": 1,
        "link_speed_gbps": fabric["link_speed_gbps"],
        "mtu_bytes": fabric["mtu_bytes"],
        "roce": fabric["roce"],
        "policy": policy,
    }
    states = {nic["netdev"]: {**nic, **common} for nic in nics}
    host = {"schema": 1, "roce": fabric["roce"], "clock": clock, "memlock": memlock}
    return {**states, "environment": host}


def udev_rules(nics: Iterable[Mapping[str, Any]]) -> str:
    """Start the unit of a fabric NIC whenever it appears or gets its name."""
    rules = ["# A fabric NIC that appears, or gets its name, gets its RoCE class.\n"]
    for netdev in (nic["netdev"] for nic in nics):
        rules.append(
            f'ACTION=="add|move", SUBSYSTEM=="net", KERNEL=="{netdev}", TAG+="systemd", '
            f'ENV{{SYSTEMD_WANTS}}+="host-settings@{netdev}.service"\n'
        )
    return "".join(rules)


class FilterModule:
    """The filters for Ansible."""

    def filters(self) -> dict[str, Any]:
        """The names as used in the role."""
        return {
            "roce_host_desired": desired,
            "roce_host_problems": problems,
            "roce_host_udev_rules": udev_rules,
        }
