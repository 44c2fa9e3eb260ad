"""Counters of SONiC, Cumulus, EOS and NX-OS from output in the form that their documents show.

No real switch was read: what is tested is that the right field lands under the right name, and that what is
absent or garbled is never 0.
"""

import contextlib
import copy
import json
from pathlib import Path

import pytest

from shakedown.nos.registry import counters_of, known
from shakedown.nos.system import COUNTERS, Classes
from shakedown.records.reading import BadInput
from tests.kit.refusal import refused
from tests.unit.nos.os9_printed import OS9_COUNTERS, OS9_PORT

CLASSES = Classes(priority=3, traffic_class=3, queue=3, cnp_queue=6)


def hash_of(**values):
    """An entry of a redis dump."""
    return {"expireat": 1.5, "ttl": -0.001, "type": "hash", "value": {k: str(v) for k, v in values.items()}}


SONIC = {
    "COUNTERS_PORT_NAME_MAP": hash_of(Ethernet0="oid:0x1", PortChannel1="oid:0x9"),
    "COUNTERS_QUEUE_NAME_MAP": hash_of(**{"Ethernet0:3": "oid:0x13", "Ethernet0:6": "oid:0x16"}),
    "COUNTERS_PG_NAME_MAP": hash_of(**{"Ethernet0:3": "oid:0x23"}),
    "COUNTERS:oid:0x1": hash_of(
        SAI_PORT_STAT_IF_IN_OCTETS=1001,
        SAI_PORT_STAT_IF_OUT_OCTETS=1002,
        SAI_PORT_STAT_IF_IN_UCAST_PKTS=10,
        SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS=1,
        SAI_PORT_STAT_IF_OUT_UCAST_PKTS=20,
        SAI_PORT_STAT_IF_OUT_NON_UCAST_PKTS=2,
        SAI_PORT_STAT_IF_IN_DISCARDS=3,
        SAI_PORT_STAT_IF_OUT_DISCARDS=4,
        SAI_PORT_STAT_IF_IN_ERRORS=5,
        SAI_PORT_STAT_IF_OUT_ERRORS=6,
        SAI_PORT_STAT_PFC_3_RX_PKTS=31,
        SAI_PORT_STAT_PFC_3_TX_PKTS=32,
        SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES=12,
        SAI_PORT_STAT_IF_IN_FEC_SYMBOL_ERRORS=13,
    ),
    "COUNTERS:oid:0x13": hash_of(
        SAI_QUEUE_STAT_PACKETS=300,
        SAI_QUEUE_STAT_BYTES=301,
        SAI_QUEUE_STAT_DROPPED_PACKETS=7,
        SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS=8,
        PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED=9,
    ),
    "COUNTERS:oid:0x16": hash_of(SAI_QUEUE_STAT_PACKETS=600, SAI_QUEUE_STAT_DROPPED_PACKETS=0),
    "COUNTERS:oid:0x23": hash_of(SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS=11),
}
SONIC_PORTS = {
    "PORT_TABLE:Ethernet0": hash_of(alias="etp1", oper_status="up", flap_count=1),
    "PORT_TABLE:PortConfigDone": hash_of(count=1),
}
LINKS = json.loads((Path(__file__).parent / "printed/links.json").read_text())
CUMULUS_ROCE = json.loads((Path(__file__).parent / "printed/cumulus_roce.json").read_text())
EOS = json.loads((Path(__file__).parent / "printed/eos.json").read_text())
NXOS = json.loads((Path(__file__).parent / "printed/nxos.json").read_text())


def text(outputs):
    """Raw outputs, as the role saves them."""
    return {label: value if isinstance(value, str) else json.dumps(value) for label, value in outputs.items()}


