"""From a switch's raw readings to lines of counters.jsonl; the files were read from a Linux leaf.

Between the two readings one node wrote 400 messages of 64 KiB to another on rail 0 with DSCP 26: at an RDMA
MTU of 4096 bytes that is 6400 packets, and 400 acknowledgements came back.
"""

import json
from pathlib import Path

import pytest

from shakedown.nos.readings import SwitchReading, load_reading, port_name, readings
from shakedown.nos.system import COUNTERS
from shakedown.records.base import Stage
from shakedown.records.reading import BadInput
from shakedown.records.results import CounterReading
from tests.kit.refusal import refused

READINGS = Path(__file__).parents[2] / "nos" / "readings"


def load(when: str) -> SwitchReading:
    """One of the two recorded readings."""
    return load_reading(READINGS / f"leaf0.{when}.json")


def lines(before: SwitchReading, after: SwitchReading) -> dict[tuple[str, str], CounterReading]:
    """The lines they make, by port and counter."""
    made = readings(
        before, after, run="r1", stage=Stage.FABRIC, test="ib_write_bw", job="7", raw="leaf0.after.json"
    )
    return {(line.port, line.counter): line for line in made}


def edited(when: str, label: str, change) -> SwitchReading:
    """A reading with one raw output changed by `change(parsed JSON)`."""
    reading = load(when).model_dump(by_alias=True)
    document = json.loads(reading["outputs"][label]["stdout"])
    change(document)
    reading["outputs"][label]["stdout"] = json.dumps(document)
    return SwitchReading.model_validate(reading)


def test_roce_packets_are_counted_in_the_roce_class_and_keyed_to_the_nic():
    """Catches classes mixed up, ports mixed up, and a port keyed to the wrong host."""
    found = lines(load("before"), load("after"))
    assert found["swp2", "roce_rx_packets"].delta == 6400
    assert found["swp1", "roce_tx_packets"].delta == 6400
    assert found["swp1", "roce_rx_packets"].delta == found["swp2", "roce_tx_packets"].delta == 400
    assert found["swp3", "roce_rx_packets"].delta == 0
    assert found["swp2", "roce_rx_packets"].peer == "n2/fab0"
    assert found["swp3", "roce_rx_packets"].rail == "rail1"


def test_every_zero_counter_of_a_clean_run_is_zero():
    """Catches good hardware blamed: LLDP frames that a bridge does not forward are no drops."""
    found = lines(load("before"), load("after"))
    assert {
        key: line.delta for key, line in found.items() if COUNTERS[line.counter] == "zero" and line.delta
    } == {}
    assert found["rail0", "roce_lost_packets"].delta == 0


def test_packets_that_enter_a_rail_and_never_leave_are_counted_as_lost():
    """Catches a loss inside the switch that no drop counter shows."""

    def lose_two(qdiscs):
        next(q for q in qdiscs if q["dev"] == "swp1" and q["handle"] == "20:")["packets"] -= 2

    found = lines(load("before"), edited("after", "qdiscs", lose_two))
    assert found["rail0", "roce_lost_packets"].delta == 2
    assert found["rail1", "roce_lost_packets"].delta == 0


def test_drops_of_a_planted_root_count_as_the_ports_drops():
    """Catches loss planted above the queues going unseen."""

    def drop(qdiscs):
        root = next(q for q in qdiscs if q["dev"] == "swp1" and q.get("root"))
        root |= {"kind": "netem", "handle": "fa17:", "drops": 127}

    assert lines(load("before"), edited("after", "qdiscs", drop))["swp1", "tx_drops"].delta == 127


def test_roce_with_a_wrong_dscp_is_counted():
    """Catches a host that marks its traffic with a DSCP of no class."""

    def misclassify(rules):
        rule = next(r for r in rules if r["pref"] == 30 and "options" in r)
        rule["options"]["actions"][0]["stats"]["packets"] += 9

    found = lines(load("before"), edited("after", "filters swp2", misclassify))
    assert found["swp2", "roce_misclassified_rx_packets"].delta == 9


def test_roce_that_a_port_puts_into_another_class_is_counted_there():
    """Catches a wrong DSCP map: the DSCP is right, the filter counts, and the RoCE queue stays empty."""

    def elsewhere(rules):
        rule = next(r for r in rules if r["pref"] == 10 and "options" in r)
        rule["options"]["actions"][0]["priority"] = ":1"

    before, after = edited("before", "filters swp2", elsewhere), edited("after", "filters swp2", elsewhere)
    found = lines(before, after)
    assert found["swp2", "roce_misclassified_rx_packets"].delta == 6400
    assert found["swp2", "roce_rx_packets"].delta == 0
    assert found["swp1", "roce_misclassified_rx_packets"].delta == 0


