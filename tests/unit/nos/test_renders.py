"""One intent on every switch system: what is rendered, what is refused, and what a comparison sees."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import rendering
from rendering import (
    LOOKUP,
    PLATFORM,
    PORTS,
    cabling,
    cli,
    enterprise,
    general,
    intent,
    nvue,
    render,
    sonic,
    sonic_change,
)

GOLDEN = Path(__file__).parent / "golden"
HOSTS = ["n1", "n2", "leaf0"]


@pytest.mark.parametrize("nos", PORTS)
def test_the_one_intent_renders_as_reviewed(nos):
    """Catches a template or filter that changes what a switch gets. Compared as structure, not text."""
    assert json.loads(json.dumps(render(nos, intent()))) == json.loads((GOLDEN / f"{nos}.json").read_text())


@pytest.mark.parametrize("nos", PORTS)
def test_the_one_intent_is_refused_by_no_system(nos):
    """Catches a preflight that turns good intents away."""
    assert general.refusals(intent(), nos, cabling(nos), ["mgmt0"], HOSTS) == []


def changed(path: str, value):
    """The intent with one value changed, `roce.cnp.dscp` for example."""
    fabric = intent()
    *above, last = path.split(".")
    here = fabric
    for key in above:
        here = here[key]
    here[last] = value
    return fabric


@pytest.mark.parametrize(
    ("nos", "fabric", "words"),
    [
        ("ios", intent(), "unknown switch system 'ios'"),
        ("os9", changed("roce.pfc.priorities", [3, 4, 5]), "at most 2 lossless queues"),
        ("enterprise_sonic", changed("roce.pfc.priorities", [2, 3, 4]), "at most 2 lossless queues"),
        ("os9", changed("roce.dscp", 18), "upper three bits"),
        ("os10", changed("roce.ecn.min_bytes", 1_000_000), "no multiples of 1024"),
        ("eos", changed("roce.queue", 4), "priority, traffic class and queue equal only"),
        ("linux", changed("roce.dscp", 64), "roce.dscp 64 is not 1 to 63"),
        ("sonic", changed("roce.cnp.dscp", 26), "fabric.roce.cnp.dscp is 26 like fabric.roce.dscp"),
        ("nxos", changed("roce.pfc.priorities", [3, 6]), "must not be lossless"),
        ("eos", changed("roce.pfc.priorities", [4]), "RoCE priority 3 is not among the lossless"),
        ("linux", changed("roce.ecn.max_bytes", 1), "0 < min_bytes < max_bytes"),
        ("eos", changed("roce.ecn.mark_percent", 101), "mark_percent <= 100"),
    ],
)
def test_an_intent_that_the_switch_cannot_hold_is_refused_with_the_reason(nos, fabric, words):
    """Catches half an intent configured in silence."""
    reasons = general.refusals(fabric, nos, cabling("eos"), [], HOSTS)
    assert any(words in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda ports: ports[0].pop("host"), "port swp1 has no cabling: host is missing"),
        (lambda ports: ports[0].update(rail="rail9"), "rail 'rail9' is not in the intent"),
        (lambda ports: ports[0].update(host="n9"), "host 'n9' is not in the inventory"),
        (lambda ports: ports[1].update(port="swp1"), "port swp1 is listed twice"),
        (lambda ports: ports[1].update(host="n1"), "both cabled to n1/fab0"),
        (lambda ports: ports[1].update(port="mgmt0"), "port mgmt0 carries management"),
        (list.clear, "names no port"),
    ],
)
def test_cabling_that_cannot_be_is_refused_with_the_port(change, words):
    """Catches a port that nobody cabled, or that carries management, being configured."""
    ports = cabling("linux")
    change(ports)
    reasons = general.refusals(intent(), "linux", ports, ["mgmt0"], HOSTS)
    assert any(words in reason for reason in reasons), reasons


def test_os9_with_link_level_flow_control_is_refused():
    """Catches PFC configured beside the flow control that excludes it."""
    running = (
        "interface hundredGigE 1/1\n no ip address\n flowcontrol rx on tx on\n!\ninterface hundredGigE 1/2\n"
    )
    reasons = general.cli_refusals(intent(), "os9", cabling("os9"), running)
    assert reasons == ["port hundredGigE 1/1: link-level flow control is on; OS9 has no PFC beside it"]


# -- command lines ---------------------------------------------------------------------------------


def test_a_configuration_shown_otherwise_is_no_difference():
    """Catches a change at every run: other order, other indentation, separators, DSCPs in one list."""
    wanted = "qos map dscp 24 to traffic-class 3\nqos map dscp 26 to traffic-class 3\na x\n   y 1\n   z 2\n"
    found = "! comment\nqos map dscp 24 26 to traffic-class 3\n!\na x\n z 2\n !\n y 1\nother\n"
    assert cli.compare(wanted, found, ["^qos map"])["differences"] == []


def test_what_is_ours_and_not_wanted_goes_and_the_rest_stays():
    """Catches a second lossless priority left on, and somebody else's lines removed."""
    wanted = "qos profile ROCE\n   priority-flow-control priority 3 no-drop\n"
    found = wanted + "   priority-flow-control priority 5 no-drop\nuser bob\n"
    result = cli.compare(wanted, found, ["^qos profile ROCE /"])
    assert result["commands"] == ["qos profile ROCE", "no priority-flow-control priority 5 no-drop", "exit"]


