"""The role on switches with a command line, through ansible.netcommon.network_cli over SSH."""

import re

import pytest

from tests.switches.cli_device import Device, Faults, copy
from tests.switches.printed import text

PORTS = {
    "eos": ["Ethernet1/1", "Ethernet2/1"],
    "nxos": ["Ethernet1/1", "Ethernet1/2"],
    "os9": ["hundredGigE 1/1", "hundredGigE 1/2"],
    "os10": ["ethernet1/1/1", "ethernet1/1/2"],
}
NETWORK_OS = {"eos": "arista.eos.eos", "nxos": "cisco.nxos.nxos", "os9": "dellos", "os10": "dellos"}


def before(nos):
    """A switch that somebody uses: none of this may be touched, save the ports' MTU."""
    return {
        "hostname leaf1": {},
        "interface Management1": {"ip address 10.0.0.1/24": {}},
        **{f"interface {port}": {"description server": {}, "mtu 1500": {}} for port in PORTS[nos]},
    }


def device(nos, **faults) -> Device:
    """A scripted switch that holds `before`, saved."""
    made = Device(nos, before(nos), Faults(**faults))
    made.startup = copy(made.running)
    return made


def variables(switch: Device) -> dict:
    """The inventory's view of it."""
    return {
        "ansible_connection": "ansible.netcommon.network_cli",
        "ansible_network_os": NETWORK_OS[switch.nos],
        "ansible_network_cli_ssh_type": "libssh",
        "ansible_host": "127.0.0.1",
        "ansible_port": switch.port,
        "ansible_user": "admin",
        "ansible_password": "admin",
        "ansible_command_timeout": 8,
        "roce_switch_nos": switch.nos,
        "roce_switch_poll_s": 1,
        "roce_switch_confirm_timeout_s": 60,  # one minute of the device's clock
        "roce_switch_reboot_timeout_s": 40,
        "roce_switch_reload_allowed": True,
        "roce_switch_mixture_accepted": True,
        "leaf_ports": [
            {"port": port, "host": host, "netdev": "fab0", "rail": "rail0"}
            for port, host in zip(PORTS[switch.nos], ("n1", "n2"), strict=True)
        ],
    }


@pytest.mark.parametrize("nos", PORTS)
def test_a_switch_is_configured_once_and_keeps_everything_else(nos, loop, play):
    """Catches a change that is not idempotent, not saved, or that touches what is not ours."""
    switch = device(nos)
    loop(switch.start())
    first = play(variables(switch))
    assert first.code == 0, first.output
    shown = text(switch.running)
    # EOS has the intent's DSCP map by default: it is trusted, and not typed.
    wanted = {"eos": "qos trust dscp", "os9": "trust diffserv"}.get(nos, "dscp 26")
    assert wanted in shown
    assert "description server" in shown
    assert switch.running["interface Management1"] == {"ip address 10.0.0.1/24": {}}
    assert switch.startup == switch.running
    assert switch.undo is None
    seen = len(switch.log)
    again = play(variables(switch))
    assert again.code == 0, again.output
    assert again.changed == 0
    assert not [
        line for line in switch.log[seen:] if line.startswith(("conf", "copy", "write", "checkpoint"))
    ]


@pytest.mark.parametrize("nos", PORTS)
def test_a_switch_that_is_not_ours_is_shown_and_left(nos, loop, play):
    """Catches a switch that is changed against the word of the site, or whose difference is not told."""
    switch = device(nos)
    loop(switch.start())
    asked = "{{ (manage | default({})).switches | default(false) }}"
    result = play({**variables(switch), "roce_switch_manage": asked})
    assert result.code == 0, result.output
    assert switch.running == before(nos)
    assert not [line for line in switch.log if line.startswith(("conf", "copy", "write", "checkpoint"))]
    assert "NOT AS WANTED on leaf1, and left as it is (manage.switches is false)" in result.output
    assert "lacks: interface" in result.output
    assert result.changed == 0


