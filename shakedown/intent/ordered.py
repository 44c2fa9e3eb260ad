"""What was bought (`ordered:` in group_vars/all/ordered.yml): classes of nodes and switches, item by item."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, model_validator

from shakedown.intent.places import expanded, problems_of
from shakedown.intent.rules import Problem
from shakedown.records.base import Name, Record, shape
from shakedown.records.reading import BadInput, nearest

KEY = "ordered"
_UNITS = {"MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,3})?) ?([A-Za-z]{1,4})\Z")
# What vendors write behind a GPU's name, and nvidia-smi does not (an A100's SXM4 it does).
_UNTOLD = re.compile(r"(?i)\b(?:sxm5|sxm6|hgx|dgx|oam)\b")


def words(text: str) -> set[str]:
    """Return the words of a model's name, without marks of trade: `Intel(R) Xeon(R) Gold 6430`."""
    plain = re.sub(r"\((?:r|tm|c)\)", " ", text.lower())
    return set(re.findall(r"[a-z0-9][a-z0-9_.+:-]*", plain))


def size_bytes(text: str) -> float:
    """Return a size such as `64 GiB`, as the models have it, in bytes."""
    number, unit = text.split(" ")
    return float(number) * _UNITS[unit]


def _size(text: str, units: Sequence[str], of: str) -> str:
    match = _SIZE.match(text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"a number and one of {', '.join(units)}, please")
    if match[2] not in units:
        raise ValueError(f"{of} is counted in {' or '.join(units)}: {match[2]} is another unit")
    return f"{match[1]} {match[2]}"


def is_model(text: str) -> bool:
    """Whether a text names a model: without its number, all of a maker's would do."""
    return any(sign.isdigit() for sign in text)


def _model(text: str) -> str:
    if not is_model(text):
        raise ValueError("no tool names a model without its number: write what the tool prints")
    return text


def _gpu(text: str) -> str:
    if match := _UNTOLD.search(text):
        raise ValueError(
            f"no tool names {match[0]}: write what nvidia-smi prints, or the profiles' name of it"
        )
    return _model(text)


Text = Annotated[str, shape(r"^[ -~]+$", "plain ASCII on one line", "PowerEdge XE9680", max_length=120)]
Model = Annotated[Text, AfterValidator(_model)]
GpuName = Annotated[Text, AfterValidator(_gpu)]
Memory = Annotated[str, AfterValidator(lambda text: _size(text, ("MiB", "GiB", "TiB"), "memory"))]
Capacity = Annotated[str, AfterValidator(lambda text: _size(text, ("GB", "TB"), "a drive"))]
Number = Annotated[int, Field(ge=0, le=65_536)]


class OrderedCpu(Record):
    """Processors of a node."""

    model: Model | None = None  # words of what /proc/cpuinfo prints
    sockets: Number | None = None  # that hold one
    cores: Number | None = None  # of one socket
    threads_per_core: Number | None = None  # 2 with SMT, 1 without


class OrderedMemory(Record):
    """Memory of a node."""

    size: Memory | None = None  # all of it, such as 2 TiB; the kernel may keep 3 % of it
    modules: Number | None = None  # what follows is told to root, by dmidecode
    module: Memory | None = None  # size of one
    speed_mts: Number | None = None  # as it runs, in millions of transfers a second

    @model_validator(mode="after")
    def _adds_up(self) -> OrderedMemory:
        if not (self.size and self.module and self.modules):
            return self
        if abs(self.modules * size_bytes(self.module) - size_bytes(self.size)) > 2**20:
            raise ValueError(f"{self.modules} modules of {self.module} are not {self.size}")
        return self


class OrderedGpus(Record):
    """GPUs of a node, as nvidia-smi tells them."""

    count: Number  # of one node
    model: GpuName | None = None  # as nvidia-smi or a profile calls it
    memory: Memory | None = None  # of one
    vbios: Text | None = None  # version of its firmware
    power_limit_w: float | None = Field(default=None, gt=0)  # in watts
    nvlinks: Number | None = None  # that are up, of one
    pcie_generation: Number | None = None  # that card and slot can do
    pcie_width: Number | None = None  # lanes in use


