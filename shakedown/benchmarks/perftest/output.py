"""perftest's text output, 4.5 (Debian 12) to 26.x: `parse_perftest` is the entry point."""

import re
from pathlib import Path
from typing import Literal

from shakedown.benchmarks.perftest.mesh.perftest import CLOCK_UNKNOWN, clock_unknown
from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count, Line, TextSource, half_digit, quote

# What perftest up to 23.x calls "MB/sec" is MiB/s: its format factor is 0x100000 bytes; `--report_gbits`
# divides by 125,000,000 bytes (perftest_parameters.c, print_report_bw). Results here are always in Gb/s.
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


# Read from perftest's own source: ctx_print_test_info and print_full_bw_report in perftest_parameters.c,
# ctx_print_pingpong_data in perftest_communication.c. An output is complete when a line of dashes closes the
# table of results. stderr may be mixed in: known warnings are kept, errors refuse the whole output.

_DASHES = re.compile(r"-{87,}\Z")
_TITLE = re.compile(
    r"(?P<op>" + "|".join(OPERATIONS) + r")(?: (?:CMP_AND_SWAP|FETCH_AND_ADD))?(?P<bi> Bidirectional)?"
    r"(?P<list> Post List)? (?P<kind>BW|Latency)(?P<mc> Multicast)? Test\Z"
)
_FACTS = {
    "dual_port": re.compile(r"\bDual-port\s*:\s*(\S+)"),
    "device": re.compile(r"\bDevice\s*:\s*(\S+)"),
    "queue_pairs": re.compile(r"\bNumber of qps\s*:\s*(\S+)"),
    "transport": re.compile(r"\bTransport type\s*:\s*(\S+)"),
    "connection": re.compile(r"\bConnection type\s*:\s*(\S+)"),
    "mtu_bytes": re.compile(r"\bMtu\s*:\s*(\S+?)(?:\[B\])?\s*\Z"),
    "link_layer": re.compile(r"\bLink type\s*:\s*(\S+)"),
    "gid_index": re.compile(r"\bGID index\s*:\s*(\S+)"),
    "rdma_cm": re.compile(r"\brdma_cm QPs\s*:\s*(\S+)"),
    "tos": re.compile(r"\bTOS\s*:\s*(\S+)"),
}
_OPTIONAL_FACTS = ("gid_index", "tos")
_SWITCHES = ("dual_port", "rdma_cm")
_NUMBERS = ("queue_pairs", "mtu_bytes", "gid_index", "tos")

_WAITS = ("* Waiting for client", "Waiting for client rdma_cm")
_ADDRESS = re.compile(r"(local|remote) address: ")
# A GID is printed byte by byte, in decimals; an IPv4 address is mapped into it (RFC 4291, 2.5.5.2).
_GID = re.compile(r"M?GID\s*:")
_IPV4_GID = re.compile(r"GID\s*: (?:00:){10}255:255:(\d{2,3}):(\d{2,3}):(\d{2,3}):(\d{2,3})\Z")

# Table headings, without blanks; the optional last column is --cpu_util.
_BW_HEADING = re.compile(
    r"#bytes#iterationsBWpeak\[(?P<u>MB|MiB|Gb)/sec\]BWaverage\[(?P=u)/sec\]MsgRate\[Mpps\](?P<cpu>CPU_Util\[%\])?\Z"
)
_LAT_HEADING = re.compile(
    r"#bytes#iterationst_min\[usec\]t_max\[usec\]t_typical\[usec\]t_avg\[usec\]t_stdev\[usec\]"
    r"99%percentile\[usec\]99\.9%percentile\[usec\](?P<cpu>CPU_Util\[%\])?\Z"
)
_LAT_DURATION_HEADING = re.compile(r"#bytes#iterationst_avg\[usec\]tpsaverage(?P<cpu>CPU_Util\[%\])?\Z")
_LAT_COLUMNS = ("t_min_us", "t_max_us", "t_typical_us", "t_avg_us", "t_stdev_us", "t_p99_us", "t_p999_us")
_LAT_DURATION_COLUMNS = ("t_avg_us", "transactions_per_s")

