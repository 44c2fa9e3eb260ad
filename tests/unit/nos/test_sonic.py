"""Community SONiC: what is rendered for a platform, what a comparison sees, and which way brings it."""

import copy

import pytest
from rendering import LOOKUP, PLATFORM, PORTS, cabling, changed, general, intent, render, sonic, sonic_change


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


@pytest.mark.parametrize(
    ("table", "key", "field", "was", "to"),
    [
        ("PORT", "Ethernet4", "pfc_asym", "on", "off"),
        ("PFC_WD", "GLOBAL", "BIG_RED_SWITCH", "enable", "disable"),
        ("FLEX_COUNTER_TABLE", "PFCWD", "FLEX_COUNTER_STATUS", "disable", "enable"),
    ],
)
def test_a_field_that_undoes_the_class_is_a_difference(table, key, field, was, to):
    """Catches pauses of every priority obeyed, or a watchdog that is configured and sees no storm."""
    there = sonic_change.merged(render("sonic", intent()), PLATFORM)
    there.setdefault(table, {}).setdefault(key, {})[field] = to

    def wanted(fabric):
        return sonic.tables(fabric, cabling("sonic"), [3], there, LOOKUP)

    assert sonic_change.difference(wanted(intent()), there)["differences"] == []
    there[table][key][field] = was
    result = sonic_change.difference(wanted(intent()), there)
    assert result["differences"] == [f"{table}|{key} {field}: {was} -> {to}"]
    assert (result["way"], result["load"]) == ("load", {table: {key: {field: to}}})
    assert result["unload"] == {table: {key: {field: was}}}
    assert sonic.schema_errors(wanted(intent()), there) == []
    # Who asks for no watchdog is not told of it.
    silent = sonic_change.difference(wanted(changed("roce.pfc.watchdog", None)), there)["differences"]
    assert bool(silent) == (table == "PORT")


def test_pfc_that_differs_by_the_way_in_the_asic_is_told():
    """Catches a mask that is right for what is sent, where pauses of all priorities are obeyed."""
    names = {"Ethernet0": "oid:0x1", "Ethernet4": "oid:0x2"}
    mode = "SAI_PORT_ATTR_PRIORITY_FLOW_CONTROL_MODE"
    asic = {
        f"ASIC_STATE:SAI_OBJECT_TYPE_PORT:{oid}": {"value": {"SAI_PORT_ATTR_PRIORITY_FLOW_CONTROL": "8"}}
        for oid in names.values()
    }
    databases = {"APPL_DB": {}, "ASIC_DB": asic, "COUNTERS_DB": {"COUNTERS_PORT_NAME_MAP": {"value": names}}}

    def told():
        return [
            line
            for line in sonic_change.effective(intent(), cabling("sonic"), [3], databases)
            if "asymmetric" in line
        ]

    asic["ASIC_STATE:SAI_OBJECT_TYPE_PORT:oid:0x1"]["value"][mode] = (
        "SAI_PORT_PRIORITY_FLOW_CONTROL_MODE_COMBINED"
    )
    assert told() == []
    asic["ASIC_STATE:SAI_OBJECT_TYPE_PORT:oid:0x2"]["value"][mode] = (
        "SAI_PORT_PRIORITY_FLOW_CONTROL_MODE_SEPARATE"
    )
    assert told() == ["Ethernet4: PFC in the ASIC is not the same for both ways (asymmetric)"]


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
    found = platform(
        PORT_QOS_MAP={"global": {"dscp_to_tc_map": "AZURE"}, "Ethernet8": {"dscp_to_tc_map": "X"}}
    )
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
        BUFFER_QUEUE={
            f"Ethernet0|{span}": {"profile": f"egress_{kind}_profile"} for span, kind in spans.items()
        },
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
    """Catches a reload for an MTU, and a patch of WRED_PROFILE or PFC_WD that a release refuses."""
    found = sonic_change.merged(sonic_wanted(platform()), platform())
    found[table][key][field] = "7"
    result = sonic_change.difference(sonic_wanted(found), found)
    assert result["way"] == way
    assert result["unload"][table][key] == {field: "7"}


def test_unsaved_changes_of_any_table_are_named():
    """Catches somebody's unsaved VLAN written to the start-up configuration, or lost in a reload."""
    running = platform(
        VLAN={"Vlan10": {}}, BUFFER_PG={"Ethernet0|3-4": {"profile": "pg_lossless_100000_5m_profile"}}
    )
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
