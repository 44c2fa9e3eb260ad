"""From read-backs to the two ends of a cable."""

import json
import re
from pathlib import Path

import pytest
from rendering import PORTS, cabling, cli, cli_text, enterprise, intent, nvue, render, sonic_change

from shakedown.benchmarks.config.settings import TargetReport, host_end
from shakedown.nos.cable_ends import cables, links_of, load_settings, neighbours_of, seen, switch_ends
from shakedown.nos.crosscheck import CABLING, FEC, SPEED, End, SwitchCable, cross_check
from shakedown.nos.readings import SwitchReading, load_reading
from shakedown.nos.registry import SYSTEMS
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.unit.nos.os9_printed import OS9_LLDP
from tests.unit.nos.test_renders import facts


def read_back(nos):
    """`found`, as a switch that is configured as wanted gives it."""
    wanted = render(nos, intent())
    if nos in ("eos", "nxos", "os10"):
        text = cli_text(nos, intent())
        return cli.compare(text, text, [])["found"]
    if nos == "sonic":
        for row in wanted["PORT"].values():
            row |= {"speed": "400000", "fec": "rs"}  # as CONFIG_DB has them beside what the role sets
        return sonic_change.difference(wanted, wanted)["found"]
    if nos == "cumulus":
        return nvue.difference(wanted, wanted)["found"]
    if nos == "enterprise_sonic":
        mtus = dict.fromkeys(PORTS[nos], 9000)
        return enterprise.compare(intent(), cabling(nos), [3], facts(), mtus)["found"]
    return wanted


def settings(tmp_path, nos, found):
    """The settings file of a switch, loaded."""
    path = tmp_path / "leaf0.settings.json"
    document = {"schema": 1, "switch": "leaf0", "nos": nos, "cabling": cabling(nos), "differences": []}
    document |= {"found": found, "not_done": [], "wanted": {}, "refusals": [], "patchable": True}
    path.write_text(json.dumps(document, default=list))
    return load_settings(path)


def host(**found):
    """A host's report on one NIC."""
    values = {"mtu.host_bytes": 9000, "pfc.priorities": [3], "dscp.map": "0-25:0 26:3 27-47:0 48:6 49-63:0"}
    values |= {"link.speed_gbps": 400.0, "link.fec": "rs", **found}
    entries = [
        {"key": key, "found": value, "wanted": value, "ok": True, "settable": True}
        for key, value in values.items()
    ]
    document = {"schema": 1, "target": "fab0", "driver": "mlx5_core", "error": None, "settings": entries}
    document |= {"not_applicable": []}
    return host_end(TargetReport.model_validate(document))


@pytest.mark.parametrize("nos", ["linux", "sonic", "enterprise_sonic", "cumulus", "eos", "nxos", "os10"])
def test_a_configured_switch_fits_a_configured_host(nos, tmp_path):
    """Catches a read-back misread: MTU, PFC or DSCP map of one system."""
    read = settings(tmp_path, nos, read_back(nos))
    hosts = {(name, "fab0"): host() for name in ("n1", "n2")}
    checks = list(cross_check(cables(read), hosts, switch_ends(read), (26, 48)))
    assert not [c.text for c in checks if c.fits is False]
    told = {c.what.partition(".")[0] for c in checks if c.fits and c.cable.host == "n1"}
    # The counter reading tells the rest.
    assert told == SYSTEMS[nos].tells - {CABLING} - ({SPEED, FEC} if nos != "sonic" else set())


