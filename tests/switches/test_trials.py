"""Trials that an ended run or another admin left, and another admin's work during ours."""

import json
import re

import pytest

from tests.switches.cli_device import Shell, copy, seen
from tests.switches.conftest import FABRIC
from tests.switches.printed import HIDDEN
from tests.switches.test_cli import before, device, variables
from tests.switches.test_shell import RUNNING, SONIC, made  # noqa: F401  (made: a fixture)

# The line after which the run is ended: on trial, and while the lines are still typed.
ENDED = {
    ("eos", "on trial"): "^commit timer",
    ("nxos", "on trial"): "^show running-config$",
    ("nxos", "while typing"): "^policy-map type network-qos",
    ("os10", "on trial"): "^commit$",
    ("eos", "while typing"): "^service-profile",
}


@pytest.mark.parametrize(("nos", "step"), ENDED)
def test_the_trial_of_an_ended_run_is_kept_or_undone_by_the_next(nos, step, loop, play, ended):
    """Catches "as the intent says, changed 0" over a configuration that a timer takes away minutes later."""
    switch = device(nos)
    switch.seconds = 3600
    loop(switch.start())
    first = "^service-policy type qos" if (nos, step) == ("nxos", "on trial") else ENDED[nos, step]
    ended(
        lambda: any(
            re.search(ENDED[nos, step], line)
            for at, line in enumerate(switch.log)
            if any(re.search(first, earlier) for earlier in switch.log[: at + 1])
        )
    )
    play(variables(switch))
    again = play(variables(switch))
    assert switch.undo is None, "a timer still runs"
    if again.code:  # half of it was typed: what types for Ansible may go on for a moment
        assert step == "while typing" and "The old configuration is back." in again.output, again.output
        assert switch.running == switch.startup == before(nos)
        again = play(variables(switch))
    assert again.code == 0 and again.changed > 0, again.output
    assert switch.startup == switch.running != before(nos)
    assert not [name for name in switch.files if name.startswith("shakedown-")]
    assert not [line for line in switch.running if "scheduler" in line]


@pytest.mark.parametrize("nos", ["eos", "nxos"])
def test_a_trial_of_somebody_else_is_refused_by_name(nos, loop, play):
    """Catches lines typed, saved or confirmed into another admin's trial."""
    switch = device(nos)
    switch.user = "eve"
    job = {"scheduler job name night": {"rollback running-config checkpoint mine": {}}}
    schedule = {"scheduler schedule name night": {"job name night": {}, "time start +00:10": {}}}
    if nos == "nxos":
        switch.running |= {"feature scheduler": {}, **job, **schedule}
        switch.startup = copy(switch.running)

    async def leave():
        switch.undo = ("night", before(nos))

    loop(switch.start())
    loop(leave())
    kept = copy(switch.running)
    result = play(variables(switch))
    assert result.code != 0 and "night of eve" in result.output, result.output
    assert "Let them confirm or abort it" in result.output
    assert switch.running == kept and switch.undo
    assert not [line for line in switch.log if line.startswith(("conf", "copy", "checkpoint", "rollback"))]


def others(running):
    """Add what another admin makes meanwhile."""
    running["vlan 100"] = {}
    running["snmp-server community Zq7Secret ro"] = {}
    running["interface Management1"] = {"ip address 10.0.0.2/24": {}}


def visible(nos, tree):
    """What a switch shows of its configuration: without its defaults, which `no` brings back."""
    hidden = HIDDEN.get(nos, "$^")
    return {line: visible(nos, below) for line, below in tree.items() if not re.fullmatch(hidden, line)}


# While the change is on trial, and between the check and the save.
STEPS = {
    "eos": ["^commit timer", "^configure session .* commit$", "^service-profile"],
    "nxos": ["^checkpoint ", "^no checkpoint"],
    "os10": ["^commit$", "^commit$ >> ^show startup", "^wred ROCE"],
    "os9": ["^end$", "^end$ >> ^show startup"],
}
CASES = [(nos, step, fault) for nos, steps in STEPS.items() for step in steps for fault in (False, True)]


