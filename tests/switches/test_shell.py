"""The role on switches with a Linux shell, community SONiC and Cumulus, through Ansible's ssh connection."""

import json
import sys
import tempfile
import time

import pytest

from tests.switches.shell_device import ShellDevice

# DellEMC-Z9664f-O64's table (sonic-buildimage), with a row for the lab's rate.
LOOKUP = """# PG lossless profiles.
# speed cable size     xon     xoff  threshold xon_offset
  10000  5m   9144     9144    75438      0        9144
  10000  40m  9144     9144    78740      0        9144
  10000  300m 9144     9144   103378      0        9144
"""
SONIC = {
    "DEVICE_METADATA": {"localhost": {"hostname": "leaf1", "platform": "platform", "hwsku": "sku"}},
    "MGMT_INTERFACE": {"eth0|10.0.0.1/24": {}},
    "PORT": {f"Ethernet{n}": {"mtu": "9100", "speed": "10000", "admin_status": "up"} for n in (0, 4, 8)},
    "BUFFER_POOL": {"ingress_lossless_pool": {"mode": "dynamic", "type": "ingress", "size": "113620296"}},
    "BUFFER_PROFILE": {"egress_lossless_profile": {"size": "0"}, "egress_lossy_profile": {"size": "1664"}},
    # As `config qos reload` leaves a switch: the map of the whole switch and that of a port that is not ours.
    "DSCP_TO_TC_MAP": {"AZURE": {str(n): "1" for n in range(64)}},
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": {"AZURE": {"3": "3", "4": "4"}},
    "PORT_QOS_MAP": {
        "global": {"dscp_to_tc_map": "AZURE"},
        **{
            f"Ethernet{n}": {"dscp_to_tc_map": "AZURE", "pfc_to_pg_map": "AZURE", "pfc_enable": "3,4"}
            for n in (0, 4, 8)
        },
    },
    "BUFFER_QUEUE": {
        f"Ethernet{n}|{span}": {"profile": f"egress_{kind}_profile"}
        for n in (0, 4, 8)
        for span, kind in (("0-2", "lossy"), ("3-4", "lossless"), ("5-7", "lossy"))
    },
    "SCHEDULER": {"scheduler.0": {"type": "DWRR", "weight": "14"}},
}
CUMULUS = {"interface": {"eth0": {"ip": {"address": {"10.0.0.1/24": {}}}}, "swp1": {"link": {"mtu": 9216}}}}
RUNNING = {"sonic": SONIC, "cumulus": CUMULUS}
PORTS = {"sonic": ["Ethernet0", "Ethernet4"], "cumulus": ["swp1", "swp2"]}
APPLY = {"sonic": "config reload", "cumulus": "nv config apply --confirm "}


@pytest.fixture
def made(tmp_path, loop):
    """Make a switch and the inventory's view of it."""

    def make(nos, **faults):
        switch = ShellDevice(tmp_path / "switch", RUNNING[nos], **{"lookup": LOOKUP, **faults})
        loop(switch.start())
        # A unix socket's path has room for 107 characters.
        control = tempfile.mkdtemp(prefix="s")
        options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ControlMaster=auto"
        variables = {
            "ansible_connection": "ssh",
            "ansible_host": "127.0.0.1",
            "ansible_port": switch.port,
            "ansible_user": "admin",
            "ansible_ssh_private_key_file": str(switch.home / "key"),
            "ansible_ssh_args": f"{options} -o ControlPersist=20 -o LogLevel=ERROR",
            "ansible_control_path_dir": control,
            "ansible_pipelining": True,
            "ansible_python_interpreter": sys.executable,
            "ansible_become_exe": str(switch.home / "bin/sudo"),
            "ansible_remote_tmp": str(switch.home / "tmp"),
            "roce_switch_nos": nos,
            "roce_switch_poll_s": 1,
            "roce_switch_confirm_timeout_s": 60,
            "roce_switch_reboot_timeout_s": 60,
            "roce_switch_reload_allowed": True,
            "leaf_ports": [
                {"port": port, "host": host, "netdev": "fab0", "rail": "rail0"}
                for port, host in zip(PORTS[nos], ("n1", "n2"), strict=True)
            ],
        }
        places = {
            "_roce_switch_sonic_dir": str(switch.home / "etc"),
            "_roce_switch_sonic_units": str(switch.home / "units"),
            "_roce_switch_sonic_devices": str(switch.home / "devices"),
        }
        extra = ("-e", json.dumps(places))
        return switch, variables, extra

    return make


