"""nvbandwidth, LoadGen, ethtool and rdma: values of real captures, and every rule's planted fault."""

import json
import re
import time

import captured
import pytest

from shakedown.benchmarks.gpu.output import parse_nvbandwidth
from shakedown.benchmarks.inference.output import parse_loadgen
from shakedown.nics import counter_sets
from shakedown.nics.counter_sets import RDMA
from shakedown.nics.parsers import parse_ethtool, parse_rdma
from shakedown.nos.lldp import neighbours
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused

NVBANDWIDTH = "nvbandwidth_0.8_4xH200.json"
SERVER = "loadgen_6.0.17_server_valid.txt"


def test_nvbandwidth_values():
    """Catches rows and columns swapped, nanoseconds taken for GB/s, the diagonal read as 0."""
    result = parse_nvbandwidth(captured.read(NVBANDWIDTH))
    tests = {test.name: test for test in result.tests}
    assert (result.version, result.cuda_runtime, result.driver) == ("v0.8", 13000, "580.159.04")
    assert len(tests) == 6
    assert tests["host_to_device_memcpy_ce"].bandwidth_gb_per_s == ((55.4959, 55.5559, 55.5551, 55.5598),)
    matrix = tests["device_to_device_memcpy_read_ce"].bandwidth_gb_per_s
    assert matrix is not None
    assert (matrix[0][1], matrix[1][0], matrix[2][2]) == (394.088, 393.925, None)
    latency = tests["host_device_latency_sm"]
    assert (latency.latency_ns, latency.bandwidth_gb_per_s) == (((1187.6, 1168.11, 1169.3, 1170.68),), None)
    device = result.devices[3]
    assert (device.index, device.name, device.pci, device.host) == (3, "NVIDIA H200", "00000000:00:09", "vm")


def nvbandwidth(change) -> str:
    """The capture after `change(first test case)`."""
    document = json.loads(captured.read(NVBANDWIDTH))
    change(document["nvbandwidth"])
    return json.dumps(document)


def test_both_ways_between_gpus_are_the_last_of_three_matrices():
    """Catches: one way's rate taken for both, and a capture refused because the sum is of the last alone."""

    def both(run):
        case = next(c for c in run["testcases"] if c["name"] == "device_to_device_memcpy_read_ce")
        one = case["bandwidth_matrix"]
        total = [[w if w == "N/A" else f"{2 * float(w):.6g}" for w in row] for row in one]
        # As json_output.cpp writes it: every call appends its rows, and the last one's sum stays.
        case["name"] = "device_to_device_bidirectional_memcpy_write_ce"
        case["bandwidth_matrix"] = [*one, *one, *total]
        case["sum"] = sum(float(w) for row in total for w in row if w != "N/A")
        case["bandwidth_description"] = "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)"

    tests = {test.name: test for test in parse_nvbandwidth(nvbandwidth(both)).tests}
    matrix = tests["device_to_device_bidirectional_memcpy_write_ce"].bandwidth_gb_per_s
    assert matrix is not None and len(matrix) == 4
    assert (matrix[0][1], matrix[2][2]) == (788.176, None)


def test_a_gpu_that_could_not_be_copied_to_costs_itself_alone():
    """Catches: one "N/A", which the sum leaves out, that makes the figures of every GPU unread."""

    def change(run):
        case = run["testcases"][0]
        case["sum"] -= float(case["bandwidth_matrix"][0][1])
        case["bandwidth_matrix"][0][1] = "N/A"

    (row,) = parse_nvbandwidth(nvbandwidth(change)).tests[0].bandwidth_gb_per_s
    assert [value is None for value in row] == [False, True, False, False]


@pytest.mark.parametrize("status", ["Waived", "Not Found", "Error", "Running"])
def test_nvbandwidth_tests_that_did_not_pass_have_no_values(status):
    """Catches a waived or failed test that looks measured."""

    def change(run):
        run["testcases"][0] = {"name": "host_to_device_memcpy_ce", "status": status}

    test = parse_nvbandwidth(nvbandwidth(change)).tests[0]
    assert (test.status, test.bandwidth_gb_per_s, test.latency_ns) == (status, None, None)


