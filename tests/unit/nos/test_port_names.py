"""The cabling's names of ports: one port each, none that carries management, as the switch prints it."""

import json

import pytest
from rendering import cabling, changed, general, intent
from test_renders import HOSTS

MANAGEMENT = ["mgmt0", "eth0", "Management1", "mgmt1/1/1", "ManagementEthernet 1/1"]  # of the role's defaults
SPINE = {"leaf": "leaf1", "spine": "spine1", "spine_port": "Ethernet1/1"}


def refused(nos, port):
    """Why the role does not take this name."""
    ports = cabling(nos)
    ports[1]["port"] = port
    return "; ".join(general.refusals(intent(), nos, ports, MANAGEMENT, HOSTS))


@pytest.mark.parametrize(
    ("nos", "port"),
    [
        *(("eos", port) for port in ("management1", "Ma1", "Management 1", "Management2")),
        *(("nxos", port) for port in ("mgmt 0", "MGMT0", "m0")),
        *(("os10", port) for port in ("mgmt 1/1/1", "mgmt1/1/2")),
        *(("os9", port) for port in ("managementethernet 1/1", "ManagementEthernet1/1", "ma 0/0")),
        *((nos, port) for nos in ("cumulus", "sonic", "enterprise_sonic") for port in ("ETH0", "eth 0")),
    ],
)
def test_management_is_refused_by_any_spelling(nos, port):
    """Catches the class typed onto management, which a command line takes by any case and cut short."""
    assert refused(nos, port) == f"port {port} carries management -- take it out of leaf_ports"


@pytest.mark.parametrize(
    "port",
    [
        *("Ethernet1/1-2", "Ethernet1/1 - 2", "range ethernet1/1/1-1/1/2", "swp1-2", "Ethernet1,Ethernet2"),
        *("Ethernet1/1\n shutdown", "Ethernet1/1\n", "Ethernet1/1 ; reload", "1/1", "Ethernet"),
        *("Vlan1", "vl 1", "Loopback0", "Port-Channel1", "po1", "Tunnel1", "bond1"),
    ],
)
def test_what_names_no_single_port_is_refused(port):
    """Catches a range, a second line, and what is no port, typed after `interface`."""
    told = refused("eos", port)
    assert told.startswith(f"leaf_ports[1]: {port!r} is not the name of one port -- write each"), told
    assert "\n" not in told
    links = changed(
        "switches", {"leaves": ["leaf1"], "spines": ["spine1"], "links": [SPINE | {"leaf_port": port}]}
    )
    told = "; ".join(general.refusals(links, "eos", cabling("eos"), MANAGEMENT, HOSTS, "leaf1"))
    assert f"fabric.switches.links: {port!r} is not the name" in told


@pytest.mark.parametrize(
    ("nos", "port"),
    [
        *(("os9", port) for port in ("hundredGigE 1/2", "fortyGigE 1/49/1", "TenGigabitEthernet 0/1")),
        *(("os10", port) for port in ("ethernet1/1/1:1", "ethernet1/1/2")),
        *(("nxos", port) for port in ("Ethernet101/1/1", "Ethernet1/1/4")),
        *(("cumulus", port) for port in ("swp1s0", "swp64")),
        ("eos", "Ethernet3/1/4"),
        ("sonic", "Ethernet512"),
        ("enterprise_sonic", "Eth1/2/1"),
        ("linux", "enp1s0f0np0"),
    ],
)
def test_every_systems_own_name_of_a_port_is_taken(nos, port):
    """Catches a breakout, a port of a line card or of a fabric extender refused."""
    assert refused(nos, port) == ""


SHOWN = "interface {}\n   mtu 1500\n!\ninterface Management1\n"
CONFIG_DB = json.dumps({"PORT": {"Ethernet0": {"alias": "Eth1/1", "mtu": "9100"}, "Ethernet4": {}}})
NVUE = json.dumps({"swp1": {"type": "swp"}, "eth0": {"type": "eth"}})


@pytest.mark.parametrize(
    ("nos", "printed", "port", "real"),
    [
        ("eos", SHOWN.format("Ethernet1/1"), "Et1/1", "Ethernet1/1"),
        ("nxos", SHOWN.format("Ethernet1/1"), "eth1/1", "Ethernet1/1"),
        ("nxos", SHOWN.format("Ethernet1/1"), "Ethernet 1/1", "Ethernet1/1"),
        ("os10", SHOWN.format("ethernet1/1/1"), "ethernet 1/1/1", "ethernet1/1/1"),
        ("os9", SHOWN.format("hundredGigE 1/1"), "hundredgige 1/1", "hundredGigE 1/1"),
        ("os9", SHOWN.format("hundredGigE 1/1"), "hu1/1", "hundredGigE 1/1"),
        ("sonic", CONFIG_DB, "Eth1/1", "Ethernet0"),
        ("sonic", CONFIG_DB, "ethernet4", "Ethernet4"),
        ("cumulus", NVUE, "SWP1", "swp1"),
    ],
)
def test_a_name_is_the_one_that_the_switch_prints(nos, printed, port, real):
    """Catches lines typed under a spelling in which nobody finds them again to undo them."""
    known = general.known_ports(nos, printed)
    assert general.unknown_ports([{"port": real}], known) == []
    (told,) = general.unknown_ports([{"port": port}], known)
    assert told == f"leaf_ports: port {port!r} is none that the switch prints; it prints {real}: write that"
    (told,) = general.unknown_ports([{"port": "swp99", "role": "uplink"}], known)
    assert told == "fabric.switches.links: port 'swp99' is none that the switch prints; correct it"
    # What was not read is told as that.
    assert general.unknown_ports([{"port": port}], general.known_ports(nos, "")) == []