RAW = {
    "sonic": ("Ethernet0", text({"counters": SONIC, "ports": SONIC_PORTS})),
    "cumulus": ("swp1", text({"links": LINKS, "roce swp1": CUMULUS_ROCE})),
    "eos": ("Ethernet1/1", text(EOS)),
    "nxos": ("Ethernet1/1", text(NXOS)),
}
# What each field above must come out as; every system reports a part of it.
EXPECTED = {"rx_bytes": 1001, "tx_bytes": 1002, "rx_packets": 11, "tx_packets": 22, "rx_drops": 3}
EXPECTED |= {"tx_drops": 4, "rx_errors": 5, "tx_errors": 6, "roce_tx_packets": 300, "roce_tx_bytes": 301}
EXPECTED |= {"roce_queue_drops": 7, "ecn_marked": 8, "watchdog_events": 9, "cnp_tx_packets": 600}
EXPECTED |= {"cnp_queue_drops": 0, "roce_ingress_drops": 11, "pfc_rx_prio3": 31, "pfc_tx_prio3": 32}
EXPECTED |= {"pfc_rx_frames": 31, "pfc_tx_frames": 32, "roce_rx_packets": 310, "link_flaps": 1}
EXPECTED |= {"fec_uncorrectable": 12, "fec_symbol_errors": 13}


@pytest.mark.parametrize("nos", RAW)
def test_every_field_lands_under_its_name(nos):
    """Catches rx for tx, one queue for another, packets for bytes."""
    port, outputs = RAW[nos]
    found = counters_of(nos)(outputs, CLASSES)[port]
    assert found == {name: EXPECTED[name] for name in found}
    assert set(known(nos).reported(CLASSES)) <= set(found)
    assert set(found) <= set(COUNTERS)


@pytest.mark.parametrize("nos", RAW)
def test_another_queue_is_another_number(nos):
    """Catches a parser that reads queue 3 whatever the intent says."""
    port, outputs = RAW[nos]
    other = Classes(priority=4, traffic_class=4, queue=4, cnp_queue=5)
    found = counters_of(nos)(outputs, other)[port]
    if nos == "cumulus":  # `qos roce` itself names the class
        return
    assert not {"roce_tx_packets", "roce_queue_drops", "ecn_marked", "cnp_tx_packets"} & set(found)


@pytest.mark.parametrize(
    ("nos", "old", "new"),
    [
        ("sonic", '"SAI_QUEUE_STAT_DROPPED_PACKETS": "7"', '"SAI_QUEUE_STAT_DROPPED_PACKETS": "N/A"'),
        ("cumulus", '"unicast-no-buffer-discard": 7', '"unicast-no-buffer-discard": "7.1 K"'),
        ("eos", '"droppedPackets": 7', '"droppedPackets": null'),
        ("nxos", '"eth_indiscard": "3"', '"eth_indiscard": "--"'),
        ("nxos", '"eth_indiscard": "3"', f'"eth_indiscard": "{2**64}"'),
        ("eos", '"droppedPackets": 7', f'"droppedPackets": {2**64}'),
    ],
)
def test_a_garbled_counter_is_refused(nos, old, new):
    """Catches text read as 0, and a number that no counter can hold."""
    _, outputs = RAW[nos]
    assert any(old in value for value in outputs.values())
    with pytest.raises(BadInput, match="not a count"):
        counters_of(nos)({label: value.replace(old, new) for label, value in outputs.items()}, CLASSES)


def inside(tree, *, at=()):
    """Yield the place of every value of a JSON tree."""
    yield at
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in below:
        yield from inside(value, at=(*at, key))


def with_value(tree, at, value):
    """Return a JSON tree with another value at one place."""
    if not at:
        return value
    some = copy.copy(tree)
    some[at[0]] = with_value(tree[at[0]], at[1:], value)
    return some


@pytest.mark.parametrize("nos", RAW)
def test_json_of_another_shape_is_refused_or_leaves_a_counter_out(nos):
    """Catches a traceback in the middle of a run's evidence, and a value read out of something else."""
    _, outputs = RAW[nos]
    for label, printed in outputs.items():
        if not printed.startswith(("{", "[")):
            continue
        tree = json.loads(printed)
        for at in inside(tree):
            for value in (None, "n/a", [], {}, 1.5, True, {"a": 1}):
                odd = {**outputs, label: json.dumps(with_value(tree, at, value))}
                with contextlib.suppress(BadInput):
                    for counters in counters_of(nos)(odd, CLASSES).values():
                        assert all(
                            counters[name] == EXPECTED[name] for name in set(counters) - {"watchdog_events"}
                        )