def test_commands_enter_and_leave_every_section():
    """Catches a line typed in the section of the one before."""
    wanted = "a\n b\n  c\n d\ne\n f\n"
    assert cli.compare(wanted, "a\n", [])["commands"] == [
        "a",
        "b",
        "c",
        "exit",
        "d",
        "exit",
        "e",
        "f",
        "exit",
    ]


@pytest.mark.parametrize("nos", ["eos", "nxos", "os9", "os10"])
def test_the_rendered_configuration_is_complete_after_it_was_typed(nos):
    """Catches a rendered configuration that does not satisfy its own comparison."""
    text = rendering.cli_text(nos, intent())
    assert cli.compare(text, text, [".*"])["differences"] == []
    assert len(cli.compare(text, "", [])["differences"]) == len(cli.paths(text))


def test_a_switch_shows_ranges_and_short_numbers():
    """Catches a change at every run, and on OS10 once a reload: `0-2,4` for `0,1,2,4`, `0.2` for `0.20`."""
    wanted = "qos-map traffic-class ROCE\n queue 0 qos-group 0,1,2,4,5,7\na 0.20\n"
    found = "a 0.2\nqos-map traffic-class ROCE\n !\n queue 0 qos-group 0-2,4-5,7\n"
    assert cli.compare(wanted, found, ["^qos-map traffic-class ROCE"])["differences"] == []


def test_a_hidden_default_is_no_difference():
    """Catches a change at every run: EOS does not show `qos map dscp 48 to traffic-class 6`, which is its own."""
    wanted = "qos map dscp 48 to traffic-class 6\nmtu 9000\n"
    everything = "qos map dscp 48 49 50 51 to traffic-class 6\nmtu 9000\nno shutdown\n"
    result = cli.compare(wanted, "mtu 9000\n", [".*"], everything)
    assert result["differences"] == []
    assert "qos map dscp 48 to traffic-class 6" in result["found"], "what the switch does is not told"


EOS_OWNED = ["^qos profile ROCE /"]


def test_a_map_of_another_dscp_is_left():
    """Catches `no qos map dscp 46`: voice of the site mapped away because its class is the CNPs'."""
    wanted = "qos map dscp 48 to traffic-class 6\n"
    result = cli.compare(wanted, "qos map dscp 46 to traffic-class 6\n" + wanted, EOS_OWNED)
    assert (result["differences"], result["commands"]) == ([], [])
    roles = (rendering.ROLE / "vars/main.yml").read_text()
    assert "qos map dscp" not in roles.partition("  eos:\n")[2].partition("  nxos:\n")[0]


