"""A site as one object, with its uplinks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny, model_validator

from shakedown.intent import links, rules
from shakedown.intent.acceptance import AcceptanceBase
from shakedown.intent.ordered import Ordered
from shakedown.intent.slurm_block import JobTime, SlurmBlock
from shakedown.intent.software import Sources
from shakedown.records.base import Name, NicSpec, PortName, Record
from shakedown.records.plan import Waiver

# Unknown keys of the intent are refused: a misspelt key would silently leave a default in force.

Priority = Annotated[int, Field(ge=rules.EIGHT[0], le=rules.EIGHT[1])]
Dscp = Annotated[int, Field(ge=rules.DSCP[0], le=rules.DSCP[1])]


class Cnp(Record):
    """How congestion notification packets travel."""

    dscp: Dscp
    priority: Priority
    traffic_class: Priority
    queue: Priority
    scheduler: Literal["strict", "dwrr"] = "strict"


class Ecn(Record):
    """Marking thresholds of the RoCE queue."""

    min_bytes: int = Field(gt=0)
    max_bytes: int = Field(gt=0)
    mark_percent: float = Field(gt=0, le=100)


class Watchdog(Record):
    """PFC watchdog."""

    detect_ms: int = Field(gt=0)
    restore_ms: int = Field(gt=0)
    action: Literal["drop", "forward", "alert"]


class Pfc(Record):
    """Priority flow control on the RoCE priority."""

    enabled: bool
    watchdog: Watchdog | None = None


class Headroom(Record):
    """What the lossless headroom is computed from."""

    cable_m: int = Field(ge=rules.CABLE_M[0], le=rules.CABLE_M[1])


class RoceClass(Record):
    """The RoCE class, the same on hosts and switches."""

    dscp: Dscp
    priority: Priority
    traffic_class: Priority
    queue: Priority
    ect: bool = True
    cnp: Cnp
    ecn: Ecn
    pfc: Pfc
    headroom: Headroom | None = None

    @property
    def tclass(self) -> int:
        """The traffic class byte: DSCP in the upper six bits, ECT(0) = 2 below (RFC 2474, RFC 3168)."""
        return self.dscp << 2 | (2 if self.ect else 0)


class Mtu(Record):
    """MTU of switch ports, host interfaces and RDMA paths, in bytes."""

    link: int = Field(ge=rules.LINK_MTU[0], le=rules.LINK_MTU[1])
    host: int = Field(ge=rules.HOST_MTU[0], le=rules.HOST_MTU[1])
    rdma: Literal[256, 512, 1024, 2048, 4096]


class Rail(Record):
    """One rail: NIC i of every node."""

    name: Name
    subnet: str


class SwitchLinks(Record):
    """Links between leaves and spines: one by its four names, or many by rule.

    The rule: port i of leaf j goes to port j of spine i; with n cables each, ports i n to i n + n - 1.
    """

    leaf: Name | None = None
    leaf_port: PortName | None = None
    spine: Name | None = None
    spine_port: PortName | None = None
    leaves: tuple[Name, ...] = ()
    leaf_ports: tuple[PortName, ...] = ()
    spines: tuple[Name, ...] = ()
    spine_ports: tuple[PortName, ...] = ()
    speed_gbps: int | None = Field(default=None, gt=0)  # None: fabric.link_speed_gbps
    cable_m: int | None = Field(
        default=None, ge=rules.CABLE_M[0], le=rules.CABLE_M[1]
    )  # None: the headroom's


class Switches(Record):
    """The fabric's switches by role, and the links between them."""

    leaves: tuple[Name, ...] = ()
    spines: tuple[Name, ...] = ()
    uplinks_per_leaf_per_spine: int = Field(default=0, ge=0)
    links: tuple[SwitchLinks, ...] = ()  # every cable between two switches; none: not known
    pods: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)  # leaves of each pod; none: all are one
    planes: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)  # spines of each plane
    # How a leaf chooses among its uplinks: ecmp by a flow's hash, adaptive by their load. None: not known.
    routing: Literal["ecmp", "adaptive"] | None = None
    # What a leaf's hosts can send over what its uplinks carry, at most; 1 is none. None: as the links are.
    oversubscription: float | None = Field(default=None, ge=1, le=64)
    access: dict[Name, Literal["none"]] = Field(default_factory=dict)  # switches that must not be touched


class NoFabric(Record):
    """A site without a RoCE fabric: single hosts, or `tcp_fabrics` alone. A forgotten fabric is refused."""

    system: Name
    profile: Name
    no_fabric: Literal[True]
    rails: tuple[()] = ()


class Fabric(Record):
    """The fabric intent (`group_vars/all/fabric.yml`)."""

    system: Name
    profile: Name
    link_speed_gbps: int = Field(gt=0)
    mtu_bytes: Mtu
    ip_version: Literal[4, 6] = 4
    roce: RoceClass
    rails: tuple[Rail, ...] = Field(min_length=1)
    switches: Switches = Switches()

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> Fabric:
        intent = self.model_dump()
        if problems := [*rules.intent_problems(intent), *links.problems(intent)]:
            raise rules.Contradiction(problems)
        return self


class TcpFabric(Record):
    """A network beside the RoCE fabric, which collectives are measured over by TCP. It is not configured."""

    name: Name  # as acceptance and references (`configuration`) call it; never roce or tcp
    link_speed_gbps: int = Field(gt=0)  # rate of one host port, Gb/s (10^9 bit/s)
    mtu_bytes: int = Field(ge=rules.HOST_MTU[0], le=rules.HOST_MTU[1])  # of the interfaces
    subnet: str  # such as 10.20.0.0/24


