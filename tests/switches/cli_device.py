"""A scripted switch with a command line over SSH: EOS, NX-OS, OS9 or OS10, as far as checkpoints go.

It keeps state (running, start-up, sessions, checkpoints, files, timers) and takes any line as configuration:
it does not know a vendor's grammar. It prints as the real system does (`printed.py`). What it proves is the
order of the role's steps, what a fault leaves, and that other print than what was typed is no difference.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import asyncssh

from tests.switches.printed import Tree, printed

# Which lines open a section, by depth (the last entry counts for all deeper ones).
SECTIONS = {
    "eos": ["qos profile |interface ", "uc-tx-queue "],
    "nxos": ["class-map |policy-map |interface |system qos|scheduler (job|schedule) ", "class "],
    "os9": ["dcb-map |wred-profile |qos-policy-|policy-map-|interface ", "$^"],
    "os10": ["wred |class-map |policy-map |trust dscp-map |qos-map |interface ", "class "],
}
# Lines that replace one another: the longest prefix of these that a line has.
SINGLE = ("mtu ", "bandwidth percent ", "random-detect ecn minimum", "threshold ", "priority-pgid ")


# As the vendors' manuals show one on a terminal.
LOG_LINES = {
    "eos": "Nov 23 12:00:01 leaf1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Ethernet9, changed to up",
    "nxos": "2026 Nov 23 12:00:01 leaf1 %ETHPORT-5-IF_UP: Interface Ethernet1/9 is up in mode trunk",
    "os9": "Nov 23 12:00:01: %STKUNIT0-M:CP %IFMGR-5-OSTATE_UP: Changed interface state to up: Te 1/9",
    "os10": "<165>1 2026-11-23T12:00:01Z leaf1 dn_alm 813 - - Node.1-Unit.1:PRI [event], "
    "Dell EMC (OS10) %IFM_OSTATE_UP: Interface operational state is up :ethernet1/1/9",
}


@dataclass
class Faults:
    """What goes wrong. Patterns are searched in the line as typed."""

    refuse: str = "$^"  # answered with an error
    hang: str = "$^"  # never answered
    mutate: tuple[str, str] = ("$^", "")  # stored as something else, without a word
    cut_after: str = "$^"  # the connection closes after it, and none opens for `cut_s`
    cut_s: float = 4
    too_late: bool = False  # the timer ends between the read-back and the confirmation
    never_back: bool = False  # a reload that does not end
    slow_s: float = 0  # what each line of a configuration takes
    lags: tuple[tuple[str, float], ...] = ()  # lines, and the seconds that their answer takes
    # Once the lines of `after` (`A >> B`: one after the other) were typed:
    odd: str = "$^"  # answered in words that are no known error, and not done
    more: str = "$^"  # its output ends at a pager
    chatter: str = "$^"  # a log line stands in its output
    denied: bool = False  # no login is taken any more
    after: str = ""
    restart_after: str = "$^"


@dataclass
class Device:
    """One switch. `seconds` is how long a minute of its own clock lasts."""

    nos: str
    running: Tree
    faults: Faults = field(default_factory=Faults)
    seconds: float = 120.0
    startup: Tree = field(default_factory=dict)
    files: dict[str, Tree] = field(default_factory=dict)
    # What other commands print, or what gives it.
    answers: dict[str, str | Callable[[], str]] = field(default_factory=dict)
    session: tuple[str, Tree] | None = None  # name and candidate
    undo: tuple[str, Tree] | None = None  # what a timer will bring back
    timer: asyncio.TimerHandle | None = None
    log: list[str] = field(default_factory=list)
    deaf: bool = False
    privilege: int = 15
    user: str = ""  # who left the trial that is pending, where the switch tells it
    server: asyncssh.SSHAcceptor | None = None
    port: int = 0
    clients: set[Shell] = field(default_factory=set)

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1, or on the one it had."""
        self.server = await asyncssh.create_server(
            lambda: _Login(self),
            "127.0.0.1",
            self.port,
            server_host_keys=[HOST_KEY],
            process_factory=lambda process: Shell(self, process).serve(),
            line_editor=False,
            reuse_address=True,
        )
        self.port = self.server.get_port()

    async def reload(self) -> None:
        """Go down, forget everything that was not saved, and come back."""
        if self.server:
            self.server.close()
        self.cut()
        self.running, self.session, self.undo = copy(self.startup), None, None
        if not self.faults.never_back:
            await asyncio.sleep(8)
            await self.start()

    def cut(self) -> None:
        """Close every connection."""
        for client in list(self.clients):
            client.process.channel.get_connection().abort()

    def arm(self, seconds: float, name: str) -> None:
        """Bring the present configuration back after some time, unless disarmed."""
        self.undo = (name, copy(self.running))
        self.timer = asyncio.get_running_loop().call_later(seconds, self.roll_back)

    def disarm(self) -> None:
        """Keep what is running."""
        if self.timer:
            self.timer.cancel()
        self.undo = self.timer = None

    def armed(self) -> bool:
        """Whether the faults that wait for a line have seen it."""
        return seen(self.log, self.faults.after)

    def roll_back(self) -> None:
        """Bring back what was."""
        if self.undo:
            self.running = self.undo[1]
            self.log.append("rolled back")
        self.disarm()