def test_a_policy_of_somebody_else_is_named_as_theirs():
    """Catches a foreign `system qos` policy of NX-OS taken away unasked."""
    text = rendering.cli_text("nxos", intent())
    found = "system qos\n  service-policy type network-qos STORAGE\n  service-policy type queuing output OWN\n"
    result = cli.compare(text, found, [])
    assert general.others_settings(result) == [
        "system qos service-policy type network-qos (service-policy type network-qos STORAGE)",
        "system qos service-policy type queuing output (service-policy type queuing output OWN)",
    ]
    default = "system qos\n  service-policy type network-qos default-8q-nq-policy\n"
    assert general.others_settings(cli.compare(text, default, [])) == []
    # Something else in the same section is not touched.
    beside = "system qos\n  fabric-priority x\n"
    assert "no fabric-priority x" not in cli.compare(text, beside, [])["commands"]


def test_another_mtu_is_replaced_and_whose_it_was_is_told():
    """Catches a value of somebody else's replaced as if it were the default."""
    wanted = "interface Ethernet1\n mtu 9000\n"
    for was, whose in (("mtu 1500", "system"), ("mtu 4000", "other")):
        (change,) = cli.compare(wanted, f"interface Ethernet1\n {was}\n", [])["changes"]
        assert (change["port"], change["from"], change["to"], change["whose"]) == ("Ethernet1", was, "mtu 9000", whose)
    mine = "interface Ethernet1\n mtu 4000\n service-profile ROCE\n"
    assert cli.compare(wanted, mine, [])["changes"][0]["whose"] == "role"


def test_unsaved_lines_are_named_and_keep_the_switch_from_being_changed():
    """Catches somebody's unsaved work written to the start-up configuration."""
    lines = cli.unsaved("hostname a\nvlan 10\n", "! saved at 12:00\nhostname a\nvlan 20\n")
    assert lines == ["vlan 10", "no vlan 20"]
    assert "not saved (vlan 10; no vlan 20)" in general.cli_unready("os10", lines, False)[0]
    assert general.cli_unready("os10", [], False) == []


def test_os9_is_changed_only_where_a_mixture_is_accepted():
    """Catches line after line typed into a switch that cannot go back by itself."""
    assert "neither a transaction nor a commit timer" in general.cli_unready("os9", [], False)[0]
    assert general.cli_unready("os9", [], True) == []


def test_the_way_back_is_typed_in_reverse():
    """Catches a policy removed while a port still carries it, and a value that is not set back."""
    before = "interface e1\n mtu 1500\n"
    now = "policy-map ROCE\n class ROCE\ninterface e1\n mtu 9216\n service-policy ROCE\n"
    assert cli.revert(before, now) == [
        "interface e1",
        "no service-policy ROCE",
        "no mtu 9216",
        "exit",
        "no policy-map ROCE",
        "interface e1",
        "mtu 1500",
        "exit",
    ]
    assert cli.revert(before, before) == []


# -- SONiC -----------------------------------------------------------------------------------------