def test_what_nxos_counts_below_its_last_numbered_group_is_none_of_that_group():
    """Catches the drops of the CNPs' queue covered by those of the control queue, which stand below it."""
    outputs = dict(RAW["nxos"][1])
    zero = "|                   Tx Pkts |               1|               0|\n"
    zero += "| WRED/AFD & Tail Drop Pkts |               0|               0|\n"
    lost = outputs["queues"].replace("Drop Pkts |               0|", "Drop Pkts |               5|")
    outputs["queues"] = "".join(
        (
            lost,
            "|                      CONTROL QOS GROUP                      |\n",
            zero,
            "|                         SPAN QOS GROUP                      |\n",
            zero,
        )
    )
    found = counters_of("nxos")(outputs, CLASSES)["Ethernet1/1"]
    assert (found["cnp_tx_packets"], found["cnp_queue_drops"]) == (600, 5)


@pytest.mark.parametrize("nos", RAW)
def test_a_missing_output_is_refused(nos):
    """Catches a command that was not run, read as a switch without drops."""
    _, outputs = RAW[nos]
    with pytest.raises(BadInput, match="no output"):
        counters_of(nos)(
            {label: v for label, v in outputs.items() if label not in ("links", "counters")}, CLASSES
        )


@pytest.mark.parametrize("ports", [None, {"PORT_TABLE:Ethernet0": hash_of(oper_status="up")}])
def test_a_sonic_release_that_counts_no_flaps_has_none_to_tell(ports):
    """Catches an absent `flap_count` read as a link that never went down."""
    outputs = text({"counters": SONIC} | ({"ports": ports} if ports else {}))
    assert "link_flaps" not in counters_of("sonic")(outputs, CLASSES)["Ethernet0"]


@pytest.mark.parametrize("names", [None, {}])
def test_sonic_without_its_name_map_is_refused_with_that_reason(names):
    """Catches a dump of the counters alone, or of a starting switch, read as a switch without ports."""
    database = {key: value for key, value in SONIC.items() if key != "COUNTERS_PORT_NAME_MAP"}
    if names is not None:
        database["COUNTERS_PORT_NAME_MAP"] = hash_of(**names)
    with pytest.raises(BadInput, match=r"no COUNTERS_PORT_NAME_MAP.*sonic-db-dump"):
        counters_of("sonic")(text({"counters": database}), CLASSES)


def test_eos_without_watchdog_events_counts_zero_and_a_queue_without_ecn_nothing():
    """Catches EOS's way of not listing a port before its first event; and "-" read as 0 marks."""
    outputs = text({**EOS, "watchdog": {"interfaces": {}}})
    outputs["ecn"] = outputs["ecn"].replace('"8"', '"-"')
    found = counters_of("eos")(outputs, CLASSES)["Ethernet1/1"]
    assert found["watchdog_events"] == 0
    assert "ecn_marked" not in found


@pytest.mark.parametrize("name", ["TC0-5", "0-5", "TC1,3-4", "TC3"])
def test_eos_groups_classes(name):
    """Catches: drops of a group that holds RoCE's class, and its marks, that no cell ever shows."""
    outputs = text(EOS)
    outputs["queue drops"] = outputs["queue drops"].replace('"TC3"', f'"{name}"')
    outputs["ecn"] = outputs["ecn"].replace('"3"', f'"{name}"')
    plain = counters_of("eos")(text(EOS), CLASSES)["Ethernet1/1"]
    assert plain["roce_queue_drops"] and plain["ecn_marked"]
    assert counters_of("eos")(outputs, CLASSES)["Ethernet1/1"] == plain
    outputs["queue drops"] = outputs["queue drops"].replace(f'"{name}"', '"TC0-2,4-7"')
    assert "roce_queue_drops" not in counters_of("eos")(outputs, CLASSES)["Ethernet1/1"]


@pytest.mark.parametrize(
    ("nos", "label", "old"), [("nxos", "queues", "QOS GROUP 3"), ("os10", "queues ethernet1/1/4", "\n3 ")]
)
def test_other_systems_group_classes(nos, label, old):
    """Catches: a range read as its first number, or a row of a group left out."""
    outputs = text(NXOS) if nos == "nxos" else {label: OS10}
    plain = counters_of(nos)(outputs, CLASSES)
    assert old in outputs[label]
    outputs[label] = outputs[label].replace(old, old.replace("3", "2-3,5"))
    assert counters_of(nos)(outputs, CLASSES) == plain


