"""perftest's `--out_json` file.

Up to 23.x the file is not JSON (keys and words unquoted, trailing commas); later it is. Both hold one row: a
sweep (-a) overwrites the file at every size. Neither states the unit of the bandwidth, which is derived here
from the message rate: MiB/s and Gb/s differ by a factor of 119.
"""

from __future__ import annotations

import re
from typing import Any

from shakedown.benchmarks.perftest.output_model import (
    OPERATIONS,
    BandwidthRow,
    LatencyRow,
    PerftestResult,
    Unit,
    bandwidth_row,
    consistent,
    deviation,
    latency_row,
    printed,
    switch,
)
from shakedown.records.tool_text import Line, TextSource, quote

_NO_DEVIATION = re.compile(r'("t_stdev": )-?nan\b')
_OPEN = re.compile(r"(test_info|results): \{\Z")
_PAIR = re.compile(r"([A-Za-z_][\w.* ]{0,40}?) ?: (\"[^\"]*\"|[^\"{},\s]+),?\Z")
_TITLE = re.compile(
    r"(?P<op>" + "|".join(OPERATIONS) + r")(?:_(?:CMP_AND_SWAP|FETCH_AND_ADD))?(?P<bi>_Bidirectional)?"
    r"(?P<list>_Post_List)?_(?P<kind>BW|Latency)(?P<mc>_Multicast)?_Test\Z"
)
_LATENCY = {
    "t_min": "t_min_us",
    "t_max": "t_max_us",
    "t_typical": "t_typical_us",
    "t_avg": "t_avg_us",
    "t_stdev": "t_stdev_us",
    "percentile_99": "t_p99_us",
    "percentile_99.9": "t_p999_us",
    "tps_average": "transactions_per_s",
}


def parse(source: TextSource, report_gbits: bool | None) -> PerftestResult:
    """Parse the file; see `shakedown.benchmarks.perftest.output.parse_perftest`."""
    quoted = next((x for x in source.lines if "test_info" in x.text), source.lines[0]).text.lstrip(" \t{")
    document = _new(source) if quoted.startswith('"') else _old(source)
    info, results = (_section(source, document, name) for name in ("test_info", "results"))
    title = _TITLE.match(str(info.get("test")))
    if title is None:
        source.refuse(
            f"unknown test {quote(info.get('test'))}", fix="send, write, read and atomic tests can be read"
        )
    bandwidth: tuple[BandwidthRow, ...] = ()
    latency: tuple[LatencyRow, ...] = ()
    unit: Unit | None = None
    if title["kind"] == "BW":
        row, unit = _bandwidth(source, results, report_gbits)
        bandwidth = (row,)
    else:
        latency = (_latency(source, results),)
    gid_index, tos = info.get("GID_index"), info.get("TOS")
    if gid_index is None and info.get("Link_type") == "Ethernet":
        source.refuse("GID_index is missing: RoCE has no address but a GID", fix="run the test again")
    return source.build(
        PerftestResult,
        operation=OPERATIONS[title["op"]],
        kind="bandwidth" if bandwidth else "latency",
        bidirectional=title["bi"] is not None,
        multicast=title["mc"] is not None,
        post_list=title["list"] is not None,
        side=None,
        device=_word(source, info, "Device"),
        dual_port=switch(source, info.get("Dual_port"), "Dual_port"),
        queue_pairs=source.integer(info.get("Number_of_qps"), "Number_of_qps"),
        transport=_word(source, info, "Transport_type"),
        connection=_word(source, info, "Connection_type"),
        mtu_bytes=source.integer(info.get("Mtu"), "Mtu"),
        link_layer=_word(source, info, "Link_type"),
        gid_index=None if gid_index is None else source.integer(gid_index, "GID_index"),
        rdma_cm=switch(source, info.get("rdma_cm_QPs"), "rdma_cm_QPs"),
        tos=None if tos is None else source.integer(tos, "TOS"),
        gpu_buffer=True if "cuda_device" in info else None,
        gpu_dmabuf=None,
        reported_unit=unit,
        bandwidth=bandwidth,
        latency=latency,
        warnings=tuple(str(info[k]) for k in ("WARNING1", "WARNING2") if k in info),
    )


