"""perftest: ib_write, ib_read, ib_send and ib_atomic, bandwidth and latency: what a run gave.

What perftest up to 23.x calls "MB/sec" is MiB/s: its format factor is 0x100000 bytes; `--report_gbits`
divides by 125,000,000 bytes (perftest_parameters.c, print_report_bw). Results here are always in Gb/s.
"""

from typing import Literal

from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count

GBPS_PER_MIB_PER_S = 2**20 * 8 / 1e9  # MiB/s to Gb/s: 2^20 bytes of 8 bits, over 10^9

Operation = Literal["write", "write_imm", "read", "send", "send_imm", "atomic"]
Kind = Literal["bandwidth", "latency"]
Unit = Literal["MiB/s", "Gb/s"]

# perftest's own names (testsStr), longest first.
OPERATIONS: dict[str, Operation] = {
    "RDMA_Write_imm": "write_imm",
    "RDMA_Write": "write",
    "RDMA_Read": "read",
    "Send_imm": "send_imm",
    "Send": "send",
    "Atomic": "atomic",
}


class BandwidthRow(Record):
    """One message size of a bandwidth test. Of a bidirectional test it is the sum of both directions."""

    size_bytes: Count
    iterations: Count
    bw_peak_gbps: Amount | None  # None: not measured (duration mode, --noPeak, more than 20,000 iterations)
    bw_average_gbps: Amount
    message_rate_mpps: Amount  # 10^6 messages/s
    cpu_util_percent: Amount | None = None


class LatencyRow(Record):
    """One message size of a latency test, in microseconds.

    It is half the round trip for write and send, the whole of it for read and atomic. Duration mode (-D)
    measures only the average and the transactions per second; the rest is None. With -C perftest prints
    cycles under the same heading, which no parser can tell: do not use -C.
    """

    size_bytes: Count
    iterations: Count
    t_min_us: Amount | None = None
    t_max_us: Amount | None = None
    t_typical_us: Amount | None = None  # the median
    t_avg_us: Amount
    t_stdev_us: Amount | None = None  # None also where perftest overflows and prints "-nan"
    t_p99_us: Amount | None = None
    t_p999_us: Amount | None = None
    transactions_per_s: Amount | None = None
    cpu_util_percent: Amount | None = None


class PerftestResult(Record):
    """One perftest run, as one side saw it. Either `bandwidth` or `latency` has rows."""

    tool: Literal["perftest"] = "perftest"
    operation: Operation
    kind: Kind
    bidirectional: bool
    multicast: bool
    post_list: bool
    side: Literal["client", "server"]
    device: str
    dual_port: bool
    queue_pairs: Count
    transport: str  # IB (also RoCE) or IW
    connection: str  # RC, UC, UD, XRC, DC, SRD
    mtu_bytes: Count
    link_layer: str  # Ethernet or IB
    gid_index: Count | None  # None: no GID was used
    # RoCE v2 over IPv4 has the addresses in the GIDs. None: other GIDs, or several.
    local_ipv4: str | None = None
    remote_ipv4: str | None = None
    rdma_cm: bool
    tos: Count | None  # type of service set with -T; rdma_cm only
    gpu_buffer: bool
    gpu_dmabuf: bool
    reported_unit: Unit | None  # what the tool printed; None for latency
    bandwidth: tuple[BandwidthRow, ...] = ()
    latency: tuple[LatencyRow, ...] = ()
    warnings: tuple[str, ...] = ()
