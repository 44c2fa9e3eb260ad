"""The one validator of the intent: what cannot be, between keys of the fabric, NICs, cables and switches.

Pure functions over plain mappings, standard library only, so that all who read the intent ask here: the model
of a site, the filters of roles/roce_host and roles/roce_switch, and the program on a Linux leaf, into which
the role puts this file. A key that is missing or of another type is a problem like any other.
"""

from __future__ import annotations

import difflib
import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Tree = Mapping[str, Any]
Bounds = tuple[int, int]

# Ethernet payload that is not RDMA payload: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4 bytes
# (iboe_get_mtu in the kernel's include/rdma/ib_addr.h).
ROCE_HEADER_BYTES = 96
DSCP: Bounds = (1, 63)  # 0 is that of all unmarked traffic
EIGHT: Bounds = (0, 7)  # priorities, traffic classes and queues
LINK_MTU: Bounds = (1500, 9416)  # bytes
HOST_MTU: Bounds = (1280, 9416)  # bytes; 1280 is the least that IPv6 allows (RFC 8200)
RDMA_MTUS = (256, 512, 1024, 2048, 4096)  # bytes; enum ib_mtu
CABLE_M: Bounds = (1, 999)  # the longest that mlx5 takes (en_dcbnl.c, MLX5E_MAX_CABLE_LENGTH)
_CLASS = {"dscp": DSCP, "priority": EIGHT, "traffic_class": EIGHT, "queue": EIGHT}
_NIC = ("rail", "netdev", "rdma_device", "ipv4")
_CABLE = ("port", "host", "netdev", "rail")


def is_lag(netdev: str, rdma_device: str) -> bool:
    """Whether a NIC is several ports that are one to RDMA (RoCE LAG): mlx5_bond_0 on bond0, bnxt_re_bond0.

    A queue pair takes one of the ports, which one a hash decides. So a floor that one port reaches is passed
    with the other dead, and one of both is missed by good hardware: it is not measured.
    """
    return "bond" in rdma_device or netdev.startswith(("bond", "team"))


class Problem(NamedTuple):
    """What is wrong at one place."""

    key: tuple[str | int, ...]  # the path, from the variable on: ("fabric", "roce", "cnp", "dscp")
    what: str  # a sentence that names the key and the value
    fix: str  # what to do
    other: tuple[str | int, ...] = ()  # the path of the other place, where two contradict each other

    def __str__(self) -> str:
        return f"{self.what} -- {self.fix}" if self.fix else self.what


