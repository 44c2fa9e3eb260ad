"""The class in which RoCE arrives: what passes, what fails and says where, and what decides nothing."""

import json

import pytest
from arrivals import MOVED, Ring, bnxt, mlx5, packets, planned, report, seen, site_document

from tests.kit.cases import cases

N2_FROM_N1 = ("n2", "n1", "rail0")


@pytest.fixture
def ring(tmp_path):
    """Two nodes that both received what both sent, on two rails, in its class."""
    return Ring(tmp_path / "r1")


def others(cells, *but):
    """The outcomes of all other cells."""
    return {outcome for place, (outcome, _) in cells.items() if place not in but}


def test_everything_in_its_class_passes(ring):
    """Catches a proof that no site could give."""
    assert others(ring.cells()) == {"PASS"}
    assert len(ring.cells()) == 4


def test_a_dscp_that_is_rewritten_in_one_direction_fails_there_alone(ring):
    """Catches: a wrong PASS of a leaf that reads back as wanted; a leaf blamed for its sender's tc."""
    ring.evidence[N2_FROM_N1]["headers"] = seen(packets("10.10.0.1", "10.10.0.2", dscp=0))
    cells = ring.cells()
    outcome, reason = cells[N2_FROM_N1]
    assert outcome == "FAIL"
    assert (
        "n2/rail0 receives n1's RoCE with DSCP 0, wanted 26: rewritten on the way, leaf0 swp1 to leaf0 swp2, "
        "or by n1 itself (next: `tc filter show dev fab0 egress`)" in reason
    ), reason
    assert others(cells, N2_FROM_N1) == {"PASS"}
    first = ring.judged().reason
    assert first.startswith("n2/rail0 receives n1's RoCE with DSCP 0, wanted 26: rewritten on the way"), first


def test_the_switch_that_reads_as_wanted_is_told_so(ring):
    """Catches a verdict that sends the reader to a read-back in which there is nothing to find."""
    ring.evidence[N2_FROM_N1]["headers"] = seen(packets("10.10.0.1", "10.10.0.2", dscp=0))
    switches = ring.folder / "raw/switches.config"
    switches.mkdir()
    ports = [{"port": f"swp{i}", "host": f"n{i}", "netdev": "fab0", "rail": "rail0"} for i in (1, 2)]
    settings = {"schema": 1, "switch": "leaf0", "nos": "linux", "cabling": ports, "differences": []}
    settings |= {"found": {}, "not_done": []}
    (switches / "leaf0.settings.json").write_text(json.dumps(settings))
    assert "leaf0 swp1 to leaf0 swp2, whose settings read as wanted" in ring.cells()[N2_FROM_N1][1]
    settings["differences"] = ["swp2: roce.ecn false -> true"]
    (switches / "leaf0.settings.json").write_text(json.dumps(settings))
    reason = ring.cells()[N2_FROM_N1][1]
    assert "(leaf0 swp2: swp2: roce.ecn false -> true)" in reason
    assert "read as wanted" not in reason


def test_bleached_ecn_fails_and_marks_of_congestion_do_not(ring):
    """Catches ECT(0) cleared on the way, without which no switch can mark; a marked packet taken for it."""
    ends = ("10.10.0.1", "10.10.0.2")
    ring.evidence[N2_FROM_N1]["headers"] = seen(packets(*ends, ecn=3, count=400), packets(*ends, count=100))
    assert ring.cells()[N2_FROM_N1][0] == "PASS"
    ring.evidence[N2_FROM_N1]["headers"] = seen(packets(*ends, ecn=0))
    outcome, reason = ring.cells()[N2_FROM_N1]
    assert outcome == "FAIL"
    assert "with DSCP 26 and Not-ECT, wanted ECT(0): ECN bleached on the way" in reason


def test_acknowledgements_and_notifications_are_not_judged_as_data(ring):
    """Catches a CNP of class 48, or an acknowledgement of another, taken for misclassified data."""
    ends = ("10.10.0.1", "10.10.0.2")
    ring.evidence[N2_FROM_N1]["headers"] = seen(
        packets(*ends),
        packets(*ends, dscp=48, kind="cnp", count=900),
        packets(*ends, dscp=0, kind="ack", count=900),
        packets(*ends, dscp=0, kind="other", count=900),
    )
    assert ring.cells()[N2_FROM_N1][0] == "PASS"


def test_what_the_node_sent_itself_is_no_arrival(ring):
    """Catches a receiver that takes its own packets, in their class, for those of the other node."""
    ring.evidence[N2_FROM_N1]["headers"] = seen(
        packets("10.10.0.2", "10.10.0.1", count=9000), packets("10.10.0.1", "10.10.0.2", dscp=0)
    )
    assert ring.cells()[N2_FROM_N1][0] == "FAIL"
    ring.evidence[N2_FROM_N1]["headers"] = seen(packets("10.10.0.2", "10.10.0.1", count=9000))
    outcome, reason = ring.cells()[N2_FROM_N1]
    assert outcome == "NOT-RUN"
    assert "fab0 shows the kernel 0 packets of data from 10.10.0.1 (of 9000 of RoCE)" in reason


