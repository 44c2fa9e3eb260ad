"""The closed vocabulary of ceiling formulas that a reference file may name, resolved through the physics.

A formula is a mapping such as `{formula: roce_payload, speed_gbps: 400, rdma_mtu_bytes: 4096}`.
Nothing is evaluated: an unknown formula or parameter, and a number written as text, is refused.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from shakedown.physics import collectives, ethernet, host_links

Gbps = Annotated[float, Field(gt=0, le=100_000)]
GbPerS = Annotated[float, Field(gt=0, le=100_000)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]

# Units of bandwidth in Gb/s; every other unit converts to nothing.
BANDWIDTH_UNITS_GBPS = {"Gb/s": 1.0, "GB/s": 8.0, "MB/s": 8e-3, "MiB/s": 8 * 2**20 / 1e9}


class _Formula(BaseModel):
    """A formula with its parameters. Strict: `"400"` is not 400."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def gbps(self) -> float:
        """Return the ceiling in Gb/s."""
        raise NotImplementedError

    def degraded_gbps(self) -> float:
        """Return what would be measured at best with one of the links behind it at half rate, in Gb/s."""
        return self.gbps() / 2

    def means_in(self, unit: str) -> bool:
        """Whether the ceiling has a meaning in a unit."""
        return unit in BANDWIDTH_UNITS_GBPS

    def in_unit(self, unit: str) -> float | None:
        """Return the ceiling in a unit, or None if it means nothing in that."""
        return in_unit(self.gbps(), unit)

    def degraded_in_unit(self, unit: str) -> float | None:
        """Return `degraded_gbps` in a unit, or None if it means nothing in that."""
        return in_unit(self.degraded_gbps(), unit)

    def describe(self) -> str:
        """Return the formula as it stands in the file, in order: `roce_payload speed_gbps=400 ...`."""
        given = self.model_dump(mode="json", exclude_unset=True)
        name = given.pop("formula")
        texts = (f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in given.items())
        return " ".join([name, *texts])


class _Links(_Formula):
    """A rate that equal links add up to: with one of them at half rate, half a link is missing."""

    links: Count = 1

    def link_gbps(self) -> float:
        raise NotImplementedError

    @override
    def gbps(self) -> float:
        return self.links * self.link_gbps()

    @override
    def degraded_gbps(self) -> float:
        return (self.links - 0.5) * self.link_gbps()


class RocePayload(_Links):
    """Payload of `links` RoCE v2 links together (`physics.roce.payload_ceiling_gbps`)."""

    formula: Literal["roce_payload"]
    speed_gbps: Gbps
    rdma_mtu_bytes: int
    operation: Annotated[ethernet.RoceOperation, Field(strict=False)] = ethernet.RoceOperation.WRITE
    message_bytes: Count | None = None
    ip_version: int = 4
    vlan: bool = False

    @override
    def link_gbps(self) -> float:
        return ethernet.payload_ceiling_gbps(
            self.speed_gbps,
            rdma_mtu_bytes=self.rdma_mtu_bytes,
            operation=self.operation,
            message_bytes=self.message_bytes,
            ip_version=self.ip_version,
            vlan=self.vlan,
        )


class PciePayload(_Links):
    """Payload of `links` PCIe links together (`physics.pcie.payload_ceiling_gb_per_s`)."""

    formula: Literal["pcie_payload"]
    generation: int
    width: int
    max_payload_bytes: int
    transfer: Annotated[host_links.Transfer, Field(strict=False)] = host_links.Transfer.H2D

    @override
    def link_gbps(self) -> float:
        return 8 * host_links.payload_ceiling_gb_per_s(
            self.generation, self.width, max_payload_bytes=self.max_payload_bytes, transfer=self.transfer
        )


class PcieRaw(_Links):
    """Rate of `links` PCIe links after line coding, before packet headers (`physics.pcie.raw_gb_per_s`)."""

    formula: Literal["pcie_raw"]
    generation: int
    width: int

    @override
    def link_gbps(self) -> float:
        return 8 * host_links.raw_gb_per_s(self.generation, self.width)


class CeilingLink(_Links):
    """A link whose advertised rate per direction is all that is known: NVLink, xGMI, InfiniBand."""

    formula: Literal["link"]
    gb_per_s: GbPerS

    @override
    def link_gbps(self) -> float:
        return 8 * self.gb_per_s


