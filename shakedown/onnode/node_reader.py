"""What only root may read, from the service that roles/host_settings installs on the nodes.

The service takes no input. Where a site does not have it, what needs it is not run, with that reason.
"""

from __future__ import annotations

import json
import re
import socket
import time
from typing import Any

SOCKET = "/run/shakedown/node.sock"
_TIMEOUT_S = 60.0  # an emulated node takes seconds to start the service
_LARGEST_ANSWER = 16 << 20
_HEX = re.compile(r"(?:[0-9a-f]{2}){1,256}\Z")


def ask(path: str = SOCKET, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """Return the service's document: `kernel`, `kernel_error` and `pci`. Raises OSError or ValueError."""
    answer = bytearray()
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.settimeout(timeout_s)
        service.connect(path)
        while block := service.recv(1 << 16):
            answer += block
            if len(answer) > _LARGEST_ANSWER:
                raise ValueError("the answer is too long")
            if time.monotonic() > deadline:
                raise TimeoutError("the answer did not end in time")
    document = json.loads(answer)
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("kernel"), list)
        or not all(isinstance(line, str) for line in document["kernel"])
        or not isinstance(document.get("kernel_error"), str)
        or not isinstance(document.get("pci"), dict)
    ):
        raise ValueError("the answer is no reading of a node")
    return document


def config_spaces(path: str = SOCKET) -> dict[str, bytes]:
    """Return PCI configuration spaces by address; none where there is no service."""
    try:
        found = ask(path)["pci"]
    except (OSError, ValueError):
        return {}
    return {str(bdf): bytes.fromhex(text) for bdf, text in found.items() if _HEX.match(str(text))}