def test_sonic_tables_keep_the_schema():
    """Catches a DSCP without a traffic class, a reference to nothing, a queue that there is not."""
    assert sonic.schema_errors(render("sonic", intent()), PLATFORM) == []


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lambda t: t["DSCP_TO_TC_MAP"]["ROCE"].pop("63"), "DSCP_TO_TC_MAP|ROCE: keys 63 missing"),
        (lambda t: t["DSCP_TO_TC_MAP"]["ROCE"].update({"26": "8"}), "values 8 out of range"),
        (
            lambda t: t["QUEUE"]["Ethernet0|3"].update(scheduler="nobody"),
            "scheduler 'nobody' is not in SCHEDULER",
        ),
        (lambda t: t["QUEUE"].update({"Ethernet0|8": {}}), "QUEUE|Ethernet0|8: 8 is no queue"),
        (lambda t: t["BUFFER_PG"].update({"Ethernet0|3-9": {}}), "3-9 is no queue or priority group"),
        (lambda t: t["PORT_QOS_MAP"].update({"Ethernet99": {}}), "the switch has no port Ethernet99"),
        (
            lambda t: t["PORT_QOS_MAP"]["Ethernet0"].update(dscp_to_tc_map="AZURE"),
            "dscp_to_tc_map 'AZURE' is not in DSCP_TO_TC_MAP",
        ),
        (lambda t: t["WRED_PROFILE"]["ROCE"].update(green_min_threshold="9999999"), "out of range"),
    ],
)
def test_a_broken_sonic_table_is_named(plant, words):
    """Catches a schema check that cannot fail."""
    tables = copy.deepcopy(render("sonic", intent()))
    plant(tables)
    errors = sonic.schema_errors(tables, PLATFORM)
    assert any(words in error for error in errors), errors


def test_a_platform_without_lossless_profiles_is_refused():
    """Catches a reference to buffer profiles that only another platform has."""
    errors = sonic.schema_errors(render("sonic", intent()), {**PLATFORM, "BUFFER_PROFILE": {}})
    assert any("egress_lossless_profile" in error for error in errors)


def test_the_default_sonic_map_is_seen_as_wrong():
    """Catches SONiC's own AZURE map, which sends DSCP 26 to a lossy class, taken for RoCE-ready."""
    wanted = render("sonic", intent())
    found = sonic_change.merged(wanted, PLATFORM)
    assert sonic_change.difference(wanted, found)["differences"] == []
    found["DSCP_TO_TC_MAP"]["ROCE"]["26"] = "1"
    result = sonic_change.difference(wanted, found)
    assert result["differences"] == ["DSCP_TO_TC_MAP|ROCE 26: 1 -> 3"]
    assert result["way"] == "reload"


def test_a_table_that_the_updater_takes_is_patched():
    """Catches a reload where a patch does, and a patch of what the updater blocks."""
    wanted = render("sonic", intent())
    found = sonic_change.merged(wanted, PLATFORM)
    found["QUEUE"]["Ethernet0|3"]["wred_profile"] = "AZURE"
    result = sonic_change.difference(wanted, found)
    assert result["way"] == "patch"
    assert result["patch"] == [
        {
            "op": "add",
            "path": "/QUEUE/Ethernet0|3",
            "value": {"scheduler": "roce.lossless", "wred_profile": "ROCE"},
        }
    ]


def test_the_whole_sonic_configuration_keeps_what_is_not_ours():
    """Catches a port's speed, or another port, lost by writing the configuration anew."""
    found = {**copy.deepcopy(PLATFORM), "VLAN": {"Vlan10": {"vlanid": "10"}}}
    whole = sonic_change.merged(render("sonic", intent()), found)
    assert whole["VLAN"] == {"Vlan10": {"vlanid": "10"}}
    assert whole["PORT"]["Ethernet0"] == {"mtu": "9000", "speed": "100000"}
    assert found["PORT"]["Ethernet0"]["mtu"] == "9100", "the checkpoint must not change"


def platform(**tables):
    """The platform with tables of its own beside, or in place."""
    return {**copy.deepcopy(PLATFORM), **tables}


def sonic_wanted(found, fabric=None, lookup=LOOKUP):
    """What a switch with this CONFIG_DB gets."""
    fabric = fabric or intent()
    return sonic.tables(fabric, cabling("sonic"), general.lossless_priorities(fabric), found, lookup)


