"""What the role wants of a host, and contradictions that no schema can see.

Those are between keys of the fabric intent, and between it and the NICs. In Python because a template of many
expressions, or one that is looked up in a file, costs the controller milliseconds for every host of a play.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# Ethernet payload that is not RDMA payload: iboe_get_mtu in the kernel's include/rdma/ib_addr.h.
_ROCE_HEADER_BYTES = 96


def intent_problems(fabric: Mapping[str, Any]) -> list[str]:
    """What is wrong with the intent: key, value and fix, one sentence each."""
    return list(_mtu(fabric["mtu_bytes"])) + list(_classes(fabric["roce"])) + list(_rails(fabric))


def _mtu(mtu: Mapping[str, int]) -> Iterator[str]:
    if mtu["host"] > mtu["link"]:
        yield (
            f"fabric.mtu_bytes.host {mtu['host']} is above the switches' fabric.mtu_bytes.link {mtu['link']}"
            " -- lower the one or raise the other"
        )
    if mtu["host"] < mtu["rdma"] + _ROCE_HEADER_BYTES:
        yield (
            f"fabric.mtu_bytes.host {mtu['host']} leaves no room for fabric.mtu_bytes.rdma {mtu['rdma']}"
            f" -- use at least {mtu['rdma'] + _ROCE_HEADER_BYTES}"
        )


def _classes(roce: Mapping[str, Any]) -> Iterator[str]:
    for key in ("dscp", "priority", "traffic_class", "queue"):
        if roce[key] == roce["cnp"][key]:
            yield (
                f"fabric.roce.cnp.{key} is {roce[key]} like fabric.roce.{key}, so CNPs would wait behind the "
                "traffic that they should slow down -- give them one of their own"
            )
    # Priority 0 is what every unmarked packet gets.
    if roce["priority"] == 0:
        yield "fabric.roce.priority is 0, the priority of all unmarked traffic -- use another, usually 3"


def _rails(fabric: Mapping[str, Any]) -> Iterator[str]:
    if fabric.get("ip_version", 4) != 4:
        yield f"fabric.ip_version is {fabric['ip_version']}, hosts know only IPv4 rails -- use 4"
    names = [rail["name"] for rail in fabric["rails"]]
    for name, count in Counter(names).items():
        if count > 1:
            yield f"fabric.rails names {name} {count} times -- give every rail one entry"
    for rail in fabric["rails"]:
        try:
            ipaddress.ip_network(rail["subnet"])
        except ValueError as error:
            yield f"fabric.rails: subnet of {rail['name']}: {error} -- write it like 10.10.0.0/24"


def problems(hosts: Iterable[Mapping[str, Any]], fabric: Mapping[str, Any]) -> list[str]:
    """What is wrong with the intent and the `fabric_nics` of hosts (their variables): place, value, fix.

    A host without `fabric_nics` was refused by the role's argument_specs already.
    """
    hosts = [h for h in hosts if "fabric_nics" in h]
    nics = {h["inventory_hostname"]: h["fabric_nics"] for h in hosts}
    management = {h["inventory_hostname"]: h.get("ansible_host", h["inventory_hostname"]) for h in hosts}
    found = [f"group_vars: {problem}" for problem in intent_problems(fabric)]
    claims = Claims.of(nic for of_host in nics.values() for nic in of_host)
    for host, of_host in nics.items():
        found += [f"{host}: {problem}" for problem in nic_problems(of_host, fabric, management[host], claims)]
    return found


class Claims(NamedTuple):
    """How many NICs claim a leaf port, and an address."""

    ports: Counter[tuple[str, str]]
    addresses: Counter[str]

    @classmethod
    def of(cls, nics: Iterable[Mapping[str, Any]]) -> Claims:
        """Count over the NICs of all hosts."""
        nics = list(nics)
        return cls(
            Counter((nic["leaf"], nic["leaf_port"]) for nic in nics),
            Counter(nic["ipv4"].partition("/")[0] for nic in nics),
        )


def nic_problems(
    nics: Sequence[Mapping[str, Any]], fabric: Mapping[str, Any], management_address: str, claims: Claims
) -> list[str]:
    """What is wrong with a host's `fabric_nics`: value and fix, one sentence each."""
    return list(_placement(nics, fabric)) + list(_identity(nics, management_address, claims))


def _placement(nics: Sequence[Mapping[str, Any]], fabric: Mapping[str, Any]) -> Iterator[str]:
    subnets = {rail["name"]: rail["subnet"] for rail in fabric["rails"]}
    for rail, count in Counter(nic["rail"] for nic in nics).items():
        if rail not in subnets:
            yield f"fabric_nics: rail {rail} is none of fabric.rails ({', '.join(subnets)}) -- correct rail"
        elif count > 1:
            yield f"fabric_nics: {count} NICs are on rail {rail} -- give each NIC a rail of its own"
    missing = [name for name in subnets if name not in {nic["rail"] for nic in nics}]
    if missing:
        yield f"fabric_nics: no NIC on {', '.join(missing)} -- add it, or take the rail out of fabric.rails"
    for nic in nics:
        try:
            address = ipaddress.ip_interface(nic["ipv4"])
            inside = nic["rail"] not in subnets or address.ip in ipaddress.ip_network(subnets[nic["rail"]])
        except ValueError as error:
            yield f"fabric_nics: ipv4 of {nic['netdev']}: {error} -- write it like 10.10.0.1/24"
            continue
        if not inside:
            yield (
                f"fabric_nics: {nic['netdev']} has {nic['ipv4']}, but rail {nic['rail']} is "
                f"{subnets[nic['rail']]} -- correct ipv4 or rail"
            )


def _identity(nics: Sequence[Mapping[str, Any]], management_address: str, claims: Claims) -> Iterator[str]:
    for key in ("netdev", "rdma_device"):
        for name, count in Counter(nic[key] for nic in nics).items():
            if count > 1:
                yield f"fabric_nics: {key} {name} is there {count} times -- correct {key}"
    for nic in nics:
        if claims.ports[nic["leaf"], nic["leaf_port"]] > 1:
            yield (
                f"fabric_nics: {nic['netdev']} shares {nic['leaf']} port {nic['leaf_port']} with another NIC "
                "-- correct leaf_port"
            )
        address = nic["ipv4"].partition("/")[0]
        if claims.addresses[address] > 1:
            yield f"fabric_nics: {nic['netdev']} shares address {address} with another NIC -- correct ipv4"
        if address == management_address:
            yield f"fabric_nics: {nic['netdev']} has the address of ansible_host -- take that NIC out"


def desired(
    nics: Iterable[Mapping[str, Any]], fabric: Mapping[str, Any], policy: Mapping[str, Any], clock: str
) -> dict[str, dict[str, Any]]:
    """Wanted states by target for roles/host_settings: one for each NIC, and the environment.

    `policy` is what the role decides beyond the intent (`Policy` in host_settings/desired.py).
    """
    common = {
        "schema": 1,
        "link_speed_gbps": fabric["link_speed_gbps"],
        "mtu_bytes": fabric["mtu_bytes"],
        "roce": fabric["roce"],
        "policy": policy,
    }
    states = {nic["netdev"]: {**nic, **common} for nic in nics}
    return {**states, "environment": {"schema": 1, "roce": fabric["roce"], "clock": clock}}


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