@cases(
    "change, message",
    (lambda r: r["testcases"][0]["bandwidth_matrix"][0].__setitem__(0, "5.4959"), "sum"),
    (lambda r: r["testcases"][0]["bandwidth_matrix"][0].__setitem__(0, "fast"), "finite number"),
    (lambda r: r["testcases"][0]["bandwidth_matrix"][0].__setitem__(0, "inf"), "finite number"),
    (lambda r: r["testcases"][0]["bandwidth_matrix"][0].__setitem__(0, 55.4959), "bandwidth_matrix"),
    (lambda r: r["testcases"][3]["bandwidth_matrix"][0].pop(), "differ in length"),
    (lambda r: r["testcases"][0].pop("bandwidth_matrix"), "no numbers or no unit"),
    (lambda r: r["testcases"][0].update(bandwidth_description="memcpy"), "no numbers or no unit"),
    (lambda r: r["testcases"][0].update(status="passed"), "status"),
    (lambda r: r["testcases"][0].pop("sum"), "sum"),
    (lambda r: r.update(testcases=[]), "tests"),
    (lambda r: r.update(testcases=[], error="ERROR: CUDA error 999"), "reported an error"),
    (lambda r: r["GPU Device list"].append("four"), "not a GPU"),
)
def test_damaged_nvbandwidth_is_refused(change, message):
    """Catches a passed test without its numbers, and numbers that do not add up."""
    refused(message, parse_nvbandwidth, nvbandwidth(change))


def test_loadgen_server():
    """Catches scheduled taken for completed queries, and the wrong percentile."""
    result = parse_loadgen(captured.read(SERVER))
    assert (result.scenario, result.mode, result.sut, result.valid) == (
        "Server",
        "PerformanceOnly",
        "PySUT",
        True,
    )
    assert (result.completed_samples_per_s, result.scheduled_samples_per_s) == (197.10, 197.20)
    assert (result.percentile_ns(99), result.percentile_ns(99.9)) == (3654137, 4605951)
    assert result.percentile_ns(42) is None
    assert (result.min_latency_ns, result.max_latency_ns, result.mean_latency_ns) == (6026, 4605951, 399837)
    assert (result.target_qps, result.target_latency_ns, result.min_duration_ms) == (200, 15_000_000, 4000)
    assert (result.performance_constraints, result.early_stopping) == (True, True)
    assert (result.warnings, result.errors) == (0, 0)


def test_loadgen_invalid_runs():
    """Catches an INVALID run read as valid, and its advice read as figures."""
    server = parse_loadgen(captured.read("loadgen_6.0.17_server_invalid.txt"))
    assert (server.valid, server.performance_constraints, server.min_duration) == (False, False, True)
    assert server.percentile_ns(99) == 12906380802
    offline = parse_loadgen(captured.read("loadgen_6.0.17_offline_invalid.txt"))
    assert (offline.valid, offline.samples_per_s, offline.min_duration) == (False, 128697, False)
    assert (offline.performance_constraints, offline.warnings, offline.errors) == (None, 1, 0)
    multi = parse_loadgen(captured.read("loadgen_6.0.17_multi_stream_invalid.txt"))
    assert (multi.scenario, multi.warnings, multi.errors) == ("MultiStream", 1, 1)
    single = parse_loadgen(captured.read("loadgen_6.0.17_single_stream_valid.txt"))
    assert (single.scenario, single.valid, single.percentile_ns(90)) == ("SingleStream", True, 1568291)


@cases(
    "damage, message",
    (lambda t: t.replace("Result is : VALID", "Result is : INVALID"), "contradicts the constraints"),
    (lambda t: t.replace("Min queries satisfied : Yes", "Min queries satisfied : NO"), "contradicts"),
    (lambda t: t.replace("Result is : VALID", "Result is : PROBABLY"), "VALID or INVALID"),
    (lambda t: t.replace("Result is : VALID\n", ""), "ends before valid"),
    (lambda t: t.replace("197.10", "197,10"), "finite number"),
    (lambda t: t.replace("197.10", "inf"), "finite number"),
    (lambda t: t.replace("3654137", "36541x7"), "whole number"),
    (lambda t: t.replace("3654137", "9654137"), "must rise"),
    (lambda t: t.replace(": 399837", ": 39983700"), "mean latency 39983700 ns is not between"),
    (lambda t: t.replace("qsl_rng_seed : 0\n", ""), "the parameter qsl_rng_seed"),
    (lambda t: t.replace("target_latency (ns): 15000000\n", ""), "the parameter target_latency"),
    (lambda t: t.replace("target_qps : 200", "target_qps : many"), "finite number"),
    (lambda t: t.replace("target_qps : 200\n", ""), "parameter target_qps"),
    (lambda t: re.sub(r"(?m)^.* samples per second .*\n", "", t), "no completed_samples_per_s"),
    (lambda t: t.replace("Scheduled samples", "Odd samples"), "unknown or doubled figure"),
    (lambda t: t.replace("97.00 percentile", "96.00 percentile"), "percentiles are missing"),
    (lambda t: t.replace("No errors encountered during test.", ""), "counts errors|counts warnings"),
    (lambda t: t + t, "twice"),
    (lambda t: t.split("Test Parameters")[0], "section 'Test Parameters Used'"),
    (
        lambda t: "\n\nNo warnings encountered during test.\n\nNo errors encountered during test.\n",
        "no performance: LoadGen sums up none in accuracy mode",
    ),
    (
        lambda t: re.sub(r"(Completed samples per second +: )\S+", r"\g<1>9999.00", t),
        "9999 completed samples/s are more than the [0-9.]+ scheduled",
    ),
)
def test_damaged_loadgen_is_refused(damage, message):
    """Catches a summary that was cut off, edited, or of an accuracy run."""
    good = captured.read(SERVER)
    assert damage(good) != good
    refused(message, parse_loadgen, damage(good))