@pytest.mark.parametrize(
    ("nos", "old", "new", "words"),
    [
        ("linux", '"mtu": 9000', '"mtu": 1500', "mtu"),
        ("linux", '"dscp": 26', '"dscp": 27', "dscp.26"),
        ("sonic", '"26": "3"', '"26": "1"', "dscp.26"),
        ("sonic", '"pfc_enable": "3"', '"pfc_enable": "4"', "pfc"),
        ("cumulus", '"lossless"', '"lossy"', "pfc"),
        ("enterprise_sonic", '"group of DSCP 48": "6"', '"group of DSCP 48": "0"', "dscp.48"),
        ("eos", "priority 3 no-drop", "priority 4 no-drop", "pfc"),
        ("nxos", "set qos-group 3", "set qos-group 2", "dscp.26"),
        ("nxos", "priority-flow-control mode on", "priority-flow-control mode auto", "pfc"),
        ("os10", "mtu 9216", "mtu 1532", "mtu"),
        ("os10", "qos-group 3 dscp 26", "qos-group 3 dscp 24-25", "dscp.26"),
        ("os10", "trust-map dscp ROCE", "trust-map dscp VOICE", "dscp.26"),
        ("os10", "pfc-cos 3", "pfc-cos 4", "pfc"),
        ("os10", "priority-flow-control mode on", "priority-flow-control mode off", "pfc"),
    ],
)
def test_a_switch_that_does_not_fit_its_hosts_is_named_with_its_port(nos, old, new, words, tmp_path):
    """Catches a fault planted on the switch: the check names both ends and what is wrong."""
    text = json.dumps(read_back(nos), default=list)
    assert old in text
    read = settings(tmp_path, nos, json.loads(text.replace(old, new)))
    hosts = {(name, "fab0"): host() for name in ("n1", "n2")}
    checks = cross_check(cables(read), hosts, switch_ends(read), (26, 48))
    first = next(c for c in checks if c.fits is False and c.what == words)
    assert "n1/fab0" in first.text
    assert f"leaf0/{PORTS[nos][0]}" in first.text


@pytest.mark.parametrize(
    ("nos", "old", "new"),
    [
        ("nxos", "match dscp 26", "match dscp 24-26,30"),
        ("eos", "map dscp 26 to", "map dscp 24 26 to"),
        ("os10", "dscp 26", "dscp 24-26"),
        ("sonic", '"26": "3"', '"24-26": "3"'),
        ("enterprise_sonic", "group of DSCP 26", "group of DSCP 24-26"),
    ],
)
def test_classes_that_are_told_in_ranges_fit_their_host(nos, old, new, tmp_path):
    """Catches: a switch blamed for a DSCP that it classes right, beside others."""
    text = json.dumps(read_back(nos), default=list)
    assert old in text
    read = settings(tmp_path, nos, json.loads(text.replace(old, new)))
    checks = cross_check(cables(read), {("n1", "fab0"): host()}, switch_ends(read), (26,))
    assert next(c.fits for c in checks if c.what == "dscp.26" and c.cable.host == "n1")


@pytest.mark.parametrize(
    ("nos", "old", "new"),
    [
        ("nxos", "pause pfc-cos 3", "pause pfc-cos 3-4"),
        ("os10", "pfc-cos 3", "pfc-cos 3,4"),
        ("os10", "pfc-cos 3", "pfc-cos 3-4"),
        ("eos", "priority 3 no-drop", "priority 3-4 no-drop"),
        ("sonic", '"pfc_enable": "3"', '"pfc_enable": "3,4"'),
    ],
)
def test_priorities_that_are_told_together_are_all_read(nos, old, new):
    """Catches: a switch that pauses two priorities, read as one that pauses none."""
    text = json.dumps(read_back(nos), default=list)
    assert old in text
    ends = SYSTEMS[nos].end(json.loads(text.replace(old, new)), PORTS[nos][0])
    assert ends["pfc_priorities"] == {3, 4}


def test_the_class_of_ipv4_is_not_hidden_by_that_of_ipv6(tmp_path):
    """Catches a leaf that puts IPv4 RoCE into another class while its IPv6 filter is right."""
    found = json.loads(json.dumps(read_back("linux")))
    wrong = next(c for c in found["swp1"]["classes"] if c.get("dscp") == 26 and c["protocol"] == "ip")
    wrong["traffic_class"] = 1
    read = settings(tmp_path, "linux", found)
    checks = cross_check(cables(read), {("n1", "fab0"): host()}, switch_ends(read), (26,))
    assert "leaf0/swp1 has class 1" in next(c.text for c in checks if c.what == "dscp.26")


