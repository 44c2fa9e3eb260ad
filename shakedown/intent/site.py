"""The site as its inventory describes it: fabric intent, nodes, switches and what acceptance must measure.

Unknown keys of the intent are refused: a misspelt key would silently leave a default in force.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from shakedown.benchmarks.gpu.options import GpuNode, Nccl, TorchCollectives
from shakedown.benchmarks.interconnect.options import Inference, Interconnect
from shakedown.benchmarks.lora.options import TrainingSpec
from shakedown.intent import rules
from shakedown.plan.jobs import NicSpec
from shakedown.records.records import Name, Record

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


class Switches(Record):
    """The fabric's switches by role."""

    leaves: tuple[Name, ...] = ()
    spines: tuple[Name, ...] = ()
    uplinks_per_leaf_per_spine: int = Field(default=0, ge=0)


class NoFabric(Record):
    """A site of single hosts, without a fabric under test. It must say so: a forgotten fabric is refused."""

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
        if problems := rules.intent_problems(self.model_dump()):
            raise rules.Contradiction(problems)
        return self


class PerftestTest(Record):
    """One perftest test of the fabric stage."""

    test: Literal["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"]
    size_bytes: int = Field(gt=0)
    duration_s: int | None = Field(default=None, gt=0)
    iterations: int | None = Field(default=None, gt=0)
    rails_at_once: tuple[Literal["one", "all"], ...] = ("one",)
    # Also from each rail to the next, which crosses the spines; hosts need a route from rail to rail.
    cross_rail: bool = False

    @model_validator(mode="after")
    def _one_length(self) -> PerftestTest:
        if self.cross_rail and self.rails_at_once != ("one",):
            raise ValueError("cross_rail is measured rail by rail: leave rails_at_once at [one]")
        if (self.duration_s is None) == (self.iterations is None):
            raise ValueError("give exactly one of duration_s and iterations")
        if self.test.endswith("_lat") and self.iterations is None:
            raise ValueError("latency percentiles need iterations; perftest has none in duration mode")
        return self


class Sweep(Record):
    """Message sizes of an MPI benchmark; each needs a reference."""

    min_bytes: int = Field(gt=0, multiple_of=4)
    max_bytes: int = Field(gt=0, multiple_of=4)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(default=10, gt=0)


class Mpi(Record):
    """The MPI benchmarks of the collective stage."""

    pingpong: Sweep | None = None
    allreduce: Sweep | None = None


class ConfigStage(Record):
    """What the NICs of this site can show in the config stage; real ones show everything."""

    dcb: bool = True
    link_speed: bool = True
    # Targets of roles/host_settings that concern the whole node.
    targets: tuple[Literal["environment", "gpudirect", "pinning"], ...] = ("environment",)


class Acceptance(Record):
    """What acceptance measures at this site (`group_vars/all/acceptance.yml`)."""

    config: ConfigStage | None = None  # None: settings are not read back
    perftest: tuple[PerftestTest, ...] = ()
    mpi: Mpi = Mpi()
    interconnect: Interconnect | None = None
    inference: Inference | None = None
    lora: tuple[TrainingSpec, ...] = ()
    gpu_node: GpuNode | None = None
    nccl: Nccl | None = None
    torch: TorchCollectives | None = None
    # References beyond the fabric's own profile.
    profiles: tuple[Name, ...] = ()
    # Facts for matching references, such as gpu: H100-SXM.
    scope: dict[Name, int | str] = Field(default_factory=dict)
    measurement_timeout_s: int = Field(default=60, gt=0)
    # Retransmission timer of perftest's queue pairs (ibv_modify_qp, 4.096 us x 2^n); for slow hosts.
    qp_timeout: int | None = Field(default=None, ge=1, le=31)
    counter_tests: bool = True
    caveats: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _each_cell_has_one_job(self) -> Acceptance:
        for (test, size), count in Counter((t.test, t.size_bytes) for t in self.perftest).items():
            if count > 1:
                raise ValueError(f"perftest names {test} with {size} bytes {count} times; once is enough")
        return self


class NodeOptions(Record):
    """The part of acceptance that may differ from node to node, because each is measured by itself."""

    scope: dict[Name, int | str] = Field(default_factory=dict)
    interconnect: Interconnect | None = None
    inference: Inference | None = None


class SwitchHost(Record):
    """One switch of the inventory with the cabling of its host ports."""

    name: Name
    nos: Name
    ports: tuple[tuple[str, str, str, str], ...]  # port, host, netdev, rail
    # The counters that a reading of its system always has, of each port and of each rail; none: not read.
    reports: tuple[Name, ...] = ()
    reports_of_rails: tuple[Name, ...] = ()


class Site(Record):
    """Everything that planning needs to know."""

    fabric: Fabric | NoFabric
    # Facts that are not true of all nodes are left out of its scope; see `own`.
    acceptance: Acceptance
    own: dict[Name, NodeOptions] = Field(default_factory=dict)  # of every node, where nodes differ
    nics: dict[Name, tuple[NicSpec, ...]]  # by compute node
    addresses: dict[Name, str]  # management address, by compute node
    switches: tuple[SwitchHost, ...] = ()
    gpus: dict[Name, int] = Field(default_factory=dict)  # how many each compute node has

    @model_validator(mode="after")
    def _no_fabric_means_none(self) -> Site:
        if isinstance(self.fabric, NoFabric):
            if any(self.nics.values()) or self.switches:
                raise ValueError("no_fabric is for compute nodes without fabric_nics and switches")
            asked = self.acceptance
            if asked.config or asked.perftest:
                raise ValueError("no_fabric: leave config and perftest out of acceptance")
            nccl = [set(sweep.nodes) for sweep in asked.nccl.sweeps] if asked.nccl else []
            torch = asked.torch is not None and asked.torch.nodes != 1
            together = asked.mpi != Mpi() or asked.lora or torch or any(nodes != {1} for nodes in nccl)
            if len(self.nics) > 1 and together:
                raise ValueError(
                    "no_fabric: several nodes at once have a network, which must be described; "
                    "leave mpi and lora out and give nccl.sweeps nodes: [1], torch nodes: 1"
                )
        return self

    def of(self, node: str) -> NodeOptions:
        """Return what one node is asked for by itself."""
        asked = self.acceptance
        same = NodeOptions(scope=asked.scope, interconnect=asked.interconnect, inference=asked.inference)
        return self.own.get(node, same)

    def network(self) -> Fabric:
        """Return the fabric. Raises ValueError on a site that has none."""
        if isinstance(self.fabric, NoFabric):
            raise ValueError(f"{self.fabric.system} is of single hosts, without a fabric")
        return self.fabric
