"""Cases that every switch system has to stand, as far as they can be seen without a connection.

docs/reference/switch-cases.md says which test holds which case of which system.
"""

import copy
import json

import pytest
from rendering import PORTS, cli, cli_owned, cli_text, general, intent, nvue, render, sonic_change

from shakedown.nos.registry import SYSTEMS
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.switches.printed import Tree, printed
from tests.unit.nos.test_cable_ends import SPINES, reading
from tests.unit.nos.test_cable_ends import neighbours_of as heard

CLI = ["eos", "nxos", "os9", "os10"]


def by_hand(nos: str) -> Tree:
    """The class as a person typed it, in another order and beside things of their own."""
    tree: Tree = {"hostname leaf1": {}, "interface Management1": {"ip address 10.0.0.1/24": {}}}
    for path in reversed(cli.paths(cli_text(nos, intent()))):
        here = tree
        for line in path:
            here = here.setdefault(line, {})
    for port in PORTS[nos]:
        tree[f"interface {port}"] |= {"description server": {}, "no shutdown": {}}
    tree["ip route 0.0.0.0/0 10.0.0.254"] = {}
    return tree


def compared(nos: str, tree: Tree) -> dict:
    """The comparison of a switch that prints this."""
    wanted = cli_text(nos, intent())
    everything = printed(nos, tree, hidden=True) if nos in ("eos", "nxos") else ""
    return cli.compare(wanted, printed(nos, tree), [], everything)


@pytest.mark.parametrize("nos", CLI)
def test_a_class_typed_by_hand_is_as_wanted(nos):
    """Catches a correct switch changed, or reloaded, for order of lines, ranges or hidden defaults."""
    result = compared(nos, by_hand(nos))
    assert (result["differences"], result["changes"], result["commands"]) == ([], [], [])


def test_a_class_made_by_hand_on_sonic_and_cumulus_is_as_wanted():
    """Catches a correct switch reloaded for rows, or parts of the tree, that are not ours."""
    wanted = render("sonic", intent())
    there = copy.deepcopy(wanted)
    there["VLAN"] = {"Vlan10": {"vlanid": "10"}}
    there["DSCP_TO_TC_MAP"]["AZURE"] = {"26": "1"}
    assert sonic_change.difference(wanted, there)["differences"] == []
    tree = render("cumulus", intent())
    there = copy.deepcopy(tree)
    there["interface"]["swp9"] = {"link": {"mtu": 1500}}
    there["router"] = {"bgp": {"enable": "on"}}
    assert nvue.difference(tree, there)["differences"] == []


FOREIGN = {
    "eos": ("service-profile GOLD", "service-profile ROCE"),
    "nxos": ("service-policy type qos input VOICE", "service-policy type qos input ROCE-IN"),
    "os9": ("service-policy input VOICE", "service-policy input ROCE"),
    "os10": ("service-policy input type network-qos VOICE", "service-policy input type network-qos ROCE"),
}


@pytest.mark.parametrize("nos", CLI)
def test_a_ports_policy_of_somebody_else_is_named_as_theirs(nos):
    """Catches a policy of the site on one of our ports, which holds only one, pushed out unasked."""
    theirs, ours = FOREIGN[nos]
    tree, port = by_hand(nos), f"interface {PORTS[nos][1]}"
    del tree[port][ours]
    tree[port][theirs] = {}
    result = compared(nos, tree)
    assert len(result["changes"]) == 1
    (named,) = general.others_settings(result)
    assert port in named and theirs in named


@pytest.mark.parametrize("nos", CLI)
def test_a_drift_of_one_setting_is_one_line(nos):
    """Catches the whole class typed again for the MTU of one port."""
    tree, port = by_hand(nos), f"interface {PORTS[nos][1]}"
    (mtu,) = (line for line in tree[port] if line.startswith("mtu"))
    del tree[port][mtu]
    tree[port]["mtu 2000"] = {}
    assert compared(nos, tree)["commands"] == [port, mtu, "exit"]


@cases(
    "printed_instead",
    "% Invalid input",
    "\n% Permission denied for the role\n",
    "Syntax error: Illegal parameter",
    "% Error: no",
)
@pytest.mark.parametrize("nos", CLI)
def test_a_refused_show_is_no_switch_without_configuration(nos, printed_instead):
    """Catches a class typed into a switch whose configuration nobody could read."""
    (reason,) = general.cli_refusals(intent(), nos, [], printed_instead)
    assert "the switch refused the command" in reason
    banner = f"hostname leaf1\nbanner motd\n{printed_instead.strip()}\nEOF\ninterface e1\n"
    assert general.cli_refusals(intent(), nos, [], banner) == []