def test_an_unread_system_tells_nothing_rather_than_fine(tmp_path):
    """Catches a system that nobody understands counted as compared."""
    read = settings(tmp_path, "os9", ["dcb enable"])
    hosts = {("n1", "fab0"): host(), ("n2", "fab0"): host()}
    checks = list(cross_check(cables(read), hosts, switch_ends(read), (26,)))
    assert checks  # rate, FEC, MTU and neighbours of OS9 are in the counter reading, which there is none of
    assert {c.fits for c in checks} == {None}


def test_a_garbled_read_back_is_refused(tmp_path):
    """Catches half a read-back taken for a switch without settings."""
    read = settings(tmp_path, "linux", {"swp1": {}})
    refused("no read-back of linux", switch_ends, read)


def test_neighbours_come_from_the_counter_reading(tmp_path):
    """Catches the cabling check left without the switch's LLDP."""
    reading = load_reading(Path(__file__).parent / "readings/leaf0.after.json")
    read = settings(tmp_path, "linux", read_back("linux"))
    ends = switch_ends(read, neighbours_of(reading))
    assert ends["leaf0", "swp1"].neighbours == ("n1/fab0",)


EOS_LLDP = json.loads((Path(__file__).parent / "printed/eos_lldp.json").read_text())
NXOS_LLDP = (Path(__file__).parent / "printed/nxos_lldp.txt").read_text()


def reading(nos, **outputs):
    """A counter reading with these outputs."""
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in outputs.items()}
    return SwitchReading.model_validate(
        {
            "schema": 1,
            "switch": "leaf0",
            "nos": nos,
            "when": "after",
            "taken": "2026-11-20T08:00:00Z",
            "classes": {"priority": 3, "traffic_class": 3, "queue": 3, "cnp_queue": 6},
            "cabling": cabling(nos),
            "outputs": {k: {"command": k, "stdout": v} for k, v in texts.items()},
        }
    )


@pytest.mark.parametrize(("nos", "text"), [("eos", EOS_LLDP), ("nxos", NXOS_LLDP)])
def test_neighbours_of_other_systems_name_host_and_interface(nos, text):
    """Catches a port id, a MAC address with Linux hosts, taken for the interface."""
    heard = neighbours_of(reading(nos, neighbours=text))
    name = "n1.example.org" if nos == "eos" else "n1"
    assert heard[PORTS[nos][0]] == [(name, "fab0")]
    if nos == "nxos":  # a NIC's own agent: nobody's name
        assert heard["Ethernet1/2"] == [("4321.4321.4321", "1234.4444.3333")]


@cases("last", "System Name: Swit", "Time remaining: 114 seconds\n", "System Name: null\n")
def test_nxos_neighbours_cut_short_are_refused(last):
    """Catches half a name (`Swit` of `Switch1`) taken for a neighbour, and those after the cut for none."""
    whole = NXOS_LLDP.replace("System Name: n1", "System Name: Switch1")
    cut = whole[: whole.index(last) + len(last)]
    refused("NX-OS's LLDP is cut short", neighbours_of, reading("nxos", neighbours=cut))


def test_what_a_neighbour_writes_of_itself_moves_no_nxos_cable():
    """Catches a description of several lines whose words are taken for those of the report.

    Lines of it that begin like the report's stand in github.com/CiscoTestAutomation/genieparser,
    src/genie/libs/parser/nxos/tests/ShowLldpNeighborsDetail ("Technical Support: ...").
    """
    own = "System Description: Debian\nLocal Port id: Eth1/2\nSystem Name: n2\nPort Description: fab1\n"
    text = re.sub(r"(?m)^System Description: .*\n", own, NXOS_LLDP, count=1)
    assert text != NXOS_LLDP
    assert neighbours_of(reading("nxos", neighbours=text)) == neighbours_of(
        reading("nxos", neighbours=NXOS_LLDP)
    )


def test_the_brief_table_of_nxos_is_refused_for_what_it_is():
    """Catches: "cut short: 0 neighbours of 2" told of a whole output of the wrong command."""
    table = """Capability codes:
  (R) Router, (B) Bridge, (T) Telephone, (C) DOCSIS Cable Device
Device ID            Local Intf      Hold-time  Capability  Port ID
spine0               Eth1/1          120        BR          Ethernet1/7
a-node-of-a-very-long-name
                     Eth1/2          120        S           0242.ac11.0002
Total entries displayed: 2
"""
    with pytest.raises(
        BadInput, match=r"the table of `show lldp neighbors`, .*read `show lldp neighbors detail`"
    ):
        neighbours_of(reading("nxos", neighbours=table))