@cases(
    "change, words",
    ({"headers": seen()}, "fab0 shows the kernel 0 packets of data from 10.10.0.1"),
    ({"headers": seen(packets("10.10.0.1", "10.10.0.2", count=19))}, "at least 20 are needed"),
    (
        {"headers": seen(error="fab0 cannot be listened to: Operation not permitted")},
        "fab0 cannot be listened to: Operation not permitted",
    ),
    (
        {"headers": None, "no_headers": "/run/shakedown/arrivals.sock: No such file; run the playbook"},
        "the driver counts no received bytes by priority; /run/shakedown/arrivals.sock: No such file",
    ),
)
def test_without_evidence_a_cell_is_not_run_and_never_passes(ring, change, words):
    """Catches: no packets, a sampler without rights, a node without the service, each taken for a pass."""
    ring.evidence[N2_FROM_N1].update(change)
    verdict_cells = ring.cells()
    outcome, reason = verdict_cells[N2_FROM_N1]
    assert (outcome, words in reason) == ("NOT-RUN", True), reason
    assert "nothing shows in which class n1's RoCE reaches n2/rail0" in reason
    assert others(verdict_cells, N2_FROM_N1) == {"PASS"}


@pytest.mark.parametrize("driver", [mlx5, bnxt])
def test_a_nics_own_priorities_decide(ring, driver):
    """Catches data in another priority on a NIC that shows the kernel no packet of RoCE."""
    blind = {"headers": seen(), "no_priorities": ""}
    right = {"priorities": driver(1000, 0, 0, int(1.05 * MOVED)), **blind}
    ring.evidence[N2_FROM_N1].update(right)
    ring.evidence["n1", "n2", "rail1"].update({"priorities": driver(int(1.05 * MOVED), 0, 0, 5000), **blind})
    cells = ring.cells()
    assert cells[N2_FROM_N1][0] == "PASS"
    outcome, reason = cells["n1", "n2", "rail1"]
    assert outcome == "FAIL"
    assert "n1/rail1 receives n2's RoCE in priority 0, wanted 3 (DSCP 26): rewritten on the way" in reason
    assert others(cells, ("n1", "n2", "rail1")) == {"PASS"}


