"""Writes what perftest would print, column for column, for every test, version and side.

The layouts follow perftest 4.5 (Debian 12) and 25.01 (Debian 13). Real captures are in captures/.
"""

from collections.abc import Sequence

DASHES = "-" * 87
WAITING = ["", "*" * 36, "* Waiting for client to connect... *", "*" * 36]
CLOCK = "Conflicting CPU frequency values detected: 1000.000000 != 3299.999000. CPU Frequency is not max."
TITLES = {"write": "RDMA_Write", "read": "RDMA_Read", "send": "Send"}


def header(
    op: str, kind: str, *, new: bool, bidirectional: bool = False, server: bool = False, rdma_cm: bool = False
) -> list[str]:
    """Everything from the first line to the dashes above the table."""
    words = [TITLES[op], *(["Bidirectional"] if bidirectional else []), "BW" if kind == "bw" else "Latency"]
    words += ["Test"]
    lock, ddp = ("\t\tLock-free      : OFF", "\t\tUsing DDP      : OFF") if new else ("", "")
    address = "LID 0000 QPN 0x0011 PSN 0x0bad1d"
    address += {"write": " RKey 0x0004d1 VAddr 0x0bad00001000", "read": " OUT 0x80 RKey 0x1 VAddr 0x2"}.get(
        op, ""
    )
    lines = [
        *(WAITING if server else []),
        DASHES,
        " " * 20 + " ".join(words),
        " Dual-port       : OFF\t\tDevice         : rxe0",
        " Number of qps   : 2\t\tTransport type : IB",
        " Connection type : RC\t\tUsing SRQ      : OFF",
        f" PCIe relax order: Unsupported{lock}",
        f" ibv_wr* API     : OFF{ddp}",
        *([] if server and not bidirectional else [" TX depth        : 128"]),
        *([" CQ Moderation   : 1"] if kind == "bw" else []),
        " Mtu             : 4096[B]",
        " Link type       : Ethernet",
        " GID index       : 1",
        " Outstand reads  : 128" if op == "read" else " Max inline data : 0[B]",
        f" rdma_cm QPs\t : {'ON' if rdma_cm else 'OFF'}",
        f" Data ex. method : {'rdma_cm' if rdma_cm else 'Ethernet'}" + (" \tTOS    : 106" if rdma_cm else ""),
        DASHES,
        f" local address: {address}",
        " GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:10:01",
        f" remote address: {address}",
        " GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:10:02",
        DASHES,
    ]
    return lines


def bw_row(size: int, iterations: int, peak: float, average: float, rate: float) -> str:
    """A row of a bandwidth table."""
    return f" {size:<7}    {iterations:<10}       {peak:<7.2f}            {average:<7.2f}\t\t   {rate:<7.6f}"


def bw_heading(unit: str, cpu: bool = False) -> str:
    """The heading of a bandwidth table; `unit` is MB, MiB or Gb."""
    text = f" #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]"
    return text + ("    CPU_Util[%]" if cpu else "")


LAT_HEADING = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec] "
)
LAT_DURATION_HEADING = " #bytes        #iterations       t_avg[usec]    tps average"


def lat_row(size: int, iterations: int, columns: Sequence[float]) -> str:
    """A row of a latency table: min, max, typical, average, stdev, 99 %, 99.9 %."""
    a, b, c, d, e, f, g = (f"{x:<7.2f}" for x in columns)
    return f" {size:<7} {iterations}          {a}        {b}      {c}  \t       {d}     \t{e}\t\t{f} \t\t{g}"


def lat_duration_row(size: int, iterations: int, average: float, tps: float) -> str:
    """A row of a latency table in duration mode."""
    return f" {size:<7}       {iterations}            {average:<7.2f}        {tps:<7.2f}"


def document(head: list[str], heading: str, rows: list[str]) -> str:
    """A whole output."""
    return "\n".join([*head, heading, *rows, DASHES, ""])


def bandwidth_of(size: int, rate: float, unit: str) -> float:
    """What perftest computes for a message rate in 10^6/s."""
    return rate * 1e6 * size / (125_000_000 if unit == "Gb" else 0x100000)


def sweep(unit: str, rate: float = 0.25) -> list[str]:
    """The rows of `-a` at one message rate."""
    return [
        bw_row(1 << i, 5000, bandwidth_of(1 << i, rate, unit), bandwidth_of(1 << i, rate, unit), rate)
        for i in range(1, 24)
    ]
