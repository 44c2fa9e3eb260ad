"""Inputs of the cases that other harnesses get wrong."""

# ruff: noqa: D103  (expected.json names the fault of each case)

from tests.decision.case_folder import ALL_REDUCE, DROPS, WRITE_BW, Case, case, good, singles


@case
def bug01_size_as_text(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 195.9, params={"size_bytes": "65536"})
    c.line(item, ["n2"], 391.2, params={"size_bytes": "65536"})


@case
def bug01_size_spelled_otherwise(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.2, params={"size_bytes": "64KiB"})
    c.line(item, ["n2"], 391.2)


@case
def bug01_missing_threshold(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"), reference="write-bw-typo")
    c.all_lines(item, good)


@case
def bug02_failure_overwritten(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.raw["check.log"] = "WARNING: n1 bandwidth 196.0 below 380\nINFO: check_pass n1\n"
    c.line(item, ["n1"], 196.0, raw="raw/check.log")
    c.line(item, ["n1"], 391.0, raw="raw/check.log")
    c.line(item, ["n2"], 391.1)


@case
def bug03_exit_status_zero(c: Case) -> None:
    c.nodes = ["n1", "n2", "n3", "n4"]
    item = c.plan(WRITE_BW, singles(*c.nodes))
    c.line(item, ["n1"], 391.0, state="FAILED")
    c.line(item, ["n2"], 391.0, problem={"kind": "missing-tool", "message": "unsupported platform"})
    c.line(item, ["n3"], None)
    c.line(item, ["n4"], 391.0)


@case
def bug04_wrong_node(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.0)
    c.line(item, ["n1"], 196.0)


@case
def bug05_best_of_five(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    for attempt, value in enumerate((196.0, 195.8, 196.1, 196.0, 391.0), start=1):
        c.line(item, ["n1"], value, attempt=attempt)
    c.line(item, ["n2"], 391.0)


@case
def bug06_odd_node_never_tested(c: Case) -> None:
    c.nodes = ["n1", "n2", "n3", "n4", "n5"]
    c.all_lines(c.plan(WRITE_BW, [["n1", "n2"], ["n3", "n4"]], directions=["forward", "reverse"]), good)


@case
def bug06_fewer_nodes_than_asked(c: Case) -> None:
    c.nodes = [f"n{i}" for i in range(1, 9)]
    item = c.plan(
        ALL_REDUCE,
        [c.nodes],
        stage="collective",
        test="nccl_all_reduce",
        metric="busbw",
        rails=[None],
        params={"size_bytes": 2**34},
    )
    c.rails = []
    c.line(item, c.nodes[:7], 389.0)


@case
def bug07_wrong_count_unparsable(c: Case) -> None:
    c.rails = []
    wrong = {**DROPS, "id": "no-wrong", "unit": "1", "source": "a collective must compute right"}
    item = c.plan(
        wrong,
        [["n1", "n2"]],
        stage="collective",
        test="nccl_all_reduce",
        metric="wrong",
        rails=[None],
        params={"size_bytes": 2**34},
    )
    c.raw["all_reduce.txt"] = " 17179869184 4294967296 float sum -1 88186.1 194.81 365.28 N/A\n"
    problem = {"kind": "parse", "message": "raw/all_reduce.txt:1: #wrong is 'N/A', not a number"}
    c.line(item, ["n1", "n2"], None, problem=problem, raw="raw/all_reduce.txt")


@case
def bug07_truncated_output(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.raw["n2.txt"] = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 65536 50"
    c.line(item, ["n1"], 391.0)
    c.line(
        item,
        ["n2"],
        None,
        problem={"kind": "parse", "message": "raw/n2.txt:2: table ends inside a row"},
        raw="raw/n2.txt",
    )


@case
def bug08_reference_above_ceiling(c: Case) -> None:
    c.all_lines(c.plan({**WRITE_BW, "value": 425.0}, singles("n1", "n2")), good)


@case
def bug08_reference_passes_dead_link(c: Case) -> None:
    loose = {k: v for k, v in WRITE_BW.items() if k != "tolerance"} | {"limit": 0.0}
    c.all_lines(c.plan(loose, singles("n1", "n2")), lambda i: 0.0 if i else 391.0)


@case
def bug09_rule_evaluated(c: Case) -> None:
    rule = {k: v for k, v in WRITE_BW.items() if k != "tolerance"}
    rule["limit"] = "__import__('pathlib').Path('pwned').touch() or 1"
    c.all_lines(c.plan(rule, singles("n1", "n2")), good)


@case
def bug10_tcp_fallback(c: Case) -> None:
    c.rails = []
    item = c.plan(
        ALL_REDUCE,
        [["n1", "n2"]],
        stage="collective",
        test="nccl_all_reduce",
        metric="busbw",
        rails=[None],
        params={"size_bytes": 2**34},
    )
    c.line(item, ["n1", "n2"], 3.06)


@case
def bug10_intra_node_only(c: Case) -> None:
    c.rails = []
    item = c.plan(
        ALL_REDUCE,
        [["n1", "n2"]],
        stage="collective",
        test="nccl_all_reduce",
        metric="busbw",
        rails=[None],
        params={"size_bytes": 2**34},
    )
    moved = {**DROPS, "id": "roce-bytes-moved", "value": 1e12, "limit": 9e11, "unit": "bytes"}
    moved |= {"better": "higher", "kind": "physical"}
    moved |= {"source": "all_reduce volume 2(n-1)/n x size x iterations"}
    c.plan(moved, [["leaf1"]], metric="counter.tc3_tx_bytes", params={"port": "Ethernet0"}, rails=[None])
    c.line(item, ["n1", "n2"], 380.0)
    c.counter("tc3_tx_bytes", "leaf1", "Ethernet0", 5_000, 47_112)


@case
def bug11_bad_pair(c: Case) -> None:
    c.nodes = ["n1", "n2", "n3", "n4"]
    pairs = [["n1", "n2"], ["n3", "n4"], ["n1", "n3"], ["n2", "n4"], ["n1", "n4"], ["n2", "n3"]]
    c.all_lines(c.plan(WRITE_BW, pairs, directions=["forward"]), lambda i: good(i) if i else 120.4)


@case
def bug12_suspect_not_retested(c: Case) -> None:
    c.nodes = ["n1", "n2", "n3", "n4"]
    c.all_lines(
        c.plan(WRITE_BW, [["n1", "n2"], ["n3", "n4"]], directions=["forward"]),
        lambda i: good(i) if i else 120.4,
    )
    c.plan(WRITE_BW, [["n1", "n3"], ["n2", "n4"]], directions=["forward"], test="ib_write_bw_confirm")


@case
def bug13_order_of_lines(c: Case) -> None:
    c.nodes = [f"n{i}" for i in range(1, 9)]
    c.rails = ["rail0", "rail1"]
    item = c.plan(WRITE_BW, singles(*c.nodes))
    c.all_lines(item, lambda i: 196.0 if i in (3, 12) else good(i))
    c.line(item, ["n5"], 391.0, attempt=2)
    c.line(item, ["n6"], 300.0)
    c.line(item, ["n9"], 300.0)


@case
def bug14_busy_gpu(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 196.0, problem={"kind": "busy", "message": "GPU 3 held by process 4711 of job 998"})
    c.line(item, ["n2"], 391.0)


@case
def bug15_one_job_many_cells(c: Case) -> None:
    c.nodes = ["n1", "n2", "n3", "n4"]
    c.rails = ["rail0", "rail1"]
    pairs = [[a, b] for i, a in enumerate(c.nodes) for b in c.nodes[i + 1 :]]
    c.all_lines(c.plan(WRITE_BW, pairs, directions=["forward", "reverse"]), good, job="42")
