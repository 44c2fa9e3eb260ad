"""What only root may read, from the service that roles/host_settings installs on the nodes.

The service takes no input. Where a site does not have it, what needs it is not run, with that reason.
"""

from __future__ import annotations

import re
from typing import Any

from shakedown.run import service

SOCKET = "/run/shakedown/node.sock"
_TIMEOUT_S = 60.0  # an emulated node takes seconds to start the service
_HEX = re.compile(r"(?:[0-9a-f]{2}){1,256}\Z")


def ask(path: str = SOCKET, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """Return the service's document: `kernel`, `kernel_error` and `pci`. Raises OSError or ValueError."""
    document = service.ask(path, timeout_s)
    if (
        not isinstance(document.get("kernel"), list)
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
