"""The role on Dell Enterprise SONiC, through ansible.netcommon.httpapi and RESTCONF over HTTPS."""

import pytest

from tests.switches.rest_device import RestDevice

PORTS = ["Eth1/1", "Eth1/2"]


def variables(switch: RestDevice) -> dict:
    """The inventory's view of it."""
    return {
        "ansible_connection": "ansible.netcommon.httpapi",
        "ansible_network_os": "dellemc.enterprise_sonic.sonic",
        "ansible_httpapi_use_ssl": True,
        "ansible_httpapi_validate_certs": False,
        "ansible_host": "127.0.0.1",
        "ansible_httpapi_port": switch.port,
        "ansible_user": "admin",
        "ansible_password": "admin",
        "roce_switch_nos": "enterprise_sonic",
        "roce_switch_poll_s": 2,
        "roce_switch_reboot_timeout_s": 20,
        "roce_switch_reload_allowed": True,
        "roce_switch_mixture_accepted": True,
        "leaf_ports": [
            {"port": port, "host": host, "netdev": "fab0", "rail": "rail0"}
            for port, host in zip(PORTS, ("n1", "n2"), strict=True)
        ],
    }


def test_a_switch_is_configured_with_one_reboot_and_then_left_alone(tmp_path, play):
    """Catches a reboot at every run, and success said before the switch was back and read."""
    switch = RestDevice(tmp_path, PORTS)
    first = play(variables(switch))
    assert first.code == 0, first.output
    assert (switch.roce, switch.boots) == ("3", 1)
    assert switch.mtu == dict.fromkeys(PORTS, 9000)
    assert switch.watchdog["Eth1/1"]["detection-time"] == 200
    posts = len(switch.posts)
    again = play(variables(switch))
    assert (again.code, again.changed) == (0, 0), again.output
    assert len(switch.posts) == posts


def test_an_answer_lost_in_the_reboot_is_no_failure(tmp_path, play):
    """Catches a good change undone because the reboot cut its answer off."""
    switch = RestDevice(tmp_path, PORTS, lose_answer=True)
    result = play(variables(switch))
    assert result.code == 0, result.output
    assert (switch.roce, switch.boots) == ("3", 1)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"refuse": "qos-roce-config"}, "refused"),
        ({"refuse": "openconfig-qos:qos"}, "refused"),
        ({"mutate_dscp": 26}, "read-back differs: group of DSCP 26"),
    ],
    ids=["refused-roce", "refused-watchdog", "read-back"],
)
def test_after_a_fault_the_old_configuration_is_back(fault, words, tmp_path, play):
    """Catches RoCE enabled with a wrong map, or without its watchdog, and left so."""
    switch = RestDevice(tmp_path, PORTS, **fault)
    before = switch.state()
    result = play(variables(switch))
    assert result.code != 0, result.output
    assert words in result.output
    assert "The old configuration is back." in result.output
    assert switch.state() == before


def test_a_reboot_that_never_ends_is_no_success(tmp_path, play):
    """Catches success said after sleeping, unread."""
    switch = RestDevice(tmp_path, PORTS, never_back=True)
    result = play(variables(switch))
    assert result.code != 0, result.output


def test_existing_maps_are_refused_before_the_first_change(tmp_path, play):
    """Catches a reboot that ends in an error, or maps of one's own cleared by force."""
    switch = RestDevice(tmp_path, PORTS)
    switch.maps = ["mine"]
    result = play(variables(switch))
    assert result.code != 0
    assert "existing QoS maps" in result.output
    assert switch.posts == []


def test_a_switch_that_carries_traffic_is_not_rebooted(tmp_path, play):
    """Catches a reboot outside a drained window."""
    switch = RestDevice(tmp_path, PORTS)
    result = play({**variables(switch), "roce_switch_reload_allowed": False})
    assert result.code != 0
    assert "Drain it" in result.output
    assert switch.posts == []


def test_a_switch_is_not_changed_where_a_mixture_is_not_accepted(tmp_path, play):
    """Catches requests sent one after another to a switch that cannot go back when the connection is lost."""
    switch = RestDevice(tmp_path, PORTS)
    result = play({**variables(switch), "roce_switch_mixture_accepted": False})
    assert result.code != 0
    assert "no commit timer" in result.output
    assert switch.posts == []
