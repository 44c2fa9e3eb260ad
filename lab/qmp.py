"""QEMU's control socket (QMP): one connection, one command, one answer.

See docs/interop/qmp-spec.rst of QEMU.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.errors import LabError


class Qmp:
    """A control connection to one QEMU; use it as a context manager.

    Every failure, also a QEMU that is gone, is a :class:`LabError`.
    """

    def __init__(self, path: Path, *, timeout_s: float = 60.0) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
            self._reader = self._socket.makefile("rb")
            self._receive()  # the greeting
            self.command("qmp_capabilities")
        except OSError as error:
            self._socket.close()
            raise LabError(f"no answer from QEMU on {path}: {error}", fix="see lab status") from error
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """End the connection; QEMU goes on."""
        self._reader.close()
        self._socket.close()

    def __enter__(self) -> Qmp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def command(self, execute: str, /, **arguments: object) -> object:
        """Run one command and return what it returns."""
        message = {"execute": execute, **({"arguments": arguments} if arguments else {})}
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            while True:
                answer = self._receive()
                if "error" in answer:
                    raise LabError(f"QEMU refused {execute}: {answer['error'].get('desc', answer['error'])}")
                if "return" in answer:
                    return answer["return"]
                # otherwise an asynchronous event
        except OSError as error:
            raise LabError(f"QEMU on {self._path} did not finish {execute}: {error}") from error

    def human(self, line: str) -> str:
        """Run a monitor command that has no QMP form; its output is an error message or empty."""
        return str(self.command("human-monitor-command", **{"command-line": line})).strip()

    def _receive(self) -> dict[str, Any]:
        line = self._reader.readline()
        if not line:
            raise LabError(f"QEMU on {self._path} closed the connection")
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise LabError(f"QEMU on {self._path} sent something that is no QMP")
        return answer