def test_ethtool_values():
    """Catches a counter attributed to its neighbour, and names with colons or brackets cut."""
    result = parse_ethtool(captured.read("ethtool_6.14_virtio.txt"), required=["rx_drops"])
    assert (result.counters["tx0_kicks"], result.counters["rx0_kicks"]) == (21245, 19)
    bnxt = "NIC statistics:\n     [0]: rx_ucast_packets: 18446744073709551615\n     rx prio3: bytes: 7\n"
    assert parse_ethtool(bnxt).counters == {"[0]: rx_ucast_packets": 2**64 - 1, "rx prio3: bytes": 7}
    assert (result.driver, parse_ethtool(bnxt).driver) == ("virtio_net", None)


@pytest.mark.parametrize("line", ["a" + "\t" * 200_000 + "b", "a" * 200_000, "\t" * 200_000 + ": b"], ids=len)
def test_a_long_line_of_loadgen_costs_no_time(line):
    """Catches: a line of tabs without a colon, read from each tab on to its end: a minute for 200 kB."""
    lines = captured.read(SERVER).splitlines()
    at = next(number for number, text in enumerate(lines) if text.startswith("Scenario"))
    began = time.process_time()
    refused("neither a key nor a value", parse_loadgen, "\n".join([*lines[:at], line, *lines[at:], ""]))
    assert time.process_time() - began < 0.5


def test_loadgen_errors():
    """Catches "2 ERRORS encountered." taken for a cut summary, and a VALID run with errors taken for good."""
    good = captured.read(SERVER)
    ends = {"No errors encountered during test.": 0, "1 ERROR encountered. See detailed log.": 1}
    ends |= {"2 ERRORS encountered.": 2, "3 ERRORS encountered. See detailed log.": 3}
    for end, errors in ends.items():
        result = parse_loadgen(good.replace("No errors encountered during test.", end))
        assert (result.valid, result.errors, result.good) == (True, errors, not errors)


def test_loadgen_figures_have_witnesses():
    """Catches a digit lost in a figure that the summary states twice, and such a figure lost."""
    good = captured.read("loadgen_6.0.17_single_stream_valid.txt")
    changes = [
        ("90.0th percentile latency (ns) : 1568291", "90.0th percentile latency (ns) : 156829", "list of")
    ]
    changes += [
        (": 767.25", ": 767.35", "contradicts a mean"),
        (": 767.25", ": 76.725", "contradicts a mean"),
    ]
    changes += [("QPS w/ loadgen overhead         : 763.19\n", "", "ends before the figure")]
    changes += [("  Early stopping satisfied: Yes\n", "", "'Early stopping satisfied' is missing")]
    for old, new, message in changes:
        assert old in good
        refused(message, parse_loadgen, good.replace(old, new))
    # LoadGen 1.0 to 2.1 wrote no decimal here.
    assert parse_loadgen(good.replace("90.0th percentile", "90th percentile")).other[
        "90th percentile latency (ns)"
    ]


def statistics(counters) -> str:
    """What ethtool -S prints of these counters, as its drivers name them."""
    return "".join(["NIC statistics:\n", *(f"     {name}: {value}\n" for name, value in counters.items())])


