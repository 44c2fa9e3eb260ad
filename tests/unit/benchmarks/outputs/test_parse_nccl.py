"""nccl-tests: what real runs printed, every rule with its planted fault."""

import re

import captured
import nccl_output
import pytest

from shakedown.benchmarks.nccl.output import parse_nccl
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused

ALL_REDUCE = "nccl-tests_2.19.6_all_reduce_4xH200"
REDUCE_SCATTER = "nccl-tests_2.19.6_reduce_scatter_4xH200"


def test_real_all_reduce():
    """Catches a column read from its neighbour, in the two places where a row repeats."""
    result = parse_nccl(captured.read(f"{ALL_REDUCE}.txt"))
    assert (result.operation, result.version, result.nccl_version) == ("all_reduce", "2.19.6", "2.28.9")
    assert (result.ranks, result.hosts, result.gpus_per_thread, result.threads) == (4, ("vm",), 4, 1)
    assert (result.min_bytes, result.max_bytes, result.step, result.step_is_factor) == (8, 8 << 30, 2, True)
    assert (result.warmup_iterations, result.iterations, result.validation) == (5, 20, 1)
    assert len(result.rows) == 31
    last = result.rows[-1]
    assert (last.size_bytes, last.count, last.dtype, last.redop, last.root) == (
        8 << 30,
        1 << 31,
        "float",
        "sum",
        -1,
    )
    assert last.out_of_place is not None
    assert (last.out_of_place.time_us, last.out_of_place.algbw_gb_per_s) == (35286.6, 243.43)
    assert (last.out_of_place.busbw_gb_per_s, last.out_of_place.wrong) == (365.15, 0)
    assert (last.in_place.time_us, last.in_place.busbw_gb_per_s) == (35265.7, 365.37)
    assert (result.average_busbw_gb_per_s, result.out_of_bounds, result.data_checked) == (126.393, 0, True)
    device = result.devices[2]
    assert (device.rank, device.host, device.device, device.pci, device.name) == (
        2,
        "vm",
        2,
        "0000:00:08",
        "NVIDIA H200",
    )
    assert (result.last_error, result.warnings) == (None, ())


def test_rows_of_no_bytes_are_kept():
    """Catches the rows that reduce_scatter rounds down to 0 bytes dropped or refused."""
    sizes = [row.size_bytes for row in parse_nccl(captured.read(f"{REDUCE_SCATTER}.txt")).rows]
    assert sizes[:5] == [0, 0, 0, 64, 128]


def test_log_lines_between_rows_are_passed_over():
    """Catches NCCL_DEBUG lines read as rows or as errors."""
    result = parse_nccl(captured.read("nccl_2.28.9_debug_info_all_reduce_16G_4xH200.txt"))
    assert [row.size_bytes for row in result.rows] == [16 << 30]
    assert result.rows[0].in_place.busbw_gb_per_s == 365.95


def test_not_checked_is_none_and_not_zero():
    """Catches "N/A" read as 0 wrong elements: data that nobody compared."""
    text = re.sub(
        r" 0(  +\d+\.\d\d  +[\d.]+  +[\d.]+ +)0$",
        r" N/A\1N/A",
        captured.read(f"{ALL_REDUCE}.txt"),
        flags=re.M,
    )
    result = parse_nccl(text)
    assert result.rows[0].in_place.wrong is None
    assert result.data_checked is False


def test_multi_node_header_of_2_13():
    """Catches ranks of the second node lost, and the form without a name or a version refused."""
    result = parse_nccl(nccl_output.text())
    assert (result.ranks, result.hosts, result.operation, result.version) == (4, ("n1", "n2"), None, None)
    assert [device.host for device in result.devices] == ["n1", "n1", "n2", "n2"]


def test_an_old_footer_that_was_cut_is_refused():
    """Catches "Avg bus bandwidth : 0.0" of 0.0009 where no later line says that the run concluded."""
    text = nccl_output.text().rstrip()
    assert text.endswith("#")
    refused("ends before the line '#'", parse_nccl, text[:-1])