@pytest.mark.parametrize("nos", PORTS)
def test_check_mode_shows_the_change_and_makes_none(nos, loop, play):
    """Catches --check that types, and --check that says all is well."""
    switch = device(nos)
    loop(switch.start())
    result = play(variables(switch), "--check")
    assert result.code == 0, result.output
    assert switch.running == before(nos)
    assert re.search(rf"leaf1 +{PORTS[nos][1]} +interface {PORTS[nos][1]} ", result.output), result.output
    assert result.changed == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"refuse": "^mtu 9"}, "nvalid"),
        ({"hang": "^mtu 9"}, "timeout"),
        ({"mutate": (r"^mtu 9\d+", "mtu 2000")}, "read-back differs: lacks"),
    ],
    ids=["refused", "time-out", "read-back"],
)
@pytest.mark.parametrize("nos", PORTS)
def test_after_a_fault_the_old_configuration_is_back(nos, fault, words, loop, play):
    """Catches a mixture left behind by a refused command, a time-out or a value stored otherwise."""
    switch = device(nos, **fault)
    loop(switch.start())
    result = play(variables(switch))
    assert result.code != 0, result.output
    assert words in result.output
    assert "The old configuration is back." in result.output
    assert switch.running == before(nos), text(switch.running)
    assert switch.startup == before(nos)
    assert nos == "os9" or "reload" not in switch.log


@pytest.mark.parametrize("nos", ["eos", "nxos"])
def test_a_switch_that_takes_its_time_for_each_line_is_not_cut_off(nos, loop, play):
    """Catches the limit of one request held against hundreds of lines, which grow with the switch's ports."""
    switch = device(nos, slow_s=0.2)
    loop(switch.start())
    result = play(variables(switch))
    assert result.code == 0, result.output
    typed = [line for line in switch.log if line != "exit"]
    assert len(typed) * 0.2 > variables(switch)["ansible_command_timeout"]


@pytest.mark.parametrize("cut", ["^wred ROCE", "^commit"], ids=["while typing", "after the commit"])
def test_os10_ends_with_old_or_new_when_the_connection_is_lost(cut, loop, play):
    """Catches a mixture on a system without a commit timer, and a reload for what a transaction can undo."""
    switch = device("os10", cut_after=cut, cut_s=60)
    loop(switch.start())
    result = play(variables(switch))
    assert result.code != 0, result.output
    whole = (
        "trust dscp-map ROCE" in switch.running and "ets mode on" in switch.running["interface ethernet1/1/2"]
    )
    assert whole or switch.running == before("os10"), text(switch.running)
    assert whole == (cut == "^commit")
    assert switch.startup == before("os10")
    assert "reload" not in switch.log


@pytest.mark.parametrize("nos", PORTS)
def test_unsaved_work_of_somebody_else_keeps_the_role_from_changing(nos, loop, play):
    """Catches a stranger's unsaved lines saved, or lost in a reload."""
    switch = device(nos)
    switch.running["ip route 0.0.0.0/0 10.0.0.254"] = {}
    loop(switch.start())
    result = play(variables(switch))
    assert result.code != 0, result.output
    assert "not saved (ip route 0.0.0.0/0 10.0.0.254)" in result.output
    assert switch.startup == before(nos)
    assert not [line for line in switch.log if line.startswith(("conf", "copy", "write", "checkpoint"))]


def test_a_system_qos_policy_of_somebody_else_is_refused_unless_taken_over(loop, play):
    """Catches NX-OS's network-qos policy of the whole switch, somebody else's, replaced unasked."""
    switch = device("nxos")
    switch.running["system qos"] = {"service-policy type network-qos STORAGE": {}}
    switch.startup = copy(switch.running)
    kept = copy(switch.running)
    loop(switch.start())
    result = play(variables(switch))
    assert result.code != 0, result.output
    assert "service-policy type network-qos STORAGE" in result.output
    assert "take_over=leaf1" in result.output
    assert switch.running == kept
    taken = play(variables(switch), "-e", "take_over=leaf1")
    assert taken.code == 0, taken.output
    assert "service-policy type network-qos STORAGE" not in switch.running["system qos"]