@cases(
    "counters, words",
    (mlx5(0, 0, 0, MOVED // 2), "counted 32768000 of 65536000 bytes that arrived"),
    (mlx5(), "counted 0 of 65536000 bytes that arrived"),
    (mlx5(-5, 0, 0, MOVED), "were set back"),
    ({"before": {}, "after": mlx5(0, 0, 0, MOVED)["after"]}, "was read without rx_prio0_bytes"),
)
def test_counters_that_saw_less_than_was_sent_decide_nothing(ring, counters, words):
    """Catches a NIC that does not count RDMA by priority, whose small change would all be in its class."""
    ring.evidence[N2_FROM_N1].update(priorities=counters, headers=seen(), no_priorities="")
    outcome, reason = ring.cells()[N2_FROM_N1]
    assert outcome == "NOT-RUN"
    assert words in reason


def test_the_worse_of_two_witnesses_counts(ring):
    """Catches headers that show a fault, hidden by a NIC that puts every DSCP into one priority."""
    ring.evidence[N2_FROM_N1].update(
        priorities=mlx5(0, 0, 0, MOVED), headers=seen(packets("10.10.0.1", "10.10.0.2", dscp=0))
    )
    assert ring.cells()[N2_FROM_N1][0] == "FAIL"


def test_a_rate_is_not_needed_to_show_a_class(ring):
    """Catches a busy virtual machine, on which perftest finds no clock, that leaves the class undecided."""
    record = next(r for r in ring.records if (r["rail"], r["direction"]) == ("rail0", "forward"))
    ends = ("10.10.0.1", "10.10.0.2")
    said = "Correlation coefficient r^2: 0.891538 < 0.9\n" + report("ib_write_bw", 65536, 0.0, ends)
    (ring.raw / record["file"]).write_text(said)
    assert ring.cells()[N2_FROM_N1][0] == "PASS"
    ring.evidence[N2_FROM_N1].update(priorities=mlx5(0, 0, 0, 290 * 65536), headers=seen())
    assert ring.cells()[N2_FROM_N1][0] == "PASS"  # of 300 messages
    ring.evidence[N2_FROM_N1].update(priorities=mlx5(0, 0, 0, 280 * 65536))
    assert ring.cells()[N2_FROM_N1][0] == "NOT-RUN"
    (ring.raw / record["file"]).write_text(said.replace(" 65536 ", " 4096 "))
    assert ring.cells()[N2_FROM_N1][0] == "INCONCLUSIVE"


def test_a_third_nodes_packets_do_not_count_for_the_senders(ring):
    """Catches a rewritten class that others' traffic hides; and others' faults told of a sender."""
    mine, other = ("10.10.0.1", "10.10.0.2"), ("10.10.0.9", "10.10.0.2")
    ring.evidence[N2_FROM_N1]["headers"] = seen(packets(*mine, dscp=0), packets(*other, count=10**6))
    assert ring.cells()[N2_FROM_N1][0] == "FAIL"
    ring.evidence[N2_FROM_N1]["headers"] = seen(packets(*mine), packets(*other, dscp=0, count=10**6))
    assert ring.cells()[N2_FROM_N1][0] == "PASS"


def test_a_part_that_is_rewritten_fails(ring):
    """Catches one uplink of several that rewrites, lost in the average."""
    ends = ("10.10.0.1", "10.10.0.2")
    ring.evidence[N2_FROM_N1]["headers"] = seen(packets(*ends, count=480), packets(*ends, dscp=8, count=20))
    outcome, reason = ring.cells()[N2_FROM_N1]
    assert outcome == "FAIL"
    assert "with DSCP 8 (4 % of 500 packets), wanted 26" in reason


@cases(
    "change, words",
    ({"node": "n1"}, "was counted by n1, the data went to n2"),
    ({"netdev": "fab1"}, "was counted at fab1 of n2, the data went to its fab0"),
    ({"started": "2025-12-31T00:00:00Z", "ended": "2025-12-31T00:00:05Z"}, "perftest ran at"),
    ({"schema": 2}, "no count of arrivals"),
)
def test_a_count_of_something_else_is_undecided(ring, change, words):
    """Catches a file of another node, NIC or time that stands in for this one's."""
    ring.evidence[N2_FROM_N1].update(change)
    outcome, reason = ring.cells()[N2_FROM_N1]
    assert outcome == "INCONCLUSIVE"
    assert words in reason


def test_a_receiver_that_kept_nothing_is_not_run(ring):
    """Catches a missing file that counts as nothing wrong."""
    del ring.evidence[N2_FROM_N1]
    outcome, reason = ring.cells()[N2_FROM_N1]
    assert outcome == "NOT-RUN"
    assert "n2 kept no count of what arrived" in reason


def test_the_addresses_are_compared_as_addresses():
    """Catches IPv6 written in two ways taken for two nodes."""
    from shakedown.benchmarks.traffic_class.output import Arrivals, WantedClass, by_headers

    evidence = Arrivals.model_validate(
        {
            "schema": 1,
            "node": "n2",
            "netdev": "fab0",
            "started": "",
            "ended": "",
            "priorities": {"before": {}, "after": {}},
            "no_priorities": "",
            "headers": seen(packets("fd00::1", "fd00:0::2", dscp=10)),
            "no_headers": "",
        }
    )
    finding = by_headers(evidence, WantedClass(dscp=26, ecn=2, priority=3), "fd00:0:0::1", "fd00::2")
    assert finding == (0.0, "with DSCP 10, wanted 26", "rewritten")


@cases(
    "nodes, pairs",
    (2, (("n1", "n2"),)),
    (3, (("n1", "n2"), ("n2", "n3"), ("n1", "n3"))),
    (4, (("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("n1", "n4"))),
)
def test_every_node_receives_on_every_rail(nodes, pairs):
    """Catches a node, a rail or a direction that nothing proves."""
    plan, jobs = planned(site_document(nodes))
    (item,) = (item for item in plan.items if item.test == "traffic_class")
    assert item.nodes == pairs
    assert item.required
    receivers = {
        (pair[1] if way == "forward" else pair[0], rail) for _, pair, rail, way in item.cells() if pair
    }
    assert receivers == {(f"n{i}", f"rail{r}") for i in range(1, nodes + 1) for r in range(2)}
    job = next(job for job in jobs.jobs if job.kind == "traffic_class")
    assert job.settings["tclass"] == 106
    assert job.settings["wanted"]["dscp"] == 26
    assert job.settings["wanted"]["ports"]["n1"]["rail0"] in (["leaf0", "swp1"], ("leaf0", "swp1"))


@pytest.mark.parametrize(("nodes", "config"), [(1, {}), (2, {"traffic_class": None})])
def test_what_is_not_proved_is_said(nodes, config):
    """Catches a site of one node, or one that leaves the proof out, of which the plan is silent."""
    plan, jobs = planned(site_document(nodes, **config))
    assert not [item for item in plan.items if item.test == "traffic_class"]
    assert not [job for job in jobs.jobs if job.kind == "traffic_class"]
    assert any("is not proved where it arrives" in caveat for caveat in plan.caveats)