def test_nxos_neighbours_fewer_than_counted_are_refused():
    """Catches a block lost from the middle of the report."""
    lost = NXOS_LLDP.replace("Chassis id: 4321", "Chassis: 4321")
    refused("1 neighbours of 2", neighbours_of, reading("nxos", neighbours=lost))


OS10_LLDP = (Path(__file__).parent / "printed/os10_lldp.txt").read_text()


def test_os10_neighbours_are_read_from_its_lldp():
    """Catches an OS10 leaf whose swapped cables nobody sees, and `Not Advertised` taken for a host's name."""
    found = neighbours_of(reading("os10", neighbours=OS10_LLDP))
    assert found == {
        "ethernet1/1/1": [("n1", "fab0")],
        "ethernet1/1/2": [("c8:4b:d6:90:c8:0d", "c8:4b:d6:90:c8:0d")],
    }
    assert neighbours_of(reading("os10", neighbours="\n")) == {}


@cases("last", "Remote TTL: 121\n", "System Name: n", "System Name: n1\n", "Auto-neg supported: 0\n")
def test_os10_neighbours_cut_short_are_refused(last):
    """Catches half a name taken for a neighbour, and those after the cut for none."""
    cut = OS10_LLDP[: OS10_LLDP.index(last) + len(last)]
    refused("OS10's LLDP is cut short", neighbours_of, reading("os10", neighbours=cut))


def test_os9_neighbours_are_read_from_its_lldp():
    """Catches an OS9 leaf whose swapped cables nobody sees, and a switch without a name taken for none."""
    assert neighbours_of(reading("os9", neighbours=OS9_LLDP)) == {
        "hundredGigE 1/1": [("n1", "fab0")],
        "hundredGigE 1/2": [("34:17:eb:4c:1e:80", "hundredGigE 1/32")],
    }
    assert neighbours_of(reading("os9", neighbours="\n")) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OS9_LLDP[OS9_LLDP.index(" Remote TTL:  120\n   -") :], ""),
        (OS9_LLDP[OS9_LLDP.index("    Remote Chassis ID:  34") :], ""),
        (OS9_LLDP[OS9_LLDP.rindex("    Remote Chassis ID Subtype") :], ""),
        (
            "    Remote Chassis ID Subtype: Mac address (4)\n    Remote Chassis ID:  0c",
            "    Remote Chassis ID:  0c",
        ),
        ("has 1 neighbor\n  Total Frames Out: 98232", "has 2 neighbors\n  Total Frames Out: 98232"),
    ],
    ids=["no end", "half a neighbour", "heading alone", "a block lost", "one of two"],
)
def test_os9_neighbours_cut_short_are_refused(old, new):
    """Catches a port whose neighbour was lost on the way taken for one that hears nobody."""
    assert OS9_LLDP.count(old) == 1
    refused("OS9's LLDP", neighbours_of, reading("os9", neighbours=OS9_LLDP.replace(old, new)))


# What each system prints of a spine whose port has a description, as ports of switches do.
SPINES = {
    "os9": OS9_LLDP.replace("Port Subtype:  Mac address (3)", "Port Subtype:  Interface name (5)")
    .replace("Port ID:  24:8a:07:55:29:cc", "Port ID:  hundredGigE 1/39")
    .replace("Description:  fab0", "Description:  to leaf0")
    .replace("Name:  n1", "Name:  spine0"),
    "os10": OS10_LLDP.replace("Port Subtype: Mac address (3)", "Port Subtype: Interface name (5)")
    .replace("Port ID: c8:4b:d6:90:c7:27", "Port ID: ethernet1/1/39")
    .replace("Description: fab0", "Description: to leaf0")
    .replace("Name: n1", "Name: spine0")
    .replace("with a colon", "not ours\nLocal Port ID: ethernet1/1/9\nRemote System Name: spoofed"),
    "nxos": NXOS_LLDP.replace("Port id: 0c42.a1b2.c3d4", "Port id: Eth1/39")
    .replace("Port Description: fab0", "Port Description: to leaf0")
    .replace("System Name: n1", "System Name: spine0"),
    "eos": json.dumps(EOS_LLDP)
    .replace(
        '"interfaceId_v2": "0c42.a1b2.c3d4"',
        '"interfaceIdType": "interfaceName", "interfaceId_v2": "Ethernet39"',
    )
    .replace('"fab0"', '"to leaf0"')
    .replace("n1.example.org", "spine0"),
    "cumulus": json.dumps(
        {
            "lldp": [
                {
                    "interface": [
                        {
                            "name": "swp1",
                            "chassis": [{"name": [{"value": "spine0"}]}],
                            "port": [
                                {
                                    "id": [{"type": "ifname", "value": "swp39"}],
                                    "descr": [{"value": "to leaf0"}],
                                }
                            ],
                        }
                    ]
                }
            ]
        }
    ),
}


