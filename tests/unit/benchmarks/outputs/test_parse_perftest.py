"""perftest: every test, version, unit and side is read with its unit; damaged output is refused."""

import time

import captured
import perftest_output as out
import pytest

from shakedown.benchmarks.perftest.mesh.perftest import clock_unknown
from shakedown.benchmarks.perftest.output import parse_perftest
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused


def bw(op="write", unit="Gb", new=True, rows=None, cpu=False, **head):
    """One bandwidth test, healthy unless rows are given."""
    rows = [out.bw_row(65536, 5000, 97.61, 97.52, 0.186005)] if rows is None else rows
    return out.document(out.header(op, "bw", new=new, **head), out.bw_heading(unit, cpu), rows)


def lat(op="write", rows=None, heading=out.LAT_HEADING, new=True, **head):
    """One latency test, healthy unless rows are given."""
    rows = [out.lat_row(2, 1000, (1.55, 7.16, 1.60, 1.62, 0.07, 1.62, 3.49))] if rows is None else rows
    return out.document(out.header(op, "lat", new=new, **head), heading, rows)


@pytest.mark.parametrize("op", ["write", "read", "send"])
@pytest.mark.parametrize("server", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("unit", "new"), [("MB", False), ("MiB", True), ("Gb", False), ("Gb", True)])
def test_reads_every_bandwidth_test_in_gbps(op, server, bidirectional, unit, new):
    """Catches MiB/s taken for MB/s (4.6 % low) or for Gb/s, and a wrong operation, side or direction."""
    rate = 0.186005
    average = out.bandwidth_of(65536, rate, unit)
    rows = [out.bw_row(65536, 5000, average + 0.5, average, rate)]
    head = {"server": server, "bidirectional": bidirectional}
    result = parse_perftest(bw(op, unit, new, rows, **head))
    (row,) = result.bandwidth
    assert row.bw_average_gbps == pytest.approx(97.52, abs=0.01)  # 0.186005 Mpps x 65536 B x 8
    assert row.bw_peak_gbps == pytest.approx(97.52 + 0.5 * (1 if unit == "Gb" else 0.008388608), abs=0.01)
    assert (row.size_bytes, row.iterations, row.message_rate_mpps) == (65536, 5000, rate)
    assert (result.operation, result.kind, result.bidirectional) == (op, "bandwidth", bidirectional)
    assert result.side == ("server" if server else "client")
    assert result.reported_unit == ("Gb/s" if unit == "Gb" else "MiB/s")
    assert result.latency == ()


def test_reads_the_facts_of_the_header():
    """Catches a fact read from the wrong line: MTU, GID index and device decide what was tested."""
    result = parse_perftest(bw(rdma_cm=True))
    assert (result.device, result.queue_pairs, result.transport, result.connection) == ("rxe0", 2, "IB", "RC")
    assert (result.mtu_bytes, result.link_layer, result.gid_index) == (4096, "Ethernet", 1)
    assert (result.rdma_cm, result.tos, result.dual_port) == (True, 106, False)
    assert (result.gpu_buffer, result.gpu_dmabuf, result.warnings) == (False, False, ())
    assert parse_perftest(bw()).tos is None


def test_reads_the_addresses_out_of_the_gids():
    """Catches the two sides' addresses mixed up, or a guess where the GIDs do not agree or are no IPv4."""
    result = parse_perftest(bw())
    assert (result.local_ipv4, result.remote_ipv4) == ("192.168.10.1", "192.168.10.2")
    mine, theirs = (f" GID: {'00:' * 10}255:255:192:168:10:0{i}" for i in (1, 2))
    local, remote = (
        next(x for x in bw().split("\n") if x.startswith(f" {side}")) for side in ("local", "remote")
    )
    pairs = "\n".join([local, mine, remote, theirs])
    assert pairs in bw()
    two = "\n".join([local, mine, local, mine, remote, theirs, remote, theirs.replace("10:02", "10:03")])
    another = bw().replace(pairs, two)
    assert (parse_perftest(another).local_ipv4, parse_perftest(another).remote_ipv4) == ("192.168.10.1", None)
    link_local = bw().replace(mine, " GID: 254:128:00:00:00:00:00:00:80:84:00:255:254:00:00:01")
    assert parse_perftest(link_local).local_ipv4 is None