def test_a_switch_that_lost_its_queues_reads_as_missing_not_as_zero():
    """Catches absent counters read as 0: ECN and queue drops of an unconfigured port would all pass."""

    def forget(qdiscs):
        qdiscs[:] = [q for q in qdiscs if q["dev"] != "swp1" or q["handle"] in ("1:", "ffff:")]

    found = lines(load("before"), edited("after", "qdiscs", forget))
    for counter in ("roce_queue_drops", "ecn_marked", "roce_tx_packets"):
        assert found["swp1", counter].after is None
        assert found["swp1", counter].delta is None
    assert found["rail0", "roce_lost_packets"].delta is None


def test_a_counter_that_went_back_has_no_difference():
    """Catches a reset between the readings taken as a small, good number."""
    found = lines(
        load("before"), edited("after", "qdiscs", lambda q: [x.update(packets=0, drops=0) for x in q])
    )
    assert found["swp1", "roce_tx_packets"].delta is None
    assert found["rail0", "roce_lost_packets"].delta is None
    # What the port dropped before is forgotten, too: from 0 to 0 says nothing.
    drops = found["swp1", "tx_drops"]
    assert (drops.before, drops.after, drops.delta) == (0, 0, None)


@pytest.mark.parametrize(
    ("label", "change", "words"),
    [
        ("qdiscs", lambda d: [q.update(drops="many") for q in d], "drops is 'many', not a count"),
        ("links", lambda d: d[-1]["stats64"]["rx"].pop("packets"), "packets is 'None', not a count"),
        (
            "filters swp1",
            lambda d: d[1]["options"]["actions"][0].pop("stats"),
            "packets is 'None', not a count",
        ),
    ],
)
def test_garbled_output_is_refused(label, change, words):
    """Catches text in place of a number read as 0."""
    refused(words, lines, load("before"), edited("after", label, change))


def test_two_readings_that_do_not_belong_together_are_refused():
    """Catches the counters of another switch, another cabling or the wrong order."""
    before, after = load("before"), load("after")
    refused("not one before and one after", lines, after, before)
    refused("switch changed", lines, before, after.model_copy(update={"switch": "leaf1"}))
    refused("cabling changed", lines, before, after.model_copy(update={"cabling": after.cabling[1:]}))
    with pytest.raises(BadInput, match="no counters are read from switch system 'ios'"):
        lines(before.model_copy(update={"nos": "ios"}), after.model_copy(update={"nos": "ios"}))


def test_a_cut_off_file_is_refused_in_one_line(tmp_path):
    """Catches half a file taken for a reading."""
    path = tmp_path / "leaf0.after.json"
    path.write_text((READINGS / "leaf0.after.json").read_text()[:5000])
    refused("not JSON", load_reading, path)


def test_port_names_of_every_system_fit_a_record():
    """Catches a port name that a record or a cell's identity would refuse."""
    assert [port_name(p) for p in ("Ethernet1/1/1", "hundredGigE 1/1", "swp1")] == [
        "Ethernet1:1:1",
        "hundredGigE1:1",
        "swp1",
    ]


def test_marks_are_held_against_the_packets_that_could_be_marked():
    """Catches a bound of ECN marks that a long stage always breaks and a short one never."""

    def mark(qdiscs):
        next(q for q in qdiscs if q["dev"] == "swp1" and q["handle"] == "20:")["marked"] += 64

    found = lines(load("before"), edited("after", "qdiscs", mark))
    assert found["swp1", "ecn_marked_ppm"].delta == 10_000  # 64 of 6400
    assert found["swp2", "ecn_marked_ppm"].delta == 0

    def forget(qdiscs):
        qdiscs[:] = [q for q in qdiscs if q["dev"] != "swp1" or q["handle"] in ("1:", "ffff:")]

    found = lines(load("before"), edited("after", "qdiscs", forget))
    assert found["swp1", "ecn_marked_ppm"].delta is None


def test_pauses_without_any_traffic_are_the_worst_ratio():
    """Catches a division by nothing, and pauses of an idle port that look like none."""
    from shakedown.nos.readings import _per_million

    assert [_per_million(*x) for x in ((0, 0), (3, 0), (1, 3), (None, 5), (5, None))] == [
        0,
        1_000_000,
        333_334,
        None,
        None,
    ]


@pytest.mark.parametrize("value", ["1" * 400, str(2**64)])
def test_a_number_that_no_counter_can_hold_is_refused_in_one_line(value):
    """Catches an overflow later on: a traceback instead of the switch's name."""

    def count_too_far(qdiscs):
        next(q for q in qdiscs if q["dev"] == "swp1" and q["handle"] == "20:")["packets"] = int(value)

    refused(r"count|number", lines, load("before"), edited("after", "qdiscs", count_too_far))


def test_a_sum_that_no_counter_can_hold_is_no_count():
    """Catches packets of two filters whose sum ends in a traceback, or is judged."""

    def count_too_far(rules):
        for rule in rules:
            if rule.get("options"):
                rule["options"]["actions"][0]["stats"]["packets"] = 2**63 - 1

    found = lines(load("before"), edited("after", "filters swp1", count_too_far))
    assert found["swp1", "roce_rx_packets"].after is None