@pytest.mark.parametrize("nos", SPINES)
def test_a_switch_is_named_by_its_port_and_not_by_what_a_person_wrote_there(nos):
    """Catches an uplink that is never proven, or two swapped ones passed, for a description `to leaf0`."""
    port = PORTS[nos][0]
    ((name, remote),) = neighbours_of(reading(nos, neighbours=SPINES[nos]))[port]
    ports = {"os9": "hundredGigE 1/39", "os10": "ethernet1/1/39", "nxos": "Ethernet1/39", "eos": "Ethernet39"}
    ports |= {"cumulus": "swp39"}
    assert (name, remote) == ("spine0", ports[nos])


def os9_port(port, state, mbit, fec, status):
    """The lines of `show interfaces` that tell of a port's link."""
    return (
        f"hundredGigE {port} is up, line protocol is {state}\n"
        f"    Forward Error Correction(FEC) configured is {fec}\n    FEC status is {status}\n"
        f"MTU 9216 bytes, IP MTU 9198 bytes\nLineSpeed {mbit} Mbit\n"
    )


def os10_port(port, state, speed, fec):
    """The lines of `show interface` that tell of a port's link."""
    return (
        f"Ethernet {port} is up, line protocol is {state}\nLineSpeed {speed}, Auto-Negotiation on\n"
        f"Configured FEC is off, Negotiated FEC is {fec}\n"
    )


@pytest.mark.parametrize(
    ("nos", "outputs", "speeds", "fec"),
    [
        (
            "eos",
            {
                "status": {
                    "interfaceStatuses": {
                        "Ethernet1/1": {"linkStatus": "connected", "bandwidth": 400000000000},
                        "Ethernet2/1": {"linkStatus": "notconnect", "bandwidth": 400000000000},
                    }
                }
            },
            [400.0, None],
            [None, None],
        ),
        (
            "nxos",
            {
                "links": {
                    "TABLE_interface": {
                        "ROW_interface": [
                            {"interface": "Ethernet1/1", "eth_speed": "400 Gb/s", "eth_bw": "400000000"},
                            {"interface": "Ethernet1/2", "eth_speed": "auto-speed", "eth_bw": "400000000"},
                        ]
                    }
                }
            },
            [400.0, None],
            [None, None],
        ),
        (
            "cumulus",
            {
                "ethtool swp1": "Settings for swp1:\n\tSpeed: 400000Mb/s\n\tDuplex: Full\n",
                "fec swp1": "FEC parameters for swp1:\nActive FEC encoding: RS\n",
                "ethtool swp2": "Settings for swp2:\n\tSpeed: Unknown!\n",
                "fec swp2": "Active FEC encoding: Off\n",
            },
            [400.0, None],
            ["rs", "none"],
        ),
        (
            "os9",
            {
                "interface hundredGigE 1/1": os9_port("1/1", "up", 100000, "default", "ON"),
                "interface hundredGigE 1/2": os9_port("1/2", "down", 100000, "cl91 (RS-FEC)", "OFF"),
            },
            [100.0, None],
            ["rs", None],
        ),
        (
            "os9",
            {
                "interface hundredGigE 1/1": os9_port("1/1", "up", 25000, "default", "ON"),
                "interface hundredGigE 1/2": os9_port("1/2", "up", 100000, "OFF", "OFF"),
            },
            [25.0, 100.0],
            [None, "none"],  # at 25 Gb/s there are two kinds, and it does not say which
        ),
        (
            "os10",
            {
                "interface ethernet1/1/1": os10_port("1/1/1", "up", "25G", "cl108-rs"),
                "interface ethernet1/1/2": os10_port("1/1/2", "down", "0", "off"),
            },
            [25.0, None],
            ["rs", None],
        ),
    ],
)
def test_rate_and_fec_of_a_port_are_those_in_use(nos, outputs, speeds, fec):
    """Catches a configured or nominal rate taken for the one that the link came up with."""
    found = links_of(reading(nos, **outputs))
    ports = [found.get(port, {}) for port in PORTS[nos]]
    assert [p.get("speed_gbps") for p in ports] == speeds
    assert [p.get("fec") for p in ports] == fec