@cases("lost", " local address", " GID: ", " remote address", " GID index", " Data ex. method")
def test_a_header_that_lost_a_line(lost):
    """Catches one queue pair's address, its GID or the type of service lost: the run looks like another."""
    lines = bw().split("\n")
    lines.remove(next(x for x in lines if x.startswith(lost)))
    refused(r"addresses of the queue pairs|does not state", parse_perftest, "\n".join(lines))


def test_reads_gpu_memory_and_dmabuf():
    """Catches a test of host memory taken for one of GPU memory."""
    notes = ["initializing CUDA", "cuMemAlloc() of a 131072 bytes GPU buffer"]
    text = bw().replace(out.DASHES, "\n".join([*notes, out.DASHES]), 1)
    assert (parse_perftest(text).gpu_buffer, parse_perftest(text).gpu_dmabuf) == (True, False)
    notes.append("using DMA-BUF for GPU buffer address at 0x7f0 aligned at 0x7f0 with aligned size 65536")
    assert parse_perftest(bw().replace(out.DASHES, "\n".join([*notes, out.DASHES]), 1)).gpu_dmabuf is True


@pytest.mark.parametrize("op", ["write", "read", "send"])
@pytest.mark.parametrize("new", [False, True])
def test_reads_every_latency_column(op, new):
    """Catches swapped columns: perftest prints max before typical."""
    (row,) = parse_perftest(lat(op, new=new)).latency
    assert (row.t_min_us, row.t_max_us, row.t_typical_us, row.t_avg_us) == (1.55, 7.16, 1.60, 1.62)
    assert (row.t_stdev_us, row.t_p99_us, row.t_p999_us, row.transactions_per_s) == (0.07, 1.62, 3.49, None)


def test_reads_latency_in_duration_mode():
    """Catches the average of -D read as the minimum of the other table."""
    rows = [out.lat_duration_row(2, 1204512, 4.15, 240902.31)]
    (row,) = parse_perftest(lat(rows=rows, heading=out.LAT_DURATION_HEADING)).latency
    assert (row.t_avg_us, row.transactions_per_s, row.t_min_us) == (4.15, 240902.31, None)


def test_a_peak_that_was_not_measured_is_none():
    """Catches the 0.00 that duration mode prints for the peak taken for a measurement."""
    result = parse_perftest(bw(rows=[out.bw_row(65536, 5000, 0.0, 97.52, 0.186005)]))
    assert result.bandwidth[0].bw_peak_gbps is None


def test_reads_a_sweep_and_the_cpu_column():
    """Catches a sweep of which only the first or last row is read."""
    result = parse_perftest(bw(unit="MiB", rows=out.sweep("MiB")))
    assert [row.size_bytes for row in result.bandwidth] == [2**i for i in range(1, 24)]
    row = out.bw_row(65536, 5000, 97.61, 97.52, 0.186005) + "\t    12.50"
    assert parse_perftest(bw(rows=[row], cpu=True)).bandwidth[0].cpu_util_percent == 12.5


def test_clock_warnings_between_rows_are_kept_apart():
    """Catches a warning read as a row, and rows lost with it."""
    rows = out.sweep("Gb")
    result = parse_perftest(bw(rows=[out.CLOCK, rows[0], out.CLOCK, *rows[1:]]))
    assert len(result.bandwidth) == 23
    assert result.warnings == (out.CLOCK, out.CLOCK)


def test_data_that_nothing_validated_are_told():
    """Catches: --data_validation taken for done, where perftest says that it compared nothing."""
    said = "VALIDATION: WARNING (client) - no data validated"
    assert said in parse_perftest(f"{bw()}{said}\n").warnings


