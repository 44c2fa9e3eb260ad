"""What disturbs a change, by system and step: no line of others goes, and what is said is so.

docs/generator/switch_cases.yml says which cells other tests hold, and which cannot be had.
"""

import json
from dataclasses import dataclass

import asyncssh
import pytest

from tests.switches import test_rest
from tests.switches.cli_device import copy
from tests.switches.conftest import FABRIC
from tests.switches.rest_device import RestDevice
from tests.switches.test_cli import PORTS, before, device, variables
from tests.switches.test_shell import RUNNING, made  # noqa: F401  (made: a fixture)
from tests.switches.test_trials import visible
from tests.unit.nos.test_counter_parsers import OS10, OS10_PORT

TRIAL = {"eos": "^commit timer", "nxos": "^service-policy type qos", "os9": "^end$", "os10": "^commit$"}
SAVE = {
    "eos": "^copy running",
    "nxos": "^copy running-config startup",
    "os9": "^write mem",
    "os10": "^write mem",
}
KEEP = {"eos": "^configure session .* commit$", "nxos": "^no scheduler"}
READ = {"eos": "^show running-config all", "nxos": "^show running-config all"}  # the last of a reading
# What was checked, and is about to be kept or saved; and the first line of the way back.
CHECKED = {nos: f"{TRIAL[nos]} >> {READ.get(nos, '^show startup')}" for nos in PORTS}
BACK = {"eos": " abort$", "nxos": "^rollback", "os9": "^copy flash", "os10": "^start transaction"}
WRONG = ("^mtu 9\\d+", "mtu 2000")
IS_BACK = "The old configuration is back."


@dataclass(frozen=True)
class Cell:
    """One disturbance at one step."""

    nos: str
    step: str  # before, in trial, keeping, saving, in rescue, or every step of a change that ends well
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
        wrong, trial, after = ("mutate", WRONG), ("after", TRIAL[nos]), ("after", CHECKED[nos])
        yield Cell(nos, "every step", "log lines", (("chatter", "^show (running|startup)"),), kept=True)
        yield Cell(nos, "before", "odd words", (("odd", "^show running"),))
        yield Cell(nos, "saving", "odd words", (("odd", SAVE[nos]),))
        yield Cell(nos, "in rescue", "odd words", (wrong, ("odd", "^show running"), trial))
        yield Cell(nos, "in trial", "restart", (("restart_after", TRIAL[nos]),))
        slow = (("^(show|checkpoint)", 2.0), (SAVE[nos], 12.0))
        yield Cell(nos, "every step", "slow", (("lags", slow),), kept=True)
        late = (("lags", ((".", 1.0),)), ("chatter", "^show (running|startup)"))
        yield Cell(nos, "in rescue", "slow, with log lines", (wrong, *late, after))
        yield Cell(nos, "in trial", "pager", (("more", "^show running"), trial))
        yield Cell(nos, "saving", "pager", (("more", "^show running"), after))
        yield Cell(nos, "in rescue", "pager", (wrong, ("more", "^show running"), after))
        yield Cell(nos, "saving", "restart", (("restart_after", KEEP.get(nos, "^show startup")), after))
        yield Cell(nos, "in rescue", "restart", (wrong, ("restart_after", BACK[nos]), after))
        yield Cell(nos, "saving", "cut", (("cut_after", KEEP.get(nos, "^show startup")), after))
        if nos == "os9":
            yield Cell(nos, "in rescue", "cut", (wrong, ("cut_after", BACK[nos]), after))
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
    trial_s = 60 if cell.nos == "nxos" else 15
    times = {"roce_switch_poll_s": 20 if trial_s == 60 else 5, "roce_switch_confirm_timeout_s": trial_s}
    result = play({**variables(switch), **times})
    assert (result.code == 0) == cell.kept, result.output
    assert switch.running["interface Management1"] == old["interface Management1"]
    assert all(line in switch.running and line in switch.startup for line in old)
    if cell.kept:
        assert switch.startup == switch.running != old and switch.undo is None
    if IS_BACK in result.output:
        assert switch.running == old, result.output
    if cell.step == "before":
        assert switch.running == switch.startup == old


