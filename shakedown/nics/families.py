"""NIC families and the counters each has."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# Which counters a driver always reports: neither ethtool nor rdma marks the end of a reading.
#
# A counter that is missing from a set that its driver reports whole was cut off or dropped, so the reading is
# no evidence. Names are from the Linux kernel's sources, the file of each set beside it.


class Sets(NamedTuple):
    """What a driver reports: `always`, and sets of which it reports all or none."""

    driver: str
    always: frozenset[str]
    together: tuple[frozenset[str], ...] = ()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _each(pattern: str, numbers: Iterable[int]) -> frozenset[str]:
    return frozenset(name.replace("#", str(n)) for n in numbers for name in pattern.split())


# drivers/infiniband/sw/rxe/rxe_hw_counters.c: rxe_counter_name
_RXE = Sets(
    "rxe",
    _names(
        "sent_pkts rcvd_pkts duplicate_request out_of_seq_request rcvd_rnr_err send_rnr_err rcvd_seq_err"
        " ack_deferred retry_exceeded_err retry_rnr_exceeded_err completer_retry_err send_err link_downed"
        " rdma_sends rdma_recvs"
    ),
)
# drivers/infiniband/hw/mlx5/counters.c: basic_q_cnts, out_of_seq_q_cnts and retrans_q_cnts, which every
# ConnectX-4 and later has; then extended_err_cnts (its last two since 5.15), cong_cnts and roce_accl_cnts.
_MLX5_IB = Sets(
    "mlx5_ib",
    _names(
        "rx_write_requests rx_read_requests rx_atomic_requests rx_dct_connect out_of_buffer out_of_sequence"
        " duplicate_request rnr_nak_retry_err packet_seq_err implied_nak_seq_err local_ack_timeout_err"
    ),
    (
        _names(
            "resp_local_length_error resp_cqe_error req_cqe_error req_remote_invalid_request"
            " req_remote_access_errors resp_remote_access_errors resp_cqe_flush_error req_cqe_flush_error"
        ),
        _names("req_transport_retries_exceeded req_rnr_retries_exceeded"),
        _names("rp_cnp_ignored rp_cnp_handled np_ecn_marked_roce_packets np_cnp_sent"),
        _names(
            "roce_adp_retrans roce_adp_retrans_to roce_slow_restart roce_slow_restart_cnps"
            " roce_slow_restart_trans"
        ),
    ),
)
# drivers/infiniband/hw/bnxt_re/hw_counters.c: bnxt_re_stat_descs; the last set since the P5 chips.
_BNXT_RE = Sets(
    "bnxt_re",
    _names(
        "active_qps active_srqs active_cqs active_mrs active_mws rx_pkts rx_bytes tx_pkts tx_bytes"
        " recoverable_errors to_retransmits seq_err_naks_rcvd max_retry_exceeded rnr_naks_rcvd missing_resp"
        " unrecoverable_err bad_resp_err local_qp_op_err local_protection_err mem_mgmt_op_err"
        " remote_invalid_req_err remote_access_err remote_op_err dup_req res_exceed_max res_length_mismatch"
        " res_exceeds_wqe res_opcode_err res_rx_invalid_rkey res_rx_domain_err res_rx_no_perm"
        " res_rx_range_err res_tx_invalid_rkey res_tx_domain_err res_tx_no_perm res_tx_range_err"
        " res_irrq_oflow res_unsup_opcode res_unaligned_atomic res_rem_inv_err res_mem_err res_srq_err"
        " res_cmp_err res_invalid_dup_rkey res_wqe_format_err res_cq_load_err res_srq_load_err"
        " res_tx_pci_err res_rx_pci_err"
    ),
    (
        _names("rx_roce_errors rx_roce_discards"),
        _names("active_pds active_ahs"),
        _names(
            "tx_atomic_req tx_read_req tx_read_resp tx_write_req tx_send_req rx_atomic_req rx_read_req"
            " rx_read_resp rx_write_req rx_send_req rx_roce_good_pkts rx_roce_good_bytes rx_out_of_buffer"
        ),
    ),
)
# drivers/infiniband/hw/irdma/verbs.c: irdma_hw_stat_names (5.14), of chips from E810 on; TCP's and the
# counts of operations were renamed when the chips after E810 came, whose own are the last set.
_IRDMA = Sets(
    "irdma",
    _names(
        "ip4InDiscards ip4InTruncatedPkts ip4OutNoRoutes ip6InDiscards ip6InTruncatedPkts ip6OutNoRoutes"
        " ip4InOctets ip4InPkts ip4InReasmRqd ip4InMcastPkts ip4OutOctets ip4OutPkts ip4OutSegRqd"
        " ip4OutMcastPkts ip6InOctets ip6InPkts ip6InReasmRqd ip6InMcastPkts ip6OutOctets ip6OutPkts"
        " ip6OutSegRqd ip6OutMcastPkts cnpHandled cnpIgnored cnpSent ip4InMcastOctets ip4OutMcastOctets"
        " ip6InMcastOctets ip6OutMcastOctets RxUDP TxUDP RxECNMrkd"
    ),
    (
        _names("tcpRetransSegs tcpInOptErrors tcpInProtoErrors tcpInSegs tcpOutSegs"),
        _names("RetransSegs InOptErrors InProtoErrors InSegs OutSegs"),
        _names(
            "RNR_sent RNR_received ord_limit_count ird_limit_count Nak_Sequence_Error"
            " Nak_Sequence_Error_Implied RTO Rcvd_Out_of_order_packets CRC_errors"
        ),
    ),
)
RDMA = (_RXE, _MLX5_IB, _BNXT_RE, _IRDMA)

# drivers/net/ethernet/mellanox/mlx5/core/en_stats.c: vport_stats_desc; pport_802_3, 2863 and 2819 of the
# physical port; per_prio_traffic and per_prio_pfc (a priority has pause counters while PFC is on for it).
_MLX5 = Sets(
    "mlx5_core",
    frozenset(
        f"{way}_vport_{kind}_{unit}"
        for way in ("rx", "tx")
        for kind in ("unicast", "multicast", "broadcast", "rdma_unicast", "rdma_multicast")
        for unit in ("packets", "bytes")
    )
    | _names("rx_packets rx_bytes tx_packets tx_bytes"),
    (
        _names(
            "tx_packets_phy rx_packets_phy rx_crc_errors_phy tx_bytes_phy rx_bytes_phy tx_multicast_phy"
            " tx_broadcast_phy rx_multicast_phy rx_broadcast_phy rx_in_range_len_errors_phy"
            " rx_out_of_range_len_phy rx_oversize_pkts_phy rx_symbol_err_phy tx_mac_control_phy"
            " rx_mac_control_phy rx_unsupported_op_phy rx_pause_ctrl_phy tx_pause_ctrl_phy rx_discards_phy"
            " tx_discards_phy tx_errors_phy rx_undersize_pkts_phy rx_fragments_phy rx_jabbers_phy"
            " rx_64_bytes_phy rx_65_to_127_bytes_phy rx_128_to_255_bytes_phy rx_256_to_511_bytes_phy"
            " rx_512_to_1023_bytes_phy rx_1024_to_1518_bytes_phy rx_1519_to_2047_bytes_phy"
            " rx_2048_to_4095_bytes_phy rx_4096_to_8191_bytes_phy rx_8192_to_10239_bytes_phy"
        ),
        _each("rx_prio#_bytes rx_prio#_packets tx_prio#_bytes tx_prio#_packets", range(8)),
        *(
            _each(
                "rx_prio#_pause rx_prio#_pause_duration tx_prio#_pause tx_prio#_pause_duration"
                " rx_prio#_pause_transition",
                [priority],
            )
            for priority in range(8)
        ),
        _names(
            "rx_global_pause rx_global_pause_duration tx_global_pause tx_global_pause_duration"
            " rx_global_pause_transition"
        ),
    ),
)
# drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c: bnxt_ring_rx_stats_str and bnxt_ring_tx_stats_str, which
# the numbered series below hold complete; bnxt_port_stats_arr.
_BNXT = Sets(
    "bnxt_en",
    frozenset(),
    (
        _each("rx_pfc_ena_frames_pri# tx_pfc_ena_frames_pri#", range(8))
        | _names(
            "rx_fcs_err_frames rx_pause_frames rx_pfc_frames rx_jbr_frames rx_mtu_err_frames"
            " rx_good_frames rx_undrsz_frames rx_bytes rx_runt_bytes rx_runt_frames rx_stat_discard"
            " rx_stat_err tx_64b_frames tx_good_vlan_frames tx_good_frames tx_total_frames tx_ucast_frames"
            " tx_mcast_frames tx_bcast_frames tx_pause_frames tx_pfc_frames tx_jabber_frames"
            " tx_fcs_err_frames tx_err tx_fifo_underruns tx_eee_lpi_events tx_eee_lpi_duration"
            " tx_total_collisions tx_bytes tx_xthol_frames tx_stat_discard tx_stat_error"
        ),
        *(_each(f"{way}_{unit}_pri#", range(8)) for way in ("rx", "tx") for unit in ("bytes", "packets")),
        *(_each(f"{way}_{unit}_cos#", range(8)) for way in ("rx", "tx") for unit in ("bytes", "packets")),
    ),
)
# drivers/net/vmxnet3/vmxnet3_ethtool.c; every further queue is held to the first by its number.
_VMXNET3 = Sets(
    "vmxnet3",
    frozenset(
        [f"Tx Queue#0: {way} {unit} tx" for way in ("ucast", "mcast", "bcast") for unit in ("pkts", "bytes")]
        + [
            f"Rx Queue#0: {way} {unit} rx"
            for way in ("ucast", "mcast", "bcast")
            for unit in ("pkts", "bytes")
        ]
        + [
            *(f"Tx Queue#0: {name}" for name in ("TSO pkts tx", "TSO bytes tx", "ring full", "hdr cloned")),
            *(f"Tx Queue#0: pkts {name}" for name in ("tx err", "tx discard", "linearized")),
            *(f"Tx Queue#0: {name}" for name in ("giant hdr", "drv dropped tx total")),
            *(
                f"Tx Queue#0: drv dropped tx total: {name}"
                for name in ("too many frags", "giant hdr", "hdr err", "tso")
            ),
            *(f"Rx Queue#0: {name}" for name in ("LRO pkts rx", "LRO byte rx", "pkts rx OOB", "pkts rx err")),
            *(f"Rx Queue#0: {name}" for name in ("drv dropped rx total", "rx buf alloc fail")),
            *(f"Rx Queue#0: drv dropped rx total: {name}" for name in ("err", "fcs")),
            "tx timeout count",
        ]
    ),
)
# drivers/net/virtio_net.c: virtnet_rq_stats_desc and virtnet_sq_stats_desc, as totals since 6.9.
_VIRTIO = Sets(
    "virtio_net",
    _names(
        "rx_drops rx_xdp_packets rx_xdp_tx rx_xdp_redirects rx_xdp_drops rx_kicks tx_xdp_tx tx_xdp_tx_drops"
        " tx_kicks tx_tx_timeouts"
    ),
)
# drivers/net/ethernet/intel/ice/ice_ethtool.c: ice_gstrings_pf_stats without rx_length_errors.nic, which is
# gone since, and ice_get_strings; a physical function has all of it, others none.
_ICE = Sets(
    "ice",
    frozenset(),
    (
        _names(
            "rx_bytes.nic tx_bytes.nic rx_unicast.nic tx_unicast.nic rx_multicast.nic tx_multicast.nic"
            " rx_broadcast.nic tx_broadcast.nic tx_errors.nic tx_timeout.nic rx_size_64.nic tx_size_64.nic"
            " rx_size_127.nic tx_size_127.nic rx_size_255.nic tx_size_255.nic rx_size_511.nic"
            " tx_size_511.nic rx_size_1023.nic tx_size_1023.nic rx_size_1522.nic tx_size_1522.nic"
            " rx_size_big.nic tx_size_big.nic link_xon_rx.nic link_xon_tx.nic link_xoff_rx.nic"
            " link_xoff_tx.nic tx_dropped_link_down.nic rx_undersize.nic rx_fragments.nic rx_oversize.nic"
            " rx_jabber.nic rx_csum_bad.nic rx_dropped.nic rx_crc_errors.nic illegal_bytes.nic"
            " mac_local_faults.nic mac_remote_faults.nic"
        )
        | _each(
            "tx_priority_#_xon.nic tx_priority_#_xoff.nic rx_priority_#_xon.nic rx_priority_#_xoff.nic",
            range(8),
        ),
    ),
)
ETHTOOL = (_MLX5, _BNXT, _VMXNET3, _VIRTIO, _ICE)
# Names that drivers of other makers have too.
_COMMON = _names("rx_packets rx_bytes tx_packets tx_bytes rx_drops duplicate_request out_of_buffer")

# "rx0_kicks" (virtio_net, mlx5), "ch0_events" (mlx5), "rx_queue_0_packets" (ice, older virtio_net),
# "[0]: rx_ucast_packets" (bnxt), "Tx Queue#0: ring full" (vmxnet3, as read).
_QUEUE = re.compile(
    r"(?P<kind>rx|tx|ch|rx_queue_|tx_queue_|\[|[TR]x Queue#)(?P<number>\d{1,4})(?:_|\]: |: )(?P<name>.+)\Z"
)
# mlx5 has these on some of its queues only.
_SOME = ("xdp", "xsk")
_BNXT_QUEUE = "["


def driver_of(counters: Mapping[str, int], known: Iterable[Sets]) -> Sets | None:
    """Return the driver whose names these are; None: a driver that is not known."""
    most = max(known, key=lambda sets: _overlap(counters, sets))
    return most if _overlap(counters, most) else None


def _overlap(counters: Mapping[str, int], sets: Sets) -> int:
    own = frozenset().union(sets.always, *sets.together) - _COMMON
    return sum(name in counters for name in own)


def missing(counters: Mapping[str, int], sets: Sets) -> list[str]:
    """Return the names that the driver must have reported and are not there."""
    lacking = set(sets.always - counters.keys())
    for names in sets.together:
        if not names.isdisjoint(counters):
            lacking |= names - counters.keys()
    return sorted(lacking)


def queues_missing(counters: Mapping[str, int]) -> str:
    """Return in words what is missing from counters that a driver reports for each of its queues, else "".

    Every name of one kind of queue has the same numbers, from 0 on. A bnxt without shared rings numbers them
    on: what receives first, then what sends.
    """
    numbers: dict[str, dict[str, set[int]]] = {}
    for counter in counters:
        if match := _QUEUE.match(counter):
            numbers.setdefault(match["kind"], {}).setdefault(match["name"], set()).add(int(match["number"]))
    for kind, names in numbers.items():
        # The rings of a bnxt are one series; its names may stop or begin where sending begins.
        whole = set().union(*names.values())
        if whole != set(range(len(whole))):
            lost = min(set(range(len(whole))) - whole)
            return f"nothing of {kind}{lost}"
        for name, own in names.items():
            if name.startswith(_SOME):
                continue
            if own != whole and not (kind == _BNXT_QUEUE and _is_side(own, whole, names.values())):
                return f"{kind}{min(whole - own)} has no {name}, others have"
    return ""


def _is_side(own: set[int], whole: set[int], others: Iterable[set[int]]) -> bool:
    """Tell a bnxt's receiving or sending rings: a run without gaps, and the other side has the rest."""
    run = own == set(range(min(own), max(own) + 1))
    return run and whole - own in list(others)


