"""NIC counters of a job, and its folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shakedown.nics.counter_sets import by_known_names, traffic_of_bnxt_back
from shakedown.nics.families import family_of
from shakedown.nics.rates import impossible
from shakedown.records.base import CounterValue, Name
from shakedown.records.reading import BadInput, read_as, read_evidence
from shakedown.records.results import unanswered, went_back

# Eleven NICs with two thousand counters each have 1.5 MB; 60 MB of them took 35 s and 3 GB.
_LARGEST = 4 << 20
# Kept in 64 bits, so they never wrap: one that is less than before was set back, by a restart of the node or
# of a driver, and all others of the device with it. The kernel's own (rtnl_link_stats64), and those of mlx5's
# port, which a reset of the firmware clears (en_stats.c). Those of bnxt's rings are as wide as the chip's.
_NEVER_BACK = (
    *(f"netdev.{way}_{unit}" for way in ("rx", "tx") for unit in ("packets", "bytes")),
    *(f"ethtool.{way}_{unit}_phy" for way in ("rx", "tx") for unit in ("packets", "bytes")),
)
_OF_RXE = ("rdma.sent_pkts", "rdma.rcvd_pkts")  # rxe_hw_counters.c; of 32 bits on some machines


_Source = Annotated[str, Field(min_length=1, max_length=128)]
_Why = Annotated[str, Field(min_length=1, max_length=300)]


class _Device(BaseModel):
    """One RDMA device. What else a file says of it is for people."""

    model_config = ConfigDict(strict=True)

    device: Name
    counters: dict[Name, CounterValue]
    netdev: Annotated[str, Field(max_length=64)] | None = None
    driver: Annotated[str, Field(max_length=64)] | None = None
    # Of its network device. One that is made anew, as by a reload of the driver, has another.
    ifindex: int | None = None
    # Of the RDMA device in sysfs, likewise: RDMA's driver may be loaded anew while the netdev's stays.
    inode: int | None = None
    speed_mbps: int | None = None
    # Which counters could not be read, by name or by source ("fec."), and why (onnode/counters.py).
    unread: dict[_Source, _Why] = Field(default_factory=dict)
    # When, by the node's own clock that never steps.
    read_at_s: Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _unanswered_is_unread(self) -> Self:
        for name in [name for name, value in self.counters.items() if unanswered(value)]:
            self.unread[name] = f"the driver said {self.counters.pop(name)}"
        return self


_Count = Annotated[int, Field(ge=0, lt=1 << 64)]
_Words = Annotated[str, Field(max_length=400)]
_Cpu = Annotated[str, Field(pattern="^[0-9]{1,5}$")]


class OtherProcess(BaseModel):
    """A process that was not the job's: who it is, the CPU time that it has used, and where it may run."""

    model_config = ConfigDict(strict=True)

    pid: _Count
    began: _Count
    uid: _Count
    name: _Words
    cpu_s: Annotated[float, Field(ge=0, lt=1e12)]
    cpus: _Words


class HostReading(BaseModel):
    """What else a node's CPUs did, and how it sends on its rails (onnode/host.py)."""

    model_config = ConfigDict(strict=True)

    at_s: Annotated[float, Field(ge=0, lt=1e12)]
    cpus: Annotated[int, Field(ge=1, le=1 << 16)]
    others: list[OtherProcess] | None
    queue_pairs: dict[_Words, list[_Words]]
    stolen_ms: dict[_Cpu, _Count]
    hot_ms: dict[_Cpu, _Count]
    octets: dict[_Words, tuple[_Count, _Count]]
    carriers: dict[_Words, _Count] = Field(default_factory=dict)  # releases before 0.3 do not tell
    serve: dict[_Words, list[_Count]]
    astray: list[dict[Literal["rail", "to", "words"], _Words]]
    answered: list[dict[Literal["rail", "to"], _Words]] | None = None  # None: not asked before 0.3
    answered_long: list[dict[Literal["rail", "to"], _Words]] | None = None  # the same, by whole packets


class _File(BaseModel):
    model_config = ConfigDict(strict=True)

    # Whose reading it is, as the node that wrote it says. Not every reading of old says so.
    node: Name | None = None
    when: Literal["before", "after"] | None = None
    boot_id: Annotated[str, Field(max_length=64)] | None = None
    taken: Annotated[str, Field(max_length=64)] | None = None
    took_s: Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)] | None = None
    host: HostReading | None = None
    devices: tuple[_Device, ...]