UNLIKE = {"sonic": ['"ROCE"', '"X"'], "cumulus": ['"lossless"', '"lossy"']}  # so not accepted
HIS = {"sonic": {"VLAN": {"Vlan7": {"vlanid": "7"}}}, "cumulus": {"vrf": {"storage": {"table": 7}}}}
SHELL_FAULTS = {
    ("sonic", "in trial", "another admin"): {"admin_after": "^systemd-run", "admin": HIS["sonic"]},
    ("cumulus", "saving", "another admin"): {"admin_after": "confirm-yes", "admin": HIS["cumulus"]},
    ("sonic", "saving", "another admin"): {"admin_after": "^systemctl stop", "admin": HIS["sonic"]},
    ("sonic", "saving", "cut"): {"cut_once_after": "^systemctl stop"},
    ("cumulus", "saving", "cut"): {"cut_once_after": "confirm-yes"},
    ("sonic", "saving", "restart"): {"restart_after": "^systemctl stop"},
    ("cumulus", "in trial", "restart"): {"restart_after": "^nv config apply --confirm "},
    ("cumulus", "saving", "restart"): {"restart_after": "confirm-yes"},
    ("sonic", "in rescue", "restart"): {"mutate": UNLIKE["sonic"], "restart_after": "^systemctl stop"},
    ("cumulus", "in rescue", "restart"): {"mutate": UNLIKE["cumulus"], "restart_after": "confirm-no"},
    **{(nos, "in rescue", "slow"): {"mutate": UNLIKE[nos], "lag_s": 1} for nos in RUNNING},
    **{(nos, "every step", "slow"): {"lag_s": 1} for nos in RUNNING},
}


@pytest.mark.parametrize(("nos", "step", "what"), SHELL_FAULTS)
def test_a_shell_is_disturbed(nos, step, what, made, play):  # noqa: F811
    """Catches the same where the switch has a shell: what runs and what starts are the old or the new."""
    faults = SHELL_FAULTS[nos, step, what]
    switch, given, extra = made(nos, minute_s=3600, **faults)
    result = play({**given, "roce_switch_reboot_timeout_s": 30}, *extra, "--timeout", "5")
    assert (result.code == 0) == (step == "every step" or what == "cut"), result.output
    running = switch.running()
    for table, rows in faults.get("admin", {}).items():
        assert running.pop(table) == rows and f"and left: {table}" in result.output, result.output
    if result.code:
        assert running == switch.startup() == RUNNING[nos], result.output
    else:
        assert running == switch.startup() != RUNNING[nos]
    assert not list(switch.home.glob("*.pid")), "a timer is still armed"


@pytest.mark.parametrize("nos", RUNNING)
def test_a_key_that_a_shell_does_not_take_changes_nothing(nos, made, play):  # noqa: F811
    """Catches anything but the end of the run after a login that is refused."""
    switch, given, extra = made(nos)
    switch.key = asyncssh.generate_private_key("ssh-ed25519")
    result = play(given, *extra)
    assert result.code != 0 and "unreachable=1" in result.output, result.output
    assert switch.log() == "" and switch.running() == RUNNING[nos]


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


@pytest.mark.parametrize(
    "faults", [{}, {"refuse": "openconfig-qos:qos"}, {"mutate_dscp": 26, "restart_at": 3}], ids=str
)
def test_enterprise_sonic_is_slow_or_restarts(faults, tmp_path, play):
    """Catches a request that a slow switch answers late taken for lost, and a restart for the way back."""
    restarts = "restart_at" in faults
    switch = RestDevice(tmp_path, test_rest.PORTS, **faults, lag_s=0 if restarts else 1)
    before = switch.state()
    result = play(test_rest.variables(switch))
    assert (result.code == 0) == (faults == {}), result.output
    assert (switch.state() == before) == (IS_BACK in result.output), result.output
    assert restarts or (IS_BACK in result.output) == bool(faults)


@pytest.mark.parametrize("operation", ["ENABLE", "DISABLE"], ids=["in trial", "in rescue"])
def test_another_admins_mtu_stays_on_enterprise_sonic(operation, tmp_path, play, monkeypatch):
    """Catches his value set back with ours, also where he set it while the switch went back."""
    switch = RestDevice(tmp_path, test_rest.PORTS, refuse="openconfig-qos:qos")
    put = switch.put

    def his(path, body):
        if body.get("openconfig-qos-private:input", {}).get("operation") == operation:
            switch.mtu["Eth1/2"] = 4000
        return put(path, body)

    monkeypatch.setattr(switch, "put", his)
    result = play(test_rest.variables(switch))
    assert result.code != 0 and "and left: mtu Eth1/2" in result.output, result.output
    assert switch.mtu == {"Eth1/1": 9100, "Eth1/2": 4000} and switch.roce is None
    assert "The old configuration is back." in result.output


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
        port = tree[f"interface {PORTS[nos][1]}"]
        del port[next(line for line in port if line.startswith("mtu"))]
        port["mtu 2000"] = {}
    again = play(given, "-e", "take_over=leaf1")
    assert again.code == 0 and again.changed, again.output
    assert (
        json.loads((tmp_path / "originals/leaf1.orig").read_text())["original"]
        == json.loads(kept)["original"]
    )
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
    drift = switch.running()
    port = drift["PORT"]["Ethernet0"] if nos == "sonic" else drift["interface"]["swp2"]["link"]
    port["mtu"] = "1500"
    for path in ("running.json", "etc/config_db.json"):
        (switch.home / path).write_text(json.dumps(drift))
    second = play(given, *extra, "-e", "take_over=leaf1")
    assert second.code == 0 and second.changed, second.output
    back = play(given, *extra, start="rollback")
    assert back.code == 0 and back.changed, back.output
    assert switch.running() == switch.startup() == RUNNING[nos]
    again = play(given, *extra, start="rollback")
    assert (again.code, again.changed) == (0, 0) and "nothing was kept" in again.output, again.output