# stderr may land between two rows of the table; these are the warnings that perftest writes then.
_CLOCK_WARNING = re.compile(
    r"(?:Conflicting CPU frequency values detected: [0-9.]+ != [0-9.]+\. CPU Frequency is not max\."
    r"|Correlation coefficient r\^2: [0-9.e+-]+ < 0\.9)\Z"
)
_WARNING = re.compile(
    r"Conflicting CPU frequency values detected|Correlation coefficient r\^2|warning: "
    r"|Unable to connect \(retries = |Requested mtu is higher than active mtu"
    r"|Changing to this MTU|Requested SQ size might be too big"
    r"|VALIDATION: WARNING ",  # perftest 26, of a test whose data nothing compared
    re.IGNORECASE,
)
# Lines that every test prints; their numbers may spell anything ("0x0bad").
_ROUTINE = re.compile(
    r"(?:local|remote) address: LID |M?GID\s*: |-{10,}\Z|\*{10,}\Z|\* Waiting for client to connect"
    r"|(?:Dual-port|Number of qps|Connection type|PCIe relax order|ibv_wr\* API|[TR]X depth|CQ Moderation|Mtu"
    r"|Post List|Recv Post List|Link type|GID index2?|Max inline data|Outstand reads|rdma_cm QPs"
    r"|Use \w+ memory|Data ex\. method)\s*: "
)
_ERROR = re.compile(
    r"couldn't|unable to|fail|error|problem|invalid|unexpected|unsupported|not supported|isn't supported"
    r"|not found|incompatib|abort|bad |can't|exited|did not get message|no ib devices|segmentation|killed",
    re.IGNORECASE,
)


