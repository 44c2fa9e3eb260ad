"""What nccl-tests 2.13 to 2.20 and RCCL-tests print: `parse_nccl` is the entry point."""

import re
from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.nccl.log import LOG_LINE
from shakedown.benchmarks.nccl.output_model import (
    Digits,
    NcclDevice,
    NcclResult,
    NcclRow,
    NcclTiming,
    check,
    checked,
    operation_of,
)
from shakedown.onnode import gpus
from shakedown.records.tool_text import Line, TextSource, half_digit, quote

# Read from their own sources (src/common.cu, later src/util.cu). NCCL's log, a launcher's words and other
# whole lines may stand between the rows. An output is complete with its footer: "Out of bounds values", "Avg
# bus bandwidth" and, from 2.16.7 on, "Collective test concluded".

# From 2.20 on with the commit: `2.20.0 (b4d5bee)`.
_VERSION = re.compile(
    r"# nccl-tests version (\S+)(?: \([^()\s]{1,40}\))? nccl-headers=(\d+) nccl-library=(\d+)"
    r"(?: \w+=\S+){0,8}\Z"
)
_STARTING = re.compile(r"# Collective test starting: (\S+)\Z")
_PARAMETERS = re.compile(
    r"# nThread (?P<threads>\S+) nGpus (?P<gpus_per_thread>\S+) minBytes (?P<min_bytes>\S+)"
    r" maxBytes (?P<max_bytes>\S+) step: (?P<step>[^\s(]+)\((?P<unit>factor|bytes)\)"
    r" warmup iters: (?P<warmup_iterations>\S+) iters: (?P<iterations>\S+)"
    r" agg iters: (?P<aggregated_iterations>\S+) validation: (?P<validation>\S+)"
    r"(?: graph: (?P<cuda_graph>\S+))?(?: unalign: \S+)?(?: [a-z][a-z ]{1,30}: [0-9]+){0,8}\Z"
)
_DEVICE = re.compile(
    r"#\s+Rank\s+(?P<rank>\S+)(?: Group\s+(?P<group>\S+))? Pid\s+(?P<pid>\S+) on\s+(?P<host>\S+)"
    r" device\s+(?P<device>\S+) \[(?P<pci>[0-9a-fA-Fx:.]+)\] (?P<name>.+)\Z"
)
_LONGEST_RANK = 1000  # characters of its line
WHOLE_PCI = re.compile(r"[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F.]+\Z")
_REDUCED = re.compile(r"# Reducing maxBytes to (\S+) due to memory limitation\Z")
_RCCL_VERSION = re.compile(r"rccl-tests: Version \S+\Z")
# NCCL prints its own version to the same stream (NCCL_DEBUG=VERSION or higher).
_NCCL_VERSION = re.compile(r"NCCL version [0-9]\S*\Z")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s*: (\S+) (OK|FAILED)\Z")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (\S+)(?:\s+(OK|FAILED))?\Z")
_CONCLUDED = re.compile(r"# Collective test concluded: (\S+)\Z")
_LAST_ERROR = re.compile(r"# error: (.*)\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\Z")

_ROW = ["size", "count", "type", "redop", "root"]
_TIMING = ["algbw", "busbw", "#wrong"]
_SPREAD = ["i_min", "i_max", "i_p99", "i_cv%"]
# Other programs' lines that are kept as warnings; a libfabric that logs everything writes thousands.
_KEPT = 20
_ERROR = re.compile(
    r"Test (?:NCCL|CUDA|MPI) failure|: Test failure|Test timeout|Invalid number of GPUs"
    r"|invalid (?:size|option)|Segmentation fault|MPI_ABORT|Aborted|Killed|core dumped"
    r"|is not supported by this test|Incompatible NCCL|must be at least"
)