def test_os9_is_not_changed_where_a_mixture_is_not_accepted(loop, play):
    """Catches lines typed one by one into a switch that cannot go back by itself."""
    switch = device("os9")
    loop(switch.start())
    result = play({**variables(switch), "roce_switch_mixture_accepted": False})
    assert result.code != 0
    assert "neither a transaction nor a commit timer" in result.output
    assert switch.running == before("os9")


@pytest.mark.parametrize("step", ["while typing", "after the change"])
@pytest.mark.parametrize("nos", ["eos", "nxos"])
def test_a_connection_lost_is_undone_by_the_switch_itself(nos, step, loop, play):
    """Catches half a change, or one that cuts management off, that stays."""
    cuts = {
        "eos": {"while typing": "^service-profile", "after the change": "^commit timer"},
        "nxos": {
            "while typing": "^policy-map type network-qos",
            "after the change": "^service-policy type qos",
        },
    }
    switch = device(nos, cut_after=cuts[nos][step], cut_s=60)
    switch.seconds = 25.0
    loop(switch.start())
    result = play(variables(switch))
    assert result.code != 0, result.output
    loop(wait_for(lambda: switch.running == before(nos)))
    # What was typed into EOS's session and not committed never ran.
    assert ("rolled back" in switch.log) == ((nos, step) != ("eos", "while typing"))
    assert switch.startup == before(nos)


@pytest.mark.parametrize("nos", PORTS)
def test_a_drift_of_one_setting_is_typed_alone_and_without_a_reload(nos, loop, play):
    """Catches a switch reloaded, or its whole class typed anew, for the MTU of one port."""
    switch = device(nos)
    loop(switch.start())
    first = play(variables(switch))
    assert first.code == 0, first.output
    whole, port = copy(switch.running), f"interface {PORTS[nos][1]}"
    (mtu,) = (line for line in switch.running[port] if line.startswith("mtu"))
    del switch.running[port][mtu]
    switch.running[port]["mtu 2000"] = {}
    switch.startup = copy(switch.running)
    seen = len(switch.log)
    if nos == "eos":  # it may be somebody's will
        refused = play(variables(switch))
        assert refused.code != 0 and f"{port} mtu (mtu 2000)" in refused.output, refused.output
    mended = play(variables(switch), "-e", "take_over=leaf1")
    assert mended.code == 0, mended.output
    assert switch.running == switch.startup == whole
    typed = switch.log[seen:]
    assert "reload" not in typed
    assert [line for line in typed if line.startswith(("mtu", "interface"))] == [port, mtu]
    assert not [line for line in typed if "ROCE" in line]


@pytest.mark.parametrize("nos", ["os9"])
def test_a_reload_that_never_ends_is_no_success(nos, loop, play):
    """Catches a switch that went down and is taken for configured."""
    switch = device(nos, never_back=True)
    loop(switch.start())
    result = play(variables(switch))
    assert result.code != 0, result.output


@pytest.mark.parametrize("nos", ["eos", "nxos"])
def test_a_confirmation_that_comes_too_late_is_no_success(nos, loop, play):
    """Catches a trial that the switch undid before it was confirmed, taken for configured."""
    switch = device(nos, too_late=True)
    loop(switch.start())
    result = play(variables(switch))
    assert result.code != 0, result.output
    assert switch.running == before(nos)


def test_a_switch_that_must_not_reload_is_not_touched(loop, play):
    """Catches a change that could not be undone, begun in a window in which the switch carries traffic."""
    switch = device("os9")
    loop(switch.start())
    result = play({**variables(switch), "roce_switch_reload_allowed": False})
    assert result.code != 0
    assert "Drain the switch" in result.output
    assert switch.running == before("os9")


async def wait_for(condition) -> None:
    """Wait up to 40 s of real time."""
    import asyncio

    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it did not happen")
