"""Links between switches: described once, by name or by rule, and seen from either end.

Pure functions over plain mappings, standard library only: the model of a site and the filters of
roles/roce_switch and roles/switch_counters ask here for the ports of a switch that carry no host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shakedown.intent.rules import Problem, Tree, part

HOST, UPLINK, SPINE = "host", "uplink", "spine"
BY_NAME = ("leaf", "leaf_port", "spine", "spine_port")
BY_RULE = ("leaves", "leaf_ports", "spines", "spine_ports")
_AT = ("fabric", "switches", "links")
_RATIO_STEP = 0.005  # a stated ratio is of whole and half parts; less than this is rounding


class Link(NamedTuple):
    """One cable between two switches.

    Attributes:
        leaf, leaf_port: its lower end; a port's name is the switch's own.
        spine, spine_port: its upper end.
        speed_gbps: its rate, Gb/s.
        cable_m: length of its cable in metres; None: not stated.
        entry: which entry of `fabric.switches.links` describes it.
    """

    leaf: str
    leaf_port: str
    spine: str
    spine_port: str
    speed_gbps: float
    cable_m: int | None
    entry: int

    def __str__(self) -> str:
        return f"{self.leaf} {self.leaf_port} - {self.spine} {self.spine_port}"


def links(fabric: Tree) -> list[Link]:
    """Return every link of the fabric intent, those of a rule one by one. Broken entries are left out."""
    found: list[Link] = []
    headroom = part(part(fabric, "roce"), "headroom")
    for number, entry in enumerate(_entries(fabric)):
        if any(_of_entry(entry, number)):
            continue
        speed = entry.get("speed_gbps") or fabric.get("link_speed_gbps") or 0
        cable_m = entry.get("cable_m") or headroom.get("cable_m")
        found += [Link(*ends, speed, cable_m, number) for ends in _ends(entry)]
    return found


def link_ports(fabric: Tree, switch: str) -> list[dict[str, Any]]:
    """Return the ports by which a switch is linked to switches, in the form of `leaf_ports`.

    `host` and `netdev` are the other switch and its port; `role` is `uplink` on a leaf and `spine` on a
    spine. A switch that must not be touched is still somebody's other end.
    """
    ports = []
    for link in links(fabric):
        ends = (
            (UPLINK, link.leaf, link.leaf_port, link.spine, link.spine_port),
            (SPINE, link.spine, link.spine_port, link.leaf, link.leaf_port),
        )
        for role, name, port, other, other_port in ends:
            if name == switch:
                entry: dict[str, Any] = {"port": port, "role": role, "host": other, "netdev": other_port}
                entry |= {"speed_gbps": link.speed_gbps}
                ports.append(entry | ({"cable_m": link.cable_m} if link.cable_m else {}))
    return ports


def untouched(fabric: Tree) -> set[str]:
    """Return the switches of `access: none`."""
    return {
        str(name) for name, access in part(part(fabric, "switches"), "access").items() if access == "none"
    }


def _entries(fabric: Tree) -> list[Tree]:
    given = part(fabric, "switches").get("links") or ()
    return [entry if isinstance(entry, Mapping) else {} for entry in given]


def _ends(entry: Tree) -> Iterator[tuple[str, str, str, str]]:
    """Yield (leaf, port, spine, port): port i of leaf j goes to port j of spine i.

    With n cables between each leaf and each spine, ports i n to i n + n - 1 are those of spine i.
    """
    if entry.get("leaf") is not None:
        yield tuple(str(entry[key]) for key in BY_NAME)  # type: ignore[misc]
        return
    leaves, leaf_ports, spines, spine_ports = (list(entry[key]) for key in BY_RULE)
    each = len(leaf_ports) // len(spines)
    for j, leaf in enumerate(leaves):
        for i, spine in enumerate(spines):
            for k in range(each):
                yield str(leaf), str(leaf_ports[i * each + k]), str(spine), str(spine_ports[j * each + k])


def problems(fabric: Tree) -> Iterator[Problem]:
    """Yield what is wrong with the links, pods, planes and access of the fabric intent by themselves."""
    switches = part(fabric, "switches")
    leaves, spines = (_names(switches.get(key)) for key in ("leaves", "spines"))
    broken = False
    for number, entry in enumerate(_entries(fabric)):
        for problem in _of_entry(entry, number):
            broken = True
            yield problem
    both = sorted(set(leaves) & set(spines))
    if both:
        what = f"fabric.switches: {both[0]} is a leaf and a spine"
        yield Problem(
            ("fabric", "switches", "spines"), what, "name it once", ("fabric", "switches", "leaves")
        )
    yield from _sets(switches, "pods", leaves, "leaves")
    yield from _sets(switches, "planes", spines, "spines")
    for name in part(switches, "access"):
        if name not in {*leaves, *spines}:
            what = f"fabric.switches.access: {name} is neither a leaf nor a spine of fabric.switches"
            at = ("fabric", "switches", "access", name)
            yield Problem(
                at, what, "correct the name", ("fabric", "switches", "spines" if spines else "leaves")
            )
    if broken or not _entries(fabric):
        return
    yield from _of_ends(links(fabric), leaves, spines, switches)


def _of_entry(entry: Tree, number: int) -> Iterator[Problem]:
    """Yield why one entry describes no link."""
    at, name = (*_AT, number), f"fabric.switches.links[{number}]"
    given = [key for key in (*BY_NAME, *BY_RULE) if entry.get(key)]
    keys = BY_NAME if set(given) & set(BY_NAME) else BY_RULE
    other = BY_RULE if keys is BY_NAME else BY_NAME
    if set(given) & set(other):
        what = f"{name} is by name and by rule at once ({', '.join(given)})"
        yield Problem(at, what, f"give {', '.join(BY_NAME)}, or {', '.join(BY_RULE)}")
        return
    missing = [key for key in keys if key not in given]
    if missing:
        ends = " ".join(str(entry[key]) for key in keys if key in given) or "nothing"
        what = f"{name} is named from one end only: it has {ends}, and no {' and no '.join(missing)}"
        tier = "spines" if missing[0].startswith("spine") else "leaves"
        yield Problem(at, what, "name both ends of the cable", ("fabric", "switches", tier))
        return
    if keys is BY_NAME:
        return
    leaves, leaf_ports, spines, spine_ports = (len(entry[key]) for key in BY_RULE)
    each, rest = divmod(leaf_ports, spines)
    if rest or not each or spine_ports != each * leaves:
        what = (
            f"{name}: {leaf_ports} ports of each of {leaves} leaves do not meet "
            f"{spine_ports} ports of each of {spines} spines"
        )
        fix = "give n ports for each spine in leaf_ports, and n for each leaf in spine_ports"
        yield Problem((*at, "leaf_ports"), what, fix, (*at, "spine_ports"))


def _of_ends(
    found: Sequence[Link], leaves: Sequence[str], spines: Sequence[str], switches: Tree
) -> Iterator[Problem]:
    used: dict[tuple[str, str], int] = {}
    for link in found:
        at = (*_AT, link.entry)
        for name, known, tier in ((link.leaf, leaves, "leaves"), (link.spine, spines, "spines")):
            if name not in known:
                what = f"fabric.switches.links[{link.entry}]: {name} is none of fabric.switches.{tier}"
                yield Problem(at, what, f"add it to {tier}, or correct it", ("fabric", "switches", tier))
        for end in ((link.leaf, link.leaf_port), (link.spine, link.spine_port)):
            if end in used:
                what = (
                    f"fabric.switches.links[{link.entry}]: {' '.join(end)} is an end of "
                    f"fabric.switches.links[{used[end]}] already"
                )
                yield Problem(at, what, "one cable ends in one port", (*_AT, used[end]))
            used.setdefault(end, link.entry)
    for tier, names, ends in (
        ("spines", spines, {link.spine for link in found}),
        ("leaves", leaves, {link.leaf for link in found}),
    ):
        for name in names:
            if name not in ends:
                other = "leaf" if tier == "spines" else "spine"
                what = f"fabric.switches.{tier}: {name} has no link to a {other}"
                yield Problem(("fabric", "switches", tier), what, "add its links, or take it out", _AT)
    each = switches.get("uplinks_per_leaf_per_spine")
    counted = Counter((link.leaf, link.spine) for link in found)
    wrong = next(((pair, count) for pair, count in counted.items() if each and count != each), None)
    if wrong:
        (leaf, spine), count = wrong
        what = (
            f"fabric.switches.uplinks_per_leaf_per_spine is {each}, but fabric.switches.links has {count} "
            f"between {leaf} and {spine}"
        )
        yield Problem(("fabric", "switches", "uplinks_per_leaf_per_spine"), what, "correct one of them", _AT)


def _sets(switches: Tree, key: str, known: Sequence[str], tier: str) -> Iterator[Problem]:
    """Yield why pods of leaves, or planes of spines, are none."""
    whose: dict[str, str] = {}
    for name, members in part(switches, key).items():
        at = ("fabric", "switches", key, str(name))
        for member in _names(members):
            if member not in known:
                what = f"fabric.switches.{key}.{name}: {member} is none of fabric.switches.{tier}"
                yield Problem(at, what, "correct it", ("fabric", "switches", tier))
            if member in whose:
                what = f"fabric.switches.{key}: {member} is in {whose[member]} and in {name}"
                yield Problem(at, what, "put it in one", (*at[:-1], whose[member]))
            whose.setdefault(member, str(name))
    outside = [name for name in known if name not in whose]
    if whose and outside:
        what = f"fabric.switches.{key}: {outside[0]} is in none of them"
        yield Problem(("fabric", "switches", key), what, "put it in one", ("fabric", "switches", tier))


def of_hosts(
    fabric: Tree,  # an intent without problems
    cabled: Mapping[str, Sequence[Tree]],  # `leaf_ports` of each switch of the inventory
    nics: Mapping[str, Sequence[Tree]],  # `fabric_nics` of each host
    inventory: Collection[str],  # hosts of the group `switches`
) -> Iterator[tuple[str | None, Problem]]:
    """Yield (host or None, what is wrong) between links, the hosts' cabling and the inventory's switches."""
    found, kept_off = links(fabric), untouched(fabric)
    for name in sorted(kept_off & set(inventory)):
        what = (
            f"{name} is a host of group switches, and fabric.switches.access says that it must not be touched"
        )
        yield None, Problem(("fabric", "switches", "access", name), what, "take it out of one", (name,))
    if not found:
        return
    ends = {
        end: link.entry
        for link in found
        for end in ((link.leaf, link.leaf_port), (link.spine, link.spine_port))
    }
    for name in sorted({name for name, _ in ends} - set(inventory) - kept_off):
        what = f"fabric.switches.links: {name} is no host of group switches"
        fix = f"add it there, or say fabric.switches.access: {{{name}: none}}"
        yield None, Problem(_AT, what, fix)
    for name, ports in cabled.items():
        for number, entry in enumerate(ports):
            if (entry_of := ends.get((name, str(entry.get("port"))))) is not None:
                what = (
                    f"leaf_ports: {name} {entry.get('port')} carries {entry.get('host')}, and is an end of "
                    f"fabric.switches.links[{entry_of}]"
                )
                at = ("leaf_ports", number, "port")
                yield name, Problem(at, what, "one cable ends in one port", (*_AT, entry_of))
    for host, own in nics.items():
        for number, nic in enumerate(own):
            end = (str(nic.get("leaf")), str(nic.get("leaf_port")))
            if end in ends and not cabled.get(end[0]):
                what = (
                    f"fabric_nics: {nic.get('netdev')} is at {' '.join(end)}, an end of "
                    f"fabric.switches.links[{ends[end]}]"
                )
                at = ("fabric_nics", number, "leaf_port")
                yield host, Problem(at, what, "one cable ends in one port", (*_AT, ends[end]))
    yield from ((None, problem) for problem in _oversubscribed(fabric, found, nics))


def oversubscription(fabric: Tree, nics: Mapping[str, Sequence[Tree]]) -> dict[str, float]:
    """Return by leaf what its hosts can send over what its uplinks carry, where it has both."""
    up: Counter[str] = Counter()
    for link in links(fabric):
        up[link.leaf] += link.speed_gbps  # type: ignore[assignment]
    down: Counter[str] = Counter(str(nic["leaf"]) for own in nics.values() for nic in own if nic.get("leaf"))
    speed = fabric.get("link_speed_gbps") or 0
    return {leaf: down[leaf] * speed / up[leaf] for leaf in down if up[leaf]}


def _oversubscribed(
    fabric: Tree, found: Sequence[Link], nics: Mapping[str, Sequence[Tree]]
) -> Iterator[Problem]:
    said = part(fabric, "switches").get("oversubscription")
    if said is None:
        return
    worst = max(oversubscription(fabric, nics).items(), key=lambda one: one[1], default=None)
    if worst and worst[1] > said + _RATIO_STEP:
        leaf, ratio = worst
        entry = next(link.entry for link in found if link.leaf == leaf)
        count = sum(1 for own in nics.values() for nic in own if nic.get("leaf") == leaf)
        gbps = sum(link.speed_gbps for link in found if link.leaf == leaf)
        what = (
            f"fabric.switches.oversubscription is {said:g} to 1, but {leaf} has {count} host ports of "
            f"{fabric.get('link_speed_gbps')} Gb/s and uplinks of {gbps:g} Gb/s together: {ratio:.3g} to 1"
        )
        yield Problem(
            ("fabric", "switches", "oversubscription"),
            what,
            f"say {ratio:.3g}, or correct the links",
            (*_AT, entry),
        )


def cable_problems(fabric: Tree, switch: str, nos: str, lengths_m: Collection[int]) -> Iterator[Problem]:
    """Yield the cable lengths of a switch's ports for which its platform has no buffer profile.

    `lengths_m`: those that it has one for.
    """
    roce = part(fabric, "roce")
    fix = f"give the next longer of {', '.join(map(str, sorted(lengths_m)))} m"
    own = part(roce, "headroom").get("cable_m")
    where = ("fabric", "roce", "headroom", "cable_m")
    if own is not None and own not in lengths_m:
        what = f"fabric.roce.headroom.cable_m is {own}, and {nos} has no buffers for that length"
        yield Problem(where, what, fix, ("roce_switch_nos",))
    for link in links(fabric):
        if switch in (link.leaf, link.spine) and link.cable_m != own and link.cable_m not in lengths_m:
            name = f"fabric.switches.links[{link.entry}].cable_m"
            # One sentence for all its switches, which are named before it.
            what = f"{name} is {link.cable_m}, and {nos} has no buffers for that length"
            yield Problem((*_AT, link.entry, "cable_m"), what, fix, ("roce_switch_nos",))
            return


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
