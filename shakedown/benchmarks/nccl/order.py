"""What one job of nccl-tests is ordered to measure."""

from __future__ import annotations

from pydantic import Field

from shakedown.benchmarks.base.tcp import TcpPaths
from shakedown.benchmarks.nccl.options import Launcher, NcclExpect, Operation, Split
from shakedown.records.base import Params, Record


class ExpectedWay(NcclExpect):
    """Which way the data must go, and over which RDMA devices of each node.

    `interfaces`: over these of each node, by TCP; none: by RoCE over `nics`.
    """

    nics: dict[str, tuple[str, ...]]
    interfaces: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class NcclOrder(Record):
    """One sweep on one group of nodes by one launcher.

    Attributes:
        gpus: how many GPUs each node has.
        shared_gpus: nodes that may have one GPU together; of all others that is refused.
        timeout_s: of one run of one program.
        sizes: messages, in bytes, as nccl-tests steps through them.
        smallest: by test, the smallest message in bytes that its operation does not round down to nothing.
        params: what tells the cells of this job from those of another.
    """

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
    gpus: dict[str, int]
    shared_gpus: tuple[str, ...] = ()
    variables: dict[str, str]
    params: Params
    power: bool = False
    server_power: bool = False  # whether the servers' BMCs are read while it runs
    timeout_s: int
    sizes: tuple[int, ...]
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
