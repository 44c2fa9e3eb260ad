"""What acceptance measures on GPUs: the site's options for the node stage, nccl-tests and PyTorch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from shakedown.records.base import Record

Operation = Literal["all_reduce", "all_gather", "alltoall", "broadcast", "reduce_scatter", "sendrecv"]
Launcher = Literal["one-process", "srun", "mpirun"]
TorchOperation = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast"]
# Only what steers the communication libraries: nothing of a site's options may load code into a job.
Variable = Annotated[str, Field(pattern=r"^(NCCL|UCX|OMPI_MCA|PMIX_MCA|CUDA_DEVICE)_[A-Z0-9_a-z]+$")]
Bandwidth = Literal[
    "host_to_device_memcpy_ce",
    "device_to_host_memcpy_ce",
    "host_to_device_bidirectional_memcpy_ce",
    "device_to_device_memcpy_read_ce",
    "device_to_device_memcpy_write_ce",
]


class GpuState(Record):
    """What every GPU of a node must show. None: not looked at, because the platform does not tell it."""

    pcie_generation: int | None = Field(default=None, ge=1)  # under load; an idle link may be slower
    pcie_width: int | None = Field(default=None, ge=1)
    nvlinks: int | None = Field(default=None, ge=0)  # active ones of each GPU
    nvlink_gb_per_s: float | None = Field(default=None, gt=0)  # of each link, as `nvidia-smi nvlink -s` says
    topology: Annotated[str, Field(pattern=r"^(NV\d+|PIX|PXB|PHB|NODE|SYS)$")] | None = None  # between GPUs
    numa: tuple[int, ...] | None = None  # NUMA node of GPU 0, 1, ...
    ecc: bool = True
    xid: bool = True  # the kernel log can be read and must hold no Xid of the driver


class GpuNode(Record):
    """The node stage: each GPU's own state, and nvbandwidth."""

    state: GpuState = GpuState()
    nvbandwidth: tuple[Bandwidth, ...] = ()
    program: str = "nvbandwidth"  # name or path on the nodes
    # Run everything once unjudged. For virtual machines whose memory is given to them only when it is first
    # touched: copies through such memory are up to a quarter slower, once.
    warmup: bool = False
    timeout_s: int = Field(default=120, gt=0)


class NcclExpect(Record):
    """Which way the data must go; the log of every measured run is held against it."""

    intra_node: Literal["P2P", "SHM"] = "P2P"
    nvls: bool  # NVLink SHARP
    gdr: bool = True  # GPUDirect RDMA between nodes


class NcclSweep(Record):
    """Message sizes and operations of nccl-tests; each size needs a reference."""

    operations: tuple[Operation, ...] = Field(min_length=1)
    min_bytes: int = Field(gt=0)
    max_bytes: int = Field(gt=0)
    factor: int = Field(default=2, ge=2)
    dtype: Literal["float", "half", "bfloat16", "double", "int32", "uint8"] = "float"
    iterations: int = Field(default=20, gt=0)
    warmup: int = Field(default=5, ge=0)
    repeats: int = Field(default=1, ge=1)  # whole runs; their spread is the noise of the value
    # Smaller messages are judged by their time, larger ones by busbw: each says nothing new about the other.
    time_below_bytes: int = Field(default=1 << 20, ge=0)
    nodes: tuple[int, ...] = ()  # how many nodes at once; empty: all
    split: tuple[Literal["none", "mod", "div"], ...] = ("none",)  # NCCL_TESTS_SPLIT
    tuning: bool = False  # one more run that logs algorithm and protocol of every size

    @model_validator(mode="after")
    def _is_a_sweep(self) -> NcclSweep:
        if self.min_bytes > self.max_bytes:
            raise ValueError(f"min_bytes {self.min_bytes} is above max_bytes {self.max_bytes}")
        if len(set(self.operations)) < len(self.operations) or len(set(self.nodes)) < len(self.nodes):
            raise ValueError("an operation or a number of nodes is named twice")
        return self

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes in bytes, as nccl-tests steps through them."""
        sizes = [self.min_bytes]
        while sizes[-1] * self.factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.factor)
        return tuple(sizes)


class Nccl(Record):
    """nccl-tests through Slurm."""

    launchers: tuple[Launcher, ...] = Field(default=("srun",), min_length=1)
    sweeps: tuple[NcclSweep, ...] = Field(min_length=1)
    expect: NcclExpect
    variables: dict[Variable, str] = Field(default_factory=dict)
    power: bool = False  # mean power, energy and temperature of the GPUs, to show; they decide nothing
    run_timeout_s: int = Field(default=300, gt=0)  # one run of one program; then it hangs and is ended

    @model_validator(mode="after")
    def _each_cell_has_one_job(self) -> Nccl:
        asked = [
            (operation, sweep.dtype, nodes)
            for sweep in self.sweeps
            for operation in sweep.operations
            for nodes in sweep.nodes or (0,)
        ]
        if len(set(asked)) < len(asked):
            raise ValueError("two sweeps share an operation, data type and number of nodes: make them one")
        return self


class TorchCollectives(Record):
    """The second opinion: the same collectives through PyTorch, which needs nothing but PyTorch."""

    python: Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./+-]+$")]  # an interpreter that has PyTorch
    backend: Literal["nccl", "gloo"] = "nccl"
    nodes: int | None = Field(default=None, ge=1)  # how many at once; None: all
    # Empty: only one large message against many, without a sweep of sizes.
    operations: tuple[TorchOperation, ...] = ("all_reduce",)
    min_bytes: int = Field(default=64, gt=0, multiple_of=64)
    max_bytes: int = Field(default=64, gt=0, multiple_of=64)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(default=20, gt=0)
    # One message of the first size against `many` of the second: what a framework's small buckets cost.
    large_bytes: int = Field(default=4_000_000_000, gt=0, multiple_of=64)
    many: int = Field(default=0, ge=0)  # 0: not compared
    variables: dict[Variable, str] = Field(default_factory=dict)
    timeout_s: int = Field(default=300, gt=0)

    @model_validator(mode="after")
    def _asks_for_something(self) -> TorchCollectives:
        if not self.operations and not self.many:
            raise ValueError("neither operations nor many: nothing to run")
        if self.operations and not {"min_bytes", "max_bytes"} <= self.model_fields_set:
            raise ValueError("operations need min_bytes and max_bytes")
        return self

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes in bytes."""
        sizes = [self.min_bytes]
        while sizes[-1] * self.factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.factor)
        return tuple(sizes)