def test_an_os9_port_that_takes_smaller_frames_than_its_host_sends_is_named(tmp_path):
    """Catches OS9's MTU left unread: hosts send 9000 bytes into a port of 1500, which drops them."""
    ports = {
        f"interface hundredGigE 1/{n}": os9_port(f"1/{n}", "up", 100000, "default", "ON") for n in (1, 2)
    }
    ports["interface hundredGigE 1/2"] = ports["interface hundredGigE 1/2"].replace("9198", "1500")
    read = settings(tmp_path, "os9", ["dcb enable"])
    ends = switch_ends(read, None, links_of(reading("os9", **ports)))
    hosts = {(name, "fab0"): host() for name in ("n1", "n2")}
    mtus = [c for c in cross_check(cables(read), hosts, ends, ()) if c.what == "mtu"]
    assert [c.fits for c in mtus] == [True, False]
    assert "leaf0/hundredGigE 1/2 has 1500 bytes" in mtus[1].text


@pytest.mark.parametrize("nos", SYSTEMS)
def test_an_error_message_is_no_switch_without_neighbours(nos):
    """Catches `% Invalid command` (LLDP is off) read as a switch that hears nobody."""
    with pytest.raises(BadInput):
        neighbours_of(reading(nos, neighbours="% Invalid command at '^' marker.\n"))


# As lldpd prints a SONiC spine's port with a description: its id is the port's alias (lldpmgrd, `local`).
OF_SONIC = {
    "linux": SPINES["cumulus"].replace('"ifname"', '"local"').replace("swp39", "etp1"),
    "eos": SPINES["eos"].replace('"interfaceName"', '"local"').replace("Ethernet39", "etp1"),
    "os10": SPINES["os10"]
    .replace("Interface name (5)", "Locally assigned (7)")
    .replace("ethernet1/1/39", "etp1"),
    "nxos": SPINES["nxos"].replace("Eth1/39", "etp1"),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("nos", OF_SONIC)
def test_a_sonic_spine_whose_ports_have_descriptions_is_known_by_its_alias(nos, swapped, tmp_path):
    """Catches a cable that is never proven, or a swapped one passed: LLDP gives `etp1` and `to leaf0`."""
    port = PORTS[nos][0]
    found = read_back("sonic")
    for number, name in enumerate(PORTS["sonic"], start=1):
        # What is heard on the leaf is the alias of the planned port, or that of the other.
        found["PORT"][name] |= {"alias": f"etp{3 - number if swapped else number}", "description": "to leaf0"}
    spine = settings(tmp_path, "sonic", found).model_copy(update={"switch": "spine0"})
    heard = {
        ("leaf0", port): End(neighbours=seen(neighbours_of(reading(nos, neighbours=OF_SONIC[nos])), port))
    }
    cable = SwitchCable(host="spine0", netdev="Ethernet0", switch="leaf0", port=port, role="uplink")
    other = SwitchCable(host="spine0", netdev="Ethernet4", switch="leaf0", port="swp40", role="uplink")
    ends = switch_ends(spine)
    check = next(c for c in cross_check([cable, other], ends, heard, ()) if c.what == CABLING)
    assert check.fits is (not swapped), check.text
    if swapped:
        assert check.text.endswith(f"leaf0/{port} has spine0/Ethernet4 at its other end")