class TcpNic(Record):
    """A node's interface in a TCP fabric."""

    fabric: Name  # of tcp_fabrics; each node has one interface in each
    netdev: Name  # no NIC of fabric_nics
    ipv4: str  # with its prefix length, in the fabric's subnet


class LinkPort(Record):
    """A port of a switch that leads to another switch."""

    port: Name
    role: Literal["uplink", "spine"]  # uplink: of a leaf; spine: of a spine, towards a leaf
    peer: Name
    peer_port: Name
    speed_gbps: float = Field(gt=0)


class SwitchHost(Record):
    """One switch of the inventory with the cabling of its ports."""

    name: Name
    nos: Name
    ports: tuple[tuple[str, str, str, str], ...]  # port, host, netdev, rail
    uplinks: tuple[LinkPort, ...] = ()  # its ports to other switches
    # The counters that a reading of its system always has, of each port and of each rail; none: not read.
    reports: tuple[Name, ...] = ()
    reports_of_rails: tuple[Name, ...] = ()
    may_report: tuple[Name, ...] = ()  # judged where a port has them


class AbsentNode(Record):
    """A node of the cluster that the folder cannot describe, because it did not answer."""

    why: str = Field(min_length=1, max_length=300)
    # Who signs that acceptance goes on without it. None: it is a cell that is NOT-RUN.
    taken_out_by: Annotated[str, Field(min_length=2, max_length=100)] | None = None


class Site(Record):
    """Everything that planning needs to know."""

    fabric: Fabric | NoFabric
    # Facts that are not true of all nodes are left out of its scope; see `own`.
    acceptance: SerializeAsAny[AcceptanceBase]
    # Of every node, where nodes differ.
    own: dict[Name, SerializeAsAny[AcceptanceBase]] = Field(default_factory=dict)
    nics: dict[Name, tuple[NicSpec, ...]]  # by compute node
    addresses: dict[Name, str]  # management address, by compute node
    switches: tuple[SwitchHost, ...] = ()
    gpus: dict[Name, int] = Field(default_factory=dict)  # how many each compute node has
    # Nodes with a GPU that another node of the inventory has too, as it says (`shared: true` of a GPU).
    shared_gpus: tuple[Name, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    absent_nodes: dict[Name, AbsentNode] = Field(default_factory=dict)
    job_time: JobTime | None = None  # None: not known, or made from the plan (role slurm)
    slurm: SlurmBlock = SlurmBlock()
    software: Sources = Field(default_factory=dict)  # what it says nothing of is the system's own
    ordered: Ordered | None = None  # what was bought, if the site says it
    tcp_fabrics: tuple[TcpFabric, ...] = ()
    tcp_nics: dict[Name, tuple[TcpNic, ...]] = Field(default_factory=dict)  # by compute node

    @model_validator(mode="after")
    def _absent_nodes_are_not_described(self) -> Site:
        if both := sorted(self.absent_nodes.keys() & self.nics.keys()):
            raise ValueError(f"absent_nodes: {both[0]} is in group compute too; take it out of one of them")
        return self

    @model_validator(mode="after")
    def _no_fabric_means_none(self) -> Site:
        if isinstance(self.fabric, NoFabric):
            if any(self.nics.values()) or self.switches:
                raise ValueError("no_fabric is for compute nodes without fabric_nics and switches")
            asked = list(self.acceptance.asked())
            if any(section.needs_fabric for section, _ in asked):
                *first, last = [section.key for section in self.acceptance.sections if section.needs_fabric]
                raise ValueError(f"no_fabric: leave {', '.join(first)} and {last} out of acceptance")
            together = [section for section, what in asked if section.joins_nodes(what)]
            # A TCP network may be all that there is; it is described then.
            if len(self.nics) > 1 and together and not self.tcp_fabrics:
                ways = ", ".join(section.alone or f"leave {section.key} out" for section in together)
                raise ValueError(
                    f"no_fabric: several nodes at once have a network, which must be described (tcp_fabrics "
                    f"where it is TCP); {ways}"
                )
        return self

    def of(self, node: str) -> AcceptanceBase:
        """Return what one node is asked for by itself."""
        return self.own.get(node, self.acceptance)

    def network(self) -> Fabric:
        """Return the fabric. Raises ValueError on a site that has none."""
        if isinstance(self.fabric, NoFabric):
            raise ValueError(f"{self.fabric.system} is of single hosts, without a fabric")
        return self.fabric


def oversubscription_percent(site: Site) -> int | None:
    """Return what a leaf's hosts can send over what its uplinks carry, in per cent; None: it is not known.

    The worst of all leaves, and never less than 100: uplinks that carry more are no help to a host.
    """
    fabric = site.network()
    stated = fabric.switches.oversubscription
    nics = {node: [nic.model_dump() for nic in own] for node, own in site.nics.items()}
    measured = links.oversubscription(fabric.model_dump(), nics)
    if measured:
        return max(100, round(100 * max(measured.values())))
    return None if stated is None else round(100 * stated)


def hosts_on_uplink(site: Site) -> float:
    """Return the most flows, each as fast as a host's link, that a hash can put on one uplink; 1: unknown."""
    fabric = site.network()
    worst = 1.0
    ports: dict[str, int] = {}
    for own in site.nics.values():
        for nic in own:
            if nic.leaf:
                ports[nic.leaf] = ports.get(nic.leaf, 0) + 1
    for link in links.links(fabric.model_dump()):
        worst = max(worst, ports.get(link.leaf, 0) * fabric.link_speed_gbps / link.speed_gbps)
    return worst