class Contradiction(ValueError):  # noqa: N818  (it names the input, which is at fault)
    """An intent that breaks rules; `problems` says which."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


def intent_problems(fabric: Tree) -> list[Problem]:
    """Return what is wrong with the fabric intent (`fabric` in group_vars)."""
    found = [*_mtu(part(fabric, "mtu_bytes")), *roce_problems(part(fabric, "roce")), *_rails(fabric)]
    if fabric.get("ip_version", 4) != 4:
        what = f"fabric.ip_version is {fabric['ip_version']}, hosts know only IPv4 rails"
        found.append(Problem(("fabric", "ip_version"), what, "use 4"))
    return found


def _mtu(mtu: Tree) -> Iterator[Problem]:
    at = ("fabric", "mtu_bytes")
    wrong = list(_numbers(mtu, at, {"link": LINK_MTU, "host": HOST_MTU}))
    if mtu.get("rdma") not in RDMA_MTUS:
        what = f"fabric.mtu_bytes.rdma {mtu.get('rdma')!r} is no RDMA MTU"
        wrong.append(Problem((*at, "rdma"), what, f"use one of {', '.join(map(str, RDMA_MTUS))}"))
    yield from wrong
    link, host, rdma = (mtu.get(key) for key in ("link", "host", "rdma"))
    if not (isinstance(link, int) and isinstance(host, int) and isinstance(rdma, int)):
        return
    if host > link:
        what = f"fabric.mtu_bytes.host {host} is above the switches' fabric.mtu_bytes.link {link}"
        yield Problem((*at, "host"), what, "lower the one or raise the other")
    least = rdma + ROCE_HEADER_BYTES
    if host < least:
        what = f"fabric.mtu_bytes.host {host} leaves no room for fabric.mtu_bytes.rdma {rdma}"
        yield Problem((*at, "host"), what, f"use at least {least}")


def roce_problems(roce: Tree) -> list[Problem]:
    """Return what is wrong with the RoCE class (`fabric.roce`)."""
    at = ("fabric", "roce")
    cnp = part(roce, "cnp")
    wrong = [*_numbers(roce, at, _CLASS), *_numbers(cnp, (*at, "cnp"), _CLASS)]
    if wrong:
        return [*wrong, *_ecn(part(roce, "ecn"))]
    found = []
    for key in _CLASS:
        if roce[key] == cnp[key]:
            what = (
                f"fabric.roce.cnp.{key} is {cnp[key]} like fabric.roce.{key}, so CNPs would wait behind the "
                "traffic that they should slow down"
            )
            found.append(Problem((*at, "cnp", key), what, "give them one of their own"))
    if roce["priority"] == 0:
        what = "fabric.roce.priority is 0, the priority of all unmarked traffic"
        found.append(Problem((*at, "priority"), what, "use another, usually 3"))
    if cnp.get("scheduler", "strict") not in ("strict", "dwrr"):
        what = f"fabric.roce.cnp.scheduler is {cnp['scheduler']!r}"
        found.append(Problem((*at, "cnp", "scheduler"), what, "use strict or dwrr"))
    headroom = roce.get("headroom")
    if headroom is not None:
        found += _numbers(part(roce, "headroom"), (*at, "headroom"), {"cable_m": CABLE_M})
    return [*found, *_ecn(part(roce, "ecn")), *_pfc(roce)]


def _ecn(ecn: Tree) -> Iterator[Problem]:
    numbers = [_number(ecn.get(key)) for key in ("min_bytes", "max_bytes", "mark_percent")]
    if not 0 < numbers[0] < numbers[1] or not 0 < numbers[2] <= 100:
        what = "fabric.roce.ecn needs 0 < min_bytes < max_bytes and 0 < mark_percent <= 100"
        yield Problem(("fabric", "roce", "ecn"), what, "correct the thresholds")


def _pfc(roce: Tree) -> Iterator[Problem]:
    at = ("fabric", "roce", "pfc")
    pfc = part(roce, "pfc")
    if not isinstance(pfc.get("enabled"), bool):
        yield Problem((*at, "enabled"), "fabric.roce.pfc.enabled is missing", "use true or false")
    lossless, own = lossless_priorities(roce), roce["priority"]
    if roce["cnp"]["priority"] in lossless and roce["cnp"]["priority"] != own:  # else it was said already
        what = f"the CNP priority {roce['cnp']['priority']} must not be lossless"
        yield Problem((*at, "priorities"), what, "take it out of fabric.roce.pfc.priorities")
    if lossless and own not in lossless:
        what = f"the RoCE priority {own} is not among the lossless ones {lossless}"
        yield Problem((*at, "priorities"), what, "leave fabric.roce.pfc.priorities out")
    elif lossless not in ([], [own]):
        what = f"fabric.roce.pfc.priorities is {lossless}, hosts make only RoCE's own priority {own} lossless"
        yield Problem((*at, "priorities"), what, "leave it out")


def lossless_priorities(roce: Tree) -> list[Any]:
    """Return the priorities that PFC protects: `pfc.priorities`, or the RoCE class's alone."""
    pfc = part(roce, "pfc")
    if not pfc.get("enabled"):
        return []
    given = pfc.get("priorities")
    return [roce.get("priority")] if given is None else sorted(given, key=str) if _is_list(given) else [given]