@pytest.mark.parametrize("text", ["{\ntest_info: {\ntest: RDMA_Write_BW_Test,\n", '{\n"test_info": {}}'])
def test_the_file_of_out_json_is_refused_in_words(text):
    """Catches: perftest's JSON called damaged, although it lacks only the unit."""
    refused(r"the file of --out_json.*give what perftest printed", parse_perftest, text)


@cases(
    "damage, message",
    (lambda t: t.replace("97.52", "97,52"), "BW average should be a finite number"),
    (lambda t: t.replace("97.52", "nan"), "BW average should be a finite number"),
    (lambda t: t.replace("97.52", "inf"), "BW average should be a finite number"),
    (lambda t: t.replace("97.52", "7.52"), "contradict each other"),
    (lambda t: t.replace("Gb/sec", "MiB/sec"), "heading says MiB/s, its rows are in Gb/s: another unit"),
    (lambda t: t.replace("97.52", ""), "a row of 4 columns"),
    (lambda t: t.replace(" 65536", " 65x36"), "#bytes should be a whole number"),
    (lambda t: t.replace("4096[B]", "none[B]"), "mtu_bytes should be a whole number"),
    (lambda t: t.replace(" Link type       : Ethernet\n", ""), "does not state link_layer"),
    (lambda t: t.rstrip()[:-20], "output ends before the dashes"),
    (lambda t: t[: t.index(" #bytes")], "output ends before the table"),
    (lambda t: t[: t.index(" Number of qps")], "output ends before the table"),
    (lambda t: t + t, "more than one test"),
    (lambda t: t.replace("Gb/sec]   MsgRate", "Kb/sec]   MsgRate"), "unknown table heading"),
    (lambda t: t.replace("RDMA_Write BW", "Raw_Ethernet BW"), "unknown test"),
    (lambda t: t.replace("OFF\t\tDevice", "OF\t\tDevice"), "should be ON or OFF"),
)
def test_damaged_text_is_refused(damage, message):
    """Catches a parser that skips what it cannot read."""
    good = bw()
    assert damage(good) != good
    with pytest.raises(BadInput, match=message) as told:
        parse_perftest(damage(good), file="raw/n1.txt")
    assert str(told.value).startswith("raw/n1.txt:")


@cases(
    "line",
    "Couldn't connect to 10.0.0.1:18515",
    " Unable to init the socket connection",
    " Completion with error at client",
    " Failed status 12: wr_id 0 syndrom 0x81",
    "ethernet_read_keys: Couldn't read remote address",
    " Failed to complete run_iter_bw function successfully",
    "IB device mlx5_9 not found",
)
def test_the_tools_own_errors_refuse_the_output(line):
    """Catches a failed test whose error is skipped, before, in or after its table."""
    text = bw()
    rows_end = text.rindex(out.DASHES)
    for at in (0, rows_end, len(text)):
        refused("reported an error", parse_perftest, text[:at] + line + "\n" + text[at:])
    refused("reported an error", parse_perftest, text[:rows_end] + line + "\n")
    refused("reported an error", parse_perftest, line + "\n")


@pytest.mark.parametrize("lost", [0, 10, 22])
def test_a_sweep_with_a_lost_row_is_refused(lost):
    """Catches the largest size, the one that is gated, lost in the middle of mixed output."""
    rows = out.sweep("Gb")
    del rows[lost]
    refused(r"row is missing|rows are missing", parse_perftest, bw(rows=rows))


def test_a_warning_that_swallowed_a_row_is_refused():
    """Catches a row lost on a line that begins with the clock warning."""
    rows = out.sweep("Gb")
    rows[22] = out.CLOCK + rows[22]
    with pytest.raises(BadInput):
        parse_perftest(bw(rows=rows))