@pytest.mark.parametrize("nos", CLI)
def test_what_is_no_configuration_is_told_as_unread(nos):
    """Catches a switch blamed for lines that a refused command, or a pager, kept from being read."""
    whole = cli_text(nos, intent())
    assert general.cli_unread(whole) == []
    assert general.cli_unread(f"{whole}banner motd\npress --More-- for more\n") == []
    for printed_instead in (
        "",
        "\n\n",
        "% Invalid input",
        f"{whole} --More-- ",
        f"{whole[:200]}\n--More--\n",
        "Command authorization failed",
        "leaf1#",
        "Building configuration...\nERROR: db locked",
    ):
        (reason,) = general.cli_unread(printed_instead)
        assert reason.startswith("running configuration: ")
        assert reason in general.cli_refusals(intent(), nos, [], printed_instead)


JSON = {
    "sonic": "cumulus",
    "enterprise_sonic": "cumulus",
    "linux": "cumulus",
    "cumulus": "cumulus",
    "eos": "eos",
}


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("nos", JSON)
def test_neighbours_in_json_cut_short_are_refused(nos, share):
    """Catches a port whose neighbour was lost on the way taken for one that hears nobody."""
    whole = SPINES[JSON[nos]]
    assert json.loads(whole) and heard(reading(nos, neighbours=whole))
    with pytest.raises(BadInput):
        heard(reading(nos, neighbours=whole[: int(share * len(whole))]))


def test_every_system_that_hears_neighbours_is_cut_in_a_test():
    """Catches a system added without a test of its LLDP cut short."""
    assert {name for name, system in SYSTEMS.items() if system.neighbours} == {*JSON, "nxos", "os9", "os10"}


BESIDE_THE_CLASS = [
    # A port's own lines come before its profile (EOS manual, Quality of Service).
    ("eos", "interface Ethernet1/1", "   no priority-flow-control", "default priority-flow-control"),
    (
        "eos",
        "interface Ethernet1/1",
        "   uc-tx-queue 3\n      random-detect ecn minimum-threshold 1 kbytes maximum-threshold 2 kbytes",
        "no uc-tx-queue 3",
    ),
    ("eos", "", "priority-flow-control all off", "no priority-flow-control all off"),
    ("eos", "", "qos map traffic-class 3 to tx-queue 1", "no qos map traffic-class 3 to tx-queue 1"),
    ("eos", "", "qos map dscp 26 to traffic-class 1", "qos map dscp 26 to traffic-class 3"),
    ("eos", "interface Ethernet1/1", "   mtu 1500", "mtu 9000"),
    ("nxos", "interface Ethernet1/1", "  mtu 1500", "mtu 9216"),
    ("nxos", "interface Ethernet1/1", "  priority-flow-control mode off", "priority-flow-control mode on"),
    ("os10", "interface ethernet1/1/1", " mtu 1532", "mtu 9216"),
    ("os9", "interface hundredGigE 1/1", " mtu 1554", "mtu 9216"),
]


@pytest.mark.parametrize(("nos", "section", "line", "command"), BESIDE_THE_CLASS)
def test_a_line_that_undoes_the_class_is_a_difference(nos, section, line, command):
    """Catches a class that is all there, and without effect for one line beside it."""
    wanted = cli_text(nos, intent())
    beside = wanted.replace(f"{section}\n", f"{section}\n{line}\n", 1) if section else f"{line}\n{wanted}"
    assert beside != wanted
    everything = beside if nos in ("eos", "nxos") else ""
    owned = cli_owned(nos, intent())
    assert cli.compare(wanted, wanted, owned, wanted)["differences"] == []
    result = cli.compare(wanted, beside, owned, everything)
    assert result["differences"]
    assert command in result["commands"]


def test_an_eos_map_that_says_what_is_so_is_no_difference():
    """Catches a correct switch changed for a line that a release shows and another hides."""
    text = "qos map traffic-class 3 to tx-queue 3\nqos map traffic-class 5 to tx-queue 1\n"
    text += cli_text("eos", intent())
    assert cli.compare(cli_text("eos", intent()), text, cli_owned("eos", intent()), text)["differences"] == []