def test_no_row_of_the_whole_switch_and_of_other_ports_is_rendered():
    """Catches the DSCP map of every port of the switch replaced by the one of the listed ports."""
    found = platform(PORT_QOS_MAP={"global": {"dscp_to_tc_map": "AZURE"}, "Ethernet8": {"dscp_to_tc_map": "X"}})
    wanted = sonic_wanted(found)
    assert set(wanted["PORT_QOS_MAP"]) == set(PORTS["sonic"])
    assert sonic_change.merged(wanted, found)["PORT_QOS_MAP"]["global"] == {"dscp_to_tc_map": "AZURE"}


def test_a_lossless_profile_is_the_platforms_for_its_own_cable_length():
    """Catches a profile that no platform table knows: 20 m at 400G where it knows 5, 40 and 300 m."""
    wanted = sonic_wanted(platform())
    assert wanted["BUFFER_PROFILE"] == {
        "pg_lossless_100000_40m_profile": {
            "pool": "ingress_lossless_pool",
            "xon": "9144",
            "xon_offset": "9144",
            "xoff": "142240",
            "size": "9144",
            "dynamic_th": "0",
        }
    }
    unknown = sonic_wanted(platform(), changed("roce.headroom.cable_m", 20))
    errors = sonic.schema_errors(unknown, PLATFORM)
    assert "profile 'pg_lossless_100000_20m_profile' is not in BUFFER_PROFILE" in errors[0], errors


def test_a_ports_own_speed_names_its_buffer_profile():
    """Catches an uplink of another speed that gets the headroom of the host ports."""
    ports = {"Ethernet0": {"speed": "100000"}, "Ethernet4": {"speed": "400000"}}
    wanted = sonic_wanted(platform(PORT=ports))
    assert wanted["BUFFER_PG"]["Ethernet4|3"] == {"profile": "pg_lossless_400000_40m_profile"}


def test_the_buffer_model_is_read_from_the_switch():
    """Catches a dynamic platform given a static profile."""
    found = platform(DEVICE_METADATA={"localhost": {"buffer_model": "dynamic"}})
    wanted = sonic_wanted(found, lookup="")
    assert wanted["BUFFER_PG"]["Ethernet0|3"] == {"profile": "NULL"}
    assert sonic.schema_errors(wanted, found) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("detect_ms", 50, "detection_time 50 ms is not 100 to 5000 ms"),
        ("restore_ms", 90000, "restoration_time 90000 ms is not 100 to 60000 ms"),
        ("action", "reboot", "action 'reboot' is none of drop, forward, alert"),
    ],
)
def test_watchdog_times_outside_the_model_are_refused(key, value, words):
    """Catches a time that SONiC's YANG model refuses, found only when the switch is loaded."""
    wanted = sonic_wanted(platform(), changed(f"roce.pfc.watchdog.{key}", value))
    assert any(words in error for error in sonic.schema_errors(wanted, platform()))


def test_the_watchdogs_interval_fits_and_is_left_where_it_does():
    """Catches an interval above 1000 ms or above a port's times, and a fitting one of the site replaced."""
    assert sonic_wanted(platform(), changed("roce.pfc.watchdog.detect_ms", 5000))["PFC_WD"]["GLOBAL"] == {
        "POLL_INTERVAL": "400"
    }
    theirs = platform(PFC_WD={"GLOBAL": {"POLL_INTERVAL": "150"}})
    assert sonic_wanted(theirs)["PFC_WD"]["GLOBAL"] == {"POLL_INTERVAL": "150"}