# As a switch printed it (netdev mailing list, 25 March 2022), with numbers of our own.
OS10 = (Path(__file__).parent / "printed/os10.txt").read_text()


def test_os10_queues_are_read_by_their_number():
    """Catches the drops of a lossy queue taken for those of RoCE, and packets for bytes."""
    ports = counters_of("os10")({"queues ethernet1/1/4": OS10}, CLASSES)
    assert ports == {
        "ethernet1/1/4": {
            "roce_tx_packets": 9000,
            "roce_tx_bytes": 36864000,
            "roce_queue_drops": 7,
            "cnp_tx_packets": 80,
            "cnp_queue_drops": 1,
        }
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Dropped-Packets ", "Dropped "),
        ("ethernet1/1/4", "ethernet1/1/5"),
        (OS10, "% Error: Unrecognized command."),
    ],
)
def test_os10_prints_something_else_is_refused(old, new):
    """Catches another port, or another release's table, read as this one."""
    with pytest.raises(BadInput, match="not OS10's table"):
        counters_of("os10")({"queues ethernet1/1/4": OS10.replace(old, new)}, CLASSES)


# As OS10.5 prints a port, with numbers of our own; it leaves the number of WRED's drops out.
OS10_PORT = (Path(__file__).parent / "printed/os10_port.txt").read_text()


def test_os10_ports_are_read_each_way():
    """Catches what came in taken for what went out: an uplink that sends nothing would look at work."""
    ports = counters_of("os10")({"interface ethernet1/1/4": OS10_PORT}, CLASSES)
    assert ports == {
        "ethernet1/1/4": {
            "rx_packets": 258756070469,
            "rx_bytes": 224206026489044,
            "rx_drops": 5,
            "rx_errors": 3 + 4,
            "tx_packets": 464017689029,
            "tx_bytes": 460659024245083,
            "tx_drops": 296897,
        }
    }
    both = {"interface ethernet1/1/4": OS10_PORT, "queues ethernet1/1/4": OS10}
    found = counters_of("os10")(both, CLASSES)["ethernet1/1/4"]
    assert set(found) == set(known("os10").reported(CLASSES))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Ethernet 1/1/4 is", "Ethernet 1/1/5 is", "not OS10's `show interface` of that port"),
        (OS10_PORT, "% Error: Unrecognized command.", "refused the command"),
        (OS10_PORT, "", "no output"),
        (OS10_PORT, OS10_PORT + OS10_PORT, "not OS10's `show interface` of that port"),
        ("258756070469 packets", "2.58756e+11 packets", "not a count"),
    ],
)
def test_os10_port_that_is_something_else_is_refused(old, new, says):
    """Catches another port's counters, an error message, or a rounded number, read as this port's."""
    refused(says, counters_of("os10"), {"interface ethernet1/1/4": OS10_PORT.replace(old, new)}, CLASSES)


def test_os10_port_cut_short_is_not_zero():
    """Catches an output without its second half read as a port that dropped nothing."""
    found = counters_of("os10")({"interface ethernet1/1/4": OS10_PORT.partition("Output")[0]}, CLASSES)
    assert set(found["ethernet1/1/4"]) == {"rx_packets", "rx_bytes", "rx_drops", "rx_errors"}


def test_os10_queue_that_is_missing_is_not_zero():
    """Catches a truncated table that reads as no drops."""
    text = OS10.partition("3     9000")[0]
    assert counters_of("os10")({"queues ethernet1/1/4": text}, CLASSES) == {"ethernet1/1/4": {}}


def os9(text):
    """The counters of OS9's port."""
    return counters_of("os9")({"interface hundredGigE 1/1": text}, CLASSES)["hundredGigE 1/1"]


def test_os9_ports_are_read_each_way():
    """Catches what came in taken for what went out, and drops by WRED left out of what a port lost."""
    assert os9(OS9_PORT) == OS9_COUNTERS
    system = known("os9")
    assert {*system.reported(CLASSES), *system.may_report} == set(OS9_COUNTERS)