def mlx5(queues: int = 2) -> dict[str, int]:
    """The shape of a ConnectX's reading: ports, priorities, PFC on priority 3, and queues."""
    names = [*counter_sets.driver_of({"rx_vport_unicast_packets": 1}, counter_sets.ETHTOOL).always]
    names += [
        f"{way}_prio{p}_{unit}" for p in range(8) for way in ("rx", "tx") for unit in ("bytes", "packets")
    ]
    names += [f"{way}_prio3_pause{end}" for way in ("rx", "tx") for end in ("", "_duration")]
    names += ["rx_prio3_pause_transition"]
    names += [
        f"{kind}{n}_{name}" for kind in ("ch", "rx", "tx") for n in range(queues) for name in ("a", "b")
    ]
    return {name: number for number, name in enumerate(names)}


def test_a_driver_s_whole_set_or_no_evidence():
    """Catches a reading that was cut or lost a line: an absent counter compared as if it had not moved."""
    whole = mlx5()
    assert parse_ethtool(statistics(whole)).driver == "mlx5_core"
    for lost in whole:
        with pytest.raises(BadInput, match=r"always reports|missing or damaged"):
            parse_ethtool(statistics({name: value for name, value in whole.items() if name != lost}))
    rxe = json.loads(captured.read("rdma_6.15_statistic_rxe.json"))
    for lost in set(rxe[0]) - {"ifname", "port"}:
        less = [{name: value for name, value in rxe[0].items() if name != lost}, rxe[1]]
        refused("rxe always reports", parse_rdma, json.dumps(less))


@cases(
    "names",
    # As a host with EFA beside mlx5 had them: tx_pkts and rx_pkts are bnxt's names, too.
    "tx_bytes tx_pkts rx_bytes rx_pkts rx_drops send_wrs recv_wrs rdma_read_wrs retrans_pkts",
    "tx_rdma_ucast_bytes rx_rdma_ucast_bytes tx_rdma_cnp_pkts packet_seq_err",  # one of mlx5's
    "",  # a driver without statistics
)
def test_the_counters_of_another_driver(names):
    """Catches: a NIC refused because it lacks what another maker's always reports, or counts nothing."""
    counters = dict.fromkeys(names.split(), 0)
    port = parse_rdma(json.dumps([{"ifname": "rdmap79s0", "port": 1, **counters}])).ports[0]
    assert (port.driver, port.counters) == (None, counters)


def test_a_count_below_zero_is_unread_and_costs_no_other():
    """Catches: one counter that a device did not answer for, which makes a whole listing unreadable."""
    whole = mlx5()
    for name, odd in (("rx_packets", "-1"), ("rx_prio3_pause", "0x1f")):
        result = parse_ethtool(statistics(whole | {name: odd}))
        left = {one: n for one, n in whole.items() if one != name}
        assert (result.driver, result.unread, result.counters) == ("mlx5_core", (name,), left)
    rxe = json.loads(captured.read("rdma_6.15_statistic_rxe.json"))
    port = parse_rdma(json.dumps([rxe[0] | {"link_downed": -1}])).ports[0]
    assert (port.driver, port.unread, "link_downed" in port.counters) == ("rxe", ("link_downed",), False)


def test_a_later_release_s_names():
    """Catches: Broadcom's driver since 2025 refused for names that it gave up, or one lost of them unseen."""
    sets = next(x for x in counter_sets.RDMA if x.driver == "bnxt_re")
    later = {known: new for new, known in sets.renamed.items()}
    names = sorted(sets.always.union(*sets.together))
    port = {"ifname": "bnxt_re0", "port": 1, **{later.get(name, name): n for n, name in enumerate(names)}}
    assert parse_rdma(json.dumps([port])).ports[0].counters == {name: n for n, name in enumerate(names)}
    for lost, known in sets.renamed.items():
        if known in sets.always:
            with pytest.raises(BadInput, match=f"bnxt_re always reports {known}"):
                parse_rdma(json.dumps([{name: n for name, n in port.items() if name != lost}]))


@pytest.mark.parametrize("group", [2, 3, 4])
def test_sets_that_a_port_has_whole_or_not_at_all(group):
    """Catches one counter lost of a set that an mlx5 device has, and a device without the set."""
    sets = next(x for x in counter_sets.RDMA if x.driver == "mlx5_ib")
    without = {"ifname": "mlx5_0", "port": 1, **dict.fromkeys(sorted(sets.always), 0)}
    assert parse_rdma(json.dumps([without])).ports[0].driver == "mlx5_ib"
    names = sorted(sets.together[group])
    assert parse_rdma(json.dumps([without | dict.fromkeys(names, 0)])).ports[0].driver == "mlx5_ib"
    with pytest.raises(BadInput, match=f"mlx5_ib always reports {names[0]}"):
        parse_rdma(json.dumps([without | dict.fromkeys(names[1:], 0)]))