@pytest.mark.parametrize("nos", RUNNING)
def test_a_switch_is_configured_once_and_keeps_everything_else(nos, made, play):
    """Catches a change that is not idempotent, not saved, or that touches what is not ours."""
    switch, variables, extra = made(nos)
    first = play(variables, *extra)
    assert first.code == 0, first.output
    running = switch.running()
    if nos == "sonic":
        assert running["DSCP_TO_TC_MAP"]["ROCE"]["26"] == "3"
        assert running["PORT"]["Ethernet0"] == {"mtu": "9000", "speed": "10000", "admin_status": "up"}
        assert running["PORT"]["Ethernet8"] == SONIC["PORT"]["Ethernet8"]
        assert running["SCHEDULER"]["scheduler.0"] == SONIC["SCHEDULER"]["scheduler.0"]
        # The whole switch's map, and the platform's own map of a port, are not ours.
        assert running["PORT_QOS_MAP"]["global"] == {"dscp_to_tc_map": "AZURE"}
        assert running["PORT_QOS_MAP"]["Ethernet8"] == SONIC["PORT_QOS_MAP"]["Ethernet8"]
        assert running["PORT_QOS_MAP"]["Ethernet0"]["pfc_to_pg_map"] == "AZURE"
        spans = sorted(k.partition("|")[2] for k in running["BUFFER_QUEUE"] if k.startswith("Ethernet0|"))
        assert spans == ["0-2", "3", "4", "5-7"], "a range and a single row say two things of one queue"
        assert not list((switch.home / "units").iterdir()), "the undo at boot is still there"
    else:
        assert running["qos"]["roce"] == {"state": "enabled", "mode": "lossless", "cable-length": 40}
        assert running["interface"]["eth0"] == CUMULUS["interface"]["eth0"]
    assert switch.startup() == running
    assert not list(switch.home.glob("*.pid")), "a timer is still armed"
    seen = switch.log()
    again = play(variables, *extra)
    assert (again.code, again.changed) == (0, 0), again.output
    assert APPLY[nos] not in switch.log().removeprefix(seen)


