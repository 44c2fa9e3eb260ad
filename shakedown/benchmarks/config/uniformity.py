"""Whether members of one class are alike: firmware, drivers and tools of like parts must not differ.

A class is what was sold as one: NICs of one board, GPUs of one name, nodes of one product. A member that
differs from most of its class is odd; without a majority, all of them are odd.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from shakedown.records.snapshot import Component, Snapshot

# For each kind: what makes a class (the first attribute that is there), and what must be alike in it.
_CLASSES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "node": (
        ("product",),
        ("bios_version", "bmc_firmware", "cpu", "cpu_microcode", "os", "kernel", "kernel_options"),
    ),
    "nic": (("psid", "board", "driver"), ("firmware", "driver_version")),
    "gpu": (("name",), ("vbios_version", "driver_version")),
    "software": ((), ("version",)),
}
PARTS = tuple(_CLASSES)


def odd_parts(
    inventory: Snapshot, under_test: Collection[str] | None = None
) -> Iterator[tuple[str, str, int, str]]:
    """Yield (host, kind, how many attributes are odd, which) for every host and kind that it has.

    Hosts that are no nodes (switches) are left out: their kinds differ by design. `under_test`: the nodes
    that must have the tools that others of their product have; a submit host need not. None: all nodes.
    """
    nodes = {c.host for c in inventory.components if c.kind == "node"}
    parts = [part for part in inventory.components if part.host in nodes and part.kind in _CLASSES]
    counted: dict[tuple[str, str], list[str]] = {}
    values: dict[tuple[str, str, str], list[tuple[Component, str]]] = defaultdict(list)
    classes = _classes_of_silent_nics(parts)
    for part in (*parts, *_missing_tools(parts, nodes if under_test is None else nodes & {*under_test})):
        counted.setdefault((part.host, part.kind), [])
        group = part.name if part.kind == "software" else classes.get((part.host, part.name), _class(part))
        for key in _CLASSES[part.kind][1]:
            values[part.kind, group, key].append((part, part.attributes.get(key, "")))
    for (kind, _, key), members in values.items():
        counts = Counter(value for _, value in members).most_common(2)
        if len(counts) == 1:
            continue
        (first, often), (_, next_often) = counts
        for part, value in members:
            if often > next_often and value == first:
                continue
            what = key if kind == "node" else f"{part.name} {key}"
            most = (
                f"{first or 'nothing'} on {often} others"
                if often > next_often
                else "and the class has no majority"
            )
            counted[part.host, kind].append(f"{what} is {value or 'not there'}, {most}")
    for (host, kind), odd in counted.items():
        yield host, kind, len(odd), "; ".join(odd)


def _class(part: Component) -> str:
    return next((part.attributes[key] for key in _CLASSES[part.kind][0] if part.attributes.get(key)), "")


def _missing_tools(parts: Collection[Component], under_test: Collection[str]) -> Iterator[Component]:
    """Yield, without a version, each tool that a node told nothing of and others of its product have.

    A node that told of no tool at all is not held against the others: nothing is known of it.
    """
    products = {part.host: part.attributes.get("product", "") for part in parts if part.kind == "node"}
    tools: dict[str, set[str]] = defaultdict(set)
    of_product: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        if part.kind == "software" and part.host in under_test:
            tools[part.host].add(part.name)
            of_product[products[part.host]].add(part.name)
    for host, own in tools.items():
        for name in sorted(of_product[products[host]] - own):
            yield Component(host=host, kind="software", name=name)


def _classes_of_silent_nics(parts: Collection[Component]) -> dict[tuple[str, str], str]:
    """Return, by host and name, the class of RDMA NICs that told neither their board nor their firmware.

    One that does not answer is of the class that most NICs of its driver have, or, if it did not tell even
    that, most of its name: alone in a class of its own it would be like all others of it.
    """
    akin: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    silent: list[Component] = []
    for part in parts:
        told = part.attributes
        if part.kind != "nic" or not told.get("rdma_device"):
            continue
        if told.get("firmware"):
            akin["driver", told.get("driver", "")][_class(part)] += 1
            akin["name", part.name][_class(part)] += 1
        elif not (told.get("psid") or told.get("board")):
            silent.append(part)
    found: dict[tuple[str, str], str] = {}
    for part in silent:
        driver = part.attributes.get("driver", "")
        if alike := akin.get(("driver", driver) if driver else ("name", part.name)):
            found[part.host, part.name] = min(alike, key=lambda name: (-alike[name], name))
    return found
