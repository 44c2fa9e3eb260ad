"""The desired state of a NIC, or of the host, as the role writes it; refused if anything is out of range."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NETDEV = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$")  # IFNAMSIZ is 16 with its terminating zero
_RDMA_DEVICE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")  # IB_DEVICE_NAME_MAX is 64
RDMA_MTUS = (256, 512, 1024, 2048, 4096)
# Ethernet payload that is not RDMA payload: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4 bytes
# (iboe_get_mtu in the kernel's include/rdma/ib_addr.h).
ROCE_HEADER_BYTES = 96
# Largest value of each parameter of NICs' firmware (firmware.py), 0 the smallest. Those of a port have its
# number in their name (_P1).
FIRMWARE_MLX5 = {"PCI_WR_ORDERING": 1, "ATS_ENABLED": 1, "ADVANCED_PCI_SETTINGS": 1}
FIRMWARE_MLX5_PORT = {
    "ROCE_CC_PRIO_MASK": 255,
    "CNP_DSCP": 63,
    "CNP_802P_PRIO": 7,
    # The NIC's own LLDP agent, off where the host owns DCBX: 0.
    "LLDP_NB_DCBX": 1,
    "LLDP_NB_RX_MODE": 2,
    "LLDP_NB_TX_MODE": 2,
}
FIRMWARE_BNXT = {"pcie_relaxed_ordering": 1, "performance_profile": 255}
_FIRMWARE = {**FIRMWARE_MLX5, **FIRMWARE_MLX5_PORT, **FIRMWARE_BNXT}
ECT0 = 0b10  # RFC 3168, section 5: the codepoint of a sender that understands ECN


class BadDesired(Exception):  # noqa: N818  (it names the input, which is at fault)
    """A desired state that cannot be used: what is wrong and how to mend it, in one line."""


def traffic_class_byte(dscp: int, ect: bool) -> int:
    """The IPv4 ToS byte (IPv6 traffic class): DSCP in the upper six bits, ECN below (RFC 2474, RFC 3168)."""
    return dscp << 2 | (ECT0 if ect else 0)


@dataclass(frozen=True)
class Cnp:
    """The class of congestion notification packets."""

    dscp: int
    priority: int
    traffic_class: int
    strict: bool


@dataclass(frozen=True)
class Roce:
    """The class of RoCE traffic."""

    dscp: int
    priority: int
    traffic_class: int
    ect: bool
    pfc: bool
    cable_m: int  # 0: not given, the driver's own value stays
    cnp: Cnp

    @property
    def tos(self) -> int:
        """The ToS byte of RoCE packets, for RDMA-CM and `--tclass`."""
        return traffic_class_byte(self.dscp, self.ect)


@dataclass(frozen=True)
class Policy:
    """What the role decides beyond the fabric intent."""

    arp_ignore: int
    arp_announce: int
    ets_roce_percent: int
    rings: str  # "max" or "keep"
    rp_filter: int | None = None  # None: left as it is
    rx_usecs: int | None = None  # interrupt moderation (coalesce.py); None: left as it is
    # Parameters of the NIC's firmware, and whether they may be written (firmware.py).
    firmware: Mapping[str, int] = field(default_factory=dict)
    firmware_write: bool = False


@dataclass(frozen=True)
class Nic:
    """The desired state of one NIC."""

    netdev: str
    rail: str
    rdma_device: str
    ipv4: str  # with prefix length
    link_speed_gbps: float
    link_mtu: int
    rdma_mtu: int
    roce: Roce
    policy: Policy

    @property
    def gid(self) -> str:
        """The RoCE v2 GID of the address: an IPv4-mapped IPv6 address as sysfs prints it."""
        host = ipaddress.ip_interface(self.ipv4).ip.packed.hex()
        return f"0000:0000:0000:0000:0000:ffff:{host[:4]}:{host[4:]}"


def _part(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, Mapping):
        raise BadDesired(f"{where}{key} is not a mapping -- give its keys")
    return value


def _int(data: Mapping[str, Any], key: str, where: str, low: int, high: int) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadDesired(f"{where}{key} is {value!r} -- use a whole number from {low} to {high}")
    return value


def _bool(data: Mapping[str, Any], key: str, where: str) -> bool:
    value = data.get(key)
    if not isinstance(value, bool):
        raise BadDesired(f"{where}{key} is {value!r} -- use true or false")
    return value


def _word(data: Mapping[str, Any], key: str, where: str, pattern: re.Pattern[str]) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not pattern.match(value):
        raise BadDesired(f"{where}{key} is {value!r} -- use a name that the kernel could have given")
    return value


def parse_roce(data: Mapping[str, Any]) -> Roce:
    """The RoCE class of `fabric.roce`."""
    roce, where = _part(data, "roce", ""), "roce."
    cnp = _part(roce, "cnp", where)
    scheduler = cnp.get("scheduler", "strict")
    if scheduler not in ("strict", "dwrr"):
        raise BadDesired(f"roce.cnp.scheduler is {scheduler!r} -- use strict or dwrr")
    return Roce(
        dscp=_int(roce, "dscp", where, 1, 63),
        priority=_int(roce, "priority", where, 0, 7),
        traffic_class=_int(roce, "traffic_class", where, 0, 7),
        ect=_bool(roce, "ect", where) if "ect" in roce else True,
        pfc=_bool(_part(roce, "pfc", where), "enabled", "roce.pfc."),
        # 999 m is the longest that mlx5 takes (en_dcbnl.c, MLX5E_MAX_CABLE_LENGTH).
        cable_m=_int(_part(roce, "headroom", where), "cable_m", "roce.headroom.", 1, 999)
        if roce.get("headroom")
        else 0,
        cnp=Cnp(
            dscp=_int(cnp, "dscp", "roce.cnp.", 1, 63),
            priority=_int(cnp, "priority", "roce.cnp.", 0, 7),
            traffic_class=_int(cnp, "traffic_class", "roce.cnp.", 0, 7),
            strict=scheduler == "strict",
        ),
    )


def _firmware(policy: Mapping[str, Any]) -> tuple[dict[str, int], bool]:
    """Return the wanted parameters and whether they may be written. Raises BadDesired."""
    wanted, write = policy.get("firmware", {}), policy.get("firmware_write", False)
    if not isinstance(wanted, Mapping) or not isinstance(write, bool):
        raise BadDesired("policy.firmware is no mapping, or firmware_write not true or false -- see the role")
    for name, value in wanted.items():
        if name not in _FIRMWARE:
            known = ", ".join(sorted(_FIRMWARE))
            raise BadDesired(f"policy.firmware names {name!r} -- use {known}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _FIRMWARE[name]:
            raise BadDesired(
                f"policy.firmware.{name} is {value!r} -- use a whole number from 0 to {_FIRMWARE[name]}"
            )
    return {str(name): value for name, value in wanted.items()}, write


def _rx_usecs(policy: Mapping[str, Any]) -> int | None:
    wanted = policy.get("rx_usecs", "keep")
    if wanted == "keep":
        return None
    text = str(wanted)
    if isinstance(wanted, bool) or not re.fullmatch(r"[0-9]{1,4}", text) or int(text) > 1024:
        raise BadDesired(f"policy.rx_usecs is {wanted!r} -- use keep, or a whole number from 0 to 1024")
    return int(text)


def parse_nic(data: Mapping[str, Any]) -> Nic:
    """The desired state of one NIC. Raises BadDesired, naming the key and the fix."""
    mtu, policy = _part(data, "mtu_bytes", ""), _part(data, "policy", "")
    host_mtu = _int(mtu, "host", "mtu_bytes.", 576, 16384)
    rdma_mtu = mtu.get("rdma")
    if rdma_mtu not in RDMA_MTUS:
        raise BadDesired(f"mtu_bytes.rdma is {rdma_mtu!r} -- use one of {', '.join(map(str, RDMA_MTUS))}")
    if host_mtu < rdma_mtu + ROCE_HEADER_BYTES:
        raise BadDesired(
            f"mtu_bytes.host {host_mtu} leaves no room for RDMA MTU {rdma_mtu} -- "
            f"use at least {rdma_mtu + ROCE_HEADER_BYTES}, or a smaller mtu_bytes.rdma"
        )
    speed = data.get("link_speed_gbps")
    if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0 < speed <= 3200:
        raise BadDesired(f"link_speed_gbps is {speed!r} -- use the port's rate in Gb/s")
    address = str(data.get("ipv4"))
    try:
        if ipaddress.ip_interface(address).version != 4 or "/" not in address:
            raise ValueError(address)
    except ValueError:
        raise BadDesired(f"ipv4 is {address!r} -- use an IPv4 address with its prefix length") from None
    rings = policy.get("rings")
    if rings not in ("max", "keep"):
        raise BadDesired(f"policy.rings is {rings!r} -- use max or keep")
    firmware, firmware_write = _firmware(policy)
    return Nic(
        netdev=_word(data, "netdev", "", NETDEV),
        rail=str(data.get("rail")),
        rdma_device=_word(data, "rdma_device", "", _RDMA_DEVICE),
        ipv4=address,
        link_speed_gbps=float(speed),
        link_mtu=host_mtu,
        rdma_mtu=rdma_mtu,
        roce=parse_roce(data),
        policy=Policy(
            arp_ignore=_int(policy, "arp_ignore", "policy.", 0, 8),
            arp_announce=_int(policy, "arp_announce", "policy.", 0, 2),
            ets_roce_percent=_int(policy, "ets_roce_percent", "policy.", 1, 99),
            rings=rings,
            rp_filter=None
            if policy.get("rp_filter", "keep") == "keep"
            else _int(policy, "rp_filter", "policy.", 0, 2),
            rx_usecs=_rx_usecs(policy),
            firmware=firmware,
            firmware_write=firmware_write,
        ),
    )