FAULTS = {
    "refused": (lambda nos: {"refuse": f"^{APPLY[nos]}"}, "refused"),
    "time-out": (lambda nos: {"hang": f"^{APPLY[nos]}"}, "Timed out after 15"),
    "read-back": (
        lambda nos: {"mutate": {"sonic": ['"ROCE"', '"X"'], "cumulus": ['"lossless"', '"lossy"']}[nos]},
        "read-back differs",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("nos", RUNNING)
def test_after_a_fault_the_old_configuration_is_back(nos, fault, made, play):
    """Catches a mixture left behind by a refused command, a time-out or a value stored otherwise."""
    plant, words = FAULTS[fault]
    switch, variables, extra = made(nos, **plant(nos))
    if fault == "time-out":
        variables |= {"roce_switch_confirm_timeout_s": 15, "roce_switch_reboot_timeout_s": 15}
    result = play(variables, *extra)
    assert result.code != 0, result.output
    assert words in result.output, result.output
    assert "The old configuration is back." in result.output
    assert switch.running() == RUNNING[nos]
    assert switch.startup() == RUNNING[nos]
    assert not list(switch.home.glob("*.pid")), "a timer is still armed"


@pytest.mark.parametrize("nos", RUNNING)
def test_a_connection_lost_after_the_change_is_undone_by_the_switch_itself(nos, made, play):
    """Catches a change that cuts management off and stays."""
    switch, variables, extra = made(nos, cut_after=f"^{APPLY[nos]}", cut_s=90, minute_s=8)
    result = play({**variables, "roce_switch_reboot_timeout_s": 60}, *extra, "--timeout", "5")
    assert result.code != 0, result.output
    deadline = time.monotonic() + 30
    while switch.running() != RUNNING[nos] and time.monotonic() < deadline:
        time.sleep(0.5)
    assert switch.running() == RUNNING[nos]
    assert switch.startup() == RUNNING[nos]


def test_a_sonic_switch_that_restarts_on_trial_starts_with_the_old_configuration(made, play):
    """Catches a new configuration kept unconfirmed by a power loss, which takes the timer with it."""
    switch, variables, extra = made("sonic", cut_after=f"^{APPLY['sonic']}", cut_s=90, minute_s=3600)
    result = play({**variables, "roce_switch_reboot_timeout_s": 15}, *extra, "--timeout", "5")
    assert result.code != 0, result.output
    assert switch.startup() != SONIC, "the cut came before the change"
    switch.restart()
    assert switch.startup() == switch.running() == SONIC


def test_sonic_with_unsaved_changes_is_refused_before_the_first_change(made, play):
    """Catches somebody's unsaved work saved, or lost, by our reload."""
    switch, variables, extra = made("sonic")
    running = switch.running()
    running["VLAN"] = {"Vlan10": {"vlanid": "10"}}  # no table of ours
    (switch.home / "running.json").write_text(json.dumps(running))
    result = play(variables, *extra)
    assert result.code != 0
    assert "not saved (VLAN)" in result.output
    assert switch.running() == running


def test_a_small_difference_on_sonic_is_loaded_without_a_reload(made, play):
    """Catches a reload, and so an interruption, for what SONiC takes in passing: ECN, MTU, watchdog."""
    switch, variables, extra = made("sonic", unpatchable=["WRED_PROFILE", "PFC_WD"])
    first = play(variables, *extra)
    assert first.code == 0, first.output
    running = switch.running()
    running["WRED_PROFILE"]["ROCE"]["green_max_threshold"] = "3000000"
    running["PORT"]["Ethernet0"]["mtu"] = "1500"
    running["PFC_WD"]["Ethernet4"]["detection_time"] = "300"
    for path in ("running.json", "etc/config_db.json"):
        (switch.home / path).write_text(json.dumps(running))
    seen = switch.log()
    result = play({**variables, "roce_switch_reload_allowed": False}, *extra, "-e", "take_over=leaf1")
    assert result.code == 0, result.output
    assert switch.running()["WRED_PROFILE"]["ROCE"]["green_max_threshold"] == "2097152"
    assert switch.running()["PORT"]["Ethernet0"]["mtu"] == "9000"
    assert "reload" not in switch.log().removeprefix(seen)
    assert switch.startup() == switch.running()


def test_sonic_without_a_lossless_priority_group_in_the_asic_is_no_success(made, play):
    """Catches a configuration that CONFIG_DB holds and that no daemon could carry out."""
    switch, variables, extra = made("sonic", no_pg=True)
    result = play({**variables, "roce_switch_reboot_timeout_s": 15}, *extra)
    assert result.code != 0
    assert "priority group 3 has no buffer in the ASIC" in result.output
    assert "The old configuration is back." in result.output
    assert switch.running() == SONIC


def test_what_somebody_else_set_is_shown_and_left_without_take_over(made, play):
    """Catches somebody's map replaced unasked; and a table that does not say whose a setting is."""
    switch, variables, extra = made("sonic")
    running = switch.running()
    running["PORT_QOS_MAP"]["Ethernet0"]["dscp_to_tc_map"] = "VOICE"
    running["DSCP_TO_TC_MAP"]["VOICE"] = running["DSCP_TO_TC_MAP"]["AZURE"]
    for path in ("running.json", "etc/config_db.json"):
        (switch.home / path).write_text(json.dumps(running))
    result = play(variables, *extra)
    assert result.code != 0
    assert "PORT_QOS_MAP|Ethernet0 dscp_to_tc_map (VOICE)" in result.output
    assert "take_over=leaf1" in result.output and "SOMEBODY ELSE'S" in result.output
    assert switch.running() == running
    taken = play(variables, *extra, "-e", "take_over=leaf1")
    assert taken.code == 0, taken.output
    assert switch.running()["PORT_QOS_MAP"]["Ethernet0"]["dscp_to_tc_map"] == "ROCE"