@dataclass(frozen=True)
class About:
    """What a reading says of a device beside its counters; None: readings of old did not say it."""

    driver: str | None = None
    ifindex: int | None = None
    speed_mbps: int | None = None
    read_at_s: float | None = None
    inode: int | None = None
    netdev: str | None = None
    # Which counters could not be read, by name or by source, and why.
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeCounters:
    """One reading of a node: its counters by RDMA device, and boot and time (RFC 3339), if they are known.

    `took_s`: how long the whole node was read, part of the job's time.
    """

    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    boot_id: str | None = None
    taken: str | None = None
    about: Mapping[str, About] = field(default_factory=dict)
    took_s: float | None = None
    host: HostReading | None = None

    def began_anew(self, later: NodeCounters, device: str) -> bool:
        """Whether a device counts from zero again in a later reading, so that differences mean nothing."""
        if self.boot_id and later.boot_id and self.boot_id != later.boot_id:
            return True
        first, last = self.about.get(device, About()), later.about.get(device, About())
        if first.ifindex and last.ifindex and first.ifindex != last.ifindex:
            return True
        if first.inode and last.inode and first.inode != last.inode:
            return True
        before, after = self.devices.get(device, {}), later.devices.get(device, {})
        never = [*_NEVER_BACK, *(name for name in _OF_RXE if before.get(name, 0) < 1 << 31)]
        return went_back(before, after, never) or traffic_of_bnxt_back(before, after)


WHEN = ("before", "after")


def counters_file(node: str, when: str) -> str:
    """Return the name of the file with what a node's NICs counted before or after a job."""
    return f"counters.{node}.{when}.json"


def read_before_and_after(folder: Path, node: str) -> tuple[NodeCounters, NodeCounters]:
    """Return what a node counted before and after a job. Raises BadInput as `read_counters` does."""
    before, after = (read_counters(folder / counters_file(node, when)) for when in WHEN)
    return before, without_impossible(before, after)


def without_impossible(before: NodeCounters, after: NodeCounters) -> NodeCounters:
    """Return a later reading in which what grew by more than can have happened was not read."""
    devices, about = dict(after.devices), dict(after.about)
    for device in before.devices.keys() & after.devices.keys():
        was, now = before.about.get(device, About()), after.about.get(device, About())
        timed = was.read_at_s is not None and now.read_at_s is not None
        seconds = now.read_at_s - was.read_at_s if timed else None  # type: ignore[operator]
        speed = max(was.speed_mbps or 0, now.speed_mbps or 0)
        if odd := impossible(before.devices[device], after.devices[device], seconds, speed):
            devices[device] = {name: n for name, n in devices[device].items() if name not in odd}
            about[device] = replace(now, unread={**now.unread, **odd})
    return replace(after, devices=devices, about=about)


def read_counters(path: Path) -> NodeCounters:
    """Return one node's counters; an absent file is no counters at all.

    Raises BadInput: no plain file, or something in it is no 64-bit counter.
    """
    if not os.path.lexists(path):
        return NodeCounters()
    again = "run the job again: its counters are damaged"
    found = read_as(_File, read_evidence(path, _LARGEST), file=path, about="not a counter file", fix=again)
    # counters.NODE.WHEN.json: a node's name may have dots.
    named = path.name.removeprefix("counters.").removesuffix(".json").rpartition(".")
    for said, due in ((found.node, named[0]), (found.when, named[2])):
        if said is not None and said != due:
            raise BadInput(
                f"says that it is of {said}, its name says {due}",
                fix="run the job again: what another node or time counted proves nothing here",
                file=path,
            )
    names = [entry.device for entry in found.devices]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(
            f"has {twice} twice", fix="run the job again: which of the two was counted is unknown", file=path
        )
    return NodeCounters(
        {e.device: by_known_names(family_of(e.driver, e.device), e.counters) for e in found.devices},
        found.boot_id,
        found.taken,
        {
            e.device: About(e.driver, e.ifindex, e.speed_mbps, e.read_at_s, e.inode, e.netdev, e.unread)
            for e in found.devices
        },
        found.took_s,
        found.host,
    )


T = TypeVar("T")


@dataclass(frozen=True)
class JobFolder:
    """A job's folder, read file by file."""

    path: Path
    _known: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, read: Callable[[Path, str], T], name: str) -> T:
        """Return `read(folder, name)`: a file that each of many outputs is held against is read once."""
        return self.kept((read, name), lambda: read(self.path, name))

    def kept(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return what was made under this key, made now if it is the first time."""
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found

    def holds(self, name: str) -> bool:
        """Return whether there is something of that name."""
        return os.path.lexists(self.path / name)

    def text(self, name: str) -> str:
        """Return a file's text. Raises BadInput for what is no plain file of UTF-8."""
        file = self.path / name
        if file.name != name:
            raise BadInput(f"{name[:80]!r} is no name of a file in here", file=self.path)
        try:
            return read_evidence(file).decode("utf-8")
        except UnicodeDecodeError:
            raise BadInput("is not text", file=file) from None

    def counters(self, node: str) -> tuple[NodeCounters, NodeCounters]:
        """Return what a node's NICs counted before and after the job. Raises BadInput."""
        return read_before_and_after(self.path, node)
