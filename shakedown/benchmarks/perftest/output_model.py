"""perftest: ib_write, ib_read, ib_send and ib_atomic, bandwidth and latency: what a run gave.

What perftest up to 23.x calls "MB/sec" is MiB/s: its format factor is 0x100000 bytes; `--report_gbits`
divides by 125,000,000 bytes (perftest_parameters.c, print_report_bw). Results here are always in Gb/s.
"""

from typing import Literal, NamedTuple

from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count, Line, TextSource, half_digit, quote

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


class Printed(NamedTuple):
    """A number and half a unit of the last digit that was printed of it."""

    value: float
    half: float


def printed(source: TextSource, token: object, what: str, line: Line | None = None) -> Printed:
    """Read a number as it was printed."""
    value = source.number(token, what, line=line)
    return Printed(value, half_digit(str(token)))


def consistent(unit: Unit, size: int, average: Printed, rate: Printed) -> bool:
    """Whether bandwidth = size x message rate, as far as the printed digits can tell.

    perftest computes both from the same count and time, so a difference means that a digit was lost.
    """
    per_message = size / 2**20 if unit == "MiB/s" else size * 8 / 1e9
    slack = 1.01 * (average.half + rate.half * 1e6 * per_message) + 1e-9 * average.value
    return abs(average.value - rate.value * 1e6 * per_message) <= slack


def bandwidth_row(
    source: TextSource,
    line: Line | None,
    unit: Unit,
    *,
    size: int,
    iterations: int,
    peak: float,
    average: Printed,
    rate: Printed,
    cpu: float | None,
) -> BandwidthRow:
    """Build a row in Gb/s from one in the tool's unit; a row that contradicts itself is refused."""
    if not consistent(unit, size, average, rate):
        what = f"average {average.value} {unit} and {rate.value} million messages/s of {size} bytes"
        source.refuse(
            f"{what} contradict each other", line=line, fix="run the test again; the output is damaged"
        )
    factor = 1.0 if unit == "Gb/s" else GBPS_PER_MIB_PER_S
    return source.build(
        BandwidthRow,
        line=line,
        size_bytes=size,
        iterations=iterations,
        # perftest prints 0.00 for a peak that it did not look for.
        bw_peak_gbps=None if peak == 0 else peak * factor,
        bw_average_gbps=average.value * factor,
        message_rate_mpps=rate.value,
        cpu_util_percent=cpu,
    )


def deviation(source: TextSource, token: object, line: Line | None = None) -> float | None:
    """Read t_stdev, None where perftest prints "-nan".

    It squares in 32 bits: beyond 46 ms of deviation the sum turns negative and has no root. The other
    columns are right all the same, so the deviation alone is not known.
    """
    return None if token in {"nan", "-nan"} else source.number(token, "t_stdev", line=line)


def latency_row(source: TextSource, line: Line | None, **fields: object) -> LatencyRow:
    """Build a row; one whose order statistics are out of order is refused."""
    row = source.build(LatencyRow, line=line, **fields)
    ordered = [row.t_min_us, row.t_typical_us, row.t_p99_us, row.t_p999_us, row.t_max_us]
    known = [x for x in ordered if x is not None]
    if known and (known != sorted(known) or not known[0] <= row.t_avg_us <= known[-1]):
        source.refuse(
            "latencies contradict each other: min, typical, 99 %, 99.9 % and max must rise",
            line=line,
            fix="run the test again; the output is damaged",
        )
    return row


def switch(source: TextSource, word: object, what: str, line: Line | None = None) -> bool:
    """Read perftest's ON or OFF."""
    if word not in {"ON", "OFF"}:
        source.refuse(f"{what} should be ON or OFF but is {quote(word)}", line=line)
    return word == "ON"