def test_a_rollback_of_enterprise_sonic_brings_back_what_was_there_first(tmp_path, play):
    """Catches the same over RESTCONF, and what an earlier intent or cabling made taken for another's."""
    switch = RestDevice(tmp_path, test_rest.PORTS)
    old = switch.state()
    first = play(test_rest.variables(switch))
    assert first.code == 0, first.output
    switch.mtu["Eth1/1"] = 1500
    second = play(test_rest.variables(switch), "-e", "take_over=leaf1")
    assert second.code == 0 and second.changed, second.output
    # A port is cabled no more, and the intent has another MTU, which no run brought.
    given = test_rest.variables(switch)
    given["leaf_ports"] = given["leaf_ports"][:1]
    other = {**FABRIC, "mtu_bytes": {**FABRIC["mtu_bytes"], "link": 4200, "host": 4200}}
    back = play(given, "-e", json.dumps({"fabric": other}), start="rollback")
    assert back.code == 0 and back.changed, back.output
    assert switch.state() == old and switch.boots == 2
    assert not (tmp_path / "originals/leaf1.orig").exists()


DELL = "10.0.0.1      65000   100      99       1d02h      12\n"
FRR = json.dumps({"default": {"ipv4Unicast": {"peers": {"10.0.0.1": {"state": "Established"}}}}})
LINK = {"leaf": "leaf1", "leaf_port": "ethernet1/1/4", "spine": "spine1", "spine_port": "e1"}
LINKED = {**FABRIC, "switches": {"leaves": ["leaf1"], "spines": ["spine1"], "links": [LINK]}}
LOST = ["nothing", "BGP session with 10.0.0.1", "uplink ethernet1/1/4 free of new errors"]


@pytest.mark.parametrize("lost", LOST)
def test_what_an_uplink_loses_on_trial_undoes_it(lost, loop, play):
    """Catches a change kept, and the next switch begun, over a session that is gone or a link that errs."""
    switch = device("os10")
    switch.running["interface ethernet1/1/4"] = {"description spine": {}}
    switch.startup, old = copy(switch.running), copy(switch.running)

    def told(text, good, bad, what):
        lose = lost.startswith(what)
        return lambda: text.replace(good, bad(switch.log)) if lose and "commit" in switch.log else text

    switch.answers = {
        "show ip bgp summary": told(DELL, " 12\n", lambda _: " Idle\n", "BGP"),
        "show interface ethernet 1/1/4": told(OS10_PORT, " 3 CRC", lambda log: f" {len(log)} CRC", "uplink"),
        "show queuing statistics interface ethernet 1/1/4": OS10,
    }
    loop(switch.start())
    given = {**variables(switch), "roce_switch_confirm_timeout_s": 6}
    result = play(given, "-e", json.dumps({"fabric": LINKED}))
    assert (result.code == 0) == (lost == "nothing"), result.output
    assert lost == "nothing" or f"on trial it lost: {lost}" in result.output, result.output
    assert lost == "nothing" or switch.running == switch.startup == old
    assert "NOT CHECKED" not in result.output


@pytest.mark.parametrize("keeps", [True, False])
def test_a_reboot_that_takes_a_session_is_undone(keeps, tmp_path, play, made, monkeypatch):  # noqa: F811
    """Catches `roce enable` kept although an uplink's session does not come back."""
    shell, given, _ = made("sonic")
    switch = RestDevice(tmp_path, test_rest.PORTS)
    old = switch.state()
    told = shell.home / "vtysh.told"
    told.write_text(FRR)
    reboot = switch.reboot

    def down():
        told.write_text(FRR if keeps else FRR.replace("Established", "Active"))
        reboot()

    monkeypatch.setattr(switch, "reboot", down)
    given |= {**test_rest.variables(switch), "ansible_httpapi_pass": "admin"}
    del given["ansible_password"]  # ssh has a key
    result = play({**given, "roce_switch_confirm_timeout_s": 8})
    assert (result.code == 0) == keeps, result.output
    assert keeps or "on trial it lost: BGP session with 10.0.0.1" in result.output, result.output
    assert keeps or (switch.state() == old and IS_BACK in result.output)
