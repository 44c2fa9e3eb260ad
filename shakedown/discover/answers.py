"""What the machines answered, as one document: from a job, an Ansible pass or a recorded file.

All of it comes from outside. Names end up in files that Ansible reads as templates, so each is held to a
pattern here that holds no brace; what is no name is never written down.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from shakedown.intent.slurm_block import SlurmName
from shakedown.records.base import Name, Record
from shakedown.records.errors import BadInput
from shakedown.records.refusals import refusal
from shakedown.records.untrusted import read_plain
from shakedown.topology.host_map import Topology

# Interfaces (dev_valid_name in the kernel allows more), RDMA devices and drivers.
Device = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]*$")]
_OptionalDevice = Annotated[str, Field(max_length=64, pattern=r"^([A-Za-z0-9][A-Za-z0-9_.@-]*)?$")]
# Ports as switches name them: Ethernet1/1, hundredGigE 1/1, swp3s0.
PORT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_./: -]{0,63}$"
HostName = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


def _interface(text: str) -> str:
    ipaddress.IPv4Interface(text)
    return text


Ipv4 = Annotated[str, Field(max_length=18), AfterValidator(_interface)]


class NicAnswer(Record):
    """One interface of a node."""

    netdev: Device
    mac: Annotated[str, Field(max_length=64, pattern=r"^([0-9a-f]{2}(:[0-9a-f]{2}){5,19})?$")] = ""
    rdma: tuple[Device, ...] = ()
    link_layer: Annotated[str, Field(max_length=32, pattern=r"^[A-Za-z]*$")] = ""  # Ethernet or InfiniBand
    driver: _OptionalDevice = ""
    speed_mbps: int | None = None  # -1: it does not say
    mtu_bytes: int | None = Field(default=None, ge=0, le=1 << 20)
    up: bool = True
    master: _OptionalDevice = ""  # the bond or bridge that it is part of
    virtual_function: bool = False
    ipv4: tuple[Ipv4, ...] = ()

    @property
    def gbps(self) -> int | None:
        """Its rate in Gb/s (10^9 bit/s), or None if it does not say."""
        return self.speed_mbps // 1000 if self.speed_mbps and self.speed_mbps >= 1000 else None


class NodeAnswer(Record):
    """What one node answered (`onnode/discover_probe.py`)."""

    schema_: Literal[1] = Field(alias="schema")
    host: HostName
    topology: Topology
    nics: tuple[NicAnswer, ...]
    default_interfaces: tuple[_OptionalDevice, ...] = ()
    lldp: Annotated[str, Field(max_length=2_000_000)] = ""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


_Way = Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]*$")]


class Connection(Record):
    """How Ansible reaches a host. Nothing else is taken over: other variables may run programs."""

    ansible_host: _Way | None = None
    ansible_port: int | None = Field(default=None, ge=0, le=65535)
    ansible_user: _Way | None = None
    ansible_connection: Literal["ssh", "local", "paramiko", "smart"] | None = None

    def given(self) -> dict[str, int | str]:
        """Return what is known, by variable."""
        return self.model_dump(exclude_none=True)


class Answers(Record):
    """What was asked for a site, and what was answered (`--record FILE`, `--from FILE`)."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    nodes: dict[HostName, NodeAnswer] = Field(min_length=1)
    silent: dict[HostName, Annotated[str, Field(max_length=300)]] = Field(default_factory=dict)  # and why
    addresses: dict[
        HostName, Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
    ] = Field(default_factory=dict)  # under which the nodes are reached, where that is known
    connections: dict[HostName, Connection] = Field(default_factory=dict)  # how Ansible reached them
    submit: HostName | None = None
    partition: Name | None = None
    max_time: Annotated[str, Field(max_length=32, pattern=r"^[0-9:-]*$")] = (
        ""  # of the partition; none: no limit
    )
    # Whose the job was that asked, and in which reservation: what the site's own jobs are to have.
    account: SlurmName | None = None
    qos: SlurmName | None = None
    reservation: SlurmName | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def read_answers(file: Path) -> Answers:
    """Return recorded answers. Raises BadInput naming file and key."""
    fix = "write it with shakedown discover --record FILE"
    raw = read_plain(file, fix)
    if raw is None:
        raise BadInput("no such file", fix=fix, file=file)
    try:
        return Answers.model_validate_json(raw)
    except ValidationError as error:
        raise refusal(error, Answers, file=file, about="not recorded answers", fix=fix) from None


def answers_of(documents: dict[str, object], **more: object) -> Answers:
    """Return the documents of the nodes as answers. Raises BadInput naming the node."""
    nodes = {}
    for name, document in documents.items():
        try:
            nodes[name] = NodeAnswer.model_validate(document)
        except ValidationError as error:
            raise refusal(
                error, NodeAnswer, about=f"the answer of {name[:64]!r}", fix="is it this release's probe?"
            ) from None
    try:
        return Answers.model_validate({"nodes": nodes, **more})
    except ValidationError as error:
        raise refusal(error, Answers, about="the cluster's answers", fix="record them, and look") from None