class _Text:
    """One pass over the lines: preamble, facts of the test, addresses, table, nothing more."""

    def __init__(self, source: TextSource) -> None:
        self.source = source
        self.lines = [line for line in source.lines if line.text.strip()]
        self.warnings: list[str] = list(source.others)
        self.seen: list[str] = []

    def parse(self, report_gbits: bool | None) -> PerftestResult:
        start, title = self._title()
        table, end = self._table(start)
        facts = self._facts(self.lines[start:table])
        for line in self.lines[:table] + self.lines[end + 1 :]:
            self._note(line)
        kind: Kind = "bandwidth" if title["kind"] == "BW" else "latency"
        rows = self._rows(self.lines[table + 1 : end])
        bandwidth: tuple[BandwidthRow, ...] = ()
        latency: tuple[LatencyRow, ...] = ()
        unit: Unit | None = None
        if kind == "bandwidth":
            bandwidth, unit = self._bandwidth(self.lines[table], rows, report_gbits)
        else:
            latency = self._latency(self.lines[table], rows)
        self._check_sweep([row.size_bytes for row in bandwidth or latency], rows, facts)
        # A frame of asterisks stands about it. Who posts states a depth for it (ctx_print_test_info): without
        # either line it is a server's without its beginning, or a client's that lost one, and so neither's.
        waited = any(x.startswith((*_WAITS, "*" * 36)) for x in self.seen)
        posts = any(line.text.strip().startswith("TX depth") for line in self.lines[start:table])
        if not (waited or posts):
            what = 'neither a server\'s "Waiting for client" nor a "TX depth": lines are missing'
            self.source.refuse(what, line=self.lines[start], fix="keep the whole output")
        return self.source.build(
            PerftestResult,
            line=self.lines[start],
            operation=OPERATIONS[title["op"]],
            kind=kind,
            bidirectional=title["bi"] is not None,
            multicast=title["mc"] is not None,
            post_list=title["list"] is not None,
            side="server" if waited else "client",
            gpu_buffer=any("GPU buffer" in x or "ROCm Device with ID" in x for x in self.seen),
            gpu_dmabuf=any("using DMA-BUF for GPU buffer" in x for x in self.seen),
            reported_unit=unit,
            bandwidth=bandwidth,
            latency=latency,
            warnings=tuple(self.warnings),
            **self._addresses(self.lines[start:table]),
            **facts,
        )

    def _title(self) -> tuple[int, re.Match[str]]:
        titles = [i for i, line in enumerate(self.lines) if line.text.strip().endswith(" Test")]
        if not titles:
            self._note_all(self.lines)
            self.source.ends_before("the name of the test", fix="check that a perftest tool ran")
        if len(titles) > 1:
            again = self.lines[titles[1]]
            self.source.refuse("more than one test in one file", line=again, fix="keep one test a file")
        line = self.lines[titles[0]]
        title = _TITLE.match(line.text.strip())
        if title is None:
            what = f"unknown test {quote(line.text.strip())}"
            self.source.refuse(what, line=line, fix="send, write, read and atomic tests can be read")
        return titles[0], title

    def _table(self, start: int) -> tuple[int, int]:
        """Return the indices of the heading and of the dashes that close the table."""
        lines = self.lines
        headings = [i for i in range(start, len(lines)) if lines[i].text.strip().startswith("#bytes")]
        if not headings:
            self._note_all(lines)
            self._refuse_silent_server(lines[start:])
            self.source.ends_before("the table of results")
        if len(headings) > 1:
            fix = "run without --report-both, one test a file"
            self.source.refuse("more than one table of results", line=lines[headings[1]], fix=fix)
        table = headings[0]
        for end in range(table + 1, len(lines)):
            if _DASHES.match(lines[end].text.strip()):
                return table, end
        # A failed test says why after the last row; say that rather than "truncated".
        self._note_all(lines[table + 1 :])
        self.source.ends_before("the dashes that close the table of results")

    def _refuse_silent_server(self, lines: list[Line]) -> None:
        """In read and atomic latency tests only the client posts requests, so only it prints a table."""
        silent = re.match(r"\s*(RDMA_Read|Atomic \w+) Latency Test", lines[0].text)
        waited = any(x.startswith(_WAITS) for x in self.seen)
        if silent and waited and "remote address" in "".join(line.text for line in lines):
            fix = "parse the client's output"
            self.source.refuse("the server of this test prints no results", line=lines[-1], fix=fix)

    def _facts(self, lines: list[Line]) -> dict[str, object]:
        facts: dict[str, object] = {}
        for line in lines:
            for name, pattern in _FACTS.items():
                match = pattern.search(line.text)
                if match is None:
                    continue
                if name in facts:
                    self.source.refuse(f"{name} is stated twice", line=line, fix="keep one test a file")
                word = match[1]
                if name in _SWITCHES:
                    if word not in {"ON", "OFF"}:
                        self.source.refuse(f"{name} should be ON or OFF but is {quote(word)}", line=line)
                    facts[name] = word == "ON"
                elif name in _NUMBERS:
                    facts[name] = self.source.integer(word, name, line=line)
                else:
                    facts[name] = word
        # RoCE has no address but a GID; the type of service stands in the line of the method.
        optional = [x for x in _OPTIONAL_FACTS if x != "gid_index" or facts.get("link_layer") != "Ethernet"]
        if not any(line.text.strip().startswith("Data ex. method") for line in lines):
            self.source.refuse("the header does not state how data are exchanged", line=lines[0])
        for name in _FACTS:
            if name not in facts and name not in optional:
                fix = "capture the whole output, from its first line on"
                self.source.refuse(f"the header does not state {name}", line=lines[0], fix=fix)
            facts.setdefault(name, None)
        return facts

    def _addresses(self, lines: list[Line]) -> dict[str, str | None]:
        """Return the IPv4 address of either side, where all its queue pairs have the same.

        perftest prints every queue pair's local address, then every remote one, each with its GID below it
        where a GID is used.
        """
        found: dict[str, set[str | None]] = {"local": set(), "remote": set()}
        shape: list[tuple[int, str]] = []
        side = "local"
        for number, line in enumerate(lines):
            text = line.text.strip()
            if match := _ADDRESS.match(text):
                side = match[1]
                shape.append((number, side))
            elif _GID.match(text):
                shape.append((number, "GID"))
                gid = _IPV4_GID.match(text)
                found[side].add(".".join(str(int(byte)) for byte in gid.groups()) if gid else None)
        self._check_addresses(lines, shape)
        return {f"{side}_ipv4": seen.pop() if len(seen) == 1 else None for side, seen in found.items()}

    def _check_addresses(self, lines: list[Line], shape: list[tuple[int, str]]) -> None:
        kinds = [kind for _, kind in shape]
        pairs = kinds.count("local")
        below = ["GID"] if "GID" in kinds else []
        due = ["local", *below] * pairs + ["remote", *below] * pairs
        together = not shape or shape[-1][0] - shape[0][0] + 1 == len(shape)
        stated = any(_FACTS["gid_index"].search(line.text) for line in lines)
        if not pairs or kinds != due or not together or (below and not stated):
            at = lines[shape[0][0]] if shape else lines[0]
            what = "the addresses of the queue pairs are not complete: local, then remote, each with its GID"
            self.source.refuse(what, line=at, fix="capture the whole output of one test")

    def _rows(self, lines: list[Line]) -> list[Line]:
        """Return the rows of the table; a clock warning between them is kept apart, an error refuses."""
        rows = [line for line in lines if not _CLOCK_WARNING.match(line.text.strip())]
        self.warnings += [x.text.strip() for x in lines if _CLOCK_WARNING.match(x.text.strip())]
        self._note_all([line for line in rows if _ERROR.search(line.text)])
        if not rows:
            self.source.refuse("the table of results is empty", line=lines[0] if lines else None)
        return rows

    def _bandwidth(
        self, at: Line, rows: list[Line], report_gbits: bool | None
    ) -> tuple[tuple[BandwidthRow, ...], Unit]:
        heading = _BW_HEADING.match(re.sub(r"\s+", "", at.text))
        if heading is None:
            self.source.refuse(f"unknown table heading {quote(at.text.strip())}", line=at)
        unit: Unit = "Gb/s" if heading["u"] == "Gb" else "MiB/s"
        if report_gbits is not None and report_gbits != (unit == "Gb/s"):
            self.source.refuse(f"the table is in {unit}, which contradicts --report-gbits", line=at)
        return tuple(self._bandwidth_row(line, unit, heading["cpu"] is not None) for line in rows), unit

    def _bandwidth_row(self, line: Line, unit: Unit, cpu: bool) -> BandwidthRow:
        """Read a row, in Gb/s; one that contradicts itself is refused."""
        number, whole = self.source.number, self.source.integer
        words = self._columns(line, 5, cpu)
        size, iterations = whole(words[0], "#bytes", line=line), whole(words[1], "#iterations", line=line)
        peak, average, rate = (
            number(word, what, line=line)
            for word, what in zip(words[2:5], ("BW peak", "BW average", "MsgRate"), strict=True)
        )
        # perftest computes both from the same count and time, so a difference means that a digit was lost.
        halves = half_digit(str(words[3])), half_digit(str(words[4]))
        agree = {
            one: abs(average - rate * each) <= 1.01 * (halves[0] + halves[1] * each) + 1e-9 * average
            for one, each in (("MiB/s", size / 2**20 * 1e6), ("Gb/s", size * 8 / 1e9 * 1e6))
        }
        if not agree[unit]:
            what = f"average {average} {unit} and {rate} million messages/s of {size} bytes"
            what, fix = f"{what} contradict each other", "run the test again; the output is damaged"
            if other := next(filter(agree.get, agree), None):
                what, fix = f"its heading says {unit}, its rows are in {other}: another unit", "see the tool"
            self.source.refuse(what, line=line, fix=fix)
        factor = 1.0 if unit == "Gb/s" else GBPS_PER_MIB_PER_S
        return self.source.build(
            BandwidthRow,
            line=line,
            size_bytes=size,
            iterations=iterations,
            # perftest prints 0.00 for a peak that it did not look for.
            bw_peak_gbps=None if peak == 0 else peak * factor,
            bw_average_gbps=average * factor,
            message_rate_mpps=rate,
            cpu_util_percent=None if words[5] is None else number(words[5], "CPU_Util", line=line),
        )

    def _latency(self, at: Line, rows: list[Line]) -> tuple[LatencyRow, ...]:
        text = re.sub(r"\s+", "", at.text)
        names: tuple[str, ...] = _LAT_COLUMNS
        heading = _LAT_HEADING.match(text)
        if heading is None:
            names, heading = _LAT_DURATION_COLUMNS, _LAT_DURATION_HEADING.match(text)
        if heading is None:
            self.source.refuse(f"unknown table heading {quote(at.text.strip())}", line=at)
        return tuple(self._latency_row(line, names, heading["cpu"] is not None) for line in rows)

    def _latency_row(self, line: Line, names: tuple[str, ...], cpu: bool) -> LatencyRow:
        """Read a row; one whose order statistics are out of order is refused."""
        number, whole = self.source.number, self.source.integer
        size, iterations, *values, util = self._columns(line, 2 + len(names), cpu)
        row = self.source.build(
            LatencyRow,
            line=line,
            size_bytes=whole(size, "#bytes", line=line),
            iterations=whole(iterations, "#iterations", line=line),
            cpu_util_percent=None if util is None else number(util, "CPU_Util", line=line),
            **{n: self._time(n, v, line) for n, v in zip(names, values, strict=True)},
        )
        ordered = [row.t_min_us, row.t_typical_us, row.t_p99_us, row.t_p999_us, row.t_max_us]
        known = [x for x in ordered if x is not None]
        if known and (known != sorted(known) or not known[0] <= row.t_avg_us <= known[-1]):
            what = "latencies contradict each other: min, typical, 99 %, 99.9 % and max must rise"
            self.source.refuse(what, line=line, fix="run the test again; the output is damaged")
        return row

    def _time(self, name: str, word: str | None, line: Line) -> float | None:
        # perftest squares in 32 bits: beyond 46 ms of deviation the sum turns negative and has no root. The
        # other columns are right all the same, so the deviation alone is not known.
        if name == "t_stdev_us" and word in {"nan", "-nan"}:
            return None
        return self.source.number(word, "t_stdev" if name == "t_stdev_us" else name, line=line)

    def _columns(self, line: Line, count: int, cpu: bool) -> list[str | None]:
        """Split a row into `count` columns and the CPU utilisation, None where there is none."""
        words = line.text.split()
        if len(words) != count + cpu:
            what = f"a row of {len(words)} columns where {count + cpu} are due: {quote(line.text.strip())}"
            self.source.refuse(what, line=line)
        return [*words] if cpu else [*words, None]

    def _check_sweep(self, sizes: list[int], rows: list[Line], facts: dict[str, object]) -> None:
        """A sweep (-a) runs 2, 4, 8, ... 2^23 bytes (UD: up to the MTU); a gap means that a row was lost."""
        if len(sizes) == 1:
            return
        for before, after, line in zip([1, *sizes], sizes, rows, strict=False):
            if after != 2 * before:
                self.source.refuse(f"row of {after} bytes after {before}: a row is missing", line=line)
        last = {"UD": facts["mtu_bytes"], "SRD": sizes[-1]}.get(str(facts["connection"]), 2**23)
        if sizes[-1] != last:
            what = f"the sweep ends at {sizes[-1]} bytes, not {last}: rows are missing"
            self.source.refuse(what, line=rows[-1])

    def _note_all(self, lines: list[Line]) -> None:
        for line in lines:
            self._note(line)

    def _note(self, line: Line) -> None:
        """Keep a warning, refuse an error, ignore what perftest says beside its results."""
        text = line.text.strip()
        if _WARNING.match(text):
            self.warnings.append(text)
        elif not _ROUTINE.match(text) and _ERROR.search(text):
            fix = "mend the cause and run the test again"
            self.source.refuse(f"the test reported an error: {quote(text)}", line=line, fix=fix)
        self.seen.append(text)


_LARGEST = 1 << 20  # an output has a few kilobytes; one of 60 MB was read for 16 s


def parse_perftest(
    text: str,  # stdout (stderr may be mixed in)
    *,
    file: str | Path | None = None,  # the name to quote when the output is refused
    report_gbits: bool
    | None = None,  # whether `--report_gbits` was given; output of the other unit is refused
) -> PerftestResult:
    """Parse one text output of a perftest tool.

    Raises:
        BadInput: truncated, contradictory or failed output, anything that is not a number where one is due.
    """

    if len(text) > _LARGEST:
        TextSource(text[:1000], file).refuse(
            f"is larger than {_LARGEST} characters", fix="run the test again: its output is damaged"
        )
    source = TextSource(text, file)
    if clock_unknown(text):
        source.refuse(CLOCK_UNKNOWN, fix="run the test again, on a host that is less busy")
    first = next(line.text.strip() for line in source.lines if line.text.strip())
    if first.startswith("{"):
        what = "this is the file of --out_json, which does not state the unit of its bandwidth"
        source.refuse(what, fix="give what perftest printed")
    return _Text(source).parse(report_gbits)
