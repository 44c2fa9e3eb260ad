"""Rules of a site's TCP fabrics (`tcp_fabrics`) and of its nodes' interfaces in them (`tcp_nics`)."""

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shakedown.intent.rules import Problem, Tree

# In a cell's parameter `network`, where no fabric of these is meant by its name: the RoCE fabric itself, and
# all TCP fabrics at once on a site that has no other.
ROCE, ALL_TCP = "roce", "tcp"
_FABRIC = ("name", "link_speed_gbps", "mtu_bytes", "subnet")
_NIC = ("fabric", "netdev", "ipv4")


def problems(fabrics: Any, hosts: Mapping[str, Tree]) -> list[tuple[str | None, Problem]]:  # noqa: ANN401
    """Return (host or None, what is wrong).

    Args:
        fabrics: whatever the inventory holds as `tcp_fabrics`.
        hosts: the variables of every compute node.
    """
    if not _mappings(fabrics):
        return [(None, Problem(("tcp_fabrics",), "tcp_fabrics is no list of mappings", "name the networks"))]
    found: list[tuple[str | None, Problem]] = [(None, problem) for problem in _fabrics(fabrics)]
    if found:
        return found
    subnets = {fabric["name"]: ipaddress.IPv4Network(fabric["subnet"]) for fabric in fabrics}
    addresses: Counter[str] = Counter()
    for name, host in hosts.items():
        nics = host.get("tcp_nics", [])
        if not _mappings(nics):
            what = "tcp_nics is no list of mappings"
            found.append((name, Problem(("tcp_nics",), what, "give fabric, netdev, ipv4 of each")))
            continue
        found += [(name, problem) for problem in _nics(nics, subnets, host)]
        addresses.update(str(nic.get("ipv4")).partition("/")[0] for nic in nics)
    for address, count in addresses.items():
        if count > 1:
            what = f"tcp_nics: {count} interfaces have address {address}"
            found.append((None, Problem(("tcp_nics",), what, "correct ipv4")))
    return found


def _fabrics(fabrics: Sequence[Tree]) -> Iterator[Problem]:
    for number, fabric in enumerate(fabrics):
        at = ("tcp_fabrics", number)
        if missing := [key for key in _FABRIC if not fabric.get(key)]:
            yield Problem(at, f"tcp_fabrics: entry {number + 1} has no {missing[0]}", "add it")
            continue
        if fabric["name"] in (ROCE, ALL_TCP):
            means = "`fabric` itself" if fabric["name"] == ROCE else "all of them at once"
            yield Problem(
                (*at, "name"), f"tcp_fabrics: {fabric['name']} is the name of {means}", "use another"
            )
        try:
            ipaddress.IPv4Network(fabric["subnet"])
        except ValueError as error:
            what = f"tcp_fabrics: subnet of {fabric['name']}: {error}"
            yield Problem((*at, "subnet"), what, "write it like 10.20.0.0/24")
    for name, count in Counter(str(fabric.get("name")) for fabric in fabrics).items():
        if count > 1:
            yield Problem(("tcp_fabrics",), f"tcp_fabrics names {name} {count} times", "give it one entry")


def _nics(
    nics: Sequence[Tree], subnets: Mapping[str, ipaddress.IPv4Network], host: Tree
) -> Iterator[Problem]:
    own = {nic.get("netdev") for nic in host.get("fabric_nics") or () if isinstance(nic, Mapping)}
    for number, nic in enumerate(nics):
        at = ("tcp_nics", number)
        if missing := [key for key in _NIC if not nic.get(key)]:
            what = f"tcp_nics: {nic.get('netdev') or f'entry {number + 1}'} has no {missing[0]}"
            yield Problem(at, what, "add it")
            continue
        subnet = subnets.get(nic["fabric"])
        if subnet is None:
            known = ", ".join(subnets) or "none"
            what = f"tcp_nics: fabric {nic['fabric']} is none of tcp_fabrics ({known})"
            yield Problem((*at, "fabric"), what, "correct it")
            continue
        if nic["netdev"] in own:
            what = f"tcp_nics: {nic['netdev']} is a NIC of the RoCE fabric"
            yield Problem((*at, "netdev"), what, "name another interface")
        try:
            inside = ipaddress.IPv4Interface(nic["ipv4"]).ip in subnet
        except ValueError as error:
            yield Problem((*at, "ipv4"), f"tcp_nics: ipv4 of {nic['netdev']}: {error}", "correct it")
            continue
        if not inside:
            what = f"tcp_nics: {nic['netdev']} has {nic['ipv4']}, but fabric {nic['fabric']} is {subnet}"
            yield Problem((*at, "ipv4"), what, "correct ipv4 or fabric")
    for name in subnets:
        count = sum(nic.get("fabric") == name for nic in nics)
        if count != 1:
            yield Problem(("tcp_nics",), f"tcp_nics: {count} interfaces in fabric {name}", "name one")


def _mappings(value: Any) -> bool:  # noqa: ANN401  (whatever the file held)
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(entry, Mapping) for entry in value)
    )