def test_a_range_that_says_something_else_of_a_queue_is_resolved():
    """Catches `Ethernet0|3-4` and `Ethernet0|3` that say two things of queue 3; a range that fits stays."""
    spans = {"0-2": "lossy", "3-4": "lossless", "5-7": "lossy"}
    found = platform(
        BUFFER_QUEUE={f"Ethernet0|{span}": {"profile": f"egress_{kind}_profile"} for span, kind in spans.items()},
        BUFFER_PG={"Ethernet0|3-4": {"profile": "pg_lossless_100000_5m_profile"}},
    )
    wanted = sonic_wanted(found)
    result = sonic_change.merged(wanted, found)
    mine = {k: v["profile"] for k, v in result["BUFFER_QUEUE"].items() if k.startswith("Ethernet0|")}
    assert mine == {
        "Ethernet0|0-2": "egress_lossy_profile",
        "Ethernet0|3": "egress_lossless_profile",
        "Ethernet0|4": "egress_lossy_profile",
        "Ethernet0|5-7": "egress_lossy_profile",
    }
    assert result["BUFFER_PG"]["Ethernet0|3"] == {"profile": "pg_lossless_100000_40m_profile"}
    assert "Ethernet0|3-4" not in result["BUFFER_PG"]
    assert sonic_change.difference(sonic_wanted(result), result)["differences"] == []


def test_a_platforms_own_map_of_a_port_stays():
    """Catches `pfc_to_pg_map`, which Mellanox needs, taken away at the first run."""
    found = sonic_change.merged(sonic_wanted(platform()), platform())
    found["PORT_QOS_MAP"]["Ethernet0"]["pfc_to_pg_map"] = "AZURE"
    result = sonic_change.difference(sonic_wanted(found), found)
    assert result["differences"] == []


