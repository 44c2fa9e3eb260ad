"""Whether members of one class are alike: firmware, drivers and tools of like parts must not differ.

A class is what was sold as one: NICs of one board, GPUs of one name, nodes of one product. A member that
differs from most of its class is odd; without a majority, all of them are odd.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

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


def odd_parts(inventory: Snapshot) -> Iterator[tuple[str, str, int, str]]:
    """Yield (host, kind, how many attributes are odd, which) for every host and kind that it has.

    Hosts that are no nodes (switches) are left out: their kinds differ by design.
    """
    nodes = {c.host for c in inventory.components if c.kind == "node"}
    counted: dict[tuple[str, str], list[str]] = {}
    values: dict[tuple[str, str, str], list[tuple[Component, str]]] = defaultdict(list)
    for part in inventory.components:
        if part.host not in nodes or part.kind not in _CLASSES:
            continue
        counted.setdefault((part.host, part.kind), [])
        of_class, alike = _CLASSES[part.kind]
        name = next((part.attributes[key] for key in of_class if part.attributes.get(key)), "")
        group = part.name if part.kind == "software" else name
        for key in alike:
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
