"""A scripted switch with a Linux shell over SSH: community SONiC or Cumulus.

Commands run as they are, in a shell whose PATH begins with fake_tools.py under the names of the switch's own
tools, so Ansible's ssh connection and modules are the real ones.
"""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncssh

TOOLS = (
    "sonic-cfggen",
    "sonic-db-dump",
    "config",
    "nv",
    "systemd-run",
    "systemctl",
    "sudo",
    "vtysh",
    "lldpctl",
)


class ShellDevice:
    """One switch; `home` holds its state."""

    def __init__(self, home: Path, running: dict[str, Any], **faults: Any) -> None:
        self.home, self.cut_s = home, faults.pop("cut_s", 5.0)
        (home / "bin").mkdir(parents=True)
        (home / "etc").mkdir()
        (home / "units").mkdir()
        (home / "devices/platform/sku").mkdir(parents=True)
        (home / "devices/platform/sku/pg_profile_lookup.ini").write_text(faults.pop("lookup", ""))
        for tool in TOOLS:
            # A wrapper, not a link: the interpreter must be the one that has PyYAML.
            path = home / "bin" / tool
            script = Path(__file__).with_name("fake_tools.py")
            path.write_text(f'#!/bin/sh\nTOOL={tool} exec {sys.executable} {script} "$@"\n')
            path.chmod(0o755)
        (home / "running.json").write_text(json.dumps(running))
        (home / "etc/config_db.json").write_text(json.dumps(running))
        (home / "faults.json").write_text(json.dumps(faults))
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.key.write_private_key(home / "key")
        (home / "key").chmod(0o600)
        self.deaf = False
        self.groups: set[int] = set()  # what runs for a connection
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self.port = 0

    def running(self) -> dict[str, Any]:
        """What it runs."""
        return json.loads((self.home / "running.json").read_text())

    def startup(self) -> dict[str, Any]:
        """What it would start with."""
        return json.loads((self.home / "etc/config_db.json").read_text())

    def log(self) -> str:
        """Every command of its own that was run."""
        path = self.home / "log"
        return path.read_text() if path.exists() else ""

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        device = self

        class Login(asyncssh.SSHServer):
            def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
                if device.deaf:
                    conn.abort()
                device.connections.add(conn)

            def public_key_auth_supported(self) -> bool:
                return True

            def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
                return key.public_data == device.key.public_data

        server = await asyncssh.create_server(
            Login,
            "127.0.0.1",
            0,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            process_factory=self.serve,
            sftp_factory=True,
            encoding=None,
            line_editor=False,
        )
        self.port = server.get_port()
        self.watcher = asyncio.get_running_loop().create_task(self.watch())

    async def serve(self, process: asyncssh.SSHServerProcess) -> None:
        """Run what was asked in a shell of this switch."""
        environment = {**os.environ, "SWITCH": str(self.home)}
        environment |= {"PATH": f"{self.home / 'bin'}:{os.environ['PATH']}", "HOME": str(self.home)}
        local = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            process.command or "true",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.groups.add(local.pid)
        feeding = asyncio.create_task(pass_on(process.stdin, local.stdin))
        try:
            await asyncio.gather(pass_on(local.stdout, process.stdout), pass_on(local.stderr, process.stderr))
            code = await local.wait()
        finally:
            feeding.cancel()
            self.groups.discard(local.pid)
            if local.returncode is None:  # the test is over: with what the command started
                os.killpg(local.pid, signal.SIGKILL)
                await local.wait()
        with contextlib.suppress(OSError):  # cut meanwhile
            process.exit(code)

    def restart(self) -> None:
        """Lose every program and timer, and start with what is saved, after what runs at boot."""
        timers = {int(path.read_text()) for path in self.home.glob("*.pid")}
        for group in timers | self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for path in (*self.home.glob("*.pid"), *self.home.glob("pending.json")):
            path.unlink()
        for unit in (self.home / "units").glob("*.service"):
            said = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line)
            if Path(said["ConditionPathExists"]).exists():
                subprocess.run(shlex.split(said["ExecStart"]), check=True)
        (self.home / "running.json").write_text(json.dumps(self.startup()))

    async def watch(self) -> None:
        """Cut every connection when a tool says so, and stay deaf for a while."""
        while True:
            await asyncio.sleep(0.1)
            if (self.home / "restart").exists():
                (self.home / "restart").rename(self.home / "cut")
                self.restart()
            cut = self.home / "cut"
            if cut.exists():
                cut.unlink()
                self.deaf = True
                for connection in list(self.connections):
                    connection.abort()
                await asyncio.sleep(self.cut_s)
                self.deaf = False


async def pass_on(source: Any, sink: Any) -> None:
    """Pass on what comes as it comes, until it ends or nobody reads it any more."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    if isinstance(sink, asyncio.StreamWriter):
        sink.close()