def _rails(fabric: Tree) -> Iterator[Problem]:
    rails = fabric.get("rails")
    if not _is_list(rails) or not rails or not all(isinstance(rail, Mapping) for rail in rails):
        yield Problem(("fabric", "rails"), "fabric.rails names no rail", "give each its name and subnet")
        return
    for name, count in Counter(str(rail.get("name")) for rail in rails).items():
        if count > 1:
            yield Problem(
                ("fabric", "rails"), f"fabric.rails names {name} {count} times", "give every rail one entry"
            )
    for number, rail in enumerate(rails):
        try:
            ipaddress.IPv4Network(rail.get("subnet"))
        except ValueError as error:
            what = f"fabric.rails: subnet of {rail.get('name')}: {_no_ipv4(rail.get('subnet'), error)}"
            yield Problem(("fabric", "rails", number, "subnet"), what, "write it like 10.10.0.0/24")


def _no_ipv4(text: Any, error: ValueError) -> str:  # noqa: ANN401
    """Say why an address or subnet is none of IPv4."""
    return "rails of IPv6 alone are not measured" if ":" in str(text) else str(error)


def nic_problems(
    # Every host's NICs. A leaf and its port may be left out where the cabling is not known.
    hosts: Mapping[str, Sequence[Tree]],
    fabric: Tree,  # an intent without problems
    management: Mapping[str, str],  # the address under which each host is reached
) -> list[tuple[str, Problem]]:
    """Return (host, what is wrong with its `fabric_nics`)."""
    subnets = {rail["name"]: ipaddress.IPv4Network(rail["subnet"]) for rail in fabric["rails"]}
    every = [nic for nics in hosts.values() for nic in nics]
    ports = Counter((nic.get("leaf"), str(nic.get("leaf_port"))) for nic in every)
    addresses = Counter(_address(nic) for nic in every)
    found = []
    for host, nics in hosts.items():
        problems = list(_incomplete(nics))
        if not problems:
            problems = [*_placement(nics, subnets), *_identity(nics, management.get(host), ports, addresses)]
        found += [(host, problem) for problem in problems]
    return found


def _address(nic: Tree) -> str:
    return str(nic.get("ipv4")).partition("/")[0]


def _incomplete(nics: Sequence[Tree]) -> Iterator[Problem]:
    for number, nic in enumerate(nics):
        for key in _NIC:
            if not nic.get(key):
                what = f"fabric_nics: {nic.get('netdev') or f'entry {number + 1}'} has no {key}"
                near = difflib.get_close_matches(key, set(nic) - set(_NIC), n=1)
                yield Problem(
                    ("fabric_nics", number, *near), what, f"rename {near[0]} to {key}" if near else "add it"
                )


def _placement(nics: Sequence[Tree], subnets: Mapping[str, ipaddress.IPv4Network]) -> Iterator[Problem]:
    at = "fabric_nics"
    for rail, count in Counter(nic["rail"] for nic in nics).items():
        first = next(number for number, nic in enumerate(nics) if nic["rail"] == rail)
        if rail not in subnets:
            what = f"fabric_nics: rail {rail} is none of fabric.rails ({', '.join(subnets)})"
            yield Problem((at, first, "rail"), what, "correct rail")
        elif count > 1:
            what = f"fabric_nics: {count} NICs are on rail {rail}"
            yield Problem((at, first, "rail"), what, "give each NIC a rail of its own")
    missing = [name for name in subnets if name not in {nic["rail"] for nic in nics}]
    if missing:
        what = f"fabric_nics: no NIC on {', '.join(missing)}"
        yield Problem((at,), what, "add it, or take the rail out of fabric.rails")
    for number, nic in enumerate(nics):
        subnet = subnets.get(nic["rail"])
        try:
            inside = subnet is None or ipaddress.IPv4Interface(nic["ipv4"]).ip in subnet
        except ValueError as error:
            what = f"fabric_nics: ipv4 of {nic['netdev']}: {_no_ipv4(nic['ipv4'], error)}"
            yield Problem((at, number, "ipv4"), what, "write it like 10.10.0.1/24")
            continue
        if not inside:
            what = f"fabric_nics: {nic['netdev']} has {nic['ipv4']}, but rail {nic['rail']} is {subnet}"
            yield Problem((at, number, "ipv4"), what, "correct ipv4 or rail")
        elif subnet is not None and (other := _in_its_prefix(nic, nics, subnets)):
            what = (
                f"fabric_nics: {nic['netdev']} has {nic['ipv4']}, a prefix that {other['netdev']} with "
                f"{other['ipv4']} is in too, although their rails have subnets of their own: the kernel may "
                "send for one by the other"
            )
            yield Problem((at, number, "ipv4"), what, "correct the prefix, or fabric.rails if they share one")