@pytest.fixture
def meanwhile(monkeypatch):
    """Let another admin type as soon as the lines of a step were; says what did it."""
    took, done = Shell.take, []

    def at(step):
        async def take(self, line):
            await took(self, line)
            if line and seen(self.device.log, step) and not done:
                done.append(line)
                others(self.device.running)

        monkeypatch.setattr(Shell, "take", take)
        return done

    return at


@pytest.mark.parametrize("nos", STEPS)
def test_what_the_site_wants_left_runs_on_unsaved(nos, meanwhile, loop, play):
    """Catches a change undone against the word of the site, or saved, and a timer that takes it later."""
    switch = device(nos)
    done = meanwhile(STEPS[nos][0])
    loop(switch.start())
    result = play({**variables(switch), "roce_switch_unsaved": "leave"})
    assert done and result.code != 0 and "Left as it runs, unsaved" in result.output, result.output
    assert "vlan 100" in switch.running and any("ROCE" in line for line in switch.running), result.output
    assert switch.startup == before(nos) and switch.undo is None


@pytest.mark.parametrize(
    ("nos", "step", "fault"), [c for c in CASES if not (c[2] and c[1] != STEPS[c[0]][0])]
)
def test_what_another_admin_does_meanwhile_is_left_named_and_not_saved(
    nos, step, fault, loop, play, meanwhile
):
    """Catches his VLAN and address undone with ours, or saved unchecked; and a community in the output."""
    switch = device(nos, **({"mutate": (r"^mtu 9\d+", "mtu 2000")} if fault else {}))
    done = meanwhile(step)
    loop(switch.start())
    result = play(variables(switch))
    assert done and result.code != 0, result.output
    wanted = before(nos)
    others(wanted)
    assert visible(nos, switch.running) == visible(nos, wanted), result.output
    if (nos, step) == ("os9", STEPS["os9"][1]):  # it has one check only, and saves at once: it is said
        assert "saved although they came between" in result.output, result.output
        assert "The start-up configuration holds lines of the trial" in result.output, result.output
    else:
        assert switch.startup == before(nos)
    assert switch.undo is None
    assert "Changed by somebody else meanwhile, and left: " in result.output and "vlan 100" in result.output
    assert "Zq7Secret" not in result.output


WORD = {"sonic": "config reload -y", "cumulus": "nv config apply --confirm "}


@pytest.mark.parametrize("nos", RUNNING)
def test_the_trial_of_an_ended_run_is_kept_on_a_shell(nos, made, play, ended):  # noqa: F811
    """Catches the same where the timer is systemd's, or NVUE's."""
    switch, given, extra = made(nos, minute_s=3600)
    ended(lambda: WORD[nos] in switch.log() and switch.running() != RUNNING[nos])
    play(given, *extra)
    again = play(given, *extra)
    assert again.code == 0 and again.changed > 0, again.output
    assert not list(switch.home.glob("*.pid")), "a timer is still armed"
    assert switch.startup() == switch.running() != RUNNING[nos]
    assert [path.name for path in (switch.home / "etc").iterdir()] == ["config_db.json"]


@pytest.mark.parametrize("nos", RUNNING)
def test_another_admins_work_stays_on_a_shell(nos, made, play, loop, ended):  # noqa: F811
    """Catches a strange timer not refused, and after an ended run another admin's change undone with ours."""
    switch, given, extra = made(nos, minute_s=3600)
    ended(lambda: WORD[nos] in switch.log() and switch.running() != RUNNING[nos])
    play(given, *extra)
    running = switch.running()
    name, value = (
        ("VLAN", {"Vlan7": {"vlanid": "7"}}) if nos == "sonic" else ("vrf", {"storage": {"table": 7}})
    )
    running[name] = value
    (switch.home / "running.json").write_text(json.dumps(running))
    again = play(given, *extra, "--diff", "-v")
    assert again.code != 0 and "and left: " + name in again.output, again.output
    assert "The old configuration is back." in again.output
    assert switch.running() == {**RUNNING[nos], name: value}
    assert switch.startup() == RUNNING[nos]
    assert not list(switch.home.glob("*.pid")), "a timer is still armed"


