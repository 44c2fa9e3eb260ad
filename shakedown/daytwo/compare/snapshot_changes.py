"""What differs between two inventories: the one thing that was changed on purpose, and everything else.

A comparison of two runs answers for one component only if nothing else changed; so every difference counts
but those that are a state and not a part (`STATES`), and the few kilobytes by which a kernel's memory varies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from shakedown.records.errors import BadInput
from shakedown.records.results import Component, Snapshot

KINDS = ("node", "nic", "gpu", "cable", "switch", "software", "setting")
# Outcomes rather than parts: a link that trains at another rate is what a comparison should find.
STATES = frozenset({("nic", "speed_mbps")})
# MemTotal is what the kernel left over at this boot; a memory module is far more than this share.
_MEMORY_SHARE = 0.01

# One thing that is seen in several places: the inventory has a NIC's MTU, the config stage reads it back, and
# the kernel makes the RDMA MTU follow it (iboe_get_mtu in include/rdma/ib_addr.h).
_ALSO_SEEN_AS = {
    "nic.mtu_bytes": ("setting.mtu.host_bytes", "setting.mtu.rdma_bytes"),
    "setting.mtu.host_bytes": ("nic.mtu_bytes", "setting.mtu.rdma_bytes"),
}

PartKey = tuple[str, str, str]  # host, kind, name


@dataclass(frozen=True, order=True)
class Change:
    """One attribute that differs. None: the part was not there."""

    host: str
    kind: str
    name: str
    attribute: str
    before: str | None
    after: str | None

    @property
    def component(self) -> str:
        """What a person calls it: `nic.firmware`, `software.openmpi`, `node.kernel`."""
        part = self.name if self.kind == "software" else self.attribute
        return f"{self.kind}.{part}" if part else self.kind

    def __str__(self) -> str:
        old, new = (text if text is not None else "not there" for text in (self.before, self.after))
        name = f" {self.name}" if self.kind not in {"node", "switch"} else ""
        attribute = f" {self.attribute}" if self.attribute else ""
        return f"{self.host} {self.kind}{name}{attribute}: {old or 'nothing'} -> {new or 'nothing'}"


def differences(before: Snapshot, after: Snapshot) -> list[Change]:
    """Return every change between two snapshots of the same hosts, in order."""
    return sorted(part_differences(_parts(before.components), _parts(after.components)))


def part_differences(
    before: Mapping[PartKey, Mapping[str, str]], after: Mapping[PartKey, Mapping[str, str]]
) -> Iterator[Change]:
    """Yield every change between two sets of parts, given as attributes by (host, kind, name)."""
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            yield Change(*key, "", None if old is None else "there", None if new is None else "there")
            continue
        for attribute in old.keys() | new.keys():
            was, now = old.get(attribute), new.get(attribute)
            if was != now and (key[1], attribute) not in STATES and not _same_memory(attribute, was, now):
                yield Change(*key, attribute, was, now)


@dataclass(frozen=True)
class Named:
    """The component that was changed on purpose, as the user names it."""

    kind: str
    part: str | None  # an attribute, or the name of a piece of software; None: anything of the kind

    def covers(self, change: Change) -> bool:
        """Whether a change is the named one, or the same seen elsewhere."""
        if change.component in _ALSO_SEEN_AS.get(str(self), ()):
            return True
        if change.kind != self.kind:
            return False
        return self.part is None or self.part == (
            change.name if self.kind == "software" else change.attribute
        )

    def __str__(self) -> str:
        return self.kind if self.part is None else f"{self.kind}.{self.part}"


def named(text: str) -> Named:
    """Read `nic.firmware`, `software.openmpi` or `nic`. Raises BadInput."""
    kind, _, part = text.partition(".")
    if kind not in KINDS:
        raise BadInput(f"{text!r} names no component", fix=f"KIND or KIND.PART, KIND of {', '.join(KINDS)}")
    return Named(kind, part or None)


def _parts(components: Iterable[Component]) -> dict[PartKey, dict[str, str]]:
    return {(c.host, c.kind, c.name): c.attributes for c in components}


def _same_memory(attribute: str, was: str | None, now: str | None) -> bool:
    if attribute != "memory_kib" or not (was and now and was.isdecimal() and now.isdecimal()):
        return False
    return abs(int(was) - int(now)) <= _MEMORY_SHARE * max(int(was), int(now))