def sums_wrong(counters: Mapping[str, int]) -> str:
    """Return in words which total of virtio_net is not the sum of its queues, else "".

    It has as many queues to receive as to send.

    drivers/net/virtio_net.c, virtnet_fill_total_fields, adds them up from the same reading (since 6.9).
    """
    sums: dict[str, int] = {}
    queues: dict[str, set[str]] = {"rx": set(), "tx": set()}
    for counter, value in counters.items():
        if (match := _QUEUE.match(counter)) and match["kind"] in ("rx", "tx"):
            queues[match["kind"]].add(match["number"])
            name = f"{match['kind']}_{match['name']}"
            sums[name] = sums.get(name, 0) + value
    if "rx_kicks" not in counters and "tx_kicks" not in counters:
        return ""
    if queues["rx"] != queues["tx"]:
        return f"{len(queues['rx'])} queues receive, {len(queues['tx'])} send"
    for name in sorted(sums.keys() | {x for x in counters if x.startswith(("rx_", "tx_"))}):
        if name not in sums or name not in counters:
            return f"{name} is only in the total or only in the queues"
        if sums[name] != counters[name]:
            return f"{name} is {counters[name]}, the sum of its queues is {sums[name]}"
    return ""


class NicFamily(NamedTuple):
    """A family: its kernel drivers, and how it names its RDMA devices unless the site renames them."""

    name: str
    drivers: frozenset[str]
    device_prefix: str
    rdma: str  # of counter_sets.RDMA
    ethtool: str  # of counter_sets.ETHTOOL; empty: the netdev is another driver's


