"""Counters of a healthy NIC before and after a test, under all the names that its driver has.

Made, not recorded: the names are the kernel's (nics/counter_sets.yml), the values drawn. Bits that FEC
corrects are drawn between 10^-12 and 10^-5 of the line's; marks, CNPs and
short pauses are those of a loaded network.
"""

import random

from shakedown.nics.counter_sets import BITS, ETHTOOL, RDMA
from shakedown.nics.families import BY_NAME

Reading = dict[str, int]
PRIORITY = 3
# Names that mlx5 and bnxt have beside the sets that every NIC of theirs reports.
MORE = {
    "mlx5": (
        "rdma.rx_icrc_encapsulated ethtool.link_down_events_phy ethtool.rx_pcs_symbol_err_phy"
        " ethtool.rx_corrected_bits_phy ethtool.rx_err_lane_0_phy ethtool.rx_prio3_discards"
        " ethtool.rx_prio3_buf_discard ethtool.rx_prio3_cong_discard ethtool.rx_prio3_marked"
        " ethtool.tx_pause_storm_warning_events ethtool.tx_pause_storm_error_events"
        " ethtool.outbound_pci_buffer_overflow ethtool.outbound_pci_stalled_wr ethtool.module_unplug"
        " ethtool.module_bus_stuck ethtool.module_high_temp ethtool.module_bad_shorted"
        " ethtool.rx_out_of_buffer fec.corrected_blocks fec.uncorrectable_blocks fec.corrected_bits"
        " devlink.fw_errors devlink.fw_fatal_errors dom.alarms dom.alarms_seen dom.warnings"
        " dom.temperature_mc"
    ),
    "bnxt": (
        "rdma.oos_drop_count rdma.rx_ecn_marked_pkts ethtool.link_down_events ethtool.continuous_pause_events"
        " ethtool.continuous_roce_pause_events ethtool.rx_bits ethtool.rx_corrected_bits"
        " ethtool.rx_pcs_symbol_err ethtool.rx_fec_corrected_blocks ethtool.rx_fec_uncorrectable_blocks"
        " ethtool.pfc_pri3_rx_duration_us ethtool.pfc_pri3_tx_duration_us ethtool.pfc_pri3_rx_transitions"
        " ethtool.pfc_pri3_tx_transitions devlink.fw_errors devlink.hw_errors"
        " dom.alarms dom.alarms_seen dom.warnings dom.temperature_mc"
    ),
    "irdma": (
        "fec.corrected_blocks fec.uncorrectable_blocks dom.alarms dom.alarms_seen dom.warnings"
        " dom.temperature_mc"
    ),
}
# Not on an E810: the counters of younger chips, and names that took the place of those before them.
YOUNGER = (
    *("RNR_", "_limit_count", "Nak_Seq", "rdma.RTO", "Rcvd_Out", "CRC_errors"),
    *("rdma.RetransSegs", "rdma.In", "rdma.OutSegs"),
)
NETDEV = "rx_packets tx_packets rx_bytes tx_bytes rx_dropped tx_dropped carrier_down_count carrier_up_count"
# What grows while a healthy network carries load; everything else stands still.
_GROWS = (
    *(
        "packets",
        "bytes",
        "_pkts",
        "good_frames",
        "_req",
        "_requests",
        "read_resp",
        "cnp_sent",
        "cnp_handled",
    ),
    *("marked", "Octets", "InPkts", "OutPkts", "UDP", "unicast.nic", "rx_bytes.nic", "tx_bytes.nic"),
    *("cnpSent", "cnpHandled", "RxECNMrkd"),
)
_NO_TRAFFIC = "illegal_bytes.nic"


def names(family: str) -> list[str]:
    """Every counter of a NIC of this family."""
    own = BY_NAME[family]
    found = [f"netdev.{name}" for name in NETDEV.split()] + MORE.get(family, "").split()
    for prefix, driver, known in (("rdma.", own.rdma, RDMA), ("ethtool.", own.ethtool, ETHTOOL)):
        for sets in known:
            if sets.driver == driver:
                found += [f"{prefix}{name}" for name in sets.always.union(*sets.together)]
    # PFC and global pause exclude each other, and pause is counted where PFC is on.
    off = [f"_prio{n}_pause" for n in range(8) if n != PRIORITY] + ["global_pause"]
    off += list(YOUNGER) if family == "irdma" else []
    return sorted({name for name in found if not any(part in name for part in off)})


def healthy(family: str, draw: random.Random, seconds: float, speed_mbps: int) -> tuple[Reading, Reading]:
    """One NIC around a test of so many seconds in which it received three quarters of the line's rate."""
    before: Reading = {}
    wrapping = {name for name, bits in BITS.get(family, {}).items() if bits == 32}
    for name in names(family):
        wraps = name in wrapping
        before[name] = draw.randrange(1 << 32 if wraps else 1 << draw.choice((1, 8, 30, 45)))
        if name.startswith("dom."):
            before[name] = 41_000 if name == "dom.temperature_mc" else 0
    after = dict(before)
    received = int(0.75 * speed_mbps * 1e6 / 8 * seconds)
    for name in names(family):
        if name.endswith(_GROWS) or (
            not name.endswith(_NO_TRAFFIC)
            and any(part in name for part in ("_bytes", "_packets", "cnp_", "ecn_"))
        ):
            all_of_it = name.endswith(("bytes", "bytes_pri3"))
            after[name] += received if all_of_it else draw.randrange(1, received // 4096 + 2)
    for name in ("rdma.rp_cnp_ignored", "rdma.rx_icrc_encapsulated"):
        if name in after:
            after[name] = before[name]
    line_bits = speed_mbps * 1e6 * seconds
    corrected = int(10 ** draw.uniform(-12, -5) * line_bits)
    for name in after:
        if "corrected_bits" in name or "err_lane" in name:
            after[name] += corrected
        elif name in ("fec.corrected_blocks", "ethtool.rx_fec_corrected_blocks"):
            after[name] += corrected // 3
        elif "prio3_pause_duration" in name or (name.startswith("ethtool.pfc_pri3_") and "duration" in name):
            after[name] += int(draw.expovariate(100) * seconds * 1e6)
        elif name in ("rdma.out_of_buffer", "rdma.rx_out_of_buffer", "netdev.rx_dropped"):
            after[name] += draw.randrange(50)
    return before, {name: value % (1 << 32) if name in wrapping else value for name, value in after.items()}