@pytest.mark.parametrize(
    ("gone", "missing"),
    [
        ("     29 FEC bit errors, 8 FEC uncorrected code words\n", {"fec_uncorrectable"}),
        (
            OS9_PORT.partition("Output")[1] + OS9_PORT.partition("Output")[2],
            {"tx_packets", "tx_bytes", "tx_errors", "tx_drops"},
        ),
    ],
    ids=["a port without FEC", "cut short"],
)
def test_what_os9_does_not_print_of_a_port_is_not_zero(gone, missing):
    """Catches a line that is not there read as a port that dropped or mended nothing."""
    assert os9(OS9_PORT.replace(gone, "")) == {k: v for k, v in OS9_COUNTERS.items() if k not in missing}


def test_os9_before_it_printed_drops_by_wred():
    """Catches an older release's port whose discarded frames no longer count."""
    assert os9(OS9_PORT.replace(", 9 wreddrops", ""))["tx_drops"] == 7


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("hundredGigE 1/1 is", "hundredGigE 1/11 is", "not OS9's `show interfaces` of that port"),
        (OS9_PORT, "% Error: No such interface.", "refused the command"),
        (OS9_PORT, "", "no output"),
        (OS9_PORT, OS9_PORT + OS9_PORT, "not OS9's `show interfaces` of that port"),
        ("978467 packets", "9.78467e+05 packets", "not a count"),
    ],
)
def test_os9_port_that_is_something_else_is_refused(old, new, says):
    """Catches another port's counters, an error message, or a rounded number, read as this port's."""
    refused(says, os9, OS9_PORT.replace(old, new))


@pytest.mark.parametrize(
    ("nos", "label", "printed"),
    [
        ("nxos", "watchdog", "                      ^\n% Invalid command at '^' marker.\n"),
        ("nxos", "queues", "% Permission denied for the role\n"),
        ("nxos", "pfc", "ERROR: PFC is not supported\n"),
        ("eos", "watchdog", '{"errors": ["Unavailable command (not supported on this hardware platform)"]}'),
        ("eos", "watchdog", "{}"),
        ("eos", "pfc", "% Unavailable command (not supported on this hardware platform)\n% Error\n"),
        ("cumulus", "roce swp1", "Error: The requested item does not exist.\n"),
        ("sonic", "counters", "Syntax error: Illegal parameter\n"),
        ("enterprise_sonic", "counters", "%Error: Internal error.\n"),
        ("os9", "interface hundredGigE 1/1", "% Error: No such interface.\n"),
        ("os10", "queues ethernet1/1/4", "% Error: Unrecognized command.\n"),
        ("os10", "interface ethernet1/1/4", "% Error: Unrecognized command.\n"),
    ],
)
def test_an_error_message_is_no_empty_table(nos, label, printed):
    """Catches no watchdog event, no drop or no pause frame read out of a command that failed."""
    outputs = {} if nos in ("os9", "os10") else dict(RAW[nos.removeprefix("enterprise_")][1])
    with pytest.raises(BadInput):
        counters_of(nos)({**outputs, label: printed}, CLASSES)


def linux_port(root, *below):
    """A port of a Linux leaf with these queueing disciplines, as `tc -s -j qdisc` has them."""
    qdiscs = [
        {
            "dev": "swp1",
            "handle": handle,
            "kind": kind,
            "packets": n,
            "bytes": 100 * n,
            "drops": 0,
            "marked": 0,
        }
        for handle, kind, n in (root, *below)
    ]
    qdiscs[0]["root"] = True
    outputs = {"links": LINKS, "qdiscs": qdiscs}
    return counters_of("linux")(text(outputs), CLASSES)["swp1"]


def test_linux_packets_that_overtake_the_queues_are_sent():
    """Catches a leaf that reorders told as one that lost every packet that a delaying root sent at once."""
    queues = [("1:", "ets", 935), ("10:", "pfifo", 5), ("20:", "red", 900), ("30:", "pfifo", 30)]
    reordered = linux_port(("fa17:", "netem", 1000), *queues)
    assert (reordered["roce_tx_packets"], reordered["roce_tx_bytes"]) == (965, 96500)
    lost = linux_port(("fa17:", "netem", 935), *queues)  # what netem loses enters no queue
    assert lost["roce_tx_packets"] == 900
    assert linux_port(*queues)["roce_tx_packets"] == 900
