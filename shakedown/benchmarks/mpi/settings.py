"""What acceptance asks of MPI, and what a job of it is ordered to do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shakedown.benchmarks.base.contract import TcpPaths
from shakedown.records.base import Record, shape

# How UCX carries messages: reliable, unreliable or dynamically connected queue pairs of verbs, or TCP.
Transport = Literal["rc", "ud", "dc", "tcp"]
# What steers the communication libraries, and nothing that loads code; the value stands in a job's script.
_VARIABLE = shape(
    r"^(UCX|OMPI_MCA|PMIX_MCA|PRTE_MCA)_[A-Za-z0-9_]+$",
    "a variable of UCX_, OMPI_MCA_, PMIX_MCA_ or PRTE_MCA_",
    "UCX_TLS",
    max_length=80,
)
Variable = Annotated[str, _VARIABLE]
_VALUE = shape(r"^[A-Za-z0-9_.,:/^+=@-]+$", "a value without blanks or quotes", "rc,self", max_length=200)
Value = Annotated[str, _VALUE]


class SizeSweep(Record):
    """Message sizes of an MPI benchmark; each needs a reference."""

    min_bytes: int = Field(gt=0, multiple_of=4)
    max_bytes: int = Field(gt=0, multiple_of=4)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(default=10, gt=0)

    def steps(self) -> tuple[int, ...]:
        """Return the sizes of the all-reduce in bytes: from the smallest on, each by the factor larger."""
        sizes = [self.min_bytes]
        while sizes[-1] * self.factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.factor)
        return tuple(sizes)

    def powers_of_two(self) -> tuple[int, ...]:
        """Return the powers of two between the bounds, in bytes: the sizes of mpi4py's ping-pong."""
        return tuple(1 << i for i in range(33) if self.min_bytes <= 1 << i <= self.max_bytes)


class Mpi(Record):
    """The MPI benchmarks of the collective stage."""

    pingpong: SizeSweep | None = None
    allreduce: SizeSweep | None = None
    transport: Transport = "rc"  # what UCX's own log must name for every connection between nodes
    pinned: bool = False  # every rank must run on the CPUs of its node's rank file (roles/numa_pinning)
    # Environment of the MPI jobs where site.yml writes no /etc/shakedown/mpi.env, which is then not read.
    variables: dict[Variable, Value] = Field(default_factory=dict, max_length=40)


class MpiSettings(SizeSweep):
    """One benchmark on one group of nodes.

    Attributes:
        transport: what UCX must choose; None: ordered by a release that did not look.
        devices: by node, the devices that it may use: RDMA devices, or for TCP interfaces.
        pinned: whether every rank must run where its node's rank file says.
        variables: the environment of the job; none: what the node's own file sets.
        paths: what is looked at before anything is measured over TCP, by node.
        timed: whether the ping-pong prints times and samples beside its bandwidths; not of older releases.
    """

    transport: Transport | None = None
    devices: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    pinned: bool = False
    variables: dict[Variable, Value] = Field(default_factory=dict)
    paths: TcpPaths = Field(default_factory=dict)
    timed: bool = False