FAMILIES = (
    NicFamily("mlx5", frozenset({"mlx5", "mlx5_core", "mlx5_ib"}), "mlx5", "mlx5_ib", "mlx5_core"),
    NicFamily("bnxt", frozenset({"bnxt", "bnxt_en", "bnxt_re"}), "bnxt_re", "bnxt_re", "bnxt_en"),
    NicFamily("rxe", frozenset({"rxe", "rdma_rxe"}), "rxe", "rxe", ""),
    NicFamily("irdma", frozenset({"irdma", "ice"}), "irdma", "irdma", "ice"),
)
BY_NAME = {family.name: family for family in FAMILIES}
# What a family's drivers told wrongly: ice's first releases with FEC statistics have the corrected blocks
# under uncorrectable and the others under corrected (ice_ethtool.c, ice_get_port_fec_stats). No evidence.
UNTRUSTED = {"irdma": frozenset({"fec.corrected_blocks", "fec.uncorrectable_blocks"})}
# How many bits a chip gives its counters, where they are less than 64. mlx5: fields of 32 bits in the answer
# of its firmware (mlx5_ib_query_q_counters in drivers/infiniband/hw/mlx5/counters.c; link_down_events in
# en_stats.c).
_Q_COUNTERS = frozenset().union(*(s.always.union(*s.together) for s in RDMA if s.driver == "mlx5_ib"))
_OF_64_BITS = {"rp_cnp_ignored", "rp_cnp_handled", "np_ecn_marked_roce_packets", "np_cnp_sent"}
# bnxt: traffic, which older drivers show as the chip has it (bnxt.c, bnxt_accumulate_stats;
# bnxt_re/hw_counters.c).
_BNXT_TRAFFIC = (
    *(f"ethtool.{way}_good_frames" for way in ("rx", "tx")),
    *(f"rdma.{way}_{unit}" for way in ("rx", "tx") for unit in ("pkts", "bytes")),
)
BITS: dict[str, dict[str, int]] = {
    "mlx5": {
        **{f"rdma.{name}": 32 for name in _Q_COUNTERS - _OF_64_BITS},
        "ethtool.link_down_events_phy": 32,
    },
    "bnxt": dict.fromkeys(_BNXT_TRAFFIC, 48),
}


