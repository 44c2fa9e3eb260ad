"""The machine: the only place that reads or changes it. `root` is a prefix for recorded trees."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from host_settings import arp
from host_settings.model import Action, ConfigfsWrite, Run, Value, Write, WriteFile

_TOOL_SECONDS = 60
_STA_UNSYNC = 0x0040  # include/uapi/linux/timex.h
_TOOL_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/opt/mellanox/iproute2/sbin"


class ToolError(Exception):
    """A tool or attribute that did not do what was asked: one sentence."""


@dataclass(frozen=True)
class Done:
    """How a program ended."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The last words of a program that failed."""
        lines = [line.strip() for line in f"{self.out}\n{self.err}".splitlines() if line.strip()]
        return lines[-1] if lines else f"exit status {self.status}"


class System:
    """Reads and changes one machine."""

    def __init__(self, root: str = "/", *, probes: bool = False) -> None:
        self.root = Path(root)
        # Whether to ask the network who else owns an address; that takes a second for each NIC.
        self.probes = probes
        self._environment = {
            "PATH": os.environ.get("HOST_SETTINGS_PATH") or _TOOL_PATH,
            "LC_ALL": "C",
            **({"HOST_SETTINGS_ROOT": root} if root != "/" else {}),
        }

    def path(self, path: str) -> Path:
        """The place of an absolute path under the root."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str | None:
        """A file's text without the white space around it; None if it is not there or has no value."""
        try:
            return self.path(path).read_text(errors="replace").strip()
        except OSError:
            return None

    def read_int(self, path: str) -> int | None:
        """A file's number in decimal or hexadecimal; None if it is not there or is none."""
        text = self.read(path)
        try:
            return None if text is None else int(text, 0)
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; none if it is not there."""
        try:
            return sorted(entry.name for entry in self.path(path).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is something at the path."""
        return self.path(path).exists()

    def link_name(self, path: str) -> str | None:
        """The last part of a symbolic link's target."""
        try:
            return self.path(path).readlink().name
        except OSError:
            return None

    def other_owners(self, netdev: str, address: str) -> list[str]:
        """The MACs of other machines that own this IPv4 address on a NIC's network. Raises OSError."""
        mine = {self.read(f"/sys/class/net/{name}/address") for name in self.names("/sys/class/net")}
        mac = self.read(f"/sys/class/net/{netdev}/address") or ""
        if re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", mac) is None:
            raise OSError(f"{netdev} has no Ethernet address")
        # Another NIC of this machine may answer: that is what arp_ignore is for, and no second owner.
        return [found for found in arp.owners(netdev, mac, address) if found not in mine]

    def clock(self) -> str:
        """Whether the kernel's clock is disciplined: `synchronised` or `free` (adjtimex(2))."""
        # struct timex begins with unsigned int modes, long offset, freq, maxerror, esterror, int status.
        timex = ctypes.create_string_buffer(256)
        if ctypes.CDLL(None).adjtimex(timex) < 0:
            return "unknown"
        status = int.from_bytes(timex.raw[40:44], sys.byteorder)
        return "free" if status & _STA_UNSYNC else "synchronised"

    def run(self, *argv: str) -> Done:
        """Run a program to its end. Raises ToolError if it is missing or hangs."""
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TOOL_SECONDS,
                check=False,
                env=self._environment,
            )
        except FileNotFoundError:
            raise ToolError(f"{argv[0]} is not installed") from None
        except subprocess.TimeoutExpired:
            raise ToolError(f"{' '.join(argv)} did not end within {_TOOL_SECONDS} s") from None
        return Done(done.returncode, done.stdout, done.stderr)

    def has_tool(self, name: str) -> bool:
        """Whether a program is installed."""
        folders = self._environment["PATH"].split(":")
        return any(os.access(Path(folder, name), os.X_OK) for folder in folders)

    def run_json(self, *argv: str) -> Value:
        """The JSON that a program prints. Raises ToolError if it fails or prints something else."""
        done = self.run(*argv)
        if done.status != 0:
            raise ToolError(f"{' '.join(argv)}: {done.complaint}")
        try:
            return json.loads(done.out or "[]")
        except ValueError:
            raise ToolError(f"{' '.join(argv)} printed no JSON") from None

    @contextlib.contextmanager
    def configfs_item(self, folder: str) -> Iterator[bool]:
        """Hold a configfs item: yields whether it is there, made for the while if need be."""
        made = False
        path = self.path(folder)
        if not path.is_dir() and path.parent.is_dir():
            try:
                path.mkdir()
                made = True
            except OSError:
                pass  # the device is not there: the caller finds no attribute
        try:
            yield path.is_dir()
        finally:
            if made:
                path.rmdir()

    def do(self, action: Action) -> None:
        """Make one change. Raises ToolError with the kernel's or the tool's own words."""
        try:
            if isinstance(action, Run):
                done = self.run(*action.argv)
                if done.status != 0:
                    raise ToolError(f"{action}: {done.complaint}")
            elif isinstance(action, Write):
                self._write_attribute(action.path, action.text)
            elif isinstance(action, ConfigfsWrite):
                with self.configfs_item(action.folder):
                    for name, text in action.attributes:
                        self._write_attribute(f"{action.folder}/{name}", text)
            else:
                self.write_file(action)
        except OSError as error:
            raise ToolError(f"{action}: {error.strerror}") from None

    def _write_attribute(self, path: str, text: str) -> None:
        # No O_CREAT: an attribute that does not exist is an error, never a new file.
        descriptor = os.open(self.path(path), os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
            if self.root != Path("/"):
                os.ftruncate(descriptor, len(text.encode()))
        finally:
            os.close(descriptor)

    def write_file(self, action: WriteFile, mode: int = 0o644) -> None:
        """Replace a file as a whole, or remove it: written aside, then renamed."""
        path = self.path(action.path)
        if action.text is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        aside = Path(name)
        try:
            with os.fdopen(descriptor, "w") as handle:
                handle.write(action.text)
            aside.chmod(mode)
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