@pytest.mark.parametrize("op", ["write", "send"])
def test_a_server_whose_first_lines_were_not_kept(op):
    """Catches a server's output taken for the client's where "Waiting for client" is not in it.

    A server states no TX depth (ctx_print_test_info in github.com/linux-rdma/perftest).
    """
    rows = [out.bw_heading("Gb"), out.bw_row(65536, 5000, 92.42, 92.40, 0.17624), out.DASHES, ""]
    head = out.header(op, "bw", new=True, server=True)
    kept = head[head.index(out.DASHES) :]
    refused('nor a "TX depth": lines are missing', parse_perftest, "\n".join([*kept, *rows]))
    client = [*out.header(op, "bw", new=True), *rows]
    assert parse_perftest("\n".join(client)).side == "client"


def test_the_server_of_a_read_latency_test_has_no_result():
    """Catches an empty output of the wrong side taken for a truncated test."""
    text = "\n".join(out.header("read", "lat", new=True, server=True))
    refused("server of this test prints no results", parse_perftest, text)


def test_latencies_out_of_order_are_refused():
    """Catches a digit lost from one latency column."""
    row = out.lat_row(2, 1000, (1.55, 7.16, 1.60, 1.62, 0.07, 1.62, 9.49))
    refused("contradict each other", parse_perftest, lat(rows=[row]))


def test_a_stated_unit_is_checked():
    """Catches a plan that asked for --report_gbits and a job that did not pass it."""
    refused("contradicts --report-gbits", parse_perftest, bw(), report_gbits=False)


@pytest.mark.parametrize("version", ["4.5", "25.01"])
def test_real_bandwidth(version):
    """Catches a real output read in the wrong unit: 4.10 and 6.78 "MB/sec" are MiB/s."""
    result = parse_perftest(captured.read(f"perftest_{version}_rxe_write_bw_client.txt"))
    (row,) = result.bandwidth
    average = {"4.5": 4.10, "25.01": 4.24}[version]
    assert row.bw_average_gbps == pytest.approx(average * 2**20 * 8 / 1e9)
    assert row.message_rate_mpps == {"4.5": 0.000066, "25.01": 0.000068}[version]
    assert (row.size_bytes, row.iterations, result.reported_unit) == (65536, 400, "MiB/s")
    assert (result.device, result.mtu_bytes, result.gid_index, result.link_layer) == (
        "rxe0",
        4096,
        1,
        "Ethernet",
    )
    gbits = parse_perftest(captured.read(f"perftest_{version}_rxe_write_bw_gbits_client.txt"))
    assert gbits.bandwidth[0].bw_average_gbps == {"4.5": 0.079310, "25.01": 0.062724}[version]
    tiny = parse_perftest(captured.read(f"perftest_{version}_rxe_write_bw_tiny_gbits_client.txt"))
    assert tiny.bandwidth[0].bw_average_gbps == {"4.5": 0.000007, "25.01": 0.000030}[version]
    assert tiny.reported_unit == "Gb/s"


@pytest.mark.parametrize("version", ["4.5", "25.01"])
def test_real_modes(version):
    """Catches a mode of a real run lost: both directions, duration, sweep, queue pairs, RDMA-CM."""
    name = f"perftest_{version}_rxe_{{}}"
    results = {
        mode: parse_perftest(captured.read(name.format(f"{mode}.txt")))
        for mode in (
            "write_bw_bidir_gbits_client",
            "write_bw_duration_gbits_client",
            "write_bw_sweep_client",
            "write_bw_qp4_cpu_client",
            "write_bw_rdma_cm_server",
            "read_bw_bidir_gbits_server",
            "send_bw_ud_sweep_client",
            "write_lat_duration_client",
        )
    }
    assert results["write_bw_bidir_gbits_client"].bidirectional
    assert results["write_bw_duration_gbits_client"].bandwidth[0].bw_peak_gbps is None
    assert [row.size_bytes for row in results["write_bw_sweep_client"].bandwidth] == [
        2**i for i in range(1, 24)
    ]
    assert results["write_bw_qp4_cpu_client"].queue_pairs == 4
    assert results["write_bw_qp4_cpu_client"].bandwidth[0].cpu_util_percent == 100
    rdma_cm = results["write_bw_rdma_cm_server"]
    assert (rdma_cm.rdma_cm, rdma_cm.tos, rdma_cm.side) == (True, 106, "server")
    assert results["read_bw_bidir_gbits_server"].operation == "read"
    assert results["send_bw_ud_sweep_client"].connection == "UD"
    assert [row.size_bytes for row in results["send_bw_ud_sweep_client"].bandwidth][-1] == 4096
    duration = results["write_lat_duration_client"].latency[0]
    expected = {"4.5": (128, 11757.33, 42.53), "25.01": (79, 19028.42, 26.28)}[version]
    assert (duration.iterations, duration.t_avg_us, duration.transactions_per_s) == expected