class OrderedNics(Record):
    """One kind of NIC in a node."""

    model: Model  # words of what lspci prints, the PSID, the board, or VENDOR:DEVICE
    cards: Number  # in one node
    ports: Number | None = None  # of one card
    rate_gbps: float | None = Field(default=None, gt=0)  # of one port, in Gb/s (10^9 bit/s), with its cable
    firmware: Text | None = None  # its version


class OrderedDrives(Record):
    """One kind of NVMe drive in a node."""

    model: Model  # words of what the drive calls itself
    count: Number  # in one node
    size: Capacity | None = None  # of one
    firmware: Text | None = None  # its revision


class NodeClass(Record):
    """One class of nodes; what it leaves out is not held."""

    nodes: tuple[Text, ...] = Field(min_length=1)  # names, or gpu[001-032]
    count: Number | None = None  # how many were bought
    product: Text | None = None  # words of the board's own name
    cpu: OrderedCpu = OrderedCpu()
    memory: OrderedMemory = OrderedMemory()
    gpus: OrderedGpus | None = None
    nics: dict[Name, OrderedNics] = Field(default_factory=dict)  # by a name of your own
    drives: dict[Name, OrderedDrives] = Field(default_factory=dict)
    bios: Text | None = None  # version
    bmc: Text | None = None  # version of its firmware
    os: Text | None = None  # version
    kernel: Text | None = None  # release
    drivers: dict[Name, Text] = Field(default_factory=dict)  # version by the kernel's name, nvidia among them


class SwitchClass(Record):
    """One class of switches."""

    switches: tuple[Text, ...] = Field(min_length=1)  # names, or leaf[0-7]
    count: Number | None = None  # how many were bought
    model: Text | None = None  # what it prints of itself: each part with a number must be there
    system: Text | None = None  # version of its operating system


class Ordered(Record):
    """What was bought: every node of the site is of one class, and every switch if any is."""

    nodes: dict[Name, NodeClass] = Field(min_length=1)
    switches: dict[Name, SwitchClass] = Field(default_factory=dict)

    def members(self, kind: str) -> Iterator[tuple[str, tuple[str, ...], NodeClass | SwitchClass]]:
        """Yield name, members and class of every class of `nodes` or `switches`. Raises BadInput."""
        for name, one in (self.nodes if kind == "nodes" else self.switches).items():
            where = f"{KEY}.{kind}.{name}.{kind}"
            yield name, tuple(n for text in getattr(one, kind) for n in expanded(text, where)), one


def items(one: NodeClass | SwitchClass) -> dict[str, str]:
    """Return what was bought of each member, by key such as `nics.compute.cards`, in words."""
    told = one.model_dump(exclude={"nodes", "switches", "count"}, exclude_none=True)
    return dict(_flat(told, ""))


def _flat(told: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
    for key, value in told.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", f"{value:g}" if isinstance(value, float) else str(value)


def read(given: Any, nodes: Sequence[str], switches: Sequence[str]) -> tuple[Ordered | None, list[Problem]]:  # noqa: ANN401
    """Return what a site bought, or what is wrong with it; each node must be in one class."""
    if given is None:
        return None, []
    try:
        ordered = Ordered.model_validate(given)
        return ordered, [*_members(ordered, "nodes", nodes), *_members(ordered, "switches", switches)]
    except ValidationError as error:
        return None, problems_of(error, Ordered, (KEY,))
    except BadInput as refused:
        return None, [Problem((KEY,), refused.what, refused.fix)]


def _members(ordered: Ordered, kind: str, there: Sequence[str]) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for name, members, _ in ordered.members(kind):
        at = (KEY, kind, name, kind)
        for member in members:
            if member in owner:
                what = f"{'.'.join(at)}: {member} is of class {owner[member]} too"
                yield Problem(at, what, "name it in one class")
            elif member not in there:
                near = nearest(member, there)
                what = f"{'.'.join(at)}: {member!r:.80} is not in the inventory"
                yield Problem(at, what, f"use {near}" if near else "add it, or take it out and give count")
            owner.setdefault(member, name)
    if (left := [one for one in there if one not in owner]) and (kind == "nodes" or owner):
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        what = f"{KEY}.{kind}: {', '.join(left[:3])}{more} of the inventory is in no class"
        yield Problem((KEY, kind), what, "name its class")
