"""SSH into the guests: the lab's own key, strict host key checking, one connection per guest and user."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lab import host
from lab.errors import LabError
from lab.image import Image
from lab.paths import LabPaths

# Escape sequences (CSI and OSC of ECMA-48) and control characters other than newline and tab.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")


def common_options(paths: LabPaths, *, share: bool = True) -> list[str]:
    """Options that every SSH client of this lab uses, the inventory's too.

    The control socket lies in the run folder, so that a restored or stopped lab can close the connections
    that do not survive it. Its name holds the user: an ordinary user's commands would else run as root.
    """
    options = [
        f"UserKnownHostsFile={paths.known_hosts}",
        "GlobalKnownHostsFile=/dev/null",
        "StrictHostKeyChecking=yes",
        "IdentitiesOnly=yes",
        "BatchMode=yes",
        "LogLevel=ERROR",
        "ServerAliveInterval=15",
        "ServerAliveCountMax=4",
    ]
    if share:
        options += ["ControlMaster=auto", "ControlPersist=120", f"ControlPath={paths.run}/cm-%p%r"]
    else:
        options += ["ControlMaster=no", "ControlPath=none"]
    return [word for option in options for word in ("-o", option)]


def ssh_argv(
    paths: LabPaths, image: Image, port: int, command: Sequence[str] = (), *, share: bool = True
) -> list[str]:
    """The SSH command line for a guest.  Each word of ``command`` reaches the guest as it is."""
    argv = [host.program("ssh"), "-F", "/dev/null", *common_options(paths, share=share)]
    argv += ["-i", str(image.key), "-p", str(port), "root@127.0.0.1"]
    return argv + (["--", shlex.join(command)] if command else [])


def run(
    machine: str,
    command: Sequence[str],
    argv_of: Callable[[str, Sequence[str]], list[str]],
    *,
    timeout_s: float,
    input_text: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` on a machine that ``argv_of`` leads into; see :meth:`lab.cluster.Lab.ssh`."""
    if not command:
        raise LabError("no command given", fix="name one, or use ssh_argv for a shell")
    try:
        return subprocess.run(
            argv_of(machine, command),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s,
            input=input_text,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{command[0]} on {machine} took longer than {timeout_s:g} s") from error


def write_known_hosts(paths: LabPaths, image: Image, ports: Iterable[int]) -> None:
    """Let SSH know the guests' key on every forwarded port."""
    key = image.host_key()
    aside = paths.known_hosts.with_suffix(".new")
    aside.write_text("".join(f"[127.0.0.1]:{port} {key}\n" for port in ports))
    aside.replace(paths.known_hosts)


def answers(paths: LabPaths, image: Image, port: int, command: Sequence[str], *, timeout_s: float) -> bool:
    """Whether the guest runs ``command`` successfully over a fresh connection within ``timeout_s``."""
    try:
        done = subprocess.run(
            ssh_argv(paths, image, port, command, share=False),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def close_connections(paths: LabPaths) -> None:
    """End the shared connections: their guests are gone or have forgotten them."""
    for path in paths.run.glob("cm-*"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [host.program("ssh"), "-F", "/dev/null", "-o", f"ControlPath={path}", "-O", "exit", "lab"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=5,
            )
        path.unlink(missing_ok=True)


def ports_free(count: int) -> list[int]:
    """``count`` different free TCP ports on 127.0.0.1."""
    held = []
    try:
        for _ in range(count):
            s = socket.socket()
            held.append(s)
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log, without the control characters that a console writes."""
    try:
        data = path.read_bytes()[-64_000:]
    except FileNotFoundError:
        return ""
    text = _CONTROL.sub("", data.decode(errors="replace"))
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
