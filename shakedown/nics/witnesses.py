"""Which counter is a witness of which fault, by family of drivers; the page docs/reference/nic-counters.md.

A counter stands here as the references name it, `prioN` for the site's own RoCE priority. What no counter of
a NIC sees, a measurement sees: it is named beside.
"""

from __future__ import annotations

from typing import NamedTuple


class WitnessCell(NamedTuple):
    """A judged cell of a plan that is no counter: its test and metric, and which check or setting of it."""

    test: str
    metric: str
    of: str = ""


class WitnessFault(NamedTuple):
    """A fault and what sees it.

    Attributes:
        name: for tests and the page.
        text: what is wrong.
        points_at: where to look: cable, host, switch, fabric.
        counters: by family, those that are judged; the first is named in the page as the best.
        measured: the judged measurement that sees it, where counters of NICs do not or not alone.
        cells: the same as the plan has it, where the site asks for it.
    """

    name: str
    text: str
    points_at: str
    counters: dict[str, tuple[str, ...]]
    measured: str = ""
    cells: tuple[WitnessCell, ...] = ()

    def witnessed(self, family: str) -> bool:
        """Whether something that is judged sees it on NICs of a family: a counter, or a cell beside."""
        return bool(self.counters.get(family) or self.cells)


_BANDWIDTH = WitnessCell("ib_write_bw", "bandwidth")
_BER, _SYMBOLS = "phy.pre_fec_ber_e12", "phy.symbol_errors_e15"
FAULTS = (
    WitnessFault(
        "loss",
        "packets lost on the way",
        "fabric",
        {
            "mlx5": ("rdma.out_of_sequence", "rdma.packet_seq_err", "rdma.implied_nak_seq_err"),
            "bnxt": ("rdma.seq_err_naks_rcvd", "rdma.oos_drop_count"),
            "rxe": ("rdma.out_of_seq_request", "rdma.rcvd_seq_err"),
        },
    ),
    WitnessFault(
        "reordering",
        "packets out of order (unless acceptance.reorders allows it)",
        "fabric",
        {
            "mlx5": ("rdma.out_of_sequence",),
            "bnxt": ("rdma.oos_drop_count", "rdma.seq_err_naks_rcvd"),
            "rxe": ("rdma.out_of_seq_request",),
        },
    ),
    WitnessFault(
        "lost-answers",
        "acknowledgements or answers lost: the sender waits and repeats",
        "fabric",
        {"mlx5": ("rdma.local_ack_timeout_err",), "bnxt": ("rdma.to_retransmits", "rdma.missing_resp")},
        "a rate below its floor (on rxe)",
    ),
    WitnessFault(
        "retries-exceeded",
        "a connection given up after its retries",
        "fabric",
        {
            "mlx5": ("rdma.req_transport_retries_exceeded", "rdma.local_ack_timeout_err"),
            "bnxt": ("rdma.max_retry_exceeded",),
            "rxe": ("rdma.retry_exceeded_err",),
        },
    ),
    WitnessFault(
        "receiver-not-ready",
        "the receiver had no buffer posted: its software is slow",
        "host",
        {"mlx5": ("rdma.rnr_nak_retry_err",), "bnxt": ("rdma.rnr_naks_rcvd",)},
        "a rate below its floor (on rxe)",
    ),
    WitnessFault(
        "nic-buffer-full",
        "the NIC threw packets of the lossless class away: headroom too small, or PCIe too slow",
        "host",
        {
            "mlx5": (
                "ethtool.rx_prioN_buf_discard",
                "ethtool.rx_prioN_discards",
                "ethtool.rx_prioN_cong_discard",
                "ethtool.rx_discards_phy",
            ),
            "bnxt": ("rdma.rx_roce_discards",),
            "irdma": ("ethtool.rx_dropped.nic",),
        },
        "the sender's own sequence errors (on rxe)",
    ),
    WitnessFault(
        "sending-discards",
        "the NIC threw packets away instead of sending them",
        "host",
        {
            "mlx5": ("ethtool.tx_discards_phy", "ethtool.tx_errors_phy"),
            "bnxt": ("ethtool.tx_err", "ethtool.tx_fifo_underruns"),
            "irdma": ("ethtool.tx_errors.nic", "ethtool.tx_timeout.nic"),
        },
    ),
    WitnessFault(
        "wrong-class",
        "RoCE arrives in another priority than the intent's",
        "switch",
        {"mlx5": ("class.prioN_missed_ppm",), "bnxt": ("class.prioN_missed_ppm",)},
        "the leaf's own counters by queue",
        (WitnessCell("traffic_class", "share"),),
    ),
    WitnessFault(
        "sent-in-wrong-class",
        "RoCE leaves this host in another priority than the intent's: its own marking is wrong",
        "host",
        {"mlx5": ("class.prioN_tx_missed_ppm",), "bnxt": ("class.prioN_tx_missed_ppm",)},
        "the leaf's own counters by queue",
        (WitnessCell("traffic_class", "share"),),
    ),
    WitnessFault(
        "pause-storm",
        "pause for half of the time or without end",
        "host",
        {
            "mlx5": ("ethtool.tx_pause_storm_error_events", "pause.prioN_tx_ppm", "pause.prioN_rx_ppm"),
            "bnxt": ("ethtool.continuous_roce_pause_events", "pause.prioN_tx_ppm", "pause.prioN_rx_ppm"),
        },
    ),
    WitnessFault(
        "slow-host",
        "a NIC pauses its sender although nothing is congested: PCIe, IOMMU or memory behind it",
        "host",
        {"mlx5": ("pause.prioN_unmarked_ppm",), "bnxt": ("pause.prioN_unmarked_ppm",)},
    ),
    WitnessFault(
        "global-pause",
        "the neighbour, or the NIC itself, sends global pause instead of PFC",
        "switch",
        {
            "mlx5": ("ethtool.rx_global_pause", "ethtool.tx_global_pause"),
            "bnxt": ("ethtool.rx_pause_frames", "ethtool.tx_pause_frames"),
            "irdma": ("ethtool.link_xoff_rx.nic", "ethtool.link_xoff_tx.nic"),
        },
    ),
    WitnessFault(
        "pfc-off",
        "PFC is off on the NIC",
        "host",
        {"mlx5": ("pause.prioN_rx_ppm",)},
        "the settings' read-back of the config stage (bnxt counts pause frames whether PFC is on or not)",
        (WitnessCell("settings", "wrong", "pfc.priorities"),),
    ),
    WitnessFault(
        "cnp-ignored",
        "congestion notices are ignored: DCQCN is off for the priority",
        "host",
        {"mlx5": ("rdma.rp_cnp_ignored",), "irdma": ("rdma.cnpIgnored",)},
        "the settings' read-back of the config stage (bnxt has no counter of CNPs that it ignored)",
        (WitnessCell("settings", "wrong", "others"),),
    ),
    WitnessFault(
        "flap",
        "the link went down",
        "cable",
        {
            "mlx5": ("ethtool.link_down_events_phy", "netdev.carrier_down_count"),
            "bnxt": ("ethtool.link_down_events", "netdev.carrier_down_count"),
            "rxe": ("rdma.link_downed",),
            "irdma": (
                "netdev.carrier_down_count",
                "ethtool.mac_local_faults.nic",
                "ethtool.mac_remote_faults.nic",
                "ethtool.tx_dropped_link_down.nic",
            ),
        },
    ),
    WitnessFault(
        "damaged-frames",
        "frames damaged on the cable",
        "cable",
        {
            "mlx5": ("ethtool.rx_crc_errors_phy",),
            "bnxt": ("ethtool.rx_fcs_err_frames",),
            "irdma": ("ethtool.rx_crc_errors.nic", "ethtool.illegal_bytes.nic"),
        },
    ),
    WitnessFault(
        "symbol-errors", "symbols that stay wrong", "cable", {"mlx5": (_SYMBOLS,), "bnxt": (_SYMBOLS,)}
    ),
    WitnessFault(
        "high-ber",
        "FEC corrects more bits than the standard allows: the link's margin is gone",
        "cable",
        {"mlx5": (_BER,), "bnxt": (_BER,)},
    ),
    WitnessFault(
        "uncorrectable",
        "blocks that FEC cannot mend",
        "cable",
        {
            "mlx5": ("fec.uncorrectable_blocks", _SYMBOLS),
            "bnxt": ("ethtool.rx_fec_uncorrectable_blocks", _SYMBOLS),
        },
    ),
    WitnessFault(
        "mtu",
        "frames longer than this host's MTU",
        "switch",
        {
            "mlx5": ("ethtool.rx_oversize_pkts_phy",),
            "bnxt": ("ethtool.rx_mtu_err_frames",),
            "irdma": ("ethtool.rx_oversize.nic",),
        },
    ),
    WitnessFault(
        "icrc",
        "packets damaged behind the cable's own check: a switch's memory, or something that rewrites them",
        "switch",
        {"mlx5": ("rdma.rx_icrc_encapsulated",), "bnxt": ("rdma.rx_roce_errors",)},
    ),
    WitnessFault(
        "pcie-errors",
        "the NIC's way to memory fails or is full",
        "host",
        {
            "mlx5": ("ethtool.outbound_pci_buffer_overflow",),
            "bnxt": ("rdma.res_tx_pci_err", "rdma.res_rx_pci_err"),
        },
    ),
    WitnessFault(
        "firmware",
        "the NIC's firmware or hardware reports an error to the driver",
        "host",
        {
            "mlx5": ("devlink.fw_errors", "devlink.fw_fatal_errors"),
            "bnxt": ("devlink.fw_errors", "devlink.hw_errors"),
        },
    ),
    WitnessFault(
        "module",
        "the cable's module is hot, shorted or was pulled",
        "cable",
        {
            "mlx5": (
                "ethtool.module_high_temp",
                "ethtool.module_bad_shorted",
                "ethtool.module_unplug",
                "module.alarms",
            ),
            "bnxt": ("module.alarms",),
            "irdma": ("module.alarms",),
        },
    ),
    WitnessFault(
        "weak-light",
        "light, current, voltage or temperature beyond the thresholds that the module has of itself",
        "cable",
        {
            "mlx5": ("module.alarms", "module.warnings"),
            "bnxt": ("module.alarms", "module.warnings"),
            "irdma": ("module.alarms", "module.warnings"),
        },
    ),
    WitnessFault(
        "small-mtu",
        "RDMA MTU of 1024 or 2048 bytes (at most 92.6 or 96.2 % of the link)",
        "host",
        {},
        "ib_write_bw against the MTU's ceiling, and the settings' read-back: no NIC counts packets by MTU",
        (WitnessCell("settings", "wrong", "mtu.rdma_bytes"), _BANDWIDTH),
    ),
    WitnessFault(
        "narrow-pcie",
        "PCIe trained down (Gen4 x16 or Gen5 x8 on a 400G NIC)",
        "host",
        {"mlx5": ("pause.prioN_unmarked_ppm",), "bnxt": ("pause.prioN_unmarked_ppm",)},
        "ib_write_bw at half rate, and the read-back of LnkSta",
        (_BANDWIDTH,),
    ),
    WitnessFault(
        "half-rate",
        "one of a node's NICs at half rate",
        "cable",
        {},
        "ib_write_bw of that rail, the ring's busbw, and the link's speed: a slow link counts no error",
        (WitnessCell("settings", "wrong", "link.speed_gbps"), _BANDWIDTH),
    ),
    WitnessFault(
        "tcp-fallback",
        "collectives over TCP",
        "host",
        {},
        "NCCL's log, and RDMA bytes that did not move",
        (WitnessCell("nccl_transport", "wrong", "network"),),
    ),
    WitnessFault(
        "nvls-off",
        "collectives inside a node without NVLink SHARP, where it is wanted (8 x H200: 367 for 480 GB/s)",
        "host",
        {},
        "NCCL's log, and the busbw against the reference of that algorithm: no NIC takes part",
        (WitnessCell("nccl_transport", "wrong", "nvls"),),
    ),
    WitnessFault(
        "nothing-held-back",
        "PFC and ECN are configured and do nothing when many send to one",
        "switch",
        {},
        "incast: pause frames, marks and notices while a port is overloaded (none is no error of a NIC)",
        (WitnessCell("incast", "held_back"),),
    ),
    WitnessFault(
        "no-gpudirect",
        "copies through host memory",
        "host",
        {},
        "NCCL's log, channel by channel, and perftest from GPU memory: to the NIC all memory is alike",
        (WitnessCell("nccl_transport", "wrong", "gdr"), WitnessCell("gpudirect_write", "wrong_memory")),
    ),
)
# What NICs count that is no fault by itself: kept in counters.jsonl, judged by no limit.
CONTEXT = {
    "mlx5": (
        "rdma.np_ecn_marked_roce_packets",
        "rdma.np_cnp_sent",
        "rdma.rp_cnp_handled",
        "rdma.out_of_buffer",
        "rdma.duplicate_request",
        "rdma.roce_slow_restart",
        "rdma.roce_adp_retrans",
        "ethtool.rx_prioN_pause",
        "ethtool.tx_prioN_pause",
        "ethtool.tx_pause_storm_warning_events",
        "ethtool.rx_corrected_bits_phy",
        "ethtool.outbound_pci_stalled_wr",
        "ethtool.rx_out_of_buffer",
    ),
    "bnxt": (
        "rdma.rx_out_of_buffer",
        "rdma.dup_req",
        "ethtool.rx_pfc_ena_frames_priN",
        "ethtool.tx_pfc_ena_frames_priN",
        "ethtool.rx_corrected_bits",
        "ethtool.rx_stat_discard",
    ),
    "rxe": ("rdma.duplicate_request", "rdma.rcvd_rnr_err", "rdma.completer_retry_err"),
    "irdma": (
        "rdma.RxECNMrkd",
        "rdma.cnpSent",
        "rdma.cnpHandled",
        "rdma.ip4InDiscards",
        "ethtool.rx_priority_N_xoff.nic",
        "ethtool.tx_priority_N_xoff.nic",
    ),
}


def seen(family: str) -> tuple[WitnessFault, ...]:
    """Return the faults of which a family has a judged counter."""
    return tuple(fault for fault in FAULTS if fault.counters.get(family))


def unseen(family: str) -> tuple[WitnessFault, ...]:
    """Return the faults that no counter of a family sees."""
    return tuple(fault for fault in FAULTS if not fault.counters.get(family))