class _Text:
    """One pass over the lines, in the order in which nccl-tests prints them."""

    def __init__(self, source: TextSource) -> None:
        self.source = source
        # NCCL_DEBUG lines may stand anywhere between others; a line that begins as a row and goes on as a
        # log line is no log line, and is refused as a row.
        self.lines = [x for x in source.lines if x.text.strip() and not LOG_LINE.match(x.text)]
        for line in self.lines:
            if _ERROR.search(line.text):
                fix = "mend the cause and run the test again"
                source.refuse(f"the test reported an error: {quote(line.text.strip())}", line=line, fix=fix)
        self.warnings: dict[str, None] = {}

    def parse(self) -> NcclResult:
        source = self.source
        self._refuse_old()
        parameters, at = self._one(_PARAMETERS, "the line of parameters (# nThread ...)")
        heading = next(
            (i for i, x in enumerate(self.lines) if x.text.split()[:3] == ["#", "size", "count"]), None
        )
        if heading is None or heading < at:
            source.ends_before("the table of results")
        end = next((i for i in range(heading, len(self.lines)) if _OUT_OF_BOUNDS.match(self._text(i))), None)
        if end is None:
            self._rows(heading, len(self.lines))  # a row that cannot be read is the better message
            source.ends_before("'Out of bounds values'")
        version, starting = self._maybe(_VERSION), self._maybe(_STARTING)
        # The program is named from 2.16.7 on, the version from 2.17.4 on, "unalign" from 2.18.2 on.
        recent = "unalign:" in self._text(at)
        if (recent and version is None) or (starting is None and (recent or version is not None)):
            source.refuse("the header does not state version and program", line=self.lines[at])
        average, last_error = self._footer(end, starting, labelled=version is not None)
        devices = self._devices(self.lines[at:heading])
        rows, digits, cpu_time, spread = self._rows(heading, end)
        out_of_bounds = self._out_of_bounds(self.lines[end])
        reduced = self._maybe(_REDUCED)
        name = None if starting is None else operation_of(starting[1])
        numbers = {
            name: source.integer(value, name, line=self.lines[at])
            for name, value in parameters.groupdict(default="0").items()
            if name != "unit"
        }
        result = source.build(
            NcclResult,
            line=self.lines[at],
            operation=name,
            version=None if version is None else version[1],
            nccl_version=version and gpus.version(source.integer(version[3], "nccl-library")),
            ranks=len(devices),
            hosts=tuple(dict.fromkeys(device.host for device in devices)),
            devices=tuple(devices),
            reduced_max_bytes=None if reduced is None else source.integer(reduced[1], "maxBytes"),
            step_is_factor=parameters["unit"] == "factor",
            cpu_time=cpu_time,
            per_iteration=spread,
            rows=tuple(rows),
            data_checked=checked(rows, name),
            out_of_bounds=out_of_bounds,
            average_busbw_gb_per_s=average,
            last_error=last_error,
            warnings=tuple(self.warnings)[:_KEPT],
            **numbers,
        )
        check(source, result, digits)
        return result

    def _refuse_old(self) -> None:
        """Before 2.13 the last column is the largest deviation: how many elements are wrong is not said."""
        for line in self.lines:
            words = line.text.split()
            old = words[:3] == ["#", "size", "count"] and "error" in words
            if old or words[:3] == ["#", "bytes", "N"]:
                what = "nccl-tests before 2.13, which does not say how many elements are wrong"
                self.source.refuse(
                    what, line=line, fix="build nccl-tests 2.13 or later and run the test again"
                )

    def _foreign(self, line: Line) -> None:
        """Keep another program's whole line."""
        text = line.text.strip()
        if not _RCCL_VERSION.match(text) and not _NCCL_VERSION.match(text):
            self.warnings[text] = None

    def _text(self, index: int) -> str:
        return self.lines[index].text.strip()

    def _maybe(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = [(m, x) for x in self.lines if (m := pattern.match(x.text.strip()))]
        if len(found) > 1:
            self.source.refuse_alone(len(found), found[1][1])
        return found[0][0] if found else None

    def _one(self, pattern: re.Pattern[str], what: str) -> tuple[re.Match[str], int]:
        match = self._maybe(pattern)
        if match is None:
            self.source.ends_before(what, fix="check that an nccl-tests program ran")
        return match, next(i for i, x in enumerate(self.lines) if pattern.match(x.text.strip()))

    def _devices(self, lines: list[Line]) -> list[NcclDevice]:
        devices = []
        for line in lines:
            text = line.text.strip()
            match = _DEVICE.match(text)
            if match is None:
                if re.match(r"#\s+Rank\b", text) or text == "...":
                    self.source.refuse(f"not a rank and its device: {quote(text)}", line=line)
                if not text.startswith("#"):
                    self._foreign(line)
                continue
            fields: dict[str, object] = dict(match.groupdict())
            for name in ("rank", "group", "pid", "device"):
                fields[name] = self.source.integer(match[name] or "0", name, line=line)
            devices.append(self.source.build(NcclDevice, line=line, **fields))
        if not devices or [x.rank for x in devices] != list(range(len(devices))):
            what = "the list of ranks is not complete (Rank 0, 1, 2, ...)"
            self.source.refuse(what, line=lines[0], fix="capture rank 0's output alone, whole")
        # Before 2.17 only the bus is printed, which GPUs of a virtual machine may share.
        places = [(x.host, x.pci) for x in devices if WHOLE_PCI.match(x.pci)]
        if twice := next((place for place in places if places.count(place) > 1), None):
            what = f"two ranks on the GPU {twice[1]} of {twice[0]}"
            self.source.refuse(what, line=lines[0], fix="give each rank a GPU of its own")
        return devices

    def _rows(
        self, heading: int, end: int
    ) -> tuple[list[NcclRow], list[tuple[Line, list[Digits]]], bool, bool]:
        names = self.lines[heading].text.split()[1:]
        spread, stamped = _SPREAD[0] in names, names[-1] == "timestamp"
        time = names[5] if len(names) > 5 else ""
        timing = [time, *_TIMING, *(_SPREAD if spread else [])]
        stamp = ["timestamp"] if stamped else []
        # RCCL-tests leaves the first half out when it runs in place only.
        halves = next((n for n in (2, 1) if names == [*_ROW, *timing * n, *stamp]), 0)
        if not halves or time not in {"time", "cputime"}:
            self.source.refuse("unknown table heading", line=self.lines[heading])
        columns = len(names) + len(stamp)  # date and time
        rows: list[NcclRow] = []
        digits: list[tuple[Line, list[Digits]]] = []
        for line in self.lines[heading + 1 : end]:
            if line.text.startswith("#"):
                continue
            if not _is_row(line, columns):
                self._foreign(line)
                continue
            row, precision = self._row(line, len(timing), halves, spread, stamped)
            rows.append(row)
            digits.append((line, precision))
        if not rows:
            self.source.ends_before("the first row of results")
        return rows, digits, time == "cputime", spread

    def _row(
        self, line: Line, width: int, halves: int, spread: bool, stamped: bool
    ) -> tuple[NcclRow, list[Digits]]:
        words = line.text.split()
        if "NCCL" in words:
            fix = "set NCCL_DEBUG_FILE so that the log goes to a file of its own"
            self.source.refuse("a row and a line of NCCL's log are mixed", line=line, fix=fix)
        if stamped and not _TIME.match(" ".join(words[-2:])):
            self.source.refuse(f"a row without its timestamp: {quote(line.text.strip())}", line=line)
        words = words[:-2] if stamped else words
        if len(words) != len(_ROW) + halves * width:
            what = f"a row of {len(words)} columns where {len(_ROW) + halves * width} are due"
            self.source.refuse(f"{what}: {quote(line.text.strip())}", line=line)
        size, count, dtype, redop, root = words[:5]
        parts = [words[5 : 5 + width], words[5 + width :]][:halves]
        row = self.source.build(
            NcclRow,
            line=line,
            size_bytes=self.source.integer(size, "size", line=line),
            count=self.source.integer(count, "count", line=line),
            dtype=dtype,
            redop=redop,
            root=self.source.integer(root, "root", line=line),
            out_of_place=self._timing(line, parts[0], spread) if halves == 2 else None,
            in_place=self._timing(line, parts[-1], spread),
        )
        return row, [Digits(*(half_digit(word) for word in part[:3])) for part in parts]

    def _timing(self, line: Line, words: list[str], spread: bool) -> NcclTiming:
        number = self.source.number
        names = ["iteration_min_us", "iteration_max_us", "iteration_p99_us", "iteration_cv_percent"]
        fields: dict[str, object] = {}
        if spread:
            fields = {n: number(w, n, line=line) for n, w in zip(names, words[4:], strict=True)}
        return self.source.build(
            NcclTiming,
            line=line,
            time_us=number(words[0], "time", line=line),
            algbw_gb_per_s=number(words[1], "algbw", line=line),
            busbw_gb_per_s=number(words[2], "busbw", line=line),
            wrong=None if words[3] == "N/A" else self._wrong(words[3], line),
            **fields,
        )

    def _wrong(self, word: str, line: Line) -> int:
        value = self.source.number(word, "#wrong", line=line)  # printed with %g: 1.34218e+08 is possible
        if value != int(value):
            self.source.refuse(f"#wrong should be a whole number but is {quote(word)}", line=line)
        return int(value)

    def _out_of_bounds(self, line: Line) -> int:
        match = _OUT_OF_BOUNDS.match(line.text.strip())
        assert match is not None
        count = self.source.integer(match[1], "Out of bounds values", line=line)
        if count == 0 and match[2] != "OK":  # some and OK: wrong data were seen
            self.source.refuse(f"'{count} {match[2]}' contradicts itself", line=line)
        return count

    def _footer(
        self, end: int, starting: re.Match[str] | None, *, labelled: bool
    ) -> tuple[float, str | None]:
        """Read the lines after the table; the last one shows that the output is whole."""
        lines = self.lines[end + 1 :]
        at = next((i for i, line in enumerate(lines) if _AVERAGE.match(line.text.strip())), None)
        if at is None:
            self.source.ends_before("'Avg bus bandwidth'")
        average = _AVERAGE.match(lines[at].text.strip())
        assert average is not None
        value = self.source.number(average[1], "Avg bus bandwidth", line=lines[at])
        if average[2] == "FAILED":
            what = "the average busbw is less than NCCL_TESTS_MIN_BW asks for: the test says FAILED"
            self.source.refuse(
                what, line=lines[at], fix="find out why, or leave NCCL_TESTS_MIN_BW to Shakedown"
            )
        rest = [line.text.strip() for line in lines[at + 1 :]]
        concluded = [m[1] for text in rest if (m := _CONCLUDED.match(text))]
        if starting is not None and concluded != [starting[1]]:
            self.source.ends_before(f"'Collective test concluded: {starting[1]}'")
        if starting is None and concluded:
            self.source.refuse(f"the header does not name {concluded[0]}", line=self.lines[0])
        if "#" not in rest:
            self.source.ends_before("the line '#' after 'Avg bus bandwidth'")
        errors = [m[1] for text in rest if (m := _LAST_ERROR.match(text))]
        # Before 2.17.3 the last error stands on a line of its own.
        free = [] if labelled else [text for text in rest if not text.startswith("#")]
        return value, " ".join(errors or free) or None


def _is_row(line: Line, columns: int) -> bool:
    """Tell a row, a damaged one too, from a whole line of another program.

    A lost row shows as a missing size, so a line that is no row need not be understood.
    """
    numbers = [word[0].isdigit() for word in line.text.split()]
    return all(numbers[:2]) or (len(numbers) == columns and 2 * sum(numbers) > columns)


def gpu_names(text: str) -> Iterator[str]:
    """Yield what the list of ranks calls each GPU, of an output that was parsed before."""
    lines = (line.strip() for line in text.splitlines())
    matches = (_DEVICE.match(line) for line in lines if line.startswith("#") and len(line) < _LONGEST_RANK)
    yield from (match["name"] for match in matches if match)


def parse_nccl(text: str, *, file: str | Path | None = None) -> NcclResult:
    """Parse one output of an nccl-tests program.

    Raises BadInput: truncated, contradictory or failed output, anything that is not a number where one is
    due, or the file of `-J`.
    """
    source = TextSource(text, file, mixed=True)
    first = next(line.text.strip() for line in source.lines if line.text.strip())
    if first.startswith("{"):
        source.refuse("this is the file of -J", fix="give what the program printed")
    return _Text(source).parse()