def test_real_latency():
    """Catches the columns of a real latency table swapped."""
    (row,) = parse_perftest(captured.read("perftest_25.01_rxe_write_lat_client.txt")).latency
    assert (row.t_min_us, row.t_max_us, row.t_typical_us, row.t_avg_us) == (
        1606.68,
        86105.26,
        9354.94,
        11532.12,
    )
    assert (row.t_stdev_us, row.t_p99_us, row.t_p999_us) == (5432.12, 83674.52, 86105.26)


@pytest.mark.parametrize("name", ["4.5_rxe_send_lat_client", "25.01_rxe_write_lat_sweep_server"])
def test_the_deviation_that_perftest_cannot_compute_is_none(name):
    """Catches "-nan" read as 0, or a good latency thrown away for it. Anywhere else it is refused."""
    text = captured.read(f"perftest_{name}.txt")
    assert "-nan" in text
    assert parse_perftest(text).latency[-1].t_stdev_us is None
    (first, *_) = parse_perftest(text).latency
    moved = text.replace(f"{first.t_avg_us:.2f}", "-nan")
    assert moved != text
    with pytest.raises(BadInput):
        parse_perftest(moved)


@cases(
    "name, message",
    ("perftest_4.5_rxe_read_lat_server.txt", "server of this test prints no results"),
    ("perftest_25.01_rxe_read_lat_server.txt", "server of this test prints no results"),
    ("perftest_4.5_rxe_send_bw_client_hung.txt", "output ends before the dashes"),
)
def test_real_outputs_without_a_result(name, message):
    """Catches a hung test, or the silent side of one, taken for a result."""
    refused(message, parse_perftest, captured.read(f"refused/{name}"))


def test_zeros_of_a_clock_that_could_not_be_read_are_refused():
    """Catches: a good link that fails with 0 Gb/s because the processor was busy when perftest began."""
    zeros = [" 65536      300           0.000000            0.000000            0.000000"]
    warning = "Correlation coefficient r^2: 0.825416 < 0.9\n"
    refused(r"rate of its CPU.s clock", parse_perftest, warning + bw(rows=zeros))
    assert parse_perftest(bw(rows=zeros)).bandwidth[0].bw_average_gbps == 0
    assert parse_perftest(warning + bw()).bandwidth[0].bw_average_gbps == 97.52


def test_a_latency_without_a_clock_is_named():
    """Catches: a damaged file told where perftest printed inf, because it could not tell its CPU's clock."""
    table = (
        "                    RDMA_Write Latency Test\n"
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n"
        " 64      100          inf            inf          inf                 inf\n"
    )
    refused("clock", parse_perftest, "Correlation coefficient r^2: 0.891538 < 0.9\n" + table)
    assert not clock_unknown(table)


def test_a_clock_that_was_not_told_is_looked_for_in_linear_time():
    """Catches: a megabyte of empty lines under perftest's warning, which took hours to read."""
    began = time.process_time()
    assert not clock_unknown("Correlation coefficient r^2: 0.5 < 0.9" + "\n" * 1_000_000)
    assert time.process_time() - began < 2
