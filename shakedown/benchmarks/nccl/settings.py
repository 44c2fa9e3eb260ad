"""What acceptance asks of nccl-tests, and the settings of one of its jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from shakedown.benchmarks.base.contract import TcpPaths, steps
from shakedown.records.base import Name, Params, Record, shape

Operation = Literal["all_reduce", "all_gather", "alltoall", "broadcast", "reduce_scatter", "sendrecv"]
Launcher = Literal["one-process", "srun", "mpirun"]
Split = Literal["none", "mod", "div"]
Dtype = Literal["float", "half", "bfloat16", "double", "int32", "uint8"]
# Only what steers the communication libraries: nothing of a site's options may load code into a job.
_VARIABLE = shape(
    r"^(NCCL|UCX|OMPI_MCA|PMIX_MCA|CUDA_DEVICE)_[A-Z0-9_a-z]+$",
    "a variable of NCCL_, UCX_, OMPI_MCA_, PMIX_MCA_ or CUDA_DEVICE_",
    "NCCL_IB_QPS_PER_CONNECTION",
)
Variable = Annotated[str, _VARIABLE]


class NcclExpect(Record):
    """Which way the data must go; the log of every measured run is held against it."""

    intra_node: Literal["P2P", "SHM"] = "P2P"
    nvls: bool  # NVLink SHARP
    gdr: bool = True  # GPUDirect RDMA between nodes; where network is socket there is none
    # What carries data between nodes over the site's own network: verbs on Ethernet or on InfiniBand, or TCP
    # over the planned interfaces, or NVLink (MNNVL). A sweep with `network` is over TCP in any case.
    network: Literal["roce", "ib", "socket", "nvlink"] = "roce"
    # Networks of NCCL that carry RDMA and are not known here, by the name that its log has for them.
    plugins: tuple[str, ...] = ()
    pinned: bool = False  # every rank must run on the CPUs of its node's rank file (roles/numa_pinning)


class NcclSweep(Record):
    """Message sizes and operations of nccl-tests; each size needs a reference."""

    operations: tuple[Operation, ...] = Field(min_length=1)
    min_bytes: int = Field(gt=0)
    max_bytes: int = Field(gt=0)
    factor: int = Field(default=2, ge=2)
    dtype: Dtype = "float"
    iterations: int = Field(default=20, gt=0)
    warmup: int = Field(default=5, ge=0)
    repeats: int = Field(default=1, ge=1)  # whole runs; their spread is the noise of the value
    # Smaller messages are judged by their time, larger ones by busbw: each says nothing new about the other.
    time_below_bytes: int = Field(default=1 << 20, ge=0)
    # How many nodes at once, such as [1, 2, all]; empty: all. In a plan of a part, `all` is that part.
    nodes: tuple[Annotated[int, Field(gt=0)] | Literal["all"], ...] = ()
    split: tuple[Split, ...] = ("none",)  # NCCL_TESTS_SPLIT
    tuning: bool = False  # one more run that logs algorithm and protocol of every size
    network: Name | None = None  # a fabric of `tcp_fabrics`, by name; none: the RoCE fabric

    @model_validator(mode="after")
    def _is_a_sweep(self) -> NcclSweep:
        if self.min_bytes > self.max_bytes:
            raise ValueError(f"min_bytes {self.min_bytes} is above max_bytes {self.max_bytes}")
        if len(set(self.operations)) < len(self.operations) or len(set(self.nodes)) < len(self.nodes):
            raise ValueError("an operation or a number of nodes is named twice")
        return self

    def at_once(self, nodes: int) -> tuple[int, ...]:
        """Return how many nodes at once are asked for on a site of so many, each number once."""
        return tuple(dict.fromkeys(nodes if many == "all" else many for many in self.nodes or ("all",)))

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes in bytes, as nccl-tests steps through them."""
        return steps(self.min_bytes, self.max_bytes, self.factor)


class PowerLoad(Record):
    """One load under which the servers' power is read: one message, over and over."""

    bytes: int = Field(gt=0)  # message size
    iterations: int = Field(gt=0)  # long enough for many readings of a BMC


class ServerPower(Record):
    """What servers draw while one message size is moved for a while (`shakedown power` asks their BMCs)."""

    bmc: bool  # False: the site has no access to BMCs, so the cells are planned and not run
    operations: tuple[Operation, ...] = Field(min_length=1)  # programs of nccl-tests
    dtype: Dtype = "float"  # data type
    networks: tuple[Name | None, ...] = (None,)  # as `network` of a sweep
    # By size class of the references.
    loads: dict[Literal["small", "middle", "large"], PowerLoad] = Field(min_length=1)


class Nccl(Record):
    """nccl-tests through Slurm."""

    launchers: tuple[Launcher, ...] = Field(default=("srun",), min_length=1)
    sweeps: tuple[NcclSweep, ...] = Field(min_length=1)
    expect: NcclExpect
    variables: dict[Variable, str] = Field(default_factory=dict)
    power: bool = False  # mean power, energy and temperature of the GPUs, to show; they decide nothing
    server_power: ServerPower | None = None  # absent: not asked for
    run_timeout_s: int = Field(default=300, gt=0)  # one run of one program; then it hangs and is ended

    @model_validator(mode="after")
    def _each_cell_has_one_job(self) -> Nccl:
        asked = [
            (operation, sweep.dtype, nodes, sweep.network)
            for sweep in self.sweeps
            for operation in sweep.operations
            for nodes in sweep.nodes or ("all",)
        ]
        if len(set(asked)) < len(asked):
            raise ValueError(
                "two sweeps share an operation, data type, number of nodes and network: make them one"
            )
        return self


class ExpectedWay(NcclExpect):
    """Which way the data must go, and over which RDMA devices of each node.

    `interfaces`: over these of each node, by TCP; none: by RoCE over `nics`.
    """

    nics: dict[str, tuple[str, ...]]
    interfaces: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class NcclSettings(Record):
    """One sweep on one group of nodes by one launcher."""

    operations: tuple[Operation, ...]
    min_bytes: int
    max_bytes: int
    factor: int
    dtype: str
    iterations: int
    warmup: int
    repeats: int
    time_below_bytes: int
    tuning: bool
    split: Split = "none"
    network: str = ""  # the TCP fabric that it measures; none: the RoCE fabric
    launcher: Launcher
    gpus: dict[str, int]  # how many GPUs each node has
    shared_gpus: tuple[str, ...] = ()  # nodes that may have one GPU together; of all others that is refused
    variables: dict[str, str]
    params: Params  # what tells the cells of this job from those of another
    power: bool = False
    server_power: bool = False  # whether the servers' BMCs are read while it runs
    timeout_s: int  # of one run of one program
    sizes: tuple[int, ...]  # messages, in bytes, as nccl-tests steps through them
    # By test, the smallest message in bytes that its operation does not round down to nothing.
    smallest: dict[str, int] = Field(default_factory=dict)
    expect: ExpectedWay
    # What is looked at before anything is measured over TCP, by node.
    paths: TcpPaths = Field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """GPUs of all nodes."""
        return sum(self.gpus.values())

    def smallest_bytes(self, test: str) -> int:
        """Return the smallest size planned: what the operation would round down to nothing is not."""
        return self.smallest.get(test, 0)