def test_per_iteration_columns():
    """Catches the spread of -I read as the second timing."""
    result = parse_nccl(nccl_output.text(named=True, spread=True))
    assert result.per_iteration is True
    timing = result.rows[0].in_place
    assert (timing.wrong, timing.iteration_min_us, timing.iteration_max_us) == (0, 19.0, 25.0)
    assert (timing.iteration_p99_us, timing.iteration_cv_percent) == (24.0, 1.5)


def test_timestamps():
    """Catches the date and time of -S read as two more columns."""
    text = nccl_output.text(named=True)
    stamped = re.sub(r"(?m)(#wrong)$", r"\1             timestamp", text)
    stamped = re.sub(r"(?m)^( +(?:8|16) .*)$", r"\1  2026-11-20 07:56:51", stamped)
    assert parse_nccl(stamped) == parse_nccl(text)
    refused("without its timestamp", parse_nccl, stamped.replace("07:56:51", "0", 1))


def test_a_reduced_maximum_is_reported():
    """Catches a sweep that stopped early for lack of memory taken for the one that was asked for."""
    text = captured.read(f"{ALL_REDUCE}.txt")
    rows = re.findall(r"^ +\d+ +\d+ +float.*\n", text, flags=re.M)
    busbw = [float(words[i]) for words in map(str.split, rows[:-1]) for i in (7, 11)]
    text = text.replace(rows[-1], "").replace("126.393", f"{sum(busbw) / len(busbw):.6g}")
    refused("rows are missing", parse_nccl, text)
    note = "#\n# Reducing maxBytes to 5000000000 due to memory limitation\n"
    result = parse_nccl(text.replace("# Using devices\n", note + "# Using devices\n"))
    assert (result.max_bytes, result.reduced_max_bytes, len(result.rows)) == (8 << 30, 5_000_000_000, 30)


@cases(
    "damage, message",
    (lambda t: t.replace("365.15       0", "365.15       x"), "#wrong should be a finite number"),
    (lambda t: t.replace("365.15       0", "365.15     0.5"), "#wrong should be a whole number"),
    (lambda t: t.replace("  365.15  ", "  nan  "), "busbw should be a finite number"),
    (lambda t: t.replace("  365.15  ", "  inf  "), "busbw should be a finite number"),
    (lambda t: t.replace("  365.15  ", "  36.15  "), "busbw 36.15 contradicts algbw 243.43"),
    (lambda t: t.replace(": 126.393", ": 126.493"), "is not that of the rows"),
    (lambda t: t.replace("  243.43  ", "  24.43  "), "contradicts algbw 24.43"),
    (lambda t: t.replace(" 35286.6  ", " 35386.6  "), "contradicts 8589934592 bytes"),
    (lambda t: t.replace("    2147483648     float", "    2147483647     float"), "elements of float"),
    (lambda t: t.replace(": 126.393 ", ": 126.393 FAILED"), "NCCL_TESTS_MIN_BW"),
    (lambda t: re.sub(r"#  Rank  3.*\n", "", t), "list of ranks is not complete: 3, in processes of 4"),
    (lambda t: re.sub(r"# nccl-tests version.*\n", "", t), "does not state version and program"),
    (lambda t: re.sub(r"# Collective test starting.*\n", "", t), "does not state version and program"),
    (lambda t: t.replace("  365.15  ", "  "), "a row of 12 columns where 13 are due"),
    (lambda t: re.sub(r"^ +4096 .*\n", "", t, flags=re.M), "rows are missing|a row is missing"),
    (lambda t: t.replace("        4096          1024", "        5096          1024"), "a row is missing"),
    (lambda t: t.replace("values : 0 OK", "values : 0 FAILED"), "contradicts itself"),
    (lambda t: t.replace("[0000:00:09]", "[0000:00:08]"), "two ranks on the GPU 0000:00:08 of vm"),
    (lambda t: t.replace("#  Rank  2", "#  Rank  x"), "rank should be a whole number"),
    (lambda t: re.sub(r"#  Rank  2.*\n", "", t), "list of ranks is not complete"),
    (lambda t: t.replace("nThread 1", "nThread one"), "threads should be a whole number"),
    (lambda t: t + t, "more than one test"),
    (lambda t: t.replace("   redop    root", "   redop"), "unknown table heading"),
    (lambda t: t.split("# Out of bounds")[0], "ends before 'Out of bounds values'"),
    (lambda t: t.split("# Avg bus")[0], "ends before 'Avg bus bandwidth'"),
    (lambda t: t.split("# Collective test concluded")[0], "ends before 'Collective test concluded"),
    (lambda t: t.split("#                  ")[0], "ends before the table"),
    (lambda t: t.replace("365.15       0", "365.15vm:1:2 [0] NCCL INFO Channel 00 : 0 1"), "log are mixed"),
    (lambda t: t + "vm: Test NCCL failure all_reduce.cu:44 'unhandled cuda error'\n", "reported an error"),
)
def test_damaged_text_is_refused(damage, message):
    """Catches a parser that skips or mends what it cannot read."""
    good = captured.read(f"{ALL_REDUCE}.txt")
    assert damage(good) != good
    with pytest.raises(BadInput, match=message) as told:
        parse_nccl(damage(good), file="raw/nccl.txt")
    assert str(told.value).startswith("raw/nccl.txt:")