def test_rings_of_a_bnxt():
    """Catches a ring's counter lost, and rings that only receive or only send refused."""
    both = {f"[{n}]: {name}": n for n in range(3) for name in ("rx_discards", "tx_discards")}
    apart = {f"[{n}]: {'rx' if n < 2 else 'tx'}_discards": n for n in range(4)}
    for rings in (both, apart):
        assert parse_ethtool(statistics(rings)).counters == rings
    for rings, lost in ((both, "[1]: rx_discards"), (both, "[2]: tx_discards"), (apart, "[1]: rx_discards")):
        with pytest.raises(BadInput, match="missing or damaged"):
            parse_ethtool(statistics({name: value for name, value in rings.items() if name != lost}))


def test_totals_of_virtio_are_the_sums_of_its_queues():
    """Catches a digit lost where the same reading holds it twice."""
    good = captured.read("ethtool_6.14_virtio.txt")
    with pytest.raises(BadInput, match="tx_kicks is 21245, the sum of its queues is 2124"):
        parse_ethtool(good.replace("tx0_kicks: 21245", "tx0_kicks: 2124"))


def vmxnet3() -> str:
    """A reading of two queues; names repeat in every queue, and one of them within a queue."""
    sets = next(x for x in counter_sets.ETHTOOL if x.driver == "vmxnet3")
    lines = ["NIC statistics:"]
    for way in ("Tx", "Rx"):
        own = sorted(x.partition(": ")[2] for x in sets.always if x.startswith(way))
        for queue in range(2):
            lines.append(f"     {way} Queue#: {queue}")
            for value, name in enumerate(own):
                blanks = 10 if ": " in name else 7
                lines.append(f"{' ' * blanks}{name.rpartition(': ')[2]}: {value + 100 * queue}")
    return "\n".join([*lines, "     tx timeout count: 0", ""])


def test_vmxnet3_repeats_its_names():
    """Catches "ucast pkts tx has two values" of a NIC with two queues (seen: vmxnet3 1.4.16 and 1.7.0)."""
    result = parse_ethtool(vmxnet3())
    assert result.driver == "vmxnet3"
    once, twice = (result.counters[f"Tx Queue#{queue}: ucast pkts tx"] for queue in (0, 1))
    assert twice == once + 100
    assert "Tx Queue#1: drv dropped tx total: giant hdr" in result.counters
    for lost in ("tx timeout count: 0", "     Rx Queue#: 1", "       ring full: 1"):
        with pytest.raises(BadInput):
            parse_ethtool(
                "\n".join(x for x in vmxnet3().split("\n") if not x.startswith(lost) and x.strip() != lost)
            )


@cases(
    "text, message",
    ("no stats available\n", "not 'NIC statistics:'"),
    ("Cannot get stats strings information: Operation not supported\n", "not 'NIC statistics:'"),
    ("NIC statistics:\n", "ends before"),
    ("NIC statistics:\n     rx_packets: 12", "ends before"),  # of 12345?
    ("NIC statistics:\n     rx_packets: twelve\n", "whole number"),
    ("NIC statistics:\n     rx_packets: 1.5\n", "whole number"),
    ("NIC statistics:\n     rx_packets:\n", "not a counter"),
    ("NIC statistics:\n     rx_packets: 1\n     rx_packets: 2\n", "two values"),
    ("NIC statistics:\n     rx_packets: -1\n", "counters"),
    ("NIC statistics:\n     rx_packets: 99999999999999999999\n", "counters"),
)
def test_damaged_ethtool_is_refused(text, message):
    """Catches a counter cut in the middle of its digits, or read as 0."""
    refused(message, parse_ethtool, text)


def test_a_missing_counter_is_an_error():
    """Catches an absent pause counter (PFC off) taken for a pause count of 0."""
    with pytest.raises(BadInput, match="no counter rx_prio3_pause"):
        parse_ethtool(captured.read("ethtool_6.14_virtio.txt"), required=["rx_prio3_pause", "rx_drops"])


def test_rdma_values():
    """Catches the counters of one port read for the other."""
    ports = parse_rdma(captured.read("rdma_6.15_statistic_rxe.json")).ports
    assert [(port.device, port.port) for port in ports] == [("rxe0", 1), ("rxe1", 1)]
    assert (ports[0].counters["sent_pkts"], ports[1].counters["sent_pkts"]) == (61737, 26640)
    assert (ports[0].counters["out_of_seq_request"], ports[1].counters["out_of_seq_request"]) == (1, 0)