def _in_its_prefix(
    nic: Tree, nics: Sequence[Tree], subnets: Mapping[str, ipaddress.IPv4Network]
) -> Tree | None:
    """Return another NIC of a host that a NIC's own prefix holds; None for one whose rail shares its subnet.

    Where all rails are one subnet by the intent, ARP settings and routing rules keep NICs apart.
    """
    mine = ipaddress.IPv4Interface(nic["ipv4"])
    if mine.network.subnet_of(subnets[nic["rail"]]):
        return None  # as nearly always: no wider than its rail
    for other in nics:
        subnet = subnets.get(other["rail"])
        if other is nic or subnet is None or subnet.overlaps(subnets[nic["rail"]]):
            continue
        try:
            if ipaddress.IPv4Interface(other["ipv4"]).ip in mine.network:
                return other
        except ValueError:
            continue  # told of itself
    return None


def _identity(
    nics: Sequence[Tree],
    management: str | None,
    ports: Mapping[tuple[Any, str], int],
    addresses: Mapping[str, int],
) -> Iterator[Problem]:
    at = "fabric_nics"
    for key in ("netdev", "rdma_device"):
        for name, count in Counter(nic[key] for nic in nics).items():
            if count > 1:
                what = f"fabric_nics: {key} {name} is there {count} times"
                yield Problem((at,), what, f"correct {key}")
    for number, nic in enumerate(nics):
        leaf, port, name = nic.get("leaf"), nic.get("leaf_port"), nic["netdev"]
        if is_lag(name, nic["rdma_device"]):
            what = f"fabric_nics: {nic['rdma_device']} on {name} is a RoCE LAG, which is not measured"
            fix = "give each of its ports an address and a rail; or take it out (no_fabric, if none is left)"
            yield Problem((at, number, "rdma_device"), what, fix)
        if leaf and port and ports[leaf, str(port)] > 1:
            what = f"fabric_nics: {name} shares {leaf} port {port} with another NIC"
            yield Problem((at, number, "leaf_port"), what, "correct leaf_port")
        address = _address(nic)
        if addresses[address] > 1:
            what = f"fabric_nics: {name} shares address {address} with another NIC"
            yield Problem((at, number, "ipv4"), what, "correct ipv4")
        if address == management:
            what = f"fabric_nics: {name} has the address of ansible_host"
            yield Problem((at, number, "ipv4"), what, "take that NIC out")