@pytest.mark.parametrize(
    ("nos", "who"), [("sonic", "timer run-r1 (config reload)"), ("cumulus", "revision 7 of eve")]
)
def test_a_trial_of_somebody_else_is_refused_on_a_shell(nos, who, made, play):  # noqa: F811
    """Catches another admin's timer that takes our change back, or that ours confirms for him."""
    switch, given, extra = made(nos)
    timer = {"sonic": "run-r1", "cumulus": "confirm"}[nos]
    (switch.home / f"{timer}.pid").write_text("0")
    (switch.home / f"{timer}.what").write_text("/bin/sh -c config reload -y")
    waits = {"state": "confirm", "apply-meta": {"user": "eve", "message": "vlan"}}
    (switch.home / "trial.json").write_text(json.dumps(waits))
    result = play(given, *extra)
    assert result.code != 0 and who in result.output, result.output
    assert switch.running() == switch.startup() == RUNNING[nos]


def test_no_secret_is_told_and_the_mode_is_kept_on_sonic(made, play):  # noqa: F811
    """Catches CONFIG_DB's keys in --diff or -v, and files of them that everybody may read."""
    switch, given, extra = made("sonic")
    running = {
        **SONIC,
        "TACPLUS": {"global": {"passkey": "Zq7Key"}},
        "SNMP_COMMUNITY": {"Zq7Community": {"TYPE": "RO"}},
    }
    for path in ("running.json", "etc/config_db.json"):
        (switch.home / path).write_text(json.dumps(running))
    (switch.home / "etc/config_db.json").chmod(0o640)
    result = play(given, *extra, "--diff", "-vv")
    assert result.code == 0, result.output
    assert "Zq7" not in result.output
    assert (switch.home / "etc/config_db.json").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("banner", ["", "% Error: no trespassing"])
@pytest.mark.parametrize("nos", ["eos", "nxos", "os9", "os10"])
def test_no_secret_of_a_command_line_is_told(nos, banner, loop, play):
    """Catches a configuration that -vvv prints, or that a line in it makes the reason of a failure."""
    switch = device(nos)
    for line in ("username a secret 5 Zq7x", "radius-server key 7 Zq7y", "router bgp 1", banner or "vlan 9"):
        switch.running[line] = {"neighbor 10.0.0.1 password 7 Zq7z": {}} if line == "router bgp 1" else {}
    switch.startup = copy(switch.running)
    loop(switch.start())
    result = play(variables(switch), "--diff", "-vvv")
    assert "Zq7" not in result.output
    assert result.code == 0 and switch.startup == switch.running != before(nos), result.output


@pytest.mark.parametrize("nos", ["eos", "nxos"])
def test_a_trial_for_another_intent_is_undone_and_no_lines_of_it_stay(nos, loop, play, ended):
    """Catches the role's own lines of an earlier intent called somebody else's, and kept, unsaved."""
    switch = device(nos)
    switch.seconds = 3600
    loop(switch.start())
    first = "^service-policy type qos" if nos == "nxos" else ENDED[nos, "on trial"]
    ended(lambda: seen(switch.log, f"{first} >> {ENDED[nos, 'on trial']}" if nos == "nxos" else first))
    play(variables(switch))
    roce = {**FABRIC["roce"], "ecn": {**FABRIC["roce"]["ecn"], "min_bytes": 524288}}
    now = ("-e", json.dumps({"fabric": {**FABRIC, "roce": {**roce, "pfc": {"enabled": True}}}}))
    again = play(variables(switch), *now)
    assert again.code != 0 and "The old configuration is back." in again.output, again.output
    assert "somebody else" not in again.output.partition("a trial that an earlier run left")[2]
    assert switch.running == switch.startup == before(nos) and switch.undo is None


def test_what_os9_saved_before_a_run_ended_is_reloaded_by_the_next(loop, play, ended):
    """Catches "as wanted" over PFC buffers that no reload has brought into force."""
    switch = device("os9")
    loop(switch.start())
    ended(lambda: "write memory" in switch.log)
    play(variables(switch))
    assert "reload" not in switch.log
    refused = play({**variables(switch), "roce_switch_reload_allowed": False})
    assert refused.code != 0 and "an earlier run was ended" in refused.output, refused.output
    again = play(variables(switch))
    assert again.code == 0 and "reload" in switch.log, again.output