def test_wrong_elements_are_a_result():
    """Catches corrupted data refused as damaged output: it is a result, and the worst one."""
    text = (
        captured.read(f"{ALL_REDUCE}.txt")
        .replace("365.15       0", "365.15 1e+06")
        .replace("0 OK", "1 FAILED")
    )
    result = parse_nccl(text)
    assert result.out_of_bounds == 1
    assert result.rows[-1].out_of_place is not None
    assert result.rows[-1].out_of_place.wrong == 1_000_000
    assert result.wrong_somewhere == 0


def test_what_nccl_said_last_is_kept():
    """Catches ncclGetLastError's text, which may say why a run is slow, lost or taken for damage."""
    said = "NET/IB : Got async event : port error"
    good = captured.read(f"{ALL_REDUCE}.txt")
    text = good.replace("# Collective test concluded", f"# error: {said}\n# Collective test concluded")
    assert parse_nccl(text) == parse_nccl(good).model_copy(update={"last_error": said})


def test_a_failure_that_no_row_shows_is_a_result_too():
    """Catches "3 FAILED" with no wrong row refused as damaged: the data are wrong, and nobody knows where."""
    text = captured.read(f"{ALL_REDUCE}.txt")
    failed = text.replace("0 OK", "3 FAILED")
    assert failed != text
    result = parse_nccl(failed)
    assert (result.out_of_bounds, result.wrong_somewhere) == (3, 3)


@cases(
    "old, new, rows, counted",
    ("365.15       0", "365.15       7", True, 0),  # the footer denies it
    ("values : 0 OK", "values : 3 OK", False, 3),
)
def test_wrong_elements_are_a_result_whoever_denies_them(old, new, rows, counted):
    """Catches: "#wrong 7" beside "0 OK", or "3 OK", refused as damaged: wrong data were seen."""
    text = captured.read(f"{ALL_REDUCE}.txt")
    assert old in text
    result = parse_nccl(text.replace(old, new))
    assert (result.wrong_in_rows, result.denied, result.out_of_bounds) == (rows, rows, counted)