def _new(source: TextSource) -> object:
    """Read the form of 24.x on. Its one flaw is a deviation of "-nan", which is not JSON."""
    lines = (_NO_DEVIATION.sub(r'\1"-nan"', line.text) for line in source.lines)
    return source.json("\n".join(lines), exact=True)


def _old(source: TextSource) -> dict[str, dict[str, str]]:
    """Read the form of 4.5 to 23.x, line by line: two sections of `key: value,` in one pair of braces."""
    document: dict[str, dict[str, str]] = {}
    section: dict[str, str] | None = None
    depth, closed = 0, False
    for line in source.lines:
        text = line.text.strip()
        if not text:
            continue
        if depth == 0:
            # Nothing may stand before the opening brace or after the closing one.
            if text != "{" or closed:
                source.refuse(f"unexpected {quote(text)}", line=line, fix="one --out_json file at a time")
            depth = 1
        elif depth == 1:
            if match := _OPEN.match(text):
                if match[1] in document:
                    source.refuse(f"{match[1]} appears twice", line=line, fix="one --out_json file at a time")
                section, depth = document.setdefault(match[1], {}), 2
            elif text == "}":
                depth, closed = 0, True
            else:
                source.refuse(f"unexpected {quote(text)}", line=line)
        elif text in {"},", "}"}:
            depth = 1
        else:
            assert section is not None
            _pair(source, line, text, section)
    if not closed:
        source.ends_before("the closing brace")
    return document


def _pair(source: TextSource, line: Line, text: str, section: dict[str, str]) -> None:
    match = _PAIR.match(text)
    if match is None:
        source.refuse(f"neither a key and a value nor a brace: {quote(text)}", line=line)
    if match[1] in section:
        source.refuse(f"{match[1]} appears twice", line=line, fix="one --out_json file at a time")
    section[match[1]] = match[2].strip('"')


def _section(source: TextSource, document: object, name: str) -> dict[str, Any]:
    section = document.get(name) if isinstance(document, dict) else None
    if not isinstance(section, dict) or not section:
        source.refuse(f"no {name} in this file", fix="give the file that perftest --out_json_file wrote")
    return section


def _word(source: TextSource, info: dict[str, Any], key: str) -> str:
    value = info.get(key)
    if not isinstance(value, str) or not value:
        source.refuse(f"{key} should be a word but is {quote(value)}")
    return value


def _bandwidth(
    source: TextSource, results: dict[str, Any], report_gbits: bool | None
) -> tuple[BandwidthRow, Unit]:
    size = source.integer(results.get("MsgSize"), "MsgSize")
    average = printed(source, results.get("BW_average"), "BW_average")
    rate = printed(source, results.get("MsgRate"), "MsgRate")
    units: tuple[Unit, ...] = ("MiB/s", "Gb/s")
    if report_gbits is not None:
        units = ("Gb/s",) if report_gbits else ("MiB/s",)
    possible = [unit for unit in units if consistent(unit, size, average, rate)]
    if len(possible) > 1:
        fix = "pass --report-gbits or --no-report-gbits, as the test was run"
        source.refuse(
            f"the unit of BW_average {average.value} cannot be told from MsgRate {rate.value}", fix=fix
        )
    # No unit fits: building the row in the first one names the contradiction.
    unit = (possible or units)[0]
    cpu = results.get("CPU_util")
    row = bandwidth_row(
        source,
        None,
        unit,
        size=size,
        iterations=source.integer(results.get("n_iterations"), "n_iterations"),
        peak=source.number(results.get("BW_peak"), "BW_peak"),
        average=average,
        rate=rate,
        cpu=None if cpu is None else source.number(cpu, "CPU_util"),
    )
    return row, unit


def _latency(source: TextSource, results: dict[str, Any]) -> LatencyRow:
    duration = "tps_average" in results
    names = ["t_avg", "tps_average"] if duration else [x for x in _LATENCY if x != "tps_average"]
    cpu = results.get("CPU_util")
    return latency_row(
        source,
        None,
        size_bytes=source.integer(results.get("MsgSize"), "MsgSize"),
        iterations=source.integer(results.get("n_iterations"), "n_iterations"),
        cpu_util_percent=None if cpu is None else source.number(cpu, "CPU_util"),
        **{_LATENCY[x]: source.number(results.get(x), x) for x in names if x != "t_stdev"},
        t_stdev_us=None if duration else deviation(source, results.get("t_stdev")),
    )