@pytest.mark.parametrize(
    ("table", "key", "field", "way"),
    [
        ("WRED_PROFILE", "ROCE", "green_max_threshold", "load"),
        ("PORT", "Ethernet0", "mtu", "load"),
        ("PFC_WD", "Ethernet0", "detection_time", "load"),
        ("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "patch"),
        ("DSCP_TO_TC_MAP", "ROCE", "26", "reload"),
    ],
)
def test_a_drift_goes_the_way_that_every_release_takes(table, key, field, way):
    """Catches a reload for an MTU, and a patch of WRED_PROFILE or PFC_WD that a release's validators refuse."""
    found = sonic_change.merged(sonic_wanted(platform()), platform())
    found[table][key][field] = "7"
    result = sonic_change.difference(sonic_wanted(found), found)
    assert result["way"] == way
    assert result["unload"][table][key] == {field: "7"}


def test_unsaved_changes_of_any_table_are_named():
    """Catches somebody's unsaved VLAN written to the start-up configuration, or lost in a reload."""
    running = platform(VLAN={"Vlan10": {}}, BUFFER_PG={"Ethernet0|3-4": {"profile": "pg_lossless_100000_5m_profile"}})
    assert sonic_change.unsaved(running, platform()) == ["VLAN"]


def test_whose_a_setting_is_stands_in_the_table():
    """Catches a table that calls somebody's map the system's, or the system's own somebody's."""
    row = {"dscp_to_tc_map": "VOICE", "tc_to_queue_map": "AZURE", "pfc_enable": "3,4"}
    found = platform(PORT_QOS_MAP={"Ethernet0": row})
    read = sonic_change.difference(sonic_wanted(found), found)
    whose = {c["setting"]: c["whose"] for c in read["changes"] if c["where"] == "PORT_QOS_MAP|Ethernet0"}
    assert whose["dscp_to_tc_map"] == "other"
    assert whose["tc_to_queue_map"] == whose["pfc_enable"] == "system"
    assert whose["tc_to_pg_map"] == "nobody"
    assert general.others_settings(read) == ["PORT_QOS_MAP|Ethernet0 dscp_to_tc_map (VOICE)"]
    table = general.change_table(read, "leaf0")
    assert table[0].split() == ["switch", "port", "setting", "from", "to", "whose"]
    assert any(line.startswith("leaf0") and line.endswith("SOMEBODY ELSE'S") for line in table)


# -- Cumulus and Enterprise SONiC ------------------------------------------------------------------


def test_nvue_numbers_as_text_are_no_difference_and_others_are():
    """Catches a change at every run, and a lossy RoCE mode unseen."""
    wanted = render("cumulus", intent())
    found = json.loads(json.dumps(wanted).replace("9000", '"9000"'))
    assert nvue.difference(wanted, found)["differences"] == []
    found["qos"]["roce"]["mode"] = "lossy"
    assert nvue.difference(wanted, found)["differences"] == ["qos.roce.mode: lossy -> lossless"]


@pytest.mark.parametrize(
    ("version", "on"),
    [
        ("Cumulus Linux 5.9.1", {"enable": "on"}),
        ("Cumulus Linux 5.14.0", {"enable": "on"}),
        ("Cumulus Linux 5.15.0", {"state": "enabled"}),
        ("Cumulus Linux 6.0.0", {"state": "enabled"}),
    ],
)
def test_nvue_is_written_in_the_words_of_its_release(version, on):
    """Catches `enable on` sent to a release that knows only `state enabled`, or the other way round."""
    roce = nvue.tree(intent(), cabling("cumulus"), {"version": version})["qos"]["roce"]
    assert roce == {**on, "mode": "lossless", "cable-length": 40}


@pytest.mark.parametrize(
    ("detect_ms", "wanted"), [(300, (100, 3)), (200, (100, 2)), (250, (250, 1)), (9000, (100, 90))]
)
def test_nvue_watchdog_acts_after_the_intents_time(detect_ms, wanted):
    """Catches the platform's 300 ms kept where the intent says another time."""
    dog = nvue.tree(changed("roce.pfc.watchdog.detect_ms", detect_ms), cabling("cumulus"))["qos"]["pfc-watchdog"]
    assert (dog["polling-interval"], dog["robustness"]) == wanted
    assert wanted[0] * wanted[1] == detect_ms


def test_nvue_settings_of_somebody_else_are_told_as_theirs():
    """Catches somebody's own ECN profile on a port replaced unasked."""
    found = {"interface": {"swp1": {"link": {"mtu": 9216}, "qos": {"congestion-control": {"profile": "GOLD"}}}}}
    read = nvue.difference(nvue.tree(intent(), cabling("cumulus")), found)
    assert general.others_settings(read) == ["interface.swp1.qos.congestion-control profile (GOLD)"]


def test_nvue_refuses_what_qos_roce_does_not_make():
    """Catches an intent with DSCP 18 answered with NVUE's fixed 24 to 31."""
    assert nvue.refusals(intent()) == []
    assert nvue.refusals(changed("roce.dscp", 18)) != []
    assert nvue.refusals(changed("roce.cnp.scheduler", "dwrr")) != []


def facts():
    """Network resources of an Enterprise SONiC switch after `roce enable` and the watchdog."""
    port = {
        "qos_maps": {"dscp_fwd_group": "ROCE"},
        "cable_length": "40m",
        "pfc": {
            "asymmetric": False,
            "priorities": [{"dot1p": 3, "enable": True}, {"dot1p": 4, "enable": False}],
            "watchdog_action": "drop",
            "watchdog_detect_time": 200,
            "watchdog_restore_time": 400,
        },
    }
    return {
        "roce": {"roce_enable": True, "pfc_priority": "3"},
        "qos_maps": {
            "dscp_maps": [
                {"name": "ROCE", "entries": [{"dscp": 26, "fwd_group": "3"}, {"dscp": 48, "fwd_group": "6"}]}
            ]
        },
        "qos_wred": [
            {
                "name": "ROCE",
                "ecn": "green",
                "green": {
                    "enable": True,
                    "min_threshold": 1048576,
                    "max_threshold": 2097152,
                    "drop_probability": 5,
                },
            }
        ],
        "qos_interfaces": [{"name": name, **copy.deepcopy(port)} for name in PORTS["enterprise_sonic"]],
    }


def es(found, fabric=None):
    """The comparison of an Enterprise SONiC switch."""
    mtus = dict.fromkeys(PORTS["enterprise_sonic"], 9000)
    return enterprise.compare(fabric or intent(), cabling("enterprise_sonic"), [3], found, mtus)


def test_an_enterprise_sonic_switch_after_roce_enable_is_as_wanted():
    """Catches a change, and so a reboot, at every run."""
    result = es(facts())
    assert (result["differences"], result["refusals"], result["needs_roce"]) == ([], [], False)


def test_a_port_that_uses_another_map_is_no_proof_of_the_right_map():
    """Catches a correct map that one of our ports does not use."""
    found = facts()
    found["qos_interfaces"][1]["qos_maps"]["dscp_fwd_group"] = "default"
    assert any(line.startswith("group of DSCP 26") for line in es(found)["differences"])


def test_roce_enable_over_existing_maps_is_refused():
    """Catches the reboot that ends in an error, or maps of one's own cleared by force."""
    found = {"roce": {"roce_enable": False}, "qos_maps": {"dscp_maps": [{"name": "mine", "entries": []}]}}
    result = es(found)
    assert result["needs_roce"] is True
    assert any("existing QoS maps" in reason for reason in result["refusals"])


def test_enterprise_sonic_refuses_numbers_that_roce_enable_does_not_make():
    """Catches an intent with other ECN thresholds answered with the fixed ones."""
    assert any("fixes ECN" in r for r in es({}, changed("roce.ecn.min_bytes", 2048))["refusals"])
    assert any("DSCP" in r for r in es({}, changed("roce.dscp", 18))["refusals"])


def test_a_class_made_by_hand_is_as_wanted():
    """Catches a correct switch rebooted by `roce enable`, or refused because it has maps."""
    found = facts()
    found["roce"] = {}
    result = es(found)
    assert (result["differences"], result["refusals"], result["needs_roce"]) == ([], [], False)
    found["qos_wred"][0]["green"]["drop_probability"] = 50
    result = es(found)
    assert result["needs_roce"] is True
    assert any("existing QoS maps" in reason for reason in result["refusals"])


@pytest.mark.parametrize(
    ("plant", "line"),
    [
        (lambda port: port.update(cable_length="300m"), "cable Eth1/2: 300m -> 40m"),
        (lambda port: port["pfc"].update(asymmetric=True), "asymmetric Eth1/2: True -> False"),
    ],
)
def test_cable_length_and_symmetry_are_read_back(plant, line):
    """Catches the headroom of another cable, or PFC obeyed and never sent, taken for as wanted."""
    found = facts()
    plant(found["qos_interfaces"][1])
    result = es(found)
    assert (result["differences"], result["needs_roce"]) == ([line], False)


def test_every_value_that_the_module_has_a_default_for_is_given():
    """Catches `cable_length` left to the module, which then writes 40m over what is there."""
    found = es(facts(), changed("roce.headroom", None))["found"]
    found["cable Eth1/2"] = "300m"
    made = enterprise.interfaces(changed("roce.headroom", None), cabling("enterprise_sonic"), found)
    assert [one["cable_length"] for one in made] == ["40m", "300m"]
    assert made[0]["pfc"] == {
        "asymmetric": False,
        "watchdog_action": "drop",
        "watchdog_detect_time": 200,
        "watchdog_restore_time": 400,
    }
    assert enterprise.interfaces(intent(), cabling("enterprise_sonic"), found)[1]["cable_length"] == "40m"


def test_enterprise_sonic_refuses_a_cable_that_the_module_does_not_know():
    """Catches 20 m asked of a system that takes 5, 40 or 300 m, found by an error of the module."""
    assert any("5, 40 or 300 m" in r for r in es(facts(), changed("roce.headroom.cable_m", 20))["refusals"])


@pytest.mark.parametrize("nos", PORTS)
def test_an_intent_without_watchdog_times_is_rendered(nos):
    """Catches a KeyError for an intent that leaves the watchdog, which the model allows, out."""
    fabric = intent()
    del fabric["roce"]["pfc"]["watchdog"]
    assert "watchdog default" not in json.dumps(render(nos, fabric))