# What GetBw in src/<program>.cu makes of 1 MiB in 100 us on 4 ranks: algbw and busbw over size / time. Then
# into how many parts the buffer is split, which shows in the count.
_RATE = (1 << 20) / 100 / 1e3
PROGRAMS = {"all_gather": (1, 0.75, 4), "reduce_scatter": (1, 0.75, 4), "alltoall": (1, 0.75, 4)}
PROGRAMS |= {"gather": (1, 0.75, 4), "scatter": (1, 0.75, 4), "hypercube": (0.75, 0.75, 4)}
PROGRAMS |= {"all_reduce": (1, 1.5, 1), "broadcast": (1, 1, 1), "reduce": (1, 1, 1), "sendrecv": (1, 1, 1)}


def run_of(operation: str, *, named: bool, suffix: str = "") -> str:
    """A run of one size, 1 MiB, in 100 us."""
    share, bus, parts = PROGRAMS[operation]
    timing = f"  100.0  {_RATE * share:6.2f}  {_RATE * bus:6.2f}      0"
    row = f"{1 << 20:12}  {(1 << 18) // parts:12}     float     sum      -1{timing}{timing}"
    text = nccl_output.text(named=named).replace("all_reduce_perf", f"{operation}_perf{suffix}")
    text = re.sub(r"(?m)^ +8 .*\n +16 .*$", row, text).replace(
        "minBytes 8 maxBytes 16", "minBytes M maxBytes M"
    )
    return text.replace("Bytes M", "Bytes 1048576").replace(": 0.0009", f": {round(_RATE * bus, 2):g}")


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("operation", PROGRAMS)
def test_every_program_is_held_to_its_arithmetic(operation, named):
    """Catches a busbw taken as printed: of a program that is not checked, or of a text without a name."""
    good = run_of(operation, named=named)
    assert parse_nccl(good).operation == (operation if named else None)
    bus = f"{_RATE * PROGRAMS[operation][1]:6.2f}      0"
    wrong = good.replace(bus, f"{_RATE * PROGRAMS[operation][1] * 1.2:6.2f}      0")
    wrong = re.sub(r"(bandwidth +: )\S+", rf"\g<1>{_RATE * PROGRAMS[operation][1] * 1.2:.2f}", wrong)
    assert wrong != good
    refused("contradicts", parse_nccl, wrong)


@cases(
    "operation, halves, is_checked",
    ("alltoall", ("0", "N/A"), True),
    ("sendrecv", ("0", "N/A"), True),
    ("alltoall", ("N/A", "N/A"), False),
    ("all_reduce", ("0", "N/A"), False),
)
def test_what_cannot_be_compared_in_place(operation, halves, is_checked):
    """Catches an alltoall shown as unchecked: nccl-tests compares it out of place alone (src/alltoall.cu)."""
    good = run_of(operation, named=True)
    timing = re.search(r"-1((?:  +[\d.]+){3}) +0", good)
    assert timing is not None
    row = "".join(f"{timing[1]} {wrong:>6}" for wrong in halves)
    assert parse_nccl(re.sub(r"-1  .*", f"-1{row}", good)).data_checked is is_checked


def test_builds_with_a_suffix():
    """Catches checks that are off for all_reduce_perf_mpi, as nccl-tests' README names MPI builds."""
    good = run_of("all_reduce", named=True, suffix="_mpi")
    assert parse_nccl(good).operation == "all_reduce"
    refused("contradicts", parse_nccl, good.replace("100.0", "101.0", 1))


def test_groups_of_ranks():
    """Catches busbw held to all ranks where NCCL_TESTS_SPLIT made groups that run side by side."""
    text = run_of("all_reduce", named=True)
    for rank in (1, 3):
        text = text.replace(f"Rank {rank:2} Group  0", f"Rank {rank:2} Group  1")
    refused("contradicts algbw", parse_nccl, text)
    busbw = f"{_RATE:.2f}"
    text = text.replace(f"{_RATE * 1.5:6.2f}      0", f" {busbw}      0")
    assert parse_nccl(re.sub(r"(bandwidth +: )\S+", rf"\g<1>{busbw}", text)).ranks == 4


