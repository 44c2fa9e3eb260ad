"""Two runs at one switch at once, from one machine or from two: the second is refused and does nothing."""

import asyncio
import re
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.switches import test_rest
from tests.switches.cli_device import Shell, seen
from tests.switches.rest_device import RestDevice
from tests.switches.test_cli import before, device, variables
from tests.switches.test_shell import APPLY, RUNNING, made  # noqa: F401  (made: a fixture)

# The lines after which the first run is held, until the second has ended.
STEPS = {
    "eos": ["^service-profile", "^commit timer"],
    "nxos": ["^checkpoint ", "^service-policy type qos"],
    "os9": ["^service-policy|^dcb-map"],
    "os10": ["^commit$"],
}
TYPED = re.compile(r"^(conf|copy|write|checkpoint|rollback|no |start|commit|delete)")


@pytest.fixture
def held(monkeypatch):
    """Hold what is asked next, or this, once the lines of a step were typed; for one connection."""
    reached, go = threading.Event(), threading.Event()
    took = Shell.take

    def at(step, next_line="."):
        async def take(self, line):
            if re.search(next_line, line) and seen(self.device.log, step) and not reached.is_set():
                reached.set()
                while not go.is_set():
                    await asyncio.sleep(0.1)
            await took(self, line)

        monkeypatch.setattr(Shell, "take", take)
        return reached, go

    yield at
    go.set()


def beside(first, second, reached, go):
    """Run one play, and another while the first is held."""
    with ThreadPoolExecutor() as pool:
        one = pool.submit(first)
        try:
            while not reached():
                assert not one.done(), one.result().output
                time.sleep(0.1)
            two = second()
        finally:
            go()
        return one.result(), two


# No time-out while the first run is held.
LONG = {"roce_switch_reboot_timeout_s": 600, "roce_switch_confirm_timeout_s": 600}
ONE = {"place": "a"}, {"place": "b"}
TWO = {"place": "a", "machine": "controller-a"}, {"place": "b", "machine": "controller-b"}


def refused(result, who):
    """Whether a run was refused because of another, and by name."""
    assert result.code != 0 and result.changed == 0, result.output
    assert re.search(who, result.output), result.output


# Where a trial can be seen on the switch, that refuses a run elsewhere; OS9 and OS10 have none.
CASES = [("os9", ONE), ("os10", ONE), *((nos, TWO) for nos in STEPS)]


@pytest.mark.parametrize(
    ("nos", "step", "controllers"), [(nos, step, who) for nos, who in CASES for step in STEPS[nos]]
)
def test_the_second_run_on_a_command_line_is_refused(nos, step, controllers, loop, play, held):
    """Catches a trial of a run that still runs taken up, confirmed, saved or undone by another."""
    switch = device(nos)
    switch.seconds = 3600
    loop(switch.start())
    reached, go = held(step)
    given = {**variables(switch), "ansible_command_timeout": 600}
    typed = []

    def second():
        at = len(switch.log)
        result = play(given, **controllers[1])
        typed.extend(line for line in switch.log[at:] if TYPED.match(line))
        return result

    one, two = beside(lambda: play(given, **controllers[0]), second, reached.is_set, go.set)
    told = "-controller-a" if nos in ("eos", "nxos") else "is not saved"  # OS9 and OS10 have no trial to see
    refused(two, r"process \d+ of root" if controllers is ONE else told)
    assert typed == [], two.output
    assert one.code == 0, one.output
    assert switch.startup == switch.running != before(nos) and switch.undo is None


@pytest.mark.parametrize(("nos", "controllers"), [("sonic", ONE), ("sonic", TWO), ("cumulus", TWO)])
def test_the_second_run_on_a_shell_is_refused(nos, controllers, made, play):  # noqa: F811
    """Catches the same where the timer is systemd's, or NVUE's."""
    switch, given, extra = made(nos, minute_s=3600)
    given |= LONG
    hold = switch.home / "hold"
    hold.write_text(APPLY[nos])

    def second():
        own = {**given, "ansible_control_path_dir": tempfile.mkdtemp(prefix="s")}
        return play(own, *extra, **controllers[1])

    first = lambda: play(given, *extra, **controllers[0])  # noqa: E731
    one, two = beside(first, second, (switch.home / "held").exists, hold.unlink)
    refused(two, r"process \d+ of root" if controllers is ONE else "controller-a")
    assert len(re.findall(f"(?m)^{APPLY[nos]}", switch.log())) == 1, switch.log()
    assert one.code == 0, one.output
    assert switch.startup() == switch.running() != RUNNING[nos]
    assert not list(switch.home.glob("*.pid")), "a timer is still armed"


def test_a_run_that_read_before_another_changed_changes_nothing(loop, play, held):
    """Catches what another run brought, undone as this one's because it stands as wanted."""
    switch = device("eos")
    switch.seconds = 3600
    loop(switch.start())
    reached, go = held("", "^configure session")
    given = {**variables(switch), "ansible_command_timeout": 600}
    one, two = beside(lambda: play(given, **TWO[0]), lambda: play(given, **TWO[1]), reached.is_set, go.set)
    assert two.code == 0 and switch.startup == switch.running != before("eos"), two.output
    assert one.code != 0 and "somebody else changed meanwhile" in one.output, one.output
    assert "Nothing of this run was applied." in one.output, one.output
    assert switch.undo is None and switch.session is None


@pytest.mark.parametrize("nos", RUNNING)
def test_a_run_that_read_before_another_changed_a_shell_changes_nothing(nos, made, play):  # noqa: F811
    """Catches the same there."""
    switch, given, extra = made(nos, minute_s=3600)
    given |= LONG
    hold = switch.home / "hold"
    hold.write_text({"sonic": "is-system-running", "cumulus": "^nv config apply --help"}[nos])

    def second():
        own = {**given, "ansible_control_path_dir": tempfile.mkdtemp(prefix="s")}
        return play(own, *extra, **TWO[1])

    first = lambda: play(given, *extra, **TWO[0])  # noqa: E731
    one, two = beside(first, second, (switch.home / "held").exists, hold.unlink)
    assert two.code == 0, two.output
    assert one.code != 0 and "somebody else changed meanwhile" in one.output, one.output
    assert "Nothing of this run was applied." in one.output, one.output
    assert switch.startup() == switch.running() != RUNNING[nos]
    assert [path.name for path in (switch.home / "etc").iterdir()] == ["config_db.json"]


def test_the_second_run_on_enterprise_sonic_is_refused(tmp_path, play, monkeypatch):
    """Catches a way back that starts from another run's half."""
    switch = RestDevice(tmp_path, test_rest.PORTS)
    reached, go = threading.Event(), threading.Event()
    reboot = switch.reboot

    def held():
        reached.set()
        go.wait()
        reboot()

    monkeypatch.setattr(switch, "reboot", held)
    given = test_rest.variables(switch)
    one, two = beside(lambda: play(given, place="a"), lambda: play(given, place="b"), reached.is_set, go.set)
    refused(two, r"process \d+ of root")
    assert one.code == 0 and switch.boots == 1, one.output