def cabling_problems(
    ports: Sequence[Tree],  # its entries
    fabric: Tree,  # the intent, for its rails
    management: Iterable[str],  # ports that are never changed
    hosts: Iterable[str],  # all hosts of the inventory
) -> Iterator[Problem]:
    """Yield what is wrong with a switch's `leaf_ports`."""
    if not ports:
        yield Problem(("leaf_ports",), "leaf_ports names no port", "name the ports of the hosts")
    rails = {rail.get("name") for rail in fabric.get("rails") or () if isinstance(rail, Mapping)}
    kept, known = set(management), set(hosts)
    seen: set[str] = set()
    ends: dict[tuple[str, str], str] = {}
    for number, entry in enumerate(ports):
        at = ("leaf_ports", number)
        if missing := [key for key in _CABLE if not entry.get(key)]:
            what = f"port {entry.get('port') or '?'} has no cabling: {', '.join(missing)} is missing"
            yield Problem(at, what, "complete it")
            continue
        port, end = str(entry["port"]), (entry["host"], entry["netdev"])
        if port in seen:
            yield Problem((*at, "port"), f"port {port} is listed twice", "one cable ends in one port")
        if entry["rail"] not in rails:
            yield Problem(
                (*at, "rail"), f"port {port}: rail {entry['rail']!r} is not in the intent", "correct it"
            )
        if entry["host"] not in known:
            what = f"port {port}: host {entry['host']!r} is not in the inventory"
            yield Problem((*at, "host"), what, "correct it")
        if port in kept:
            yield Problem((*at, "port"), f"port {port} carries management", "take it out of leaf_ports")
        if end in ends:
            what = f"ports {ends[end]} and {port} are both cabled to {'/'.join(end)}"
            yield Problem((*at, "port"), what, "one cable has one port")
        seen.add(port)
        ends[end] = port


def switch_problems(fabric: Tree, nos: str, lossless_limit: int | None) -> Iterator[Problem]:
    """Yield why a switch system cannot hold an intent. `roce_problems` reports what is incomplete.

    `lossless_limit`: lossless priorities that the platform can hold; None: its documents give no number.
    """
    at = ("fabric", "roce")
    roce = part(fabric, "roce")
    cnp, ecn = part(roce, "cnp"), part(roce, "ecn")
    if any(_numbers(roce, at, _CLASS)) or any(_numbers(cnp, at, _CLASS)):
        return
    lossless = lossless_priorities(roce)
    if lossless_limit is not None and len(lossless) > lossless_limit:
        what = f"{nos} holds at most {lossless_limit} lossless queues, the intent has {lossless}"
        yield Problem((*at, "pfc", "priorities"), what, "make fewer priorities lossless")
    for place, one in ((at, roce), ((*at, "cnp"), cnp)):
        if nos != "linux" and not one["priority"] == one["traffic_class"] == one["queue"]:
            name = ".".join(place[1:])
            what = f"{name}: {nos} is rendered with priority, traffic class and queue equal only"
            yield Problem((*place, "queue"), what, "give the three one number")
    if nos == "os9" and any(one["dscp"] >> 3 != one["queue"] for one in (roce, cnp)):
        what = "os9 takes the queue from the upper three bits of the DSCP; the intent's differ"
        yield Problem((*at, "dscp"), what, "use DSCP 8 x queue to 8 x queue + 7")
    if nos in ("os9", "os10") and any(_rest(ecn.get(key)) for key in ("min_bytes", "max_bytes")):
        what = f"{nos} takes ECN thresholds in KB; the intent's are no multiples of 1024 bytes"
        yield Problem((*at, "ecn"), what, "use multiples of 1024")


def part(tree: object, key: str) -> Tree:
    """Return what stands under a key; nothing where there is none, or no mapping."""
    value = tree.get(key) if isinstance(tree, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float:
    """Return a number, or 0 for what is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _rest(size: object) -> bool:
    return not isinstance(size, int) or size % 1024 != 0


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _numbers(tree: Tree, at: tuple[str, ...], bounds: Mapping[str, Bounds]) -> Iterator[Problem]:
    for key, (low, high) in bounds.items():
        name, value = ".".join((*at, key)), tree.get(key)
        fix = f"use a whole number from {low} to {high}"
        if value is None:
            yield Problem((*at, key), f"{name} is missing", fix)
        elif not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            yield Problem((*at, key), f"{name} {value!r} is not {low} to {high}", fix)