def test_whole_foreign_lines_between_the_rows():
    """Catches a launcher's or library's line between rows refused as a row (seen: libfabric 1.15)."""
    text = nccl_output.text(named=True)
    rows = re.findall(r"(?m)^ +(?:8|16) .*\n", text)
    foreign = (
        "[n1:00100] 3 more processes have sent help message help-mpi-btl-openib.txt / ib port not selected\n"
    )
    among = text.replace(rows[1], "NCCL version 2.27.6+cuda12.8\n" + foreign + rows[1])
    among = among.replace("# Avg bus", foreign + "# Avg bus")
    result = parse_nccl(among)
    assert result == parse_nccl(text).model_copy(update={"warnings": (foreign.strip(),)})
    # It does not stand for a row.
    refused("rows are missing", parse_nccl, text.replace(rows[1], foreign))


def test_tags_of_open_mpi():
    """Catches --tag-output refused: a tag before every piece of a row, other ranks' lines, lines without."""
    text = nccl_output.text(named=True)
    for tag in ("[1,0]<stdout>:", "[prterun-n1-100@1,0]<stdout>:"):
        tagged = "".join(f"{tag}{line}\n" for line in text.split("\n"))
        tagged = tagged.replace("      -1    20.00", f"      -1{tag}    20.00")
        other = tag.replace(",0]", ",3]") + "n2:103:203 [1] NCCL INFO Connected all rings\n"
        stray = "Warning: Permanently added 'n2' (ED25519) to the list of known hosts.\n"
        assert parse_nccl(stray + tagged.replace(f"{tag}#\n", f"{tag}#\n{other}", 1)) == parse_nccl(text)
        torn = tagged.replace(f"-1{tag}", "-1" + tag.replace(",0]", ",3]"), 1)
        refused("two tasks share", parse_nccl, torn)


def test_versions_before_2_13_are_refused_by_name():
    """Catches "check that a program ran" said of one that ran, and a deviation read as a count."""
    text = nccl_output.text().replace(" agg iters: 1", "").replace("#wrong", "error").replace(" graph: 0", "")
    refused(r"before 2\.13, which does not say how many elements are wrong", parse_nccl, text)


def test_rccl_tests():
    """Catches RCCL-tests' header and its run in place only refused (its src/common.cu prints both)."""
    text = nccl_output.text().replace("# Using", "rccl-tests: Version develop:ae3e635\n# Using")
    text = re.sub(r"#  Rank ( \d) Group  0 ", r"#   Rank \1 ", text).replace("[0x0", "[0000:0")
    asterisks = "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
    text = text.replace("# Out of", asterisks + "# Out of")
    result = parse_nccl(text)
    assert (result.ranks, len(result.rows), result.warnings) == (4, 2, ())
    timing = r"    20\.00    0\.00    0\.00      0"
    once = re.sub(rf"(?m)^( +\d+ .*? -1{timing}){timing}$", r"\1", text)
    once = re.sub(r"(?m)(#wrong) +time +algbw +busbw +#wrong$", r"\1", once)
    row = parse_nccl(once).rows[0]
    assert (row.out_of_place, row.in_place.time_us) == (None, 20.0)


def test_the_file_of_the_option_j_is_refused_in_words():
    """Catches: nccl-tests' JSON called damaged, although it is only not what is read."""
    with pytest.raises(BadInput, match="the file of -J -- give what the program printed"):
        parse_nccl('{"version":3,"args":["./build/all_reduce_perf"]}')


def test_ranks_that_did_not_find_each_other_are_told_so():
    """Catches: srun without PMIx answered with `keep one test a file`, which nobody did."""
    alone = "No PMIx server was reachable, but a PMI1/2 was detected.\n"
    begin = (
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 1 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0 unalign: 0\n"
    )
    refused(r"2 ranks did not find each other.*srun --mpi=pmix", parse_nccl, alone + 2 * begin)
    refused("or ranks that did not find each other -- .*srun --mpi=pmix", parse_nccl, 2 * begin)