@functools.lru_cache(4096)  # a large site asks for each of its NICs, and they have few names
def family_of(driver: str | None, rdma_device: str) -> NicFamily | None:
    """Return the family of a NIC by its kernel driver, or by its RDMA device's name where that is not said.

    Distributions rename RDMA devices (rdma-core's rdma_rename: rocep65s0f0), and then only the driver tells.
    """
    for family in FAMILIES:
        if driver in family.drivers or (not driver and rdma_device.startswith(family.device_prefix)):
            return family
    return None


def unwrapped(family: NicFamily | None, name: str, before: int, after: int) -> int:
    """Return what a counter is after a test had it more bits than the chip gives it.

    One that went from the upper half of its range into the lower went over its end; any other that is less
    than before was set back.
    """
    bits = BITS.get(family.name, {}).get(name) if family else None
    if bits is None:
        return after
    whole = 1 << bits
    return after + whole if after < whole // 2 <= before < whole else after


def traffic_of_bnxt_back(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Whether traffic that a bnxt counted became less, and not because a counter went over its end."""
    return any(
        name in after and unwrapped(BY_NAME["bnxt"], name, value, after[name]) < value
        for name, value in before.items()
        if name in BITS["bnxt"]
    )


def lacking(family: NicFamily, counters: Mapping[str, int]) -> frozenset[str]:
    """Return the counters that a family's drivers always report and that a reading does not have.

    A reading without any counter of a source lacks all of it that is known of every NIC.
    """
    found = set[str]()
    for prefix, driver, known in (("rdma.", family.rdma, RDMA), ("ethtool.", family.ethtool, ETHTOOL)):
        sets = next((one for one in known if one.driver == driver), None)
        if sets is not None:
            own = {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix)}
            found |= {f"{prefix}{name}" for name in _missing(own, sets)}
    return frozenset(found)


def _missing(own: Mapping[str, int], sets: Sets) -> set[str]:
    if own:
        return set(missing(own, sets))
    return set(sets.always or (sets.together[0] if sets.together else ()))