class _Nics(_Formula):
    """What formulas about NICs share: speed, RDMA MTU and IP version of each."""

    speed_gbps: Gbps
    rdma_mtu_bytes: int
    ip_version: int = 4

    def nic_gb_per_s(self) -> float:
        gbps = ethernet.payload_ceiling_gbps(
            self.speed_gbps, rdma_mtu_bytes=self.rdma_mtu_bytes, ip_version=self.ip_version
        )
        return gbps / 8


class Peak(_Formula):
    """Arithmetic of a GPU's matrix units as its data sheet has it: no rate of a link."""

    formula: Literal["peak"]
    tflop_per_s: Annotated[float, Field(gt=0, le=1_000_000)]

    @override
    def means_in(self, unit: str) -> bool:
        return unit == "TFLOP/s"

    @override
    def in_unit(self, unit: str) -> float | None:
        return self.tflop_per_s if self.means_in(unit) else None

    @override
    def degraded_in_unit(self, unit: str) -> float | None:
        return None  # no link stands behind it


class RingBusbw(_Nics):
    """busbw of a ring over several nodes: NICs per node x slowest NIC."""

    formula: Literal["ring_busbw"]
    nics_per_node: Count

    @override
    def gbps(self) -> float:
        return 8 * collectives.flat_ring_busbw_gb_per_s([self.nic_gb_per_s()] * self.nics_per_node)

    @override
    def degraded_gbps(self) -> float:
        nic = self.nic_gb_per_s()
        return 8 * collectives.flat_ring_busbw_gb_per_s([nic] * (self.nics_per_node - 1) + [nic / 2])


class TcpBusbw(_Formula):
    """busbw over several nodes by TCP, one link a node.

    Of a ring; with `ranks` and `ranks_per_node`, of nodes that reduce first, which the network allows more.
    """

    formula: Literal["tcp_busbw"]
    speed_gbps: Gbps
    mtu_bytes: Count  # of the interface
    ip_version: int = 4
    ranks: Count | None = None
    ranks_per_node: Count | None = None

    @override
    def gbps(self) -> float:
        link = ethernet.tcp_payload_ceiling_gbps(
            self.speed_gbps, mtu_bytes=self.mtu_bytes, ip_version=self.ip_version
        )
        if self.ranks is None or self.ranks_per_node is None:
            return 8 * collectives.flat_ring_busbw_gb_per_s([link / 8])
        return 8 * collectives.hierarchical_busbw_gb_per_s(
            link / 8, ranks=self.ranks, ranks_per_node=self.ranks_per_node
        )


class HierarchicalBusbw(_Nics):
    """all_reduce busbw when nodes reduce first: more than a ring, by (n-1)/(n-g)."""

    formula: Literal["hierarchical_busbw"]
    nics_per_node: Count
    ranks: Count
    ranks_per_node: Count

    @override
    def gbps(self) -> float:
        return 8 * collectives.hierarchical_busbw_gb_per_s(
            self.nics_per_node * self.nic_gb_per_s(), ranks=self.ranks, ranks_per_node=self.ranks_per_node
        )


class AlltoallBusbw(_Nics):
    """alltoall busbw per rank that has one NIC of its own."""

    formula: Literal["alltoall_busbw"]
    ranks: Count
    ranks_per_node: Count

    @override
    def gbps(self) -> float:
        return 8 * collectives.alltoall_busbw_gb_per_s(
            self.nic_gb_per_s(), ranks=self.ranks, ranks_per_node=self.ranks_per_node
        )


class NvlsBusbw(_Formula):
    """all_reduce busbw of NVLink SHARP within a node."""

    formula: Literal["nvls_busbw"]
    nvlink_gb_per_s: GbPerS
    ranks: Count

    @override
    def gbps(self) -> float:
        return 8 * collectives.nvls_all_reduce_busbw_gb_per_s(self.nvlink_gb_per_s, ranks=self.ranks)


Ceiling = Annotated[
    RocePayload
    | PciePayload
    | PcieRaw
    | CeilingLink
    | Peak
    | RingBusbw
    | TcpBusbw
    | HierarchicalBusbw
    | AlltoallBusbw
    | NvlsBusbw,
    Field(discriminator="formula"),
]


def in_unit(gbps: float, unit: str) -> float | None:
    """Return a rate in Gb/s in another unit of bandwidth, or None if the unit is none."""
    scale = BANDWIDTH_UNITS_GBPS.get(unit)
    return None if scale is None else gbps / scale
