"""Inputs of the cases of single rules: fleets, retries, noise, counters, hostile files."""

# ruff: noqa: D103  (expected.json names the fault of each case)

from tests.decision.case_folder import ALL_REDUCE, WRITE_BW, Case, case, good, singles


@case
def fleet_uniformly_bad(c: Case) -> None:
    c.nodes = [f"n{i:02d}" for i in range(1, 17)]
    item = c.plan({**WRITE_BW, "fleet_min_effect": 0.01}, singles(*c.nodes))
    c.all_lines(item, lambda i: round(231.9 - 0.02 * (i % 5), 2))


@case
def fleet_odd_node(c: Case) -> None:
    c.nodes = [f"n{i:02d}" for i in range(1, 17)]
    item = c.plan({**WRITE_BW, "fleet_min_effect": 0.01}, singles(*c.nodes))
    c.all_lines(item, lambda i: 382.1 if i == 12 else good(i))


@case
def fleet_too_small_for_outliers(c: Case) -> None:
    c.nodes = ["n1", "n2", "n3"]
    item = c.plan({**WRITE_BW, "fleet_min_effect": 0.01}, singles(*c.nodes))
    c.all_lines(item, lambda i: 382.1 if i == 2 else good(i))


@case
def missing_rail(c: Case) -> None:
    c.rails = [f"rail{i}" for i in range(4)]
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    for node in item["nodes"]:
        for rail in item["rails"][:3]:
            c.line(item, node, 391.0, rail=rail)


@case
def retry_passed(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.0)
    c.line(item, ["n2"], None, state="NODE_FAIL", job="1001")
    c.line(item, ["n2"], 391.1, attempt=2, job="1002")


@case
def retry_failed_again(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.0)
    c.line(item, ["n2"], 230.9)
    c.line(item, ["n2"], 231.1, attempt=2)


@case
def above_ceiling(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2")), lambda i: 391.0 if i else 410.2)


@case
def latency_below_floor(c: Case) -> None:
    latency = {**WRITE_BW, "id": "write-latency", "value": 2.0, "tolerance": 0.25, "ceiling": 0.5}
    latency |= {"ceiling_source": "two NICs and one cable", "unit": "us", "better": "lower"}
    item = c.plan(latency, singles("n1", "n2"), test="ib_write_lat", metric="latency")
    c.all_lines(item, lambda i: 1.9 if i else 0.02)


@case
def noise_straddles_gate(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 382.0, samples=[371.0, 375.2, 381.9, 382.0, 390.0, 391.0, 391.1])
    c.line(item, ["n2"], 391.0, samples=[390.9, 391.0, 391.0, 391.0, 391.1, 391.1, 391.1])


@case
def too_few_samples(c: Case) -> None:
    item = c.plan({**WRITE_BW, "min_samples": 6}, singles("n1", "n2"))
    c.line(item, ["n1"], 300.0, samples=[299.0, 300.0, 301.0])
    c.line(item, ["n2"], 391.0, samples=[390.9, 391.0, 391.0, 391.0, 391.1, 391.1])


@case
def counters(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2")), good)
    for port in ("Ethernet0", "Ethernet8", "Ethernet16", "Ethernet24", "Ethernet32"):
        c.plan_drops(port)
    c.counter("drops", "leaf1", "Ethernet0", 100, 100)
    c.counter("drops", "leaf1", "Ethernet8", 100, 112)
    c.counter("drops", "leaf1", "Ethernet16", 100, 3)
    c.counter("drops", "leaf1", "Ethernet24", 100, None)


@case
def unit_differs(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.0, unit="MiB/s")
    c.line(item, ["n2"], 391.0)


@case
def optional_cell_fails(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2")), good)
    c.all_lines(c.plan(WRITE_BW, singles("n1"), test="ib_send_bw", required=False), lambda _: 196.0)


@case
def excluded_stage(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2")), good)
    c.plan(
        ALL_REDUCE,
        [["n1", "n2"]],
        stage="collective",
        test="nccl_all_reduce",
        metric="busbw",
        rails=[None],
        not_run="the nodes have no GPU",
    )


@case
def killed_in_a_line(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2", "n3")), good)
    c.nodes.append("n3")


@case
def other_run_mixed_in(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.0)
    c.line(item, ["n2"], 391.0, run="last-week")


@case
def raw_missing(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.0, raw="raw/n1.txt")
    c.line(item, ["n2"], 391.0)


@case
def raw_leaves_folder(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.0, raw="raw/../../../../etc/passwd")
    c.line(item, ["n2"], 391.0)


@case
def terminal_escapes(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    escape = "\x1b[2J\x1b[32mPASS\r\n[bold]all good[/bold]"
    c.line(item, ["n1"], None, problem={"kind": "other", "message": escape})
    c.line(item, ["n2"], 391.0)


@case
def nan_token(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2")), lambda i: float("nan") if i else 391.0)


@case
def duplicate_key(c: Case) -> None:
    c.all_lines(c.plan(WRITE_BW, singles("n1", "n2")), good)
    c.results[1] = c.results[1].replace('"value": ', '"value": 120.0, "value": ')


@case
def unknown_field(c: Case) -> None:
    item = c.plan(WRITE_BW, singles("n1", "n2"))
    c.line(item, ["n1"], 391.0)
    c.line(item, ["n2"], 391.0, outcome="PASS")