@cases(
    "text, message",
    ("[]", "not a list of RDMA ports"),
    ("{}", "not a list of RDMA ports"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":5}]', "rxe always reports ack_deferred"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":"5"}]', "whole number"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":5.0}]', "whole number"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":true}]', "whole number"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":-5}]', "rxe always reports ack_deferred"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":NaN}]', "not a finite number"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":1,"sent_pkts":2}]', "twice"),
    ('[{"ifname":"rxe0","port":1,"a":1},{"ifname":"rxe0","port":1,"a":2}]', "twice"),
    ('[{"ifname":"rxe0","port":1,"lqpn":17,"a":1}]', "queue pair"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":5', "ends before the closing bracket"),
    ('[{"ifname":"rxe0","port":1,"sent_pkts":5}] x', "not JSON"),
    ("[" * 100_000, "nested too deeply"),
)
def test_damaged_rdma_is_refused(text, message):
    """Catches a counter that is not a whole number, and JSON that says two things."""
    refused(message, parse_rdma, text)


@cases(
    "parse, text, command",  # github.com/ROCm/device-metrics-exporter, docker/mockdata/nic/rdma_link.txt
    (
        parse_rdma,
        "link rocep68s0/1 state ACTIVE physical_state LINK_UP netdev enp68s0\n",
        "rdma -j statistic show",
    ),
    # github.com/microsoft/superbenchmark, tests/data/nvbandwidth_results.log
    (parse_nvbandwidth, "nvbandwidth Version: v0.6\nBuilt from Git version: v0.6\n", "nvbandwidth -j"),
    # github.com/netenglabs/suzieq, tests/integration/all_cndcn: lldpctl of edge01
    (neighbours, "-----\nLLDP neighbors:\n-----\nInterface:    eth1, via: LLDP\n", "lldpcli -f json0"),
)
def test_the_text_of_a_tool_that_prints_json_is_named(parse, text, command):
    """Catches "Expecting value at column 1" told to somebody who left out an option."""
    refused(f"text for people, not JSON -- capture `{re.escape(command)}", parse, text)


def test_the_next_generation_of_a_driver_is_read_and_what_it_renamed_is_told():
    """Catches: a whole reading refused for one name given up, or another maker held to mlx5's names."""
    for sets in RDMA:
        names = sets.always.union(*sets.together)
        gone = sorted(sets.always)[:2]
        later = [name for name in names if name not in gone] + [f"{name}_v2" for name in gone]
        later += [f"new_{n}" for n in range(10)]
        (port,) = parse_rdma(json.dumps([{"ifname": "x0", "port": 1, **dict.fromkeys(later, 1)}])).ports
        assert (port.driver, list(port.lacks)) == (sets.driver, gone)
        assert port.counters == dict.fromkeys(later, 1)
    # As NebulaMatrix's driver names them.
    other = "packet_seq_err out_of_sequence np_cnp_sent rp_cnp_handled roce_retrans tx_rdma_unicast_bytes"
    (port,) = parse_rdma(json.dumps([{"ifname": "x0", "port": 1, **dict.fromkeys(other.split(), 1)}])).ports
    assert (port.driver, port.lacks) == (None, ())


def test_rdma_of_drivers_and_counters_that_nobody_knows():
    """Catches a driver that is not known refused, and mlx5's for one counter more.

    As recorded: github.com/ROCm/device-metrics-exporter, docker/mockdata/nic/rdma_statistic_j.txt, and
    github.com/spidernet-io/spiderpool, pkg/rdmametrics/metrics_test.go (rx_icrc_encapsulated).
    """
    ionic = '[{"ifname": "ionic_1", "port": 1, "tx_rdma_ucast_bytes": 3489656928, "req_rx_dup_response": 34}]'
    (port,) = parse_rdma(ionic).ports
    assert (port.driver, port.counters["tx_rdma_ucast_bytes"]) == (None, 3489656928)
    mlx5 = next(sets for sets in counter_sets.RDMA if sets.driver == "mlx5_ib")
    names = sorted(mlx5.always.union(*mlx5.together) | {"rx_icrc_encapsulated"})
    text = json.dumps([{"ifname": "mlx5_1", "port": 1, **{name: n for n, name in enumerate(names)}}])
    (port,) = parse_rdma(text).ports
    assert (port.driver, len(port.counters)) == ("mlx5_ib", 31)