def seen(log: list[str], wanted: str) -> bool:
    """Whether lines were typed one after the other: `A >> B`; no pattern is always there."""
    steps = wanted.split(" >> ") if wanted else []
    for line in log:
        if steps and re.search(steps[0], line):
            del steps[0]
    return not steps


HOST_KEY = asyncssh.generate_private_key("ssh-ed25519")


class _Login(asyncssh.SSHServer):
    def __init__(self, device: Device) -> None:
        self.device = device

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        denied = self.device.faults.denied and self.device.armed()
        return (username, password) == ("admin", "admin") and not denied


class Shell:
    """One login: a place in the configuration, and the answer that a question waits for."""

    def __init__(self, device: Device, process: asyncssh.SSHServerProcess) -> None:
        self.device, self.process = device, process
        self.path: tuple[str, ...] | None = None  # None: not in configuration mode
        self.in_session = False
        self.ask: list[tuple[str, str]] = []  # questions still to come, and what happens after the last
        self.candidate: Tree | None = None  # of OS10's transaction

    async def serve(self) -> None:
        """Answer line by line until the connection ends."""
        if self.device.deaf:
            self.process.close()
            return
        self.device.clients.add(self)
        try:
            self.write("\r\n" + self.prompt())
            buffer = ""
            while data := await self.process.stdin.read(4096):
                buffer += data.replace("\r\n", "\n").replace("\r", "\n")
                while "\n" in buffer:
                    line, _, buffer = buffer.partition("\n")
                    await self.take(line.strip())
        except (asyncssh.Error, OSError, BrokenPipeError):
            pass
        finally:
            self.device.clients.discard(self)

    def write(self, text: str) -> None:
        """Send text as a terminal would."""
        self.process.stdout.write(text)

    def prompt(self) -> str:
        """Say where we are."""
        if self.path is None:
            return "leaf1#"
        mode = "-s-x" if self.in_session else ""
        return f"leaf1(config{mode}{'-sub' * len(self.path)})#"

    async def take(self, line: str) -> None:  # noqa: PLR0912  (what can go wrong)
        """One typed line."""
        device = self.device
        if self.ask:
            answer, (_, then) = line, self.ask.pop(0)
            if self.ask:
                self.write(self.ask[0][0])
            elif then == "reload" and answer == "yes":
                device.log.append("reload")
                asyncio.get_running_loop().create_task(device.reload())
            else:
                self.write("\r\n" + self.prompt())
            return
        if line:
            device.log.append(line)
        if re.search(device.faults.hang, line):
            return
        if self.path is not None:
            await asyncio.sleep(device.faults.slow_s)
        for slow, seconds in device.faults.lags:
            if device.armed() and re.search(slow, line):
                await asyncio.sleep(seconds)
        self.write(line + "\r\n")
        if device.armed() and re.search(device.faults.odd, line):
            self.write("Request declined: the subsystem is busy\r\n")
        elif re.search(device.faults.refuse, line):
            self.write("% Error: Invalid input\r\n" if device.nos.startswith("os") else "% Invalid input\r\n")
        else:
            line = re.sub(*device.faults.mutate, line)
            told = device.answers.get(line) if self.path is None else None
            told = told() if callable(told) else told
            reply = told or (self.config(line) if self.path is not None else self.command(line))
            if self.ask:
                self.write(self.ask[0][0])
                return
            lines = reply.splitlines(keepends=True)
            if device.armed() and re.search(device.faults.more, line):
                lines[len(lines) // 3 :] = ["--More--\n"]
            if device.armed() and re.search(device.faults.chatter, line):
                lines.insert(len(lines) // 2, LOG_LINES[device.nos] + "\n")
            self.write("".join(lines).replace("\n", "\r\n"))
        self.write(self.prompt())
        if line and device.armed() and re.search(device.faults.restart_after, line):
            device.faults.restart_after = "$^"
            await device.reload()
            return
        if line and device.armed() and re.search(device.faults.cut_after, line):
            device.faults.cut_after = "$^"
            device.deaf = True
            asyncio.get_running_loop().call_later(device.faults.cut_s, lambda: setattr(device, "deaf", False))
            await asyncio.sleep(0.2)
            device.cut()

    def tree(self) -> Tree:
        """The configuration that lines go into."""
        if self.candidate is not None:
            return self.candidate
        if self.in_session and self.device.session:
            return self.device.session[1]
        return self.device.running

    def command(self, line: str) -> str:  # noqa: PLR0911, PLR0912, PLR0915  (a table of commands)
        """A command outside configuration mode."""
        device = self.device
        words = line.split()
        match words:
            case ["configure", "session", name]:
                if device.session is None or device.session[0] != name:
                    device.session = (name, copy(device.running))
                self.path, self.in_session = (), True
            case ["configure", "session", name, "commit"]:
                if device.undo is None or device.undo[0] != name:
                    return "% no such session\n"
                device.disarm()
            case ["configure", "session", name, "abort"]:
                if device.undo and device.undo[0] == name:
                    device.roll_back()
                device.session = None
            case ["configure"] | ["configure", "terminal"]:
                self.path = ()
            case ["show", "configuration", "sessions", "detail", "|", "json"]:
                told = {device.session[0]: {"state": "pending"}} if device.session else {}
                if device.undo:
                    told[device.undo[0]] = {
                        "state": "pendingCommitTimer",
                        "instances": {"77": {"user": device.user}} if device.user else {},
                    }
                return json.dumps({"sessions": told}) + "\n"
            case ["show", "checkpoint", "summary"]:
                kept = [n for n in device.files if ":" not in n]
                return "".join(f"{at}) {n}:\nCreated by admin\n" for at, n in enumerate(kept, 1))
            case ["show", "scheduler", "schedule"]:
                names = [line.split()[-1] for line in device.running if line.startswith("scheduler schedule")]
                return "".join(f"Schedule Name : {n}\n---\nUser Name : {device.user}\n" for n in names)
            case ["show", "candidate-configuration"]:
                return printed(device.nos, self.tree())
            case ["show", "version", "|", "json"]:
                return '{"version": "4.34.0F", "modelName": "scripted"}\n'
            case ["show", "privilege"]:
                return f"Current privilege level is {device.privilege}\n"
            case ["show", "user-account", user]:
                role = "network-admin" if device.privilege == 15 else "network-operator"
                return f"user:{user}\n        this user account has no expiry date\n        roles:{role}\n"
            case ["dir", _]:
                return "  62277025792 bytes total (48000000000 bytes free)\n"
            case ["show", "hostname", "|", "json"]:
                return '{"hostname": "leaf1"}\n'
            case ["show", "startup-config" | "startup-configuration"]:
                return printed(device.nos, device.startup)
            case ["show", "running-config", "all"]:
                return printed(device.nos, device.running, hidden=True)
            case ["show", "running-config" | "running-configuration"]:
                shown = printed(device.nos, device.running)
                if device.faults.too_late:
                    device.roll_back()
                return shown
            case ["checkpoint", name]:
                device.files[name] = copy(device.running)
            case ["no", "checkpoint", name]:
                device.files.pop(name, None)
            case ["rollback", "running-config", "checkpoint", name]:
                if name not in device.files:
                    return "% checkpoint does not exist\n"
                device.running = copy(device.files[name])
                device.disarm()
            case ["copy", "running-config", "startup-config"] | ["write", "memory"]:
                device.startup = copy(device.running)
            case ["copy", "running-config", target]:
                device.files[target] = copy(device.running)
            case ["copy", source, "startup-config" | "config://startup.xml"]:
                device.startup = copy(device.files[source])
            case ["copy", "config://startup.xml", target]:
                device.files[target] = copy(device.startup)
            case ["start", "transaction"]:
                self.candidate = copy(device.running)
            case ["commit"]:
                assert self.candidate is not None
                device.running, self.candidate = self.candidate, None
            case ["reload"]:
                changed = device.running != device.startup
                self.ask = (
                    [("System configuration has been modified. Save? [yes/no]:", "")] if changed else []
                )
                self.ask.append(("Proceed with reload [confirm yes/no]:", "reload"))
        return ""

    def config(self, line: str) -> str:
        """A line in configuration mode."""
        device = self.device
        assert self.path is not None
        timer = re.fullmatch(r"commit timer (\d+):(\d+):(\d+)", line)
        delay = re.fullmatch(r"time start \+00:(\d+):(\d+)", line)
        if line in ("end", "abort"):
            self.path, self.in_session = None, False
        elif line == "exit":
            self.path = self.path[:-1] if self.path else None
        elif timer and device.session:
            hours, minutes, seconds = map(int, timer.groups())
            device.arm((hours * 60 + minutes + seconds / 60) * device.seconds, device.session[0])
            device.running, device.session = device.session[1], None
            self.path, self.in_session = None, False
        elif line == "commit" and device.session:
            device.running, device.session = device.session[1], None
            self.path, self.in_session = None, False
        elif line == "show session-config":
            return printed(device.nos, self.tree())
        else:
            self.set(line)
            if delay:
                job = device.running["scheduler job name shakedown-undo"]
                name = next(iter(job)).split()[-1]
                device.arm((int(delay[1]) * 60 + int(delay[2])) * device.seconds, name)
                device.undo = (name, copy(device.files[name]))
            if line.startswith("no scheduler schedule"):
                device.disarm()
        return ""

    def set(self, line: str) -> None:
        """Store, replace or remove a line."""
        assert self.path is not None
        here = self.tree()
        for above in self.path:
            here = here.setdefault(above, {})
        if line.startswith("no ") and line != "no priority":
            here.pop(line[3:], None)
            return
        prefix = next((p for p in SINGLE if line.startswith(p)), None)
        for other in [o for o in here if prefix and o.startswith(prefix) and o != line]:
            del here[other]
        here.setdefault(line, {})
        levels = SECTIONS[self.device.nos]
        if re.match(levels[min(len(self.path), len(levels) - 1)], line):
            self.path = (*self.path, line)


def copy(tree: Tree) -> Tree:
    """A copy that shares nothing."""
    return {line: copy(below) for line, below in tree.items()}
