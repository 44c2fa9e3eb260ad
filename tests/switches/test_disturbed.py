"""What disturbs a change, by system and step: no line of others goes, and what is said is so.

docs/generator/switch_cases.yml says which cells other tests hold, and which cannot be had.
"""

from dataclasses import dataclass

import pytest

from tests.switches import test_rest
from tests.switches.cli_device import copy
from tests.switches.rest_device import RestDevice
from tests.switches.test_cli import PORTS, before, device, variables
from tests.switches.test_shell import RUNNING, made  # noqa: F401  (made: a fixture)
from tests.switches.test_trials import visible

TRIAL = {"eos": "^commit timer", "nxos": "^service-policy type qos", "os9": "^end$", "os10": "^commit$"}
SAVE = {
    "eos": "^copy running",
    "nxos": "^copy running-config startup",
    "os9": "^write mem",
    "os10": "^write mem",
}
KEEP = {"eos": "^configure session .* commit$", "nxos": "^no scheduler"}
WRONG = ("^mtu 9\\d+", "mtu 2000")
IS_BACK = "The old configuration is back."


@dataclass(frozen=True)
class Cell:
    """One disturbance at one step."""

    nos: str
    step: str  # before, in trial, keeping, saving, in rescue
    what: str
    faults: tuple = ()
    kept: bool = False  # whether the change may end well

    def __str__(self) -> str:
        return f"{self.nos}-{self.step}-{self.what}".replace(" ", "_")


def cells():
    """Every cell of the command lines that no other test holds."""
    for nos in PORTS:
        yield Cell(nos, "before", "wrong password", (("denied", True),))
        yield Cell(nos, "before", "pager", (("more", "^show running"),))
        yield Cell(
            nos,
            "in trial",
            "log lines",
            (("chatter", "^show (running|startup)"), ("after", TRIAL[nos])),
            kept=True,
        )
        yield Cell(nos, "saving", "odd words", (("odd", SAVE[nos]),))
        rescue = (("mutate", WRONG), ("odd", "^show running"), ("after", TRIAL[nos]))
        yield Cell(nos, "in rescue", "odd words", rescue)
        if nos != "os9":
            yield Cell(nos, "in trial", "restart", (("restart_after", TRIAL[nos]),))
        if nos in KEEP:
            yield Cell(nos, "keeping", "odd words", (("odd", KEEP[nos]),))


@pytest.mark.parametrize("cell", list(cells()), ids=str)
def test_a_command_line_is_disturbed(cell, loop, play):
    """Catches others' lines gone, a save or confirmation that never was, a way back that nobody read."""
    switch = device(cell.nos, **dict(cell.faults))
    for port in PORTS[cell.nos]:  # nothing of a port's is replaced: its old state is the absence of ours
        switch.running[f"interface {port}"].pop("mtu 1500")
    switch.startup = copy(switch.running)
    old, switch.seconds = copy(switch.running), 3600.0  # no timer ends while a busy machine takes its time
    loop(switch.start())
    result = play({**variables(switch), "roce_switch_poll_s": 20})
    assert (result.code == 0) == cell.kept, result.output
    assert switch.running["interface Management1"] == old["interface Management1"]
    assert all(line in switch.running and line in switch.startup for line in old)
    if cell.kept:
        assert switch.startup == switch.running != old and switch.undo is None
    if IS_BACK in result.output:
        assert switch.running == old, result.output
    if cell.step == "before":
        assert switch.running == switch.startup == old


SHELL = {
    ("sonic", "saving"): "^config (save|reload)",
    ("sonic", "keeping"): "^systemctl stop",
    ("cumulus", "saving"): "^nv config save",
    ("cumulus", "keeping"): "confirm-yes",
}


@pytest.mark.parametrize(("nos", "step"), SHELL)
def test_a_command_of_a_shell_only_says_that_it_did_it(nos, step, made, play):  # noqa: F811
    """Catches a success over what a restart, or a timer that still runs, takes away."""
    switch, given, extra = made(nos, idle=SHELL[nos, step])
    result = play({**given, "roce_switch_reboot_timeout_s": 20}, *extra)
    assert result.code != 0, result.output
    if IS_BACK in result.output:
        assert switch.running() == switch.startup() == RUNNING[nos]


@pytest.mark.parametrize("posts", [0, 1], ids=["before", "in trial"])
def test_a_login_that_is_no_longer_taken_on_enterprise_sonic(posts, tmp_path, play):
    """Catches a rescue that ends in an error of its own and does not tell what failed first."""
    switch = RestDevice(tmp_path, test_rest.PORTS, deny_after=posts)
    result = play(test_rest.variables(switch))
    assert result.code != 0 and IS_BACK not in result.output, result.output
    assert len(switch.posts) == posts
    assert not posts or "NOT RESTORED: look at the switch." in result.output, result.output


@pytest.mark.parametrize("nos", PORTS)
def test_a_rollback_of_a_command_line_brings_back_what_was_there_first(nos, loop, play, tmp_path):
    """Catches an original overwritten by a later run, others' later work taken, and lines of ours left."""
    switch = device(nos)
    loop(switch.start())
    given = variables(switch)
    first = play(given)
    assert first.code == 0, first.output
    kept = (tmp_path / "originals/leaf1.orig").read_text()
    assert (tmp_path / "originals/leaf1.orig").stat().st_mode & 0o777 == 0o600
    for tree in (switch.running, switch.startup):  # another admin's later work, saved; and a drift
        tree["vlan 100"] = {}
        if nos == "eos":
            port = tree[f"interface {PORTS[nos][1]}"]
            del port["mtu 9000"]
            port["mtu 2000"] = {}
    if nos == "eos":
        again = play(given)
        assert again.code == 0 and again.changed, again.output
        assert (tmp_path / "originals/leaf1.orig").read_text() == kept
    back = play(given, start="rollback")
    assert back.code == 0 and back.changed, back.output
    wanted = {**before(nos), "vlan 100": {}}
    assert visible(nos, switch.running) == visible(nos, wanted), back.output
    assert switch.startup == switch.running
    assert not (tmp_path / "originals/leaf1.orig").exists()


@pytest.mark.parametrize("nos", RUNNING)
def test_a_rollback_of_a_shell_brings_back_what_was_there_first(nos, made, play, tmp_path):  # noqa: F811
    """Catches the same in CONFIG_DB and in NVUE; and a second rollback that changes something."""
    switch, given, extra = made(nos)
    first = play(given, *extra)
    assert first.code == 0, first.output
    back = play(given, *extra, start="rollback")
    assert back.code == 0 and back.changed, back.output
    assert switch.running() == switch.startup() == RUNNING[nos]
    again = play(given, *extra, start="rollback")
    assert (again.code, again.changed) == (0, 0) and "nothing was kept" in again.output, again.output


def test_a_rollback_of_enterprise_sonic_brings_back_what_was_there_first(tmp_path, play):
    """Catches the same over RESTCONF."""
    switch = RestDevice(tmp_path, test_rest.PORTS)
    old = switch.state()
    first = play(test_rest.variables(switch))
    assert first.code == 0, first.output
    back = play(test_rest.variables(switch), start="rollback")
    assert back.code == 0 and back.changed, back.output
    assert switch.state() == old and switch.boots == 2
    assert not (tmp_path / "originals/leaf1.orig").exists()
